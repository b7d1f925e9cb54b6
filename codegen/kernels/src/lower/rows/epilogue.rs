//! The epilogue of a row: stores its results, alone or interleaved with a pass over the next row.
//! Streaming stores are slower than the arithmetic, so interleaving hides them (software
//! pipelining).

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use rustc_hash::FxHashMap;

use super::Rows;
use super::column_sums::ColumnSum;
use crate::code::{Binary, V};
use crate::loops::Loops;
use crate::lower::index::Index;
use crate::lower::nest::{Kept, Nest};

/// The stores of the last pass over a row.
pub struct Stores<'f> {
    /// The results that have the shape of the whole space, with their indices.
    pub full: Vec<(usize, Value)>,
    pub column_sums: Vec<ColumnSum<'f>>,
    row: Vec<Dim>,
}

/// A row that has been reduced but not stored.
pub struct PendingRow<'a, 'f> {
    stores: &'a Stores<'f>,
    place: Index,
    kept: FxHashMap<Value, Kept>,
    /// The kept values, in the order in which they are read.
    order: Vec<Value>,
}

/// Work for other rows that is interleaved with a pass over a row.
#[derive(Default)]
pub struct Interleaved<'a, 'f> {
    /// The row whose results are stored.
    pub pending: Option<PendingRow<'a, 'f>>,
    /// The first element of the next row, whose first reductions are computed.
    pub next: Option<Index>,
}

/// Returns the index in the row of `place` at the same position as `other` in its row. The first
/// `outer` axes number the rows.
pub fn in_row(place: &Index, outer: usize, other: &Index) -> Index {
    place[..outer].iter().chain(&other[outer..]).copied().collect()
}

/// Whether the second pass over a row also computes the first reductions of the next row. It does
/// so if the second pass is the one that stores the previous row.
fn reduces_next_row(interleaved_level: usize) -> bool {
    interleaved_level == 2
}

impl Stores<'_> {
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.column_sums.is_empty()
    }

    /// Stores the elements at a position of a row.
    pub fn write(&self, nest: &mut Nest, index: &Index) {
        for (at, value) in &self.full {
            let v = nest.pull(*value, index);
            nest.write(nest.results[*at], nest.dims(*value), index, v);
        }
        self.column_sums
            .iter()
            .for_each(|column_sum| column_sum.accumulate(nest, &self.row, index));
    }
}

impl PendingRow<'_, '_> {
    /// Loads the kept values of this row at the position of `other` in its row. Returns their
    /// index.
    pub fn read(&self, nest: &mut Nest, other: &Index) -> Index {
        let index = in_row(&self.place, other.len() - self.stores.row.len(), other);
        self.with_kept(nest, |nest| {
            for &value in &self.order {
                nest.pull(value, &index);
            }
        });
        index
    }

    /// Stores the elements at a position of this row.
    pub fn write(&self, nest: &mut Nest, index: &Index) {
        nest.b.set_hides_divisions(true);
        self.with_kept(nest, |nest| self.stores.write(nest, index));
        nest.b.set_hides_divisions(false);
    }

    fn with_kept(&self, nest: &mut Nest, body: impl FnOnce(&mut Nest)) {
        let kept = std::mem::replace(&mut nest.kept, self.kept.clone());
        body(nest);
        nest.kept = kept;
    }
}

impl<'f> Rows<'f> {
    /// The stores of the last pass. The caller puts the column sums back afterwards.
    pub fn open_stores(&mut self) -> Stores<'f> {
        let f = self.nest.f;
        let column_sums = std::mem::take(&mut self.column_sums);
        let results = f.results.iter().map(|result| result.value).enumerate();
        let full = results.filter(|(at, value)| {
            self.spans_space(*value)
                && !column_sums.iter().any(|column_sum| column_sum.result == *at)
        });
        Stores { full: full.collect(), column_sums, row: self.space[self.outer..].to_vec() }
    }

    /// Stores the results that have one element for each row.
    pub fn store_row_results(&mut self, stores: &Stores<'f>, place: &Index) {
        let f = self.nest.f;
        for (at, value) in f.results.iter().map(|result| result.value).enumerate() {
            if self.spans_space(value)
                || stores.column_sums.iter().any(|column_sum| column_sum.result == at)
            {
                continue;
            }
            let dims = self.nest.dims(value);
            let index: Index = place[..dims.len()].into();
            let v = self.nest.pull(value, &index);
            let mem = self.nest.results[at];
            self.nest.write(mem, dims, &index, v);
        }
    }

    /// Returns the number of the pass that also stores the previous row, or `None` if interleaving
    /// does not pay. It is the first pass that stores kept values, so that it loads the previous
    /// row's before it overwrites them.
    pub fn interleaved_level(&self) -> Option<usize> {
        let separate = !self.reductions.is_empty() && !self.single_pass;
        if self.nest.streamed.is_empty() || !separate {
            return None;
        }
        let keeps = self.first_passes.iter().map(|(_, level)| *level);
        let busy = Some(self.prefetch.level).filter(|level| *level <= self.levels());
        keeps.filter(|level| *level <= self.levels()).min().or(busy).or(Some(1))
    }

    /// Reduces a row and stores its results in one pass.
    pub fn reduce_and_store_row(&mut self, place: &Index) {
        let stores = self.open_stores();
        let pending = PendingRow {
            stores: &stores,
            place: place.clone(),
            kept: FxHashMap::default(),
            order: Vec::new(),
        };
        self.reduce_level(1, place, &Interleaved { pending: Some(pending), next: None });
        self.store_row_results(&stores, place);
        self.column_sums = stores.column_sums;
    }

    /// Computes the rows `from..to`, at least one. Each row is stored during a pass over the next
    /// row.
    pub fn interleaved_rows(&mut self, from: V, to: V, interleaved_level: usize) {
        self.prefetch.level = self.prefetch.level.min(self.levels());
        let stores = self.open_stores();
        let end = self.nest.b.offset(to, -1);
        let place = self.place(from);
        if reduces_next_row(interleaved_level) {
            self.reduce_level(1, &place, &Interleaved::default());
        }
        let first = self.reduce_row((from, &place), end, interleaved_level, &stores, None);
        let second = self.nest.b.offset(from, 1);
        let done = self.repeat(second, to, 1, &first, |rows, row, reduced| {
            let before = rows.nest.b.offset(row, -1);
            let (before, place) = (rows.place(before), rows.place(row));
            let pending = rows.pending(before, &place, reduced, &stores);
            rows.reduce_row((row, &place), end, interleaved_level, &stores, Some(pending))
        });
        let place = self.place(end);
        let pending = self.pending(place.clone(), &place, &done, &stores);
        self.nest.kept = pending.kept;
        // Uses the same setting as for the other rows, so that the bits of a row do not depend on
        // its position in a task.
        self.nest.b.set_hides_divisions(true);
        self.write_stores(&stores, &pending.place, None);
        self.nest.b.set_hides_divisions(false);
        self.column_sums = stores.column_sums;
    }

    /// Reduces the row at `place`; `end` is the last row. Returns the results of the reductions,
    /// followed by those of the next row that the interleaved pass computes.
    fn reduce_row(
        &mut self,
        (row, place): (V, &Index),
        end: V,
        interleaved_level: usize,
        stores: &Stores<'f>,
        pending: Option<PendingRow>,
    ) -> Vec<V> {
        self.nest.kept.values_mut().for_each(|kept| kept.stored = false);
        let reduces_next = reduces_next_row(interleaved_level);
        let next = reduces_next.then(|| {
            let next = self.nest.b.offset(row, 1);
            let next = self.nest.b.binary(Binary::Min, next, end);
            self.place(next)
        });
        let mut interleaved = Interleaved { pending, next: next.clone() };
        for level in 1 + usize::from(reduces_next)..=self.levels() {
            match level == interleaved_level {
                true => self.reduce_level(level, place, &std::mem::take(&mut interleaved)),
                false => self.reduce_level(level, place, &Interleaved::default()),
            }
        }
        self.store_row_results(stores, place);
        let own = self.reductions.clone().into_iter().map(|(_, op, _)| (op, place));
        let first = self.reductions.clone().into_iter().filter(|(level, ..)| *level == 1);
        let first = next.iter().flat_map(|next| first.clone().map(move |(_, op, _)| (op, next)));
        let result = |(op, place): (&Operation, &Index)| {
            let index = self.result_index(op, place);
            self.nest.pull(op.result(), &index)
        };
        own.chain(first).map(result).collect()
    }

    /// Returns the row at `place` as a pending row. `reduced` are the values that
    /// [`Rows::reduce_row`] returned for it.
    fn pending<'a>(
        &mut self,
        place: Index,
        next: &Index,
        reduced: &[V],
        stores: &'a Stores<'f>,
    ) -> PendingRow<'a, 'f> {
        let reductions = self.reductions.clone();
        let own = reductions.iter().map(|(_, op, _)| (*op, &place));
        let first =
            reductions.iter().filter(|(level, ..)| *level == 1).map(|(_, op, _)| (*op, next));
        for ((op, place), &v) in own.chain(first).zip(reduced) {
            let index = self.result_index(op, place);
            self.nest.memoize(op.result(), index, v);
        }
        let mut kept = self.nest.kept.clone();
        kept.values_mut().for_each(|kept| kept.stored = true);
        let order = self.first_passes.iter().map(|(value, _)| *value).collect();
        PendingRow { stores, place, kept, order }
    }
}
