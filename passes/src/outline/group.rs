//! Decides which operations share a kernel.

mod bounds;
mod column_sum;
mod copies;
mod merge;
mod order;
mod recomputed;
mod schedule;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::access::{Access, Constant, Random};
use mithril_ir::order::needed_first;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::library::{Library, LibraryKernel};
use order::Order;

use super::is_call;
use super::schedule::{Read, reduced_rows};
use super::views::{self, SpaceAxis, is_one, is_view};

/// A kernel under construction.
#[derive(Clone, Debug)]
pub struct Group {
    /// Indices of the operations in this group, in program order. Views are not listed.
    pub ops: Vec<usize>,
    core: Core,
    /// Column sums (see [`column_sum`]) that are accumulated during the same pass over the space.
    column_sums: Vec<usize>,
    /// The values it reads, looking through views; sorted.
    inputs: Vec<Value>,
    /// The work per element, in simple operations.
    work: usize,
    /// Whether it has reached the maximum size, so that nothing may join it.
    full: bool,
}

/// The loop structure of the kernel, which decides what may join it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Core {
    /// Loops over a space. Reductions go over its last axes, from `rows` on.
    Loops { space: Vec<Dim>, rows: Option<usize> },
    /// A contraction and its epilogue.
    Contraction { space: Vec<Dim>, reads: [Read; 2] },
    /// Loops that no other operation may join.
    Separate { space: Vec<Dim> },
    /// A library kernel, or a call.
    Library,
}

/// The groups in an order in which they can run.
///
/// Errors: operations without loops; unknown ranks.
pub fn group(function: &Function, library: Library) -> Result<Grouped> {
    let mut grouping = Grouping::new(function, library);
    for at in 0..function.ops.len() {
        grouping.check(at)?;
        if !grouping.is_view(at) && !is_literal(&function.ops[at]) {
            grouping.add_operation(at);
        }
    }
    let (views, windowed) = (grouping.views.clone(), grouping.windowed.clone());
    Ok(Grouped { views, windowed, groups: grouping.ordered() })
}

/// The groups of a function.
pub struct Grouped {
    pub groups: Vec<Group>,
    /// By operation: whether every kernel that reads its result recomputes it.
    pub views: Vec<bool>,
    /// See [`views::windowed`].
    pub windowed: Vec<bool>,
}

struct Grouping<'f> {
    function: &'f Function,
    library: Library,
    definitions: Vec<Option<u32>>,
    /// The number of non-view operations that read each value; results of the function count as
    /// reads.
    readers: Vec<u32>,
    groups: Vec<Option<Group>>,
    /// The group of each operation.
    group_of: Vec<Option<usize>>,
    /// By operation: whether every kernel that reads its result recomputes it.
    views: Vec<bool>,
    /// By value: whether each of its elements is read at several positions of a window.
    windowed: Vec<bool>,
    order: Order,
    /// Operations of library kernels that can compute several results, by their first operands.
    shared: FxHashMap<Value, Vec<usize>>,
}

/// Whether the operation is a literal. Kernels read it from memory if it is too large to be part of
/// the code.
fn is_literal(op: &Operation) -> bool {
    matches!(op.op.access, Access::Constant(Constant::Literal))
}

/// A value that a kernel reads, looking through views.
struct Source {
    /// The operation that computes it.
    op: usize,
    /// For each axis of its result, the axis of the reader's space; `None` if not aligned with it.
    alignment: Option<Vec<SpaceAxis>>,
}

impl<'f> Grouping<'f> {
    fn new(function: &'f Function, library: Library) -> Grouping<'f> {
        let mut grouping = Grouping {
            function,
            library,
            definitions: function.definitions(),
            readers: vec![0; function.values.len()],
            groups: Vec::new(),
            group_of: vec![None; function.ops.len()],
            views: function.ops.iter().map(|op| is_view(function, op)).collect(),
            windowed: views::windowed(function),
            order: Order::default(),
            shared: FxHashMap::default(),
        };
        grouping.find_copies();
        grouping.find_recomputed();
        grouping.bound_views();
        for (at, op) in function.ops.iter().enumerate() {
            if !grouping.is_view(at) {
                op.operands.iter().for_each(|&operand| grouping.count(operand));
            }
        }
        for result in &function.results {
            // A result is read by the caller as well, so it must never be computed only inside a
            // kernel: count it twice.
            grouping.count(result.value);
            grouping.count(result.value);
        }
        grouping
    }

    fn is_view(&self, at: usize) -> bool {
        self.views[at]
    }

    fn count(&mut self, value: Value) {
        self.readers[value.index()] += 1;
        if let Some(at) = self.definitions[value.index()] {
            let op = &self.function.ops[at as usize];
            if self.is_view(at as usize) {
                let operands = op.operands.clone();
                operands.into_iter().for_each(|operand| self.count(operand));
            }
        }
    }

    fn check(&self, at: usize) -> Result<()> {
        let op = &self.function.ops[at];
        let fits = |kernel: &LibraryKernel| (kernel.fits)(self.function, op);
        let kernel = (self.library)(op).is_some_and(fits) || is_call(op);
        if let (false, Kind::Call | Kind::Composite) = (kernel, op.op.kind) {
            return Diagnostic::of(
                ErrorKind::Native,
                format!("native code has no loops for `{}`", op.op.name),
            )
            .err();
        }
        for value in op.results() {
            self.function.ty(value).shape.need_rank()?;
        }
        Ok(())
    }

    /// Collects the operations that compute a value, looking through views.
    fn sources(&self, value: Value, alignment: Option<Vec<SpaceAxis>>, out: &mut Vec<Source>) {
        let Some(at) = self.definitions[value.index()] else {
            return;
        };
        let op = &self.function.ops[at as usize];
        if is_literal(op) && !self.is_view(at as usize) {
            return;
        }
        if !self.is_view(at as usize) {
            out.push(Source { op: at as usize, alignment });
            return;
        }
        let inner = alignment.and_then(|alignment| views::through(self.function, op, &alignment));
        for &operand in &op.operands {
            self.sources(operand, inner.clone(), out);
        }
    }

    /// The sources of an operation whose result has this alignment with the space.
    fn read(&self, op: &Operation, alignment: &[SpaceAxis]) -> Vec<Source> {
        let mut sources = Vec::new();
        for &operand in &op.operands {
            let own = match op.op.kind {
                Kind::Elementwise => Some(self.broadcast(operand, alignment)),
                Kind::Reduce if matches!(op.op.access, Access::Fold(_)) => {
                    Some(axes(self.dims(operand)))
                }
                _ => None,
            };
            self.sources(operand, own, &mut sources);
        }
        sources
    }

    /// The alignment of an operand that broadcasts to a result with this alignment.
    fn broadcast(&self, operand: Value, alignment: &[SpaceAxis]) -> Vec<SpaceAxis> {
        let dims = self.dims(operand);
        let lead = alignment.len() - dims.len();
        let place = |(i, dim): (usize, &Dim)| match is_one(dim) {
            true => SpaceAxis::One,
            false => alignment[lead + i],
        };
        dims.iter().enumerate().map(place).collect()
    }

    fn dims(&self, value: Value) -> &'f [Dim] {
        &self.function.ty(value).shape.dims
    }

    /// Puts an operation into the group of one of its operands if it fits, otherwise into a new
    /// one.
    fn add_operation(&mut self, at: usize) {
        let function = self.function;
        let op = &function.ops[at];
        let core = self.core(op);
        let natural_alignment: Vec<SpaceAxis> = self.natural_alignment(&core, op);
        let sources = self.read(op, &natural_alignment);
        let mut needs: SmallVec<[usize; 4]> = SmallVec::new();
        for source in &sources {
            let group =
                self.group_of[source.op].expect("operands are grouped before their readers");
            if !needs.contains(&group) {
                needs.push(group);
            }
        }
        let own = self.groups.len();
        let (ops, column_sums, inputs) = (vec![at], vec![], self.inputs(at));
        let work = self.work(at);
        self.groups.push(Some(Group { ops, core, column_sums, inputs, work, full: false }));
        self.order.add(needs.to_vec());
        self.group_of[at] = Some(own);
        if let Some(other) = self.shared_kernel(at) {
            self.merge(other, own, Core::Library, None);
        }
        // Tries the latest producer first: it has most in common with the operations that follow.
        needs.sort_unstable_by(|a, b| b.cmp(a));
        for producer in needs {
            let current = self.group_of[at].expect("it has just been added");
            if producer != current && self.groups[producer].is_some() {
                self.try_merge(producer, current);
            }
        }
    }

    /// The group of a library kernel whose launch can compute this result as well.
    fn shared_kernel(&mut self, at: usize) -> Option<usize> {
        let op = &self.function.ops[at];
        let kernel = (self.library)(op)?;
        let known = self.shared.entry(*op.operands.first()?).or_default();
        let mut before = known.iter().rev();
        let found = before.find(|&&other| (kernel.shares)(op, &self.function.ops[other])).copied();
        known.push(at);
        found.and_then(|other| self.group_of[other])
    }

    fn core(&self, op: &Operation) -> Core {
        if is_call(op) || (self.library)(op).is_some() {
            return Core::Library;
        }
        let result = self.dims(op.result()).to_vec();
        match op.op.access {
            Access::Fold(_) => match reduced_rows(self.function, &self.windowed, op) {
                Some(rows) => {
                    let space = self.dims(op.operands[0]).to_vec();
                    Core::Loops { space, rows: Some(rows) }
                }
                None => Core::Loops { space: result, rows: None },
            },
            Access::Contract => Core::Contraction { space: result, reads: self.reads(op) },
            Access::Random(Random::KeySplit) | Access::Random(Random::KeyFold) => {
                Core::Separate { space: result }
            }
            Access::Meaning
            | Access::Constant(_)
            | Access::View(_)
            | Access::Pieces(_)
            | Access::Gather(_)
            | Access::Scatter(_)
            | Access::Random(_)
            | Access::Library(_) => Core::Loops { space: result, rows: None },
        }
    }

    /// The alignment of the operation's result with the space of its core.
    fn natural_alignment(&self, core: &Core, op: &Operation) -> Vec<SpaceAxis> {
        match core {
            Core::Loops { rows: Some(_), .. } => Vec::new(),
            _ => axes(self.dims(op.result())),
        }
    }

    /// The groups in topological order. Groups that are not ordered by it follow the order of their
    /// first operations.
    fn ordered(mut self) -> Vec<Group> {
        let mut live: Vec<usize> =
            (0..self.groups.len()).filter(|&g| self.groups[g].is_some()).collect();
        live.sort_by_key(|&g| self.groups[g].as_ref().map(|g| g.ops[0]));
        let mut position = vec![None; self.groups.len()];
        live.iter().enumerate().for_each(|(at, &group)| position[group] = Some(at));
        let mut needs = |&group: &usize| -> Vec<usize> {
            self.order.needs(group).into_iter().rev().filter_map(|need| position[need]).collect()
        };
        let needs: Vec<Vec<usize>> = live.iter().map(&mut needs).collect();
        let order = needed_first(&needs).expect("no two groups need each other");
        order.into_iter().filter_map(|at| self.groups[live[at]].take()).collect()
    }
}

fn axes(dims: &[Dim]) -> Vec<SpaceAxis> {
    let place =
        |(i, dim): (usize, &Dim)| if is_one(dim) { SpaceAxis::One } else { SpaceAxis::Axis(i) };
    dims.iter().enumerate().map(place).collect()
}

fn count(dims: &[Dim]) -> Dim {
    dims.iter().cloned().product()
}
