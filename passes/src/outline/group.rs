//! Which operations share a kernel.

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::access::{Access, fold_axes};
use smallvec::SmallVec;

use super::views::{self, Place, is_one, is_view};

/// A kernel in the making.
#[derive(Clone, Debug)]
pub struct Group {
    /// Operations by number, in order; no views.
    pub ops: Vec<usize>,
    core: Core,
    /// The groups whose results it reads.
    needs: SmallVec<[usize; 4]>,
}

/// What decides how the kernel runs, and so what may join it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Core {
    /// Loops over a space; folds go over its last axes, from `rows` on.
    Loops { space: Vec<Dim>, rows: Option<usize> },
    /// A contraction with what is done to its result.
    Contraction { space: Vec<Dim> },
    /// Runs by itself.
    Alone,
}

/// The groups in an order in which they can run.
///
/// Errors: operations without loops; unknown ranks.
pub fn group(function: &Function) -> Result<Vec<Group>> {
    let mut grouping = Grouping::new(function);
    for at in 0..function.ops.len() {
        grouping.check(at)?;
        if !is_view(function, &function.ops[at]) {
            grouping.place(at);
        }
    }
    Ok(grouping.ordered())
}

struct Grouping<'f> {
    function: &'f Function,
    definitions: Vec<Option<u32>>,
    /// How many operations that are no views read each value, results of the function included.
    readers: Vec<u32>,
    groups: Vec<Option<Group>>,
    /// By operation.
    of: Vec<Option<usize>>,
}

/// Literals too large to be part of the code are memory that kernels read.
fn is_literal(op: &Operation) -> bool {
    op.op.access == Access::Literal
}

/// A value that a kernel reads, behind the views it is read through.
struct Source {
    /// The operation that makes it.
    op: usize,
    /// Where its axes are in the reader's space, if they are in line with it.
    places: Option<Vec<Place>>,
}

impl<'f> Grouping<'f> {
    fn new(function: &'f Function) -> Grouping<'f> {
        let mut grouping = Grouping {
            function,
            definitions: function.definitions(),
            readers: vec![0; function.values.len()],
            groups: Vec::new(),
            of: vec![None; function.ops.len()],
        };
        for op in function.ops.iter().filter(|op| !is_view(function, op)) {
            for &operand in &op.operands {
                grouping.count(operand);
            }
        }
        for result in &function.results {
            // A result is read by the caller too: it is never computed only inside a kernel.
            grouping.count(result.value);
            grouping.count(result.value);
        }
        grouping
    }

    fn count(&mut self, value: Value) {
        self.readers[value.index()] += 1;
        if let Some(at) = self.definitions[value.index()] {
            let op = &self.function.ops[at as usize];
            if is_view(self.function, op) {
                let operands = op.operands.clone();
                operands.into_iter().for_each(|operand| self.count(operand));
            }
        }
    }

    fn check(&self, at: usize) -> Result<()> {
        let op = &self.function.ops[at];
        if let Kind::Call | Kind::Composite = op.op.kind {
            return Diagnostic::new(format!("native code has no loops for `{}`", op.op.name)).err();
        }
        for value in op.results() {
            self.function.ty(value).shape.need_rank()?;
        }
        Ok(())
    }

    /// The operations whose results a value is made of, behind views.
    fn sources(&self, value: Value, places: Option<Vec<Place>>, out: &mut Vec<Source>) {
        let Some(at) = self.definitions[value.index()] else {
            return;
        };
        let op = &self.function.ops[at as usize];
        if is_literal(op) && !is_view(self.function, op) {
            return;
        }
        if !is_view(self.function, op) {
            out.push(Source { op: at as usize, places });
            return;
        }
        let inner = places.and_then(|places| views::through(self.function, op, &places));
        for &operand in &op.operands {
            self.sources(operand, inner.clone(), out);
        }
    }

    /// The sources of an operation whose result has the axes of `space` at `places`.
    fn read(&self, op: &Operation, places: &[Place]) -> Vec<Source> {
        let mut sources = Vec::new();
        for &operand in &op.operands {
            let own = match op.op.kind {
                Kind::Elementwise => Some(self.broadcast(operand, places)),
                Kind::Reduce if matches!(op.op.access, Access::Fold(_)) => {
                    Some(axes(self.dims(operand)))
                }
                _ => None,
            };
            self.sources(operand, own, &mut sources);
        }
        sources
    }

    /// The places of an operand that broadcasts to a result with these.
    fn broadcast(&self, operand: Value, places: &[Place]) -> Vec<Place> {
        let dims = self.dims(operand);
        let lead = places.len() - dims.len();
        let place = |(i, dim): (usize, &Dim)| match is_one(dim) {
            true => Place::One,
            false => places[lead + i],
        };
        dims.iter().enumerate().map(place).collect()
    }

    fn dims(&self, value: Value) -> &'f [Dim] {
        &self.function.ty(value).shape.dims
    }

    /// Puts an operation into a group: one of its operands' where it fits, else its own.
    fn place(&mut self, at: usize) {
        let function = self.function;
        let op = &function.ops[at];
        let core = self.core(op);
        let natural: Vec<Place> = self.natural(&core, op);
        let sources = self.read(op, &natural);
        let mut needs: SmallVec<[usize; 4]> = SmallVec::new();
        for source in &sources {
            let group = self.of[source.op].expect("operands are placed before their readers");
            if !needs.contains(&group) {
                needs.push(group);
            }
        }
        let own = self.groups.len();
        self.groups.push(Some(Group { ops: vec![at], core, needs: needs.clone() }));
        self.of[at] = Some(own);
        // The latest first: it has the most in common with what comes.
        needs.sort_unstable_by(|a, b| b.cmp(a));
        for producer in needs {
            let current = self.of[at].expect("it was just placed");
            if producer != current && self.groups[producer].is_some() {
                self.try_merge(producer, current);
            }
        }
    }

    fn core(&self, op: &Operation) -> Core {
        let result = self.dims(op.result()).to_vec();
        match op.op.access {
            Access::Fold(_) => match self.fold_rows(op).flatten() {
                Some(rows) => {
                    let space = self.dims(op.operands[0]).to_vec();
                    Core::Loops { space, rows: Some(rows) }
                }
                None => Core::Loops { space: result, rows: None },
            },
            Access::Contract => Core::Contraction { space: result },
            Access::RunningSum
            | Access::Sort { .. }
            | Access::ScatterAdd
            | Access::ScatterAddAlong
            | Access::Find { .. }
            | Access::KeySplit
            | Access::KeyFold => Core::Alone,
            _ => Core::Loops { space: result, rows: None },
        }
    }

    /// Where the rows of a fold end, if it goes over its last axes; `None` for other operations.
    fn fold_rows(&self, op: &Operation) -> Option<Option<usize>> {
        let Access::Fold(_) = op.op.access else {
            return None;
        };
        let operand = op.operands[0];
        let (from, to) = (self.function.ty(operand), self.function.ty(op.result()));
        let axes = fold_axes(op.op, &op.attrs, from, to);
        Some(trailing(self.dims(operand), &axes.folded))
    }

    /// The places of the operation's own result in the space of its core.
    fn natural(&self, core: &Core, op: &Operation) -> Vec<Place> {
        match core {
            Core::Loops { rows: Some(_), .. } => Vec::new(),
            _ => axes(self.dims(op.result())),
        }
    }

    /// Joins the group of an operand and the one that reads it, where that is right and of use.
    fn try_merge(&mut self, producer: usize, reader: usize) {
        let core = self.joined(producer, reader).or_else(|| self.absorbed(producer, reader));
        let Some(core) = core else {
            return;
        };
        if self.makes_cycle(producer, reader) {
            return;
        }
        let taken = self.groups[producer].take().expect("groups that merge are there");
        let group = self.groups[reader].as_mut().expect("groups that merge are there");
        group.core = core;
        group.ops.extend(&taken.ops);
        group.ops.sort_unstable();
        group.needs.extend(taken.needs);
        group.needs.sort_unstable();
        group.needs.dedup();
        group.needs.retain(|g| *g != producer && *g != reader);
        for op in taken.ops {
            self.of[op] = Some(reader);
        }
        for other in self.groups.iter_mut().flatten() {
            if other.needs.contains(&producer) {
                other.needs.retain(|g| *g != producer);
                if !other.needs.contains(&reader) {
                    other.needs.push(reader);
                }
            }
        }
    }

    /// The core of both, where they go over one space and what is read is in line with it.
    fn joined(&self, producer: usize, reader: usize) -> Option<Core> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        let core = match (&a.core, &b.core) {
            (Core::Loops { space: s, rows: r }, Core::Loops { space: t, rows: q }) => {
                let (space, rows) = common_space(s, *r, t, *q)?;
                Core::Loops { space, rows }
            }
            (Core::Contraction { space: s }, Core::Loops { space: t, rows: None }) if s == t => {
                a.core.clone()
            }
            _ => return None,
        };
        self.in_line(a, b, &core).then_some(core)
    }

    /// Whether what the reader's operations read of the producer stands where the space has it.
    fn in_line(&self, producer: &Group, reader: &Group, core: &Core) -> bool {
        let (space, rows) = match core {
            Core::Loops { space, rows } => (space, *rows),
            Core::Contraction { space } => (space, None),
            Core::Alone => return false,
        };
        let fits = |op: &Operation| {
            let stands = self.stand(op, space, rows);
            let places = stands.clone().unwrap_or_else(|| axes(self.dims(op.result())));
            let sources = self.read(op, &places);
            let mut read = sources.iter().filter(|s| producer.ops.contains(&s.op)).peekable();
            let ours = read.peek().is_none() || stands.is_some();
            ours && read.all(|source| {
                let own = self.stand(&self.function.ops[source.op], space, rows);
                own.is_some() && own == source.places
            })
        };
        reader.ops.iter().all(|&op| fits(&self.function.ops[op]))
    }

    /// Where the axes of an operation's result are in a space: all of it, or its rows with or
    /// without the folded dims.
    fn stand(&self, op: &Operation, space: &[Dim], rows: Option<usize>) -> Option<Vec<Place>> {
        let dims = self.dims(op.result());
        match self.fold_rows(op) {
            Some(own) if own != rows || (own.is_some() && self.dims(op.operands[0]) != space) => {
                return None;
            }
            Some(Some(_)) => {}
            _ if dims == space => return Some(axes(dims)),
            _ => {}
        }
        let rows = rows?;
        let front = &space[..rows];
        let rest = dims.get(rows..)?;
        let fits = dims[..rows] == *front
            && (rest.is_empty() || rest.len() == space.len() - rows)
            && rest.iter().all(is_one);
        fits.then(|| axes(dims))
    }

    /// The reader's core, where the producer can be computed wherever the reader needs it.
    fn absorbed(&self, producer: usize, reader: usize) -> Option<Core> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        let Core::Loops { space, rows: None } = &a.core else {
            return None;
        };
        let folds = |g: &Group| {
            g.ops.iter().any(|&op| matches!(self.function.ops[op].op.access, Access::Fold(_)))
        };
        let private = a.ops.iter().all(|&op| self.is_private(op, a, b));
        let Core::Loops { space: wide, .. } = &b.core else {
            return None;
        };
        let (small, large) = (count(space), count(wide));
        let repeats = match (small.as_const(), large.as_const()) {
            (Some(small), Some(large)) => small > 0 && large > small,
            _ => small != large,
        };
        let cheap = !repeats || a.ops.iter().all(|&op| self.is_cheap(op));
        (!folds(a) && private && cheap).then(|| b.core.clone())
    }

    /// Whether only the two groups read it, and the reader but once.
    fn is_private(&self, op: usize, own: &Group, reader: &Group) -> bool {
        let value = self.function.ops[op].result();
        let inside = |group: &Group| {
            let mut count = 0;
            for &op in &group.ops {
                let mut sources = Vec::new();
                for &operand in &self.function.ops[op].operands {
                    self.sources(operand, None, &mut sources);
                }
                count +=
                    sources.iter().filter(|s| self.function.ops[s.op].result() == value).count();
            }
            count as u32
        };
        let read = inside(reader);
        read <= 1 && inside(own) + read >= self.readers[value.index()]
    }

    /// Whether computing it twice costs less than writing and reading it.
    fn is_cheap(&self, op: usize) -> bool {
        let op = &self.function.ops[op];
        let simple = |node: &mithril_ir::scalar::expr::Node| match node {
            mithril_ir::scalar::expr::Node::Prim(prim, _) => prim.is_cheap(),
            _ => true,
        };
        match mithril_ir::op::expr(op.op) {
            Some(expr) => expr.nodes().iter().all(simple),
            None => op.op.kind == Kind::Index,
        }
    }

    /// Whether, if the two were one, it would need its own result through a third.
    fn makes_cycle(&self, producer: usize, reader: usize) -> bool {
        let needs = |g: usize| self.groups[g].iter().flat_map(|g| g.needs.iter().copied());
        let third = needs(reader).filter(|&g| g != producer).any(|g| self.reaches(g, producer));
        third || self.reaches(producer, reader)
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.groups.len()];
        let mut open = vec![from];
        while let Some(group) = open.pop() {
            if group == to {
                return true;
            }
            if !std::mem::replace(&mut seen[group], true) {
                open.extend(self.groups[group].iter().flat_map(|g| g.needs.iter().copied()));
            }
        }
        false
    }

    /// The groups behind those that they need, otherwise as their first operations stand.
    fn ordered(self) -> Vec<Group> {
        let mut order: Vec<usize> =
            (0..self.groups.len()).filter(|&g| self.groups[g].is_some()).collect();
        order.sort_by_key(|&g| self.groups[g].as_ref().map(|g| g.ops[0]));
        let mut out = Vec::with_capacity(order.len());
        let mut done = vec![false; self.groups.len()];
        let mut groups = self.groups;
        for group in order {
            visit(group, &mut groups, &mut done, &mut out);
        }
        out
    }
}

fn visit(at: usize, groups: &mut [Option<Group>], done: &mut [bool], out: &mut Vec<Group>) {
    let mut open = vec![at];
    while let Some(&group) = open.last() {
        if done[group] {
            open.pop();
            continue;
        }
        let waiting = groups[group].iter().flat_map(|g| g.needs.iter().copied());
        let waiting: Vec<usize> = waiting.filter(|&g| !done[g]).collect();
        if waiting.is_empty() {
            done[group] = true;
            open.pop();
            out.extend(groups[group].take());
        }
        open.extend(waiting);
    }
}

fn axes(dims: &[Dim]) -> Vec<Place> {
    let place = |(i, dim): (usize, &Dim)| if is_one(dim) { Place::One } else { Place::Axis(i) };
    dims.iter().enumerate().map(place).collect()
}

fn count(dims: &[Dim]) -> Dim {
    dims.iter().cloned().product()
}

/// The first of the folded axes, where they are the last ones and there are any.
fn trailing(dims: &[Dim], folded: &[bool]) -> Option<usize> {
    let rows = folded.iter().position(|f| *f)?;
    let rest = folded[rows..].iter().zip(&dims[rows..]);
    rest.clone().all(|(f, dim)| *f || is_one(dim)).then_some(rows)
}

/// The space that two groups of loops can share, and where its rows end.
fn common_space(
    s: &[Dim],
    r: Option<usize>,
    t: &[Dim],
    q: Option<usize>,
) -> Option<(Vec<Dim>, Option<usize>)> {
    let rows_of = |narrow: &[Dim], space: &[Dim], rows: usize| {
        let rest = narrow.get(rows..)?;
        let fits = narrow[..rows] == space[..rows]
            && (rest.is_empty() || rest.len() == space.len() - rows)
            && rest.iter().all(is_one);
        fits.then(|| (space.to_vec(), Some(rows)))
    };
    match (r, q) {
        (Some(a), Some(b)) => (s == t && a == b).then(|| (s.to_vec(), r)),
        _ if s == t => Some((s.to_vec(), r.or(q))),
        (Some(rows), None) => rows_of(t, s, rows),
        (None, Some(rows)) => rows_of(s, t, rows),
        (None, None) => None,
    }
}
