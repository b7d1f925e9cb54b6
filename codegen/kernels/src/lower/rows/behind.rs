//! The last sweep of a row, which writes its results: on its own, or along with a sweep of the next
//! row. Memory takes what is written past the caches more slowly than it is computed, so that the
//! next row had better be computed meanwhile.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use rustc_hash::FxHashMap;

use super::Rows;
use super::side::Side;
use crate::code::{Binary, V};
use crate::loops::Loops;
use crate::lower::index::Index;
use crate::lower::nest::{Kept, Nest};

/// What the last sweep of a row writes.
pub struct Last<'f> {
    /// The results of the whole space, with their numbers.
    pub full: Vec<(usize, Value)>,
    pub sides: Vec<Side<'f>>,
    row: Vec<Dim>,
}

/// A row whose folds are known and whose results are still to be written.
pub struct Behind<'a, 'f> {
    last: &'a Last<'f>,
    place: Index,
    kept: FxHashMap<Value, Kept>,
    /// The values kept.
    order: Vec<Value>,
}

/// What a sweep of a row does for others.
#[derive(Default)]
pub struct Beside<'a, 'f> {
    /// Writes the results of one.
    pub behind: Option<Behind<'a, 'f>>,
    /// Folds the first level of one.
    pub next: Option<Index>,
}

/// The place in the row at `place` where `other` is in another one; so many axes number the rows.
pub fn in_row(place: &Index, outer: usize, other: &Index) -> Index {
    place[..outer].iter().chain(&other[outer..]).copied().collect()
}

/// Whether the first level of a row is folded along with the second of the row before, which its
/// own would wait for otherwise; where that is the sweep that writes the row before that.
fn folds_ahead(partner: usize) -> bool {
    partner == 2
}

impl Last<'_> {
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.sides.is_empty()
    }

    /// Writes at a place of a row.
    pub fn write(&self, nest: &mut Nest, index: &Index) {
        for (at, value) in &self.full {
            let v = nest.pull(*value, index);
            nest.write(nest.results[*at], nest.dims(*value), index, v);
        }
        self.sides.iter().for_each(|side| side.take(nest, &self.row, index));
    }
}

impl Behind<'_, '_> {
    /// Reads what is kept of this row at the place where another one is; the place in this one.
    pub fn read(&self, nest: &mut Nest, other: &Index) -> Index {
        let index = in_row(&self.place, other.len() - self.last.row.len(), other);
        self.with_kept(nest, |nest| {
            for &value in &self.order {
                nest.pull(value, &index);
            }
        });
        index
    }

    /// Writes at a place of this row.
    pub fn write(&self, nest: &mut Nest, index: &Index) {
        nest.b.set_divides(true);
        self.with_kept(nest, |nest| self.last.write(nest, index));
        nest.b.set_divides(false);
    }

    fn with_kept(&self, nest: &mut Nest, body: impl FnOnce(&mut Nest)) {
        let kept = std::mem::replace(&mut nest.kept, self.kept.clone());
        body(nest);
        nest.kept = kept;
    }
}

impl<'f> Rows<'f> {
    /// What the last sweep writes; the sums over rows are put back behind it.
    pub fn open_last(&mut self) -> Last<'f> {
        let f = self.nest.f;
        let sides = std::mem::take(&mut self.sides);
        let results = f.results.iter().map(|result| result.value).enumerate();
        let full = results.filter(|(at, value)| {
            self.is_whole(*value) && !sides.iter().any(|side| side.result == *at)
        });
        Last { full: full.collect(), sides, row: self.space[self.outer..].to_vec() }
    }

    /// Writes those results of a row that have an element for it.
    pub fn write_folded(&mut self, last: &Last<'f>, place: &Index) {
        let f = self.nest.f;
        for (at, value) in f.results.iter().map(|result| result.value).enumerate() {
            if self.is_whole(value) || last.sides.iter().any(|side| side.result == at) {
                continue;
            }
            let dims = self.nest.dims(value);
            let index: Index = place[..dims.len()].into();
            let v = self.nest.pull(value, &index);
            let mem = self.nest.results[at];
            self.nest.write(mem, dims, &index, v);
        }
    }

    /// The sweep along with which the row before is written, where that pays: the first that keeps
    /// values, which are read in it before those of this row take their room.
    pub fn partner(&self) -> Option<usize> {
        let apart = !self.folds.is_empty() && !self.at_once;
        if self.nest.streamed.is_empty() || !apart {
            return None;
        }
        let keeps = self.first_sweeps.iter().map(|(_, level)| *level);
        let busy = Some(self.ahead.level).filter(|level| *level <= self.levels());
        keeps.filter(|level| *level <= self.levels()).min().or(busy).or(Some(1))
    }

    /// Folds a row and writes its results in one sweep.
    pub fn row_at_once(&mut self, place: &Index) {
        let last = self.open_last();
        let behind = Behind {
            last: &last,
            place: place.clone(),
            kept: FxHashMap::default(),
            order: Vec::new(),
        };
        self.fold_level(1, place, &Beside { behind: Some(behind), next: None });
        self.write_folded(&last, place);
        self.sides = last.sides;
    }

    /// Rows of these numbers, at least one; each is written along with a sweep of the next one.
    pub fn rows_behind(&mut self, from: V, to: V, partner: usize) {
        self.ahead.level = self.ahead.level.min(self.levels());
        let last = self.open_last();
        let end = self.nest.b.offset(to, -1);
        let place = self.place(from);
        if folds_ahead(partner) {
            self.fold_level(1, &place, &Beside::default());
        }
        let first = self.fold_row((from, &place), end, partner, &last, None);
        let second = self.nest.b.offset(from, 1);
        let done = self.repeat(second, to, 1, &first, |rows, row, folded| {
            let before = rows.nest.b.offset(row, -1);
            let (before, place) = (rows.place(before), rows.place(row));
            let behind = rows.behind(before, &place, folded, &last);
            rows.fold_row((row, &place), end, partner, &last, Some(behind))
        });
        let place = self.place(end);
        let behind = self.behind(place.clone(), &place, &done, &last);
        self.nest.kept = behind.kept;
        // As the other rows are: where a row stands among a task's is not to be seen in its bits.
        self.nest.b.set_divides(true);
        self.write_last(&last, &behind.place, None);
        self.nest.b.set_divides(false);
        self.sides = last.sides;
    }

    /// Folds a row at its place, where `end` is the last row; the results of the folds, and those
    /// of the first level of the next row if that is folded by now.
    fn fold_row(
        &mut self,
        (row, place): (V, &Index),
        end: V,
        partner: usize,
        last: &Last<'f>,
        behind: Option<Behind>,
    ) -> Vec<V> {
        self.nest.kept.values_mut().for_each(|kept| kept.written = false);
        let ahead = folds_ahead(partner);
        let next = ahead.then(|| {
            let next = self.nest.b.offset(row, 1);
            let next = self.nest.b.binary(Binary::Min, next, end);
            self.place(next)
        });
        let mut beside = Beside { behind, next: next.clone() };
        for level in 1 + usize::from(ahead)..=self.levels() {
            match level == partner {
                true => self.fold_level(level, place, &std::mem::take(&mut beside)),
                false => self.fold_level(level, place, &Beside::default()),
            }
        }
        self.write_folded(last, place);
        let own = self.folds.clone().into_iter().map(|(_, op, _)| (op, place));
        let first = self.folds.clone().into_iter().filter(|(level, ..)| *level == 1);
        let first = next.iter().flat_map(|next| first.clone().map(move |(_, op, _)| (op, next)));
        let result = |(op, place): (&Operation, &Index)| {
            let index = self.folded(op, place);
            self.nest.pull(op.result(), &index)
        };
        own.chain(first).map(result).collect()
    }

    /// The row at a place, which has been folded, and the next one's, with what
    /// [`Rows::fold_row`] gave: what is known is known of a place, so that each has one alone.
    fn behind<'a>(
        &mut self,
        place: Index,
        next: &Index,
        folded: &[V],
        last: &'a Last<'f>,
    ) -> Behind<'a, 'f> {
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
        Behind { last, place, kept, order }
    }
}
