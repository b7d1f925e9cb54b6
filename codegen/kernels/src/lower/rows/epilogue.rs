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
    /// The values kept, in the order in which they are read.
    order: Vec<Value>,
}

/// The work for other rows that a pass over a row does.
#[derive(Default)]
pub struct Interleaved<'a, 'f> {
    /// Stores the results of this row.
    pub pending: Option<PendingRow<'a, 'f>>,
    /// Computes the first reductions of the row at this position.
    pub next: Option<Index>,
}

/// The index in the row at `place` that corresponds to `other` in another row. The first `outer`
/// axes number the rows.
pub fn in_row(place: &Index, outer: usize, other: &Index) -> Index {
    place[..outer].iter().chain(&other[outer..]).copied().collect()
}

/// Whether the second pass over a row also computes the first reductions of the next row. It does
/// so where that pass stores the previous row.
fn folds_next_row(interleaved_level: usize) -> bool {
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
        self.column_sums.iter().for_each(|side| side.take(nest, &self.row, index));
    }
}

impl PendingRow<'_, '_> {
    /// Reads the kept values of this row at the position that corresponds to `other`. Returns that
    /// position.
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
        nest.b.set_divides(true);
        self.with_kept(nest, |nest| self.stores.write(nest, index));
        nest.b.set_divides(false);
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
            self.is_whole(*value) && !column_sums.iter().any(|side| side.result == *at)
        });
        Stores { full: full.collect(), column_sums, row: self.space[self.outer..].to_vec() }
    }

    /// Stores the results that have one element for each row.
    pub fn write_folded(&mut self, stores: &Stores<'f>, place: &Index) {
        let f = self.nest.f;
        for (at, value) in f.results.iter().map(|result| result.value).enumerate() {
            if self.is_whole(value) || stores.column_sums.iter().any(|side| side.result == at) {
                continue;
            }
            let dims = self.nest.dims(value);
            let index: Index = place[..dims.len()].into();
            let v = self.nest.pull(value, &index);
            let mem = self.nest.results[at];
            self.nest.write(mem, dims, &index, v);
        }
    }

    /// The pass that also stores the previous row, where interleaving pays. It is the first pass
    /// that keeps values: it reads those of the previous row before it overwrites them.
    pub fn interleaved_level(&self) -> Option<usize> {
        let separate = !self.folds.is_empty() && !self.at_once;
        if self.nest.streamed.is_empty() || !separate {
            return None;
        }
        let keeps = self.first_sweeps.iter().map(|(_, level)| *level);
        let busy = Some(self.prefetch.level).filter(|level| *level <= self.levels());
        keeps.filter(|level| *level <= self.levels()).min().or(busy).or(Some(1))
    }

    /// Reduces a row and stores its results in one pass.
    pub fn row_at_once(&mut self, place: &Index) {
        let stores = self.open_stores();
        let pending = PendingRow {
            stores: &stores,
            place: place.clone(),
            kept: FxHashMap::default(),
            order: Vec::new(),
        };
        self.fold_level(1, place, &Interleaved { pending: Some(pending), next: None });
        self.write_folded(&stores, place);
        self.column_sums = stores.column_sums;
    }

    /// The rows from `from` to `to`, at least one. Each is stored during a pass over the next one.
    pub fn interleaved_rows(&mut self, from: V, to: V, interleaved_level: usize) {
        self.prefetch.level = self.prefetch.level.min(self.levels());
        let stores = self.open_stores();
        let end = self.nest.b.offset(to, -1);
        let place = self.place(from);
        if folds_next_row(interleaved_level) {
            self.fold_level(1, &place, &Interleaved::default());
        }
        let first = self.fold_row((from, &place), end, interleaved_level, &stores, None);
        let second = self.nest.b.offset(from, 1);
        let done = self.repeat(second, to, 1, &first, |rows, row, folded| {
            let before = rows.nest.b.offset(row, -1);
            let (before, place) = (rows.place(before), rows.place(row));
            let pending = rows.pending(before, &place, folded, &stores);
            rows.fold_row((row, &place), end, interleaved_level, &stores, Some(pending))
        });
        let place = self.place(end);
        let pending = self.pending(place.clone(), &place, &done, &stores);
        self.nest.kept = pending.kept;
        // The same setting as for the other rows, so that a row's bits do not depend on its
        // position in a task.
        self.nest.b.set_divides(true);
        self.write_stores(&stores, &pending.place, None);
        self.nest.b.set_divides(false);
        self.column_sums = stores.column_sums;
    }

    /// Reduces the row at `place`; `end` is the last row. Returns the results of the reductions,
    /// then those of the next row that have been computed with them.
    fn fold_row(
        &mut self,
        (row, place): (V, &Index),
        end: V,
        interleaved_level: usize,
        stores: &Stores<'f>,
        pending: Option<PendingRow>,
    ) -> Vec<V> {
        self.nest.kept.values_mut().for_each(|kept| kept.written = false);
        let ahead = folds_next_row(interleaved_level);
        let next = ahead.then(|| {
            let next = self.nest.b.offset(row, 1);
            let next = self.nest.b.binary(Binary::Min, next, end);
            self.place(next)
        });
        let mut interleaved = Interleaved { pending, next: next.clone() };
        for level in 1 + usize::from(ahead)..=self.levels() {
            match level == interleaved_level {
                true => self.fold_level(level, place, &std::mem::take(&mut interleaved)),
                false => self.fold_level(level, place, &Interleaved::default()),
            }
        }
        self.write_folded(stores, place);
        let own = self.folds.clone().into_iter().map(|(_, op, _)| (op, place));
        let first = self.folds.clone().into_iter().filter(|(level, ..)| *level == 1);
        let first = next.iter().flat_map(|next| first.clone().map(move |(_, op, _)| (op, next)));
        let result = |(op, place): (&Operation, &Index)| {
            let index = self.folded(op, place);
            self.nest.pull(op.result(), &index)
        };
        own.chain(first).map(result).collect()
    }

    /// The row at `place`, reduced but not stored. `folded` is what [`Rows::fold_row`] returned for
    /// it.
    fn pending<'a>(
        &mut self,
        place: Index,
        next: &Index,
        folded: &[V],
        stores: &'a Stores<'f>,
    ) -> PendingRow<'a, 'f> {
        let folds = self.folds.clone();
        let own = folds.iter().map(|(_, op, _)| (*op, &place));
        let first = folds.iter().filter(|(level, ..)| *level == 1).map(|(_, op, _)| (*op, next));
        for ((op, place), &v) in own.chain(first).zip(folded) {
            let index = self.folded(op, place);
            self.nest.learn(op.result(), index, v);
        }
        let mut kept = self.nest.kept.clone();
        kept.values_mut().for_each(|kept| kept.written = true);
        let order = self.first_sweeps.iter().map(|(value, _)| *value).collect();
        PendingRow { stores, place, kept, order }
    }
}
