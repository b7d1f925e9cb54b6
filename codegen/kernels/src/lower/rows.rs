//! Loops over a space: elementwise kernels, and kernels that reduce along rows.
//!
//! A task is a row, or a stretch of the last axis if there is only one row. There is one pass over
//! a row for each level of reductions, then one that stores the results, unless these need none of
//! the reductions. Meanwhile the row stays in the first-level cache. Values that are expensive and
//! are needed by several passes are kept in scratch memory.

mod column_sums;
mod epilogue;
mod keep;
mod prefetch;
mod sweep;

use crate::loops::Loops;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::Fold;
use mithril_passes::outline::schedule::{ColumnReduction, LoopNest, Reduction};

use super::fold::{Folder, product};
use super::index::{Index, Ix};
use super::lowered::Lowered;
use super::nest::Nest;
use crate::code::{Binary, V};
use crate::isa::Isa;
use column_sums::{Blocks, ColumnSum};
use epilogue::{Interleaved, PendingRow, Stores, in_row};
use prefetch::Prefetch;

/// Elements of a task where the space is a single row.
const STRETCH: i64 = 4096;
/// Columns are reduced this many vectors at a time.
const COLUMNS: i64 = 8;
/// The number of elements that is worth a thread.
const GRAIN: i64 = 16384;

pub fn lower(function: &Function, loops: &LoopNest, isa: &Isa) -> Result<Lowered> {
    let flat = super::flatten::flatten(function, loops);
    let (function, loops) = flat.as_ref().map_or((function, loops), |(f, loops)| (f, loops));
    let mut rows = Rows::new(function, loops, isa);
    let (tasks, per_task) = rows.kernel();
    if let Some(fault) = rows.nest.fault.take() {
        return Err(fault);
    }
    let grain = per_task.as_const().map_or(1, |n| (GRAIN / n.max(1)).max(1));
    let partials = rows.partials()?;
    let code = rows.nest.b.finish();
    Ok(Lowered { code, tasks, grain, scratch: rows.scratch, partials })
}

/// A reduction along rows, at one row.
#[derive(Clone, Copy)]
struct Part<'a> {
    op: &'a Operation,
    folder: Folder,
    place: &'a Index,
}

struct Rows<'f> {
    nest: Nest<'f>,
    schedule: &'f LoopNest,
    space: Vec<Dim>,
    /// The axis that vectors run along: the last one that is longer than 1.
    axis: usize,
    /// The axes before this one number the tasks.
    outer: usize,
    /// The reductions along rows, with their levels.
    folds: Vec<(usize, &'f Operation, Fold)>,
    /// Whether there is only one reducing pass, and it also stores the results.
    at_once: bool,
    scratch: Dim,
    /// The pass that first computes each kept value.
    first_sweeps: Vec<(Value, usize)>,
    /// Elements of a task if there is a single row.
    stretch: i64,
    prefetch: Prefetch,
    /// Column sums, and the division of the rows into tasks, which is set if there are such sums.
    column_sums: Vec<ColumnSum<'f>>,
    blocks: Option<Blocks>,
}

impl<'f> Loops for Rows<'f> {
    type Through = Nest<'f>;

    fn through(&mut self) -> &mut Nest<'f> {
        &mut self.nest
    }
}

impl<'f> Rows<'f> {
    fn new(function: &'f Function, schedule: &'f LoopNest, isa: &Isa) -> Rows<'f> {
        let space = schedule.space.clone();
        let long = space.iter().rposition(|dim| dim.as_const() != Some(1));
        let axis = long.unwrap_or(space.len().saturating_sub(1));
        let outer = schedule.rows.unwrap_or(axis);
        let reduction = |own: &Reduction| (own.level, &function.ops[own.op], own.fold);
        let mut rows = Rows {
            nest: Nest::new(function, isa),
            schedule,
            space,
            axis: axis.max(outer),
            outer,
            folds: schedule.reductions.iter().map(reduction).collect(),
            at_once: false,
            scratch: Dim::Const(0),
            first_sweeps: Vec::new(),
            stretch: STRETCH,
            prefetch: Prefetch::default(),
            column_sums: Vec::new(),
            blocks: None,
        };
        if schedule.columns.is_some() {
            rows.stretch = COLUMNS * i64::from(rows.nest.lanes);
        }
        rows.at_once = rows.is_at_once();
        rows.keep();
        rows.open_column_sums();
        rows.route(isa);
        rows
    }

    /// Emits the code. Returns the number of tasks, and the number of elements of each.
    fn kernel(&mut self) -> (Dim, Dim) {
        let outer = product(&self.space[..self.outer]);
        let inner = product(&self.space[self.outer..]);
        let single = outer.as_const() == Some(1) && self.schedule.rows.is_none();
        if self.nest.b.source().all_tasks {
            match self.blocks.clone() {
                Some(blocks) => self.one_block(&blocks),
                None => self.all_rows(),
            }
            return (Dim::Const(1), inner);
        }
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        self.each_task(first, last, single);
        match &self.blocks {
            Some(blocks) => (blocks.count(), &inner * &Dim::Const(blocks.height)),
            None if single => (inner.ceil_div(&Dim::Const(self.stretch)), Dim::Const(self.stretch)),
            None => (outer, inner),
        }
    }

    fn each_task(&mut self, first: V, last: V, single: bool) {
        match self.blocks.clone() {
            Some(blocks) => self.each(first, last, 1, |rows, task| rows.block(task, &blocks)),
            None if single => self.each(first, last, 1, Rows::stretch),
            None => self.each_row(first, last),
        }
    }

    /// Computes the rows `from..to`.
    fn each_row(&mut self, from: V, to: V) {
        match self.interleaved_level() {
            Some(level) => self.interleaved_rows(from, to, level),
            None => self.each(from, to, 1, |rows, row| {
                let place = rows.place(row);
                rows.row(&place);
            }),
        }
    }

    /// Computes a part of the only row.
    fn stretch(&mut self, task: V) {
        let b = &mut self.nest.b;
        let from = b.times(task, self.stretch);
        let to = b.offset(from, self.stretch);
        let length = self.length();
        let to = self.nest.b.binary(Binary::Min, to, length);
        let zero = self.nest.zero();
        let place: Index = self.space.iter().map(|_| zero).collect();
        self.finish(&place, Some((from, to)));
    }

    fn length(&mut self) -> V {
        match self.space.get(self.axis) {
            Some(dim) => self.nest.dim(&dim.clone()),
            None => self.nest.b.index(1),
        }
    }

    /// Computes all rows, with a loop for each of the axes that number them.
    fn all_rows(&mut self) {
        let (mut place, axes) = self.nest.open_axes(&self.space[..self.outer]);
        let zero = self.nest.zero();
        place.resize(self.space.len(), zero);
        self.row(&place);
        self.nest.close_axes(axes);
    }

    /// The index at which a row begins.
    fn place(&mut self, row: V) -> Index {
        let outer = self.space[..self.outer].to_vec();
        let mut place = self.nest.unflat(&outer, Ix::At(row));
        let zero = self.nest.zero();
        place.resize(self.space.len(), zero);
        place
    }

    fn row(&mut self, place: &Index) {
        if self.at_once {
            return self.row_at_once(place);
        }
        for level in 1..=self.levels() {
            self.fold_level(level, place, &Interleaved::default());
        }
        self.finish(place, None);
    }

    /// The number of passes that reduce.
    fn levels(&self) -> usize {
        self.folds.iter().map(|(level, ..)| *level).max().unwrap_or(0)
    }

    /// The number of the pass that stores the results.
    fn last_level(&self) -> usize {
        self.levels() + usize::from(!self.at_once)
    }

    /// Whether all reductions are of one level, and nothing that is stored for each element of a
    /// row needs their results.
    fn is_at_once(&self) -> bool {
        let f = self.nest.f;
        let mut needs = vec![false; f.values.len()];
        for op in &f.ops {
            let below = op.operands.iter().any(|value| needs[value.index()]);
            let fold = self.folds.iter().any(|(_, fold, _)| fold.first == op.first);
            op.results().for_each(|value| needs[value.index()] = below || fold);
        }
        let whole = f.results.iter().map(|r| r.value).filter(|value| self.is_whole(*value));
        let sums = self.schedule.column_sums.iter().map(|&op| f.ops[op].operands[0]);
        let mut written = whole.chain(sums);
        self.levels() == 1 && written.all(|value| !needs[value.index()])
    }

    /// Runs the pass over a row that computes the reductions of one level, and records their
    /// results. The pass may also work for the previous and the next row.
    fn fold_level(&mut self, level: usize, place: &Index, interleaved: &Interleaved) {
        // Values that are only read come before those that are stored: processors take two
        // addresses for the same if their last twelve bits are (4K aliasing).
        let mut exact = interleaved.next.as_ref().map_or(vec![], |next| self.parts(1, next));
        exact.extend(self.parts(level, place));
        let quick: Vec<Part> = (exact.iter())
            .map(|part| Part { folder: part.folder.quick(&self.nest.b), ..*part })
            .collect();
        let gathered = self.gather(&quick, level, interleaved.pending.as_ref());
        self.written(level);
        let mut values: Vec<V> =
            quick.iter().zip(&gathered).map(|(part, own)| self.finished(part, own)).collect();
        let doubts: Vec<V> = (quick.iter().zip(&gathered))
            .filter_map(|(part, own)| part.folder.doubt(&mut self.nest.b, own))
            .collect();
        let any = doubts.into_iter().reduce(|a, b| self.nest.b.binary(Binary::Or, a, b));
        if let Some(doubt) = any {
            values = self.folded_again(doubt, &exact, &values);
        }
        for (part, value) in exact.iter().zip(values) {
            let index = self.folded(part.op, part.place);
            self.nest.learn(part.op.result(), index, value);
        }
    }

    /// The reductions of a level, at a row.
    fn parts<'a>(&self, level: usize, place: &'a Index) -> Vec<Part<'a>>
    where
        'f: 'a,
    {
        let own = self.folds.iter().filter(|(own, ..)| *own == level);
        let part = |&(_, op, fold): &(usize, &'f Operation, Fold)| {
            let folder = Folder::of(op, fold, self.nest.dtype(op.operands[0]));
            Part { op, folder, place }
        };
        own.map(part).collect()
    }

    fn finished(&mut self, part: &Part, gathered: &[V]) -> V {
        let dtype = self.nest.dtype(part.op.result());
        part.folder.finish(&mut self.nest.b, gathered, dtype)
    }

    /// Recomputes maxima and minima that may be wrong, in a pass that handles NaN and the signs of
    /// zeros.
    fn folded_again(&mut self, doubt: V, parts: &[Part], values: &[V]) -> Vec<V> {
        self.nest.b.open_region();
        self.enter();
        let extremes = parts.iter().filter(|part| part.folder.is_float_extreme(&self.nest.b));
        let extremes: Vec<Part> = extremes.copied().collect();
        let gathered = self.gather(&extremes, 0, None);
        let mut again = extremes.iter().zip(&gathered);
        let exact = parts.iter().zip(values).map(|(part, &value)| {
            if !part.folder.is_float_extreme(&self.nest.b) {
                return value;
            }
            let (part, own) = again.next().expect("each extreme is folded again");
            self.finished(part, own)
        });
        let exact = exact.collect();
        self.leave();
        let yes = self.nest.b.close_region(exact);
        self.nest.b.open_region();
        let no = self.nest.b.close_region(values.to_vec());
        self.nest.b.place_choice(doubt, yes, no)
    }

    /// Accumulates reductions in one pass over their rows, and reduces the lanes.
    fn gather(
        &mut self,
        parts: &[Part],
        level: usize,
        pending: Option<&PendingRow>,
    ) -> Vec<Vec<V>> {
        let wide = self.nest.lanes;
        let starts: Vec<Vec<V>> =
            parts.iter().map(|part| part.folder.start(&mut self.nest.b, wide)).collect();
        let widths: Vec<usize> = starts.iter().map(Vec::len).collect();
        let (space, prefetch) = (self.space.clone(), std::mem::take(&mut self.prefetch));
        let outer = self.outer;
        let take = |nest: &mut Nest, index: &Index, so_far: &[V]| -> Vec<V> {
            prefetch.fetch(nest, level, &space, index);
            // The previous row's kept values are read before this row overwrites them. Its results
            // are stored interleaved with this row's pass.
            let pending = pending.map(|pending| (pending, pending.read(nest, index)));
            let mut next = Vec::with_capacity(so_far.len());
            let mut rest = so_far;
            for (part, width) in parts.iter().zip(&widths) {
                let (own, others) = rest.split_at(*width);
                let x = nest.pull(part.op.operands[0], &in_row(part.place, outer, index));
                next.extend(part.folder.take(&mut nest.b, own, x, nest.mask));
                rest = others;
            }
            if let Some((row, index)) = pending {
                row.write(nest, &index);
            }
            next
        };
        let join = |nest: &mut Nest, a: &[V], b: &[V]| -> Vec<V> {
            let mut joined = Vec::with_capacity(a.len());
            let mut at = 0;
            for (part, width) in parts.iter().zip(&widths) {
                let own = at..at + width;
                joined.extend(part.folder.join(&mut nest.b, &a[own.clone()], &b[own]));
                at += width;
            }
            joined
        };
        let done = self.sweep(parts[0].place, None, &starts.concat(), &take, &join);
        self.prefetch = prefetch;
        let mut rest = &done[..];
        let across = |(part, width): (&Part, &usize)| {
            let (own, others) = rest.split_at(*width);
            rest = others;
            part.folder.across(&mut self.nest.b, own)
        };
        parts.iter().zip(&widths).map(across).collect()
    }

    /// The index of a reduction's result for a row.
    fn folded(&mut self, op: &Operation, place: &Index) -> Index {
        let axes = self.nest.fold_axes(op);
        let rank = self.nest.dims(op.result()).len();
        let zero = self.nest.zero();
        let mut index: Index = (0..rank).map(|_| zero).collect();
        for (axis, at) in axes.places.iter().enumerate() {
            if let Some(at) = at {
                index[*at] = match self.space[axis].as_const() {
                    Some(1) => zero,
                    _ => place[axis],
                };
            }
        }
        index
    }

    /// Stores the results of a row, or of a stretch of it.
    fn finish(&mut self, place: &Index, stretch: Option<(V, V)>) {
        let stores = self.open_stores();
        self.write_folded(&stores, place);
        self.write_stores(&stores, place, stretch);
        self.column_sums = stores.column_sums;
    }

    /// Runs the last pass, which stores.
    fn write_stores(&mut self, stores: &Stores<'f>, place: &Index, stretch: Option<(V, V)>) {
        if stores.is_empty() {
            return;
        }
        if let Some(ColumnReduction { op, fold }) = self.schedule.columns {
            let op = &self.nest.f.ops[op];
            return self.column_blocks(op, fold, &stores.full, place, stretch);
        }
        let (space, prefetch) = (self.space.clone(), std::mem::take(&mut self.prefetch));
        let level = self.last_level();
        let write = |nest: &mut Nest, index: &Index, _: &[V]| -> Vec<V> {
            prefetch.fetch(nest, level, &space, index);
            stores.write(nest, index);
            vec![]
        };
        self.sweep(place, stretch, &[], &write, &|_, _, _| vec![]);
    }

    /// Reduces several vectors of columns together, so that longer stretches of their rows are
    /// read.
    fn column_blocks(
        &mut self,
        op: &Operation,
        fold: Fold,
        full: &[(usize, Value)],
        place: &Index,
        stretch: Option<(V, V)>,
    ) {
        let axis = self.axis;
        let write = |nest: &mut Nest, base: V, vectors: i64| {
            let at = |nest: &mut Nest, u: i64| {
                let mut index = place.clone();
                // A space without axes is a single element.
                if let Some(ix) = index.get_mut(axis) {
                    *ix = Ix::Lanes(nest.b.offset(base, u * i64::from(nest.lanes)));
                }
                index
            };
            let places: Vec<Index> = (0..vectors).map(|u| at(nest, u)).collect();
            let values = nest.fold_at(op, fold, &places);
            for (index, value) in places.iter().zip(values) {
                nest.learn(op.result(), index.clone(), value);
                for (at, value) in full {
                    let v = nest.pull(*value, index);
                    nest.write(nest.results[*at], nest.dims(*value), index, v);
                }
            }
        };
        let lanes = i64::from(self.nest.lanes);
        let (from, to) = self.line(stretch);
        let middle = self.whole(from, to, COLUMNS * lanes);
        self.steps(from, middle, COLUMNS * lanes, |nest, i| write(nest, i, COLUMNS));
        let end = self.whole(from, to, lanes);
        self.steps(middle, end, lanes, |nest, i| write(nest, i, 1));
        self.tail(end, to, &[], |nest, i, _| {
            write(nest, i, 1);
            vec![]
        });
    }
}
