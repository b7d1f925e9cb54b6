//! Prefetches of the following rows, and the choice of results that are written by streaming
//! stores.

use mithril_ir::dim::Dim;
use mithril_ir::graph::Value;

use super::Rows;
use crate::code::{Mem, V};
use crate::isa::Isa;
use crate::lower::fold::product;
use crate::lower::index::{Address, Index};
use crate::lower::nest::Nest;

/// Results of at least this size (bytes) do not stay in the last-level cache, so they are written
/// with streaming stores.
const STREAMED_BYTES: i64 = 8 << 20;
/// Tensors of at least this size (bytes) are prefetched. Smaller ones are in a cache, or soon are.
const FETCHED_BYTES: i64 = 1 << 18;
/// Minimum prefetch distance in bytes; the usual distance is one row.
const AHEAD_BYTES: i64 = 4 << 10;
/// Bytes of a cache line.
const LINE: i64 = 64;

/// The prefetches of one pass over a row. A processor has few cache lines in flight, so the pass
/// that computes most does the prefetching: it hides the latency.
#[derive(Default)]
pub struct Prefetch {
    /// The pass that prefetches.
    pub level: usize,
    /// The memory that is prefetched, and whether it is for writing.
    mems: Vec<(Mem, bool)>,
    elements: Option<V>,
}

impl Rows<'_> {
    /// Chooses streaming stores and prefetches for the arguments and results. Runs before any code
    /// that reads or writes them.
    pub fn route(&mut self, isa: &Isa) {
        if isa.source.vectorizes {
            return;
        }
        let f = self.nest.f;
        for (at, result) in f.results.iter().enumerate() {
            let large = self.bytes(result.value).is_some_and(|bytes| bytes >= STREAMED_BYTES);
            if isa.streams && large && self.is_in_lines(result.value, isa) {
                self.nest.streamed.push(self.nest.results[at]);
            }
        }
        if self.folds.is_empty() {
            return;
        }
        let results = f.results.iter().map(|result| result.value).zip(&self.nest.results);
        let results = results.filter(|(_, mem)| !self.nest.streamed.contains(mem));
        let args = f.arguments().map(|(value, _)| (value, false));
        let args = args.filter_map(|(value, write)| Some((value, self.nest.arg(value)?, write)));
        let mems = args.chain(results.map(|(value, mem)| (value, *mem, true)));
        let far = mems.filter(|(value, ..)| {
            self.is_whole(*value) && self.bytes(*value).is_none_or(|bytes| bytes >= FETCHED_BYTES)
        });
        self.prefetch.mems = far.map(|(_, mem, write)| (mem, write)).collect();
        self.prefetch.level = self.busiest();
        let row = product(&self.space[self.outer..]);
        let rows = row.as_const().map_or(1, |n| (AHEAD_BYTES / 4 / n.max(1)).max(1));
        let row = self.nest.dim(&row);
        self.prefetch.elements = Some(self.nest.b.times(row, rows));
    }

    /// The pass that computes most.
    fn busiest(&self) -> usize {
        let work = |level: usize| {
            let needed = self.needed(level);
            let first = |value: &&_| self.first_sweep(**value).is_none_or(|first| first == level);
            let own: Vec<Value> = needed.iter().filter(first).copied().collect();
            (own.iter().filter(|value| self.is_dear(**value)).count(), own.len())
        };
        (1..=self.last_level()).max_by_key(|&level| work(level)).unwrap_or(1)
    }

    pub fn is_whole(&self, value: Value) -> bool {
        *self.nest.dims(value) == self.space[..]
    }

    fn bytes(&self, value: Value) -> Option<i64> {
        let count = product(self.nest.dims(value)).as_const()?;
        Some(count * self.nest.dtype(value).bytes() as i64)
    }

    /// Whether every vector of a result begins at a multiple of its size.
    fn is_in_lines(&self, value: Value, isa: &Isa) -> bool {
        let width = self.nest.dtype(value).bytes() as i64;
        let vector = width * i64::from(self.nest.lanes);
        let row = product(&self.space[self.axis..]).as_const().map(|n| n * width);
        self.is_whole(value) && vector == i64::from(isa.bytes) && row.is_some_and(|n| n % LINE == 0)
    }
}

impl Prefetch {
    /// Prefetches at a position of a row of `space`, in the pass of this level.
    pub fn fetch(&self, nest: &mut Nest, level: usize, space: &[Dim], at: &Index) {
        let (Some(ahead), None) = (self.elements, nest.mask) else { return };
        if level != self.level || self.mems.is_empty() {
            return;
        }
        if let Address::Row(at) = nest.address(space, at) {
            let at = nest.b.add(at, ahead);
            for &(mem, write) in &self.mems {
                nest.b.prefetch(mem, at, write);
            }
        }
    }
}
