//! Loops over a space: elementwise kernels, and kernels that reduce along rows.
//!
//! A task is a row, or a chunk of the last axis if there is only one row. Each level of reductions
//! takes one pass over the row. A last pass stores the results, unless they do not depend on the
//! reductions. The row stays in the first-level cache between the passes. Expensive values that
//! several passes need are kept in scratch memory.

mod column_sums;
mod epilogue;
mod keep;
mod pass;
mod prefetch;

use crate::loops::Loops;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::Fold;
use mithril_passes::outline::schedule::{ColumnReduction, LoopNest, Reduction};

use super::index::{Index, Ix};
use super::lowered::Lowered;
use super::nest::Nest;
use super::reduce::{Reducer, product};
use crate::code::{Binary, V};
use crate::isa::Isa;
use column_sums::{Blocks, ColumnSum};
use epilogue::{Interleaved, PendingRow, Stores, in_row};
use prefetch::Prefetch;

/// Elements of a task if the space is a single row.
const CHUNK: i64 = 4096;
/// The number of vectors of columns that are reduced together.
const COLUMNS: i64 = 8;
/// The minimum number of elements per thread. With fewer, starting a thread does not pay.
const MIN_THREAD_ELEMENTS: i64 = 16384;

pub fn lower(function: &Function, loops: &LoopNest, isa: &Isa) -> Result<Lowered> {
    let flat = super::flatten::flatten(function, loops);
    let (function, loops) = flat.as_ref().map_or((function, loops), |(f, loops)| (f, loops));
    let mut rows = Rows::new(function, loops, isa);
    let (tasks, per_task) = rows.kernel();
    if let Some(fault) = rows.nest.fault.take() {
        return Err(fault);
    }
    let grain = per_task.as_const().map_or(1, |n| (MIN_THREAD_ELEMENTS / n.max(1)).max(1));
    let partials = rows.partials()?;
    let code = rows.nest.b.finish();
    Ok(Lowered { code, tasks, grain, scratch: rows.scratch, partials })
}

/// A reduction along a row, and the row.
#[derive(Clone, Copy)]
struct RowReduction<'a> {
    op: &'a Operation,
    reducer: Reducer,
    place: &'a Index,
}

struct Rows<'f> {
    nest: Nest<'f>,
    schedule: &'f LoopNest,
    space: Vec<Dim>,
    /// The vectorized axis: the last axis whose size is not 1.
    axis: usize,
    /// The number of leading axes that number the rows, and so the tasks.
    outer: usize,
    /// The reductions along rows, each with its level.
    reductions: Vec<(usize, &'f Operation, Fold)>,
    /// Whether a single pass both reduces and stores the results.
    single_pass: bool,
    scratch: Dim,
    /// The kept values, each with the number of the pass that computes it.
    first_passes: Vec<(Value, usize)>,
    /// Elements of a task if there is a single row.
    chunk: i64,
    prefetch: Prefetch,
    /// Column sums. If there are any, `blocks` is the division of the rows into tasks.
    column_sums: Vec<ColumnSum<'f>>,
    blocks: Option<Blocks>,
}

impl<'f> Loops for Rows<'f> {
    type Inner = Nest<'f>;

    fn inner(&mut self) -> &mut Nest<'f> {
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
            reductions: schedule.reductions.iter().map(reduction).collect(),
            single_pass: false,
            scratch: Dim::Const(0),
            first_passes: Vec::new(),
            chunk: CHUNK,
            prefetch: Prefetch::default(),
            column_sums: Vec::new(),
            blocks: None,
        };
        if schedule.columns.is_some() {
            rows.chunk = COLUMNS * i64::from(rows.nest.lanes);
        }
        rows.single_pass = rows.is_single_pass();
        rows.keep_values();
        rows.open_column_sums();
        rows.choose_stores_and_prefetches(isa);
        rows
    }

    /// Emits the code. Returns the number of tasks and the number of elements per task.
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
            None if single => (inner.ceil_div(&Dim::Const(self.chunk)), Dim::Const(self.chunk)),
            None => (outer, inner),
        }
    }

    fn each_task(&mut self, first: V, last: V, single: bool) {
        match self.blocks.clone() {
            Some(blocks) => self.each(first, last, 1, |rows, task| rows.block(task, &blocks)),
            None if single => self.each(first, last, 1, Rows::chunk),
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

    /// Computes one chunk of the only row.
    fn chunk(&mut self, task: V) {
        let b = &mut self.nest.b;
        let from = b.times(task, self.chunk);
        let to = b.offset(from, self.chunk);
        let length = self.length();
        let to = self.nest.b.binary(Binary::Min, to, length);
        let zero = self.nest.zero();
        let place: Index = self.space.iter().map(|_| zero).collect();
        self.store_row(&place, Some((from, to)));
    }

    fn length(&mut self) -> V {
        match self.space.get(self.axis) {
            Some(dim) => self.nest.dim(&dim.clone()),
            None => self.nest.b.index(1),
        }
    }

    /// Computes all rows, with one loop per row axis.
    fn all_rows(&mut self) {
        let (mut place, axes) = self.nest.open_axes(&self.space[..self.outer]);
        let zero = self.nest.zero();
        place.resize(self.space.len(), zero);
        self.row(&place);
        self.nest.close_axes(axes);
    }

    /// Returns the index of the first element of a row.
    fn place(&mut self, row: V) -> Index {
        let outer = self.space[..self.outer].to_vec();
        let mut place = self.nest.unravel(&outer, Ix::Uniform(row));
        let zero = self.nest.zero();
        place.resize(self.space.len(), zero);
        place
    }

    fn row(&mut self, place: &Index) {
        if self.single_pass {
            return self.reduce_and_store_row(place);
        }
        for level in 1..=self.levels() {
            self.reduce_level(level, place, &Interleaved::default());
        }
        self.store_row(place, None);
    }

    /// The number of reducing passes.
    fn levels(&self) -> usize {
        self.reductions.iter().map(|(level, ..)| *level).max().unwrap_or(0)
    }

    /// The number of the pass that stores the results.
    fn last_level(&self) -> usize {
        self.levels() + usize::from(!self.single_pass)
    }

    /// Whether all reductions are of one level, and no full-size result and no column sum depends
    /// on them.
    fn is_single_pass(&self) -> bool {
        let f = self.nest.f;
        let mut needs = vec![false; f.values.len()];
        for op in &f.ops {
            let below = op.operands.iter().any(|value| needs[value.index()]);
            let fold = self.reductions.iter().any(|(_, fold, _)| fold.first == op.first);
            op.results().for_each(|value| needs[value.index()] = below || fold);
        }
        let whole = f.results.iter().map(|r| r.value).filter(|value| self.spans_space(*value));
        let sums = self.schedule.column_sums.iter().map(|&op| f.ops[op].operands[0]);
        let mut written = whole.chain(sums);
        self.levels() == 1 && written.all(|value| !needs[value.index()])
    }

    /// Emits the pass over a row that computes the reductions of one level, and memoizes their
    /// results. The pass may be interleaved with work for the previous and the next row.
    fn reduce_level(&mut self, level: usize, place: &Index, interleaved: &Interleaved) {
        // Values that are only read are loaded before kept values are stored. Otherwise loads would
        // stall on stores whose addresses have the same last 12 bits (4K aliasing).
        let mut exact =
            interleaved.next.as_ref().map_or(vec![], |next| self.row_reductions(1, next));
        exact.extend(self.row_reductions(level, place));
        let fast: Vec<RowReduction> = (exact.iter())
            .map(|reduction| RowReduction {
                reducer: reduction.reducer.fast(&self.nest.b),
                ..*reduction
            })
            .collect();
        let accumulators = self.accumulate(&fast, level, interleaved.pending.as_ref());
        self.mark_stored(level);
        let mut values: Vec<V> = fast
            .iter()
            .zip(&accumulators)
            .map(|(reduction, own)| self.reduced_value(reduction, own))
            .collect();
        let maybe_wrong: Vec<V> = (fast.iter().zip(&accumulators))
            .filter_map(|(reduction, own)| reduction.reducer.may_be_wrong(&mut self.nest.b, own))
            .collect();
        let any = maybe_wrong.into_iter().reduce(|a, b| self.nest.b.binary(Binary::Or, a, b));
        if let Some(maybe_wrong) = any {
            values = self.recompute_exactly(maybe_wrong, &exact, &values);
        }
        for (reduction, value) in exact.iter().zip(values) {
            let index = self.result_index(reduction.op, reduction.place);
            self.nest.memoize(reduction.op.result(), index, value);
        }
    }

    /// Returns the reductions of a level at a row.
    fn row_reductions<'a>(&self, level: usize, place: &'a Index) -> Vec<RowReduction<'a>>
    where
        'f: 'a,
    {
        let own = self.reductions.iter().filter(|(own, ..)| *own == level);
        let reduction = |&(_, op, fold): &(usize, &'f Operation, Fold)| {
            let reducer = Reducer::of(op, fold, self.nest.dtype(op.operands[0]));
            RowReduction { op, reducer, place }
        };
        own.map(reduction).collect()
    }

    fn reduced_value(&mut self, reduction: &RowReduction, accumulators: &[V]) -> V {
        let dtype = self.nest.dtype(reduction.op.result());
        reduction.reducer.finish(&mut self.nest.b, accumulators, dtype)
    }

    /// If `maybe_wrong` holds, recomputes float maxima and minima in a pass that handles NaN and
    /// the signs of zeros.
    fn recompute_exactly(
        &mut self,
        maybe_wrong: V,
        reductions: &[RowReduction],
        values: &[V],
    ) -> Vec<V> {
        self.nest.b.open_region();
        self.enter();
        let extremes =
            reductions.iter().filter(|reduction| reduction.reducer.is_float_extreme(&self.nest.b));
        let extremes: Vec<RowReduction> = extremes.copied().collect();
        let accumulators = self.accumulate(&extremes, 0, None);
        let mut again = extremes.iter().zip(&accumulators);
        let exact = reductions.iter().zip(values).map(|(reduction, &value)| {
            if !reduction.reducer.is_float_extreme(&self.nest.b) {
                return value;
            }
            let (reduction, own) = again.next().expect("each maximum and minimum is recomputed");
            self.reduced_value(reduction, own)
        });
        let exact = exact.collect();
        self.leave();
        let yes = self.nest.b.close_region(exact);
        self.nest.b.open_region();
        let no = self.nest.b.close_region(values.to_vec());
        self.nest.b.place_choice(maybe_wrong, yes, no)
    }

    /// Accumulates reductions in one pass over their rows, and reduces the lanes of the
    /// accumulators.
    fn accumulate(
        &mut self,
        reductions: &[RowReduction],
        level: usize,
        pending: Option<&PendingRow>,
    ) -> Vec<Vec<V>> {
        let wide = self.nest.lanes;
        let starts: Vec<Vec<V>> = reductions
            .iter()
            .map(|reduction| reduction.reducer.initial(&mut self.nest.b, wide))
            .collect();
        let widths: Vec<usize> = starts.iter().map(Vec::len).collect();
        let (space, prefetch) = (self.space.clone(), std::mem::take(&mut self.prefetch));
        let outer = self.outer;
        let accumulate = |nest: &mut Nest, index: &Index, so_far: &[V]| -> Vec<V> {
            prefetch.fetch(nest, level, &space, index);
            // Loads the previous row's kept values before this row overwrites them. The previous
            // row's results are stored after this row's accumulation.
            let pending = pending.map(|pending| (pending, pending.read(nest, index)));
            let mut next = Vec::with_capacity(so_far.len());
            let mut rest = so_far;
            for (reduction, width) in reductions.iter().zip(&widths) {
                let (own, others) = rest.split_at(*width);
                let x = nest.pull(reduction.op.operands[0], &in_row(reduction.place, outer, index));
                next.extend(reduction.reducer.accumulate(&mut nest.b, own, x, nest.mask));
                rest = others;
            }
            if let Some((row, index)) = pending {
                row.write(nest, &index);
            }
            next
        };
        let merge = |nest: &mut Nest, a: &[V], b: &[V]| -> Vec<V> {
            let mut merged = Vec::with_capacity(a.len());
            let mut at = 0;
            for (reduction, width) in reductions.iter().zip(&widths) {
                let own = at..at + width;
                merged.extend(reduction.reducer.merge(&mut nest.b, &a[own.clone()], &b[own]));
                at += width;
            }
            merged
        };
        let done = self.run_pass(reductions[0].place, None, &starts.concat(), &accumulate, &merge);
        self.prefetch = prefetch;
        let mut rest = &done[..];
        let reduce_lanes = |(reduction, width): (&RowReduction, &usize)| {
            let (own, others) = rest.split_at(*width);
            rest = others;
            reduction.reducer.reduce_lanes(&mut self.nest.b, own)
        };
        reductions.iter().zip(&widths).map(reduce_lanes).collect()
    }

    /// Returns the index of a reduction's result for a row.
    fn result_index(&mut self, op: &Operation, place: &Index) -> Index {
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

    /// Stores the results of a row, or of a chunk of it.
    fn store_row(&mut self, place: &Index, chunk: Option<(V, V)>) {
        let stores = self.open_stores();
        self.store_row_results(&stores, place);
        self.write_stores(&stores, place, chunk);
        self.column_sums = stores.column_sums;
    }

    /// Emits the pass that stores.
    fn write_stores(&mut self, stores: &Stores<'f>, place: &Index, chunk: Option<(V, V)>) {
        if stores.is_empty() {
            return;
        }
        if let Some(ColumnReduction { op, fold }) = self.schedule.columns {
            let op = &self.nest.f.ops[op];
            return self.column_blocks(op, fold, &stores.full, place, chunk);
        }
        let (space, prefetch) = (self.space.clone(), std::mem::take(&mut self.prefetch));
        let level = self.last_level();
        let write = |nest: &mut Nest, index: &Index, _: &[V]| -> Vec<V> {
            prefetch.fetch(nest, level, &space, index);
            stores.write(nest, index);
            vec![]
        };
        self.run_pass(place, chunk, &[], &write, &|_, _, _| vec![]);
    }

    /// Reduces several vectors of columns together, so that memory is read in longer runs.
    fn column_blocks(
        &mut self,
        op: &Operation,
        fold: Fold,
        full: &[(usize, Value)],
        place: &Index,
        chunk: Option<(V, V)>,
    ) {
        let axis = self.axis;
        let write = |nest: &mut Nest, base: V, vectors: i64| {
            let at = |nest: &mut Nest, u: i64| {
                let mut index = place.clone();
                // A space without axes is a single element.
                if let Some(ix) = index.get_mut(axis) {
                    *ix = Ix::Ascending(nest.b.offset(base, u * i64::from(nest.lanes)));
                }
                index
            };
            let places: Vec<Index> = (0..vectors).map(|u| at(nest, u)).collect();
            let values = nest.reduce_at(op, fold, &places);
            for (index, value) in places.iter().zip(values) {
                nest.memoize(op.result(), index.clone(), value);
                for (at, value) in full {
                    let v = nest.pull(*value, index);
                    nest.write(nest.results[*at], nest.dims(*value), index, v);
                }
            }
        };
        let lanes = i64::from(self.nest.lanes);
        let (from, to) = self.line(chunk);
        let middle = self.round_down(from, to, COLUMNS * lanes);
        self.steps(from, middle, COLUMNS * lanes, |nest, i| write(nest, i, COLUMNS));
        let end = self.round_down(from, to, lanes);
        self.steps(middle, end, lanes, |nest, i| write(nest, i, 1));
        self.remainder(end, to, &[], |nest, i, _| {
            write(nest, i, 1);
            vec![]
        });
    }
}
