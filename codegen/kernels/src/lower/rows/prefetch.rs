//! Prefetches the following rows, and chooses the results that are written with streaming stores.

use mithril_ir::dim::Dim;
use mithril_ir::graph::Value;

use super::Rows;
use crate::code::{Mem, V};
use crate::isa::Isa;
use crate::lower::index::{Address, Index};
use crate::lower::nest::Nest;
use crate::lower::reduce::product;

/// Results of at least this size (bytes) do not stay in the last-level cache, so they are written
/// with streaming stores.
const STREAMED_BYTES: i64 = 8 << 20;
/// Tensors of at least this size (bytes) are prefetched. Smaller ones stay in a cache.
const PREFETCHED_BYTES: i64 = 1 << 18;
/// Minimum prefetch distance in bytes; the usual distance is one row.
const MIN_DISTANCE_BYTES: i64 = 4 << 10;
/// Bytes of a cache line.
const LINE: i64 = 64;

/// The prefetches of one pass over a row. A processor has few cache misses in flight, so only one
/// pass prefetches: the one with the most arithmetic, which hides the latency.
#[derive(Default)]
pub struct Prefetch {
    /// The number of the pass that prefetches.
    pub level: usize,
    /// The memory that is prefetched, each with whether it will be written.
    mems: Vec<(Mem, bool)>,
    /// The prefetch distance in elements.
    distance: Option<V>,
}

impl Rows<'_> {
    /// Chooses streaming stores and prefetches for the arguments and results. Must run before code
    /// that reads or writes them is emitted.
    pub fn choose_stores_and_prefetches(&mut self, isa: &Isa) {
        if isa.source.vectorizes {
            return;
        }
        let f = self.nest.f;
        for (at, result) in f.results.iter().enumerate() {
            let large = self.bytes(result.value).is_some_and(|bytes| bytes >= STREAMED_BYTES);
            if isa.streams && large && self.is_aligned(result.value, isa) {
                self.nest.streamed.push(self.nest.results[at]);
            }
        }
        if self.reductions.is_empty() {
            return;
        }
        let results = f.results.iter().map(|result| result.value).zip(&self.nest.results);
        let results = results.filter(|(_, mem)| !self.nest.streamed.contains(mem));
        let args = f.arguments().map(|(value, _)| (value, false));
        let args = args.filter_map(|(value, write)| Some((value, self.nest.arg(value)?, write)));
        let mems = args.chain(results.map(|(value, mem)| (value, *mem, true)));
        let large = mems.filter(|(value, ..)| {
            self.spans_space(*value)
                && self.bytes(*value).is_none_or(|bytes| bytes >= PREFETCHED_BYTES)
        });
        self.prefetch.mems = large.map(|(_, mem, write)| (mem, write)).collect();
        self.prefetch.level = self.busiest_pass();
        let row = product(&self.space[self.outer..]);
        let rows = row.as_const().map_or(1, |n| (MIN_DISTANCE_BYTES / 4 / n.max(1)).max(1));
        let row = self.nest.dim(&row);
        self.prefetch.distance = Some(self.nest.b.times(row, rows));
    }

    /// Returns the number of the pass with the most arithmetic.
    fn busiest_pass(&self) -> usize {
        let work = |level: usize| {
            let needed = self.needed(level);
            let first = |value: &&_| self.first_pass(**value).is_none_or(|first| first == level);
            let own: Vec<Value> = needed.iter().filter(first).copied().collect();
            (own.iter().filter(|value| self.is_expensive(**value)).count(), own.len())
        };
        (1..=self.last_level()).max_by_key(|&level| work(level)).unwrap_or(1)
    }

    pub fn spans_space(&self, value: Value) -> bool {
        *self.nest.dims(value) == self.space[..]
    }

    fn bytes(&self, value: Value) -> Option<i64> {
        let count = product(self.nest.dims(value)).as_const()?;
        Some(count * self.nest.dtype(value).bytes() as i64)
    }

    /// Whether every vector of a result is aligned to the vector size.
    fn is_aligned(&self, value: Value, isa: &Isa) -> bool {
        let width = self.nest.dtype(value).bytes() as i64;
        let vector = width * i64::from(self.nest.lanes);
        let row = product(&self.space[self.axis..]).as_const().map(|n| n * width);
        self.spans_space(value)
            && vector == i64::from(isa.bytes)
            && row.is_some_and(|n| n % LINE == 0)
    }
}

impl Prefetch {
    /// Emits the prefetches at a position of a row of `space`, if `level` is the pass that
    /// prefetches.
    pub fn fetch(&self, nest: &mut Nest, level: usize, space: &[Dim], at: &Index) {
        let (Some(distance), None) = (self.distance, nest.mask) else { return };
        if level != self.level || self.mems.is_empty() {
            return;
        }
        if let Address::Ascending(at) = nest.address(space, at) {
            let at = nest.b.add(at, distance);
            for &(mem, write) in &self.mems {
                nest.b.prefetch(mem, at, write);
            }
        }
    }
}
