//! Bounds the size of kernels. Compile time grows faster than linearly with code size, and a model
//! may have any number of operations.

use mithril_ir::graph::Value;
use mithril_ir::op;
use mithril_ir::op::Kind;
use mithril_ir::scalar::expr::Node;
use rustc_hash::FxHashMap;

use super::{Core, Group, Grouping};
use crate::outline::schedule::reduced_rows;

/// The maximum work of a kernel, in simple operations such as additions. No kernel of the models in
/// `tests/benches` has half of it; LLVM compiles a kernel of this size in about 0.2 s.
pub const MAX_WORK: usize = 256;
/// The maximum number of values that a kernel reads from memory. With more, their addresses are
/// spilled to the stack, and there are more streams than the processor prefetches.
pub const MAX_INPUTS: usize = 64;
/// The maximum number of views that a kernel looks through for one element. Beyond this, a view is
/// stored in memory.
const MAX_VIEWS: usize = 64;
/// The maximum number of reducing passes over a row. Each pass recomputes the values that it needs
/// from earlier passes, so code grows with the square of their number. A softmax or a layer norm
/// has 2.
const MAX_LEVELS: usize = 8;
/// The work of a function such as `exp`, in additions.
const FUNCTION_WORK: usize = 12;
/// The work of generating random bits: 20 rounds of a cipher.
const RANDOM_WORK: usize = 100;

impl Grouping<'_> {
    /// The work of an operation, in simple operations.
    pub fn work(&self, at: usize) -> usize {
        let op = self.function.ops[at].op;
        if op.kind == Kind::Random {
            return RANDOM_WORK;
        }
        let Some(expr) = op::expr(op) else { return 1 };
        let work = |node: &Node| match node {
            Node::Prim(prim, _) if prim.is_cheap() => 1,
            Node::Prim(..) => FUNCTION_WORK,
            _ => 0,
        };
        expr.nodes().iter().map(work).sum::<usize>().max(1)
    }

    /// Stores views in memory that look through too many other views.
    pub fn bound_views(&mut self) {
        let mut views = vec![0usize; self.function.ops.len()];
        for (at, op) in self.function.ops.iter().enumerate() {
            if !self.is_view(at) {
                continue;
            }
            let producers = op.operands.iter().filter_map(|v| self.definitions[v.index()]);
            views[at] = producers.fold(1, |all, at| all.saturating_add(views[at as usize]));
            if views[at] > MAX_VIEWS && op.op.kind == Kind::Layout {
                (self.views[at], views[at]) = (false, 0);
            }
        }
    }

    /// The values that an operation reads, looking through views; sorted and distinct.
    pub fn inputs(&self, at: usize) -> Vec<Value> {
        let mut open: Vec<Value> = self.function.ops[at].operands.to_vec();
        let mut inputs = Vec::new();
        while let Some(value) = open.pop() {
            match self.definitions[value.index()].map(|at| at as usize) {
                Some(at) if self.is_view(at) => open.extend(&self.function.ops[at].operands),
                _ => inputs.push(value),
            }
        }
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }

    /// The values that two groups read when merged.
    pub fn inputs_of_both(&self, producer: usize, reader: usize) -> Vec<Value> {
        let own = [producer, reader].map(|group| self.groups[group].as_ref());
        let mut inputs: Vec<Value> =
            own.into_iter().flatten().flat_map(|group| group.inputs.iter().copied()).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let group = |value: &Value| {
            let at = self.definitions[value.index()]?;
            self.group_of[at as usize]
        };
        inputs.retain(|value| group(value).is_none_or(|own| own != producer && own != reader));
        inputs
    }

    /// Ensures that the two groups are not too large when merged: the last operations of the
    /// producer become a separate group, cut where few values cross. Returns the group to merge
    /// with the reader; none if the producer stays as it is.
    pub fn fitting(&mut self, producer: usize, reader: usize) -> Option<usize> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        if a.full {
            return None;
        }
        if self.levels(a, b) > MAX_LEVELS {
            self.groups[producer].as_mut()?.full = true;
            return None;
        }
        let fits = self.inputs_of_both(producer, reader).len() <= MAX_INPUTS;
        if a.work + b.work <= MAX_WORK && fits {
            return Some(producer);
        }
        let loops = matches!(a.core, Core::Loops { .. }) && a.column_sums.is_empty();
        let cut = if loops { self.cut(a, b) } else { a.ops.len() };
        let whole = cut == a.ops.len();
        let last = if whole { None } else { Some(self.split(producer, cut)) };
        self.groups[producer].as_mut()?.full = true;
        last.filter(|&last| self.inputs_of_both(last, reader).len() <= MAX_INPUTS)
    }

    /// How many reducing passes over a row a kernel of the two groups needs.
    fn levels(&self, producer: &Group, reader: &Group) -> usize {
        let rows = |group: &Group| matches!(group.core, Core::Loops { rows: Some(_), .. });
        if !rows(producer) && !rows(reader) {
            return 0;
        }
        let mut ops = [&producer.ops[..], &reader.ops].concat();
        ops.sort_unstable();
        let mut levels: FxHashMap<Value, usize> = FxHashMap::default();
        for at in ops {
            let op = &self.function.ops[at];
            let inputs = self.inputs(at);
            let below = inputs.iter().filter_map(|value| levels.get(value)).max();
            let own = usize::from(reduced_rows(self.function, &self.windowed, op).is_some());
            let level = below.copied().unwrap_or(0) + own;
            op.results().for_each(|value| _ = levels.insert(value, level));
        }
        levels.into_values().max().unwrap_or(0)
    }

    /// The number of a group's operations that stay when it is split. It is a position with at most
    /// half of the work after it, and with the fewest values that cross to the rest or the reader.
    /// Ties go to the last such position.
    fn cut(&self, group: &Group, reader: &Group) -> usize {
        let count = group.ops.len();
        // For each operation, the last position that reads it.
        let mut last = vec![0; count];
        let mut note = |at: usize, place: usize| {
            for value in self.inputs(at) {
                let producer = self.definitions[value.index()].map(|at| at as usize);
                let own = producer.and_then(|at| group.ops.binary_search(&at).ok());
                own.into_iter().for_each(|own| last[own] = place);
            }
        };
        group.ops.iter().enumerate().for_each(|(place, &at)| note(at, place));
        reader.ops.iter().for_each(|&at| note(at, count));
        let room = MAX_WORK.saturating_sub(reader.work);
        let mut work = group.work;
        let mut best = (usize::MAX, count);
        for cut in 0..=count {
            if 2 * work <= group.work && work <= room {
                let read = (0..cut).filter(|&own| last[own] >= cut).count();
                best = if read <= best.0 { (read, cut) } else { best };
            }
            work -= group.ops.get(cut).map_or(0, |&at| self.work(at));
        }
        best.1
    }

    /// Moves the operations from `cut` on into a new group.
    fn split(&mut self, group: usize, cut: usize) -> usize {
        let own = self.groups.len();
        let Some(first) = self.groups[group].as_mut() else { return group };
        let (ops, core) = (first.ops.split_off(cut), first.core.clone());
        let mut parts = [first.ops.clone(), ops];
        let halves = parts.each_ref().map(|ops| {
            let inputs = ops.iter().flat_map(|&at| self.inputs(at));
            let is_own = |value: &Value| {
                let at = self.definitions[value.index()].map(|at| at as usize);
                at.is_some_and(|at| ops.binary_search(&at).is_ok())
            };
            let mut inputs: Vec<Value> = inputs.filter(|value| !is_own(value)).collect();
            inputs.sort_unstable();
            inputs.dedup();
            let work = ops.iter().map(|&at| self.work(at)).sum();
            (inputs, work)
        });
        let [(inputs, work), (later, rest)] = halves;
        let ops = std::mem::take(&mut parts[1]);
        ops.iter().for_each(|&at| self.group_of[at] = Some(own));
        if let Some(first) = self.groups[group].as_mut() {
            (first.inputs, first.work) = (inputs, work);
        }
        let column_sums = Vec::new();
        let last = Group { ops, core, column_sums, inputs: later, work: rest, full: false };
        self.groups.push(Some(last));
        self.order.split(group);
        own
    }
}
