//! Concatenation of many parts: copies each part. A loop over the result would have to find the
//! part of each element instead.

use mithril_ir::dim::Dim;
use mithril_ir::graph::Value;
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::code::{Binary, Cmp, Mem, V};
use crate::contract::lanes::below;
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::Nest;
use crate::lower::reduce::product;

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel::plain("concat"),
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::concat),
};

/// The maximum number of calls of the kernel if each task copies one part.
const MAX_CALLS: usize = 8;

/// A part, and its offset along the axis.
struct Part {
    value: Value,
    offset: Dim,
}

impl Standalone<'_> {
    /// A task copies a whole part if the parts are contiguous in the result. Otherwise it copies
    /// one row: an index along the axes before the concatenated axis.
    fn concat(&mut self) -> Dim {
        let axis = self.axis();
        let rows = product(&self.nest.dims(self.op.result())[..axis]);
        let mut offset = Dim::Const(0);
        let mut parts = Vec::new();
        for &value in &self.op.operands {
            let size = &self.nest.dims(value)[axis];
            if size.as_const() != Some(0) {
                parts.push(Part { value, offset: offset.clone() });
                offset = &offset + size;
            }
        }
        if self.nest.b.source().all_tasks {
            let (zero, count) = (self.nest.b.index(0), self.nest.dim(&rows));
            self.each(zero, count, 1, |own, row| {
                parts.iter().for_each(|part| own.copy(part, axis, row));
            });
            return Dim::Const(1);
        }
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        if rows.as_const() != Some(1) {
            self.each(first, last, 1, |own, row| {
                parts.iter().for_each(|part| own.copy(part, axis, row));
            });
            return rows;
        }
        self.grain = parts.len().div_ceil(MAX_CALLS).max(1) as i64;
        for (number, part) in parts.iter().enumerate() {
            let task = self.nest.b.index(number as i64);
            let after_first = self.nest.b.compare(Cmp::Le, first, task);
            let before_last = self.nest.b.compare(Cmp::Lt, task, last);
            let own = self.nest.b.binary(Binary::And, after_first, before_last);
            self.nest.b.open_region();
            self.enter();
            let zero = self.nest.b.index(0);
            self.copy(part, axis, zero);
            self.leave();
            let yes = self.nest.b.close_region(vec![]);
            self.nest.b.open_region();
            let no = self.nest.b.close_region(vec![]);
            self.nest.b.place_choice(own, yes, no);
        }
        Dim::from(parts.len())
    }

    /// Copies one row of a part.
    fn copy(&mut self, part: &Part, axis: usize, row: V) {
        match self.nest.arg(part.value) {
            Some(from) => self.copy_memory(part, from, axis, row),
            None => self.copy_elements(part, axis, row),
        }
    }

    /// Copies one row of a part in memory, which is contiguous.
    fn copy_memory(&mut self, part: &Part, from: Mem, axis: usize, row: V) {
        let own = product(&self.nest.dims(part.value)[axis..]);
        let result = self.nest.dims(self.op.result());
        let (all, inner) = (product(&result[axis..]), product(&result[axis + 1..]));
        let [own, all, before] = [own, all, &part.offset * &inner].map(|dim| self.nest.dim(&dim));
        let start = self.nest.b.mul(row, own);
        let place = self.nest.b.mul(row, all);
        let place = self.nest.b.add(place, before);
        let to = self.nest.results[0];
        self.vectors(own, |nest, at, lanes| {
            let [source, target] = [start, place].map(|base| nest.b.add(base, at));
            let v = nest.b.load(from, source, lanes, nest.mask);
            nest.b.store(to, target, v, nest.mask);
        });
    }

    /// Computes one row of a part that is not in memory, and stores it.
    fn copy_elements(&mut self, part: &Part, axis: usize, row: V) {
        let dims = self.nest.dims(part.value);
        let front = self.nest.unravel(&dims[..axis], Ix::Uniform(row));
        let (middle, length) = match dims[axis..].split_last() {
            Some((last, middle)) => (middle.to_vec(), last.clone()),
            None => (vec![], Dim::Const(1)),
        };
        let (offset, length) = (self.nest.dim(&part.offset), self.nest.dim(&length));
        self.each_index(&middle, |own, place| {
            own.vectors(length, |nest, at, _| {
                nest.multiples.insert(at);
                let inner = place.iter().copied().chain([Ix::Ascending(at)]);
                let index: Index = front.iter().copied().chain(inner).collect();
                let v = nest.pull(part.value, &index);
                let mut target = index;
                target[axis] = nest.arithmetic(Binary::Add, target[axis], Ix::Uniform(offset));
                nest.write(nest.results[0], nest.dims(nest.f.results[0].value), &target, v);
            });
        });
    }

    /// Emits a loop over vectors up to a length, and a masked remainder unless vectors have one
    /// lane.
    fn vectors(&mut self, length: V, body: impl Fn(&mut Nest, V, u32)) {
        let lanes = self.nest.lanes;
        let zero = self.nest.b.index(0);
        let step = self.nest.b.index(lanes.into());
        let count = self.nest.b.div(length, step);
        let end = self.nest.b.mul(count, step);
        self.nest.each(zero, end, lanes.into(), |nest, at| body(nest, at, lanes));
        if lanes == 1 {
            return;
        }
        let rest = self.nest.b.compare(Cmp::Lt, end, length);
        self.nest.emit_if(rest, &[], |nest| {
            let left = nest.b.sub(length, end);
            nest.mask = below(&mut nest.b, left, lanes);
            body(nest, end, lanes);
            nest.mask = None;
            vec![]
        });
    }
}
