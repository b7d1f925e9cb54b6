//! Decides whether to merge two groups, and merges them.

use mithril_ir::dim::Dim;
use mithril_ir::graph::Operation;
use mithril_ir::op::access::Access;

use super::{Core, Group, Grouping, axes, count};
use crate::outline::schedule::reduced_rows;
use crate::outline::views::{SpaceAxis, is_one};

impl Grouping<'_> {
    /// Merges the group of an operand with the group that reads it, if that is correct and useful.
    pub fn try_merge(&mut self, producer: usize, reader: usize) {
        let whole =
            self.merged_core(producer, reader).or_else(|| self.fused_core(producer, reader));
        let whole = whole.or_else(|| self.stored_copy(producer, reader)).map(|core| (core, None));
        let Some((core, column_sum)) = whole.or_else(|| self.column_sum(producer, reader)) else {
            return;
        };
        if let Some(producer) = self.fitting(producer, reader) {
            self.merge(producer, reader, core, column_sum);
        }
    }

    /// Merges two groups into one with this core, unless the result would depend on itself.
    pub fn merge(&mut self, producer: usize, reader: usize, core: Core, column_sum: Option<usize>) {
        if self.order.makes_cycle(producer, reader) {
            return;
        }
        let inputs = self.inputs_of_both(producer, reader);
        self.order.merge(producer, reader);
        let merged = self.groups[producer].take().expect("groups that merge are there");
        let group = self.groups[reader].as_mut().expect("groups that merge are there");
        group.core = core;
        group.column_sums.extend(merged.column_sums.iter().copied().chain(column_sum));
        group.ops.extend(&merged.ops);
        group.ops.sort_unstable();
        group.inputs = inputs;
        group.work += merged.work;
        for op in merged.ops {
            self.group_of[op] = Some(reader);
        }
    }

    /// The common core, if both groups loop over one space and reads are aligned.
    fn merged_core(&self, producer: usize, reader: usize) -> Option<Core> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        let core = match (&a.core, &b.core) {
            (Core::Loops { space: s, rows: r }, Core::Loops { space: t, rows: q }) => {
                let (space, rows) = common_space(s, *r, t, *q)?;
                Core::Loops { space, rows }
            }
            (Core::Contraction { space: s, .. }, Core::Loops { space: t, rows: None })
                if s == t && b.column_sums.is_empty() && !self.reduces(b) =>
            {
                a.core.clone()
            }
            _ => return None,
        };
        (self.column_sums_fit(a, b, &core) && self.is_aligned(producer, b, &core)).then_some(core)
    }

    /// Whether the reader's operations read the producer's elements only at their own position in
    /// the space.
    fn is_aligned(&self, producer: usize, reader: &Group, core: &Core) -> bool {
        let (space, rows) = match core {
            Core::Loops { space, rows } => (space, *rows),
            Core::Contraction { space, .. } => (space, None),
            Core::Library | Core::Separate { .. } => return false,
        };
        let fits = |at: usize| {
            let op = &self.function.ops[at];
            let in_space = self.alignment_in(op, space, rows);
            let alignment = in_space.clone().unwrap_or_else(|| axes(self.dims(op.result())));
            let sources = self.read(op, &alignment);
            let mut read =
                sources.iter().filter(|s| self.group_of[s.op] == Some(producer)).peekable();
            let ours =
                read.peek().is_none() || in_space.is_some() || reader.column_sums.contains(&at);
            ours && read.all(|source| {
                let own = self.alignment_in(&self.function.ops[source.op], space, rows);
                own.is_some() && own == source.alignment
            })
        };
        reader.ops.iter().all(|&op| fits(op))
    }

    /// The alignment of an operation's result with a space. `None` unless it has all axes of the
    /// space, or those that number the rows, with or without reduced dims of 1.
    pub fn alignment_in(
        &self,
        op: &Operation,
        space: &[Dim],
        rows: Option<usize>,
    ) -> Option<Vec<SpaceAxis>> {
        let dims = self.dims(op.result());
        let own = reduced_rows(self.function, &self.windowed, op);
        if let Access::Fold(_) = op.op.access
            && (own != rows || own.is_some() && self.dims(op.operands[0]) != space)
        {
            return None;
        }
        if own.is_none() && dims == space {
            return Some(axes(dims));
        }
        let rows = rows?;
        let front = &space[..rows];
        let rest = dims.get(rows..)?;
        let fits = dims[..rows] == *front
            && (rest.is_empty() || rest.len() == space.len() - rows)
            && rest.iter().all(is_one);
        fits.then(|| axes(dims))
    }

    fn reduces(&self, group: &Group) -> bool {
        let is_fold = |op: &usize| matches!(self.function.ops[*op].op.access, Access::Fold(_));
        group.ops.iter().any(is_fold)
    }

    /// The reader's core, if the producer's elements can be computed where the reader uses them.
    fn fused_core(&self, producer: usize, reader: usize) -> Option<Core> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        let Core::Loops { space, rows: None } = &a.core else {
            return None;
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
        (!self.reduces(a) && private && cheap).then(|| b.core.clone())
    }

    /// The core, if a library kernel can store its result as the copy that its only reader makes.
    fn stored_copy(&self, producer: usize, reader: usize) -> Option<Core> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        let (&[own], &[copy]) = (&a.ops[..], &b.ops[..]) else { return None };
        let [own, copy] = [own, copy].map(|at| &self.function.ops[at]);
        let kernel = (self.library)(own)?;
        let only = self.readers[own.result().index()] == 1;
        let stores = || (kernel.stores)(self.function, &self.definitions, own, copy.result());
        (only && stores()).then_some(Core::Library)
    }

    /// Whether only the two groups read the value, and the reader at most once.
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
}

/// The space that two groups of loops can share, and the first axis of its rows.
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
