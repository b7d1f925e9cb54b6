//! Lowers gathers and slice updates, whose indices are tensor elements.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::access::Gather;
use mithril_ir::op::view::slice_starts;

use super::index::{Index, Ix};
use super::layout::{int, may_be_empty};
use super::nest::Nest;
use crate::code::{Binary, Cmp, Ty, V};

impl Nest<'_> {
    pub fn gather(&mut self, op: &Operation, gather: Gather, index: &[Ix]) -> V {
        let x = op.operands[0];
        match gather {
            Gather::Take => {
                let axis = int(op, "axis").rem_euclid(self.dims(x).len() as i64) as usize;
                let rank = self.dims(op.operands[1]).len();
                let places = &index[axis..axis + rank];
                let at = self.resolve_index(op.operands[1], places, &self.dims(x)[axis]);
                let mut place: Index = index[..axis].into();
                place.push(at);
                place.extend_from_slice(&index[axis + rank..]);
                self.pull_or_zero(x, axis, &place)
            }
            Gather::TakeAlong => {
                let axis = int(op, "axis").rem_euclid(self.dims(x).len() as i64) as usize;
                let at = self.resolve_index(op.operands[1], index, &self.dims(x)[axis]);
                let mut place: Index = index.into();
                place[axis] = at;
                self.pull_or_zero(x, axis, &place)
            }
            Gather::SliceUpdate => self.slice_update(op, index),
            Gather::DynamicSlice => {
                let starts = self.starts(op, 1, self.dims(op.result()));
                let pairs: Vec<(Ix, Ix)> = index.iter().copied().zip(starts).collect();
                let place: Index =
                    pairs.into_iter().map(|(i, s)| self.arithmetic(Binary::Add, i, s)).collect();
                self.pull(x, &place)
            }
            Gather::DynamicUpdate => self.dynamic_update(op, index),
        }
    }

    /// Computes the element at an index, or 0 if the axis is empty.
    fn pull_or_zero(&mut self, x: Value, axis: usize, place: &[Ix]) -> V {
        let size = self.dims(x)[axis].clone();
        match size.as_const() {
            Some(0) => {
                let ty = Ty::scalar(super::nest::register_dtype(self.dtype(x)));
                self.b.int(ty, 0)
            }
            Some(_) => self.pull(x, place),
            None => self.pull_if_nonempty(x, &size, place),
        }
    }

    /// Computes the element at an index along an axis of `size`, or 0 if the axis is empty. For
    /// vectors, the loads are masked. A single element is loaded inside an `if`, or, if the target
    /// may execute loads speculatively, at index 0 under a mask.
    fn pull_if_nonempty(&mut self, x: Value, size: &Dim, place: &[Ix]) -> V {
        let (size, zero) = (self.dim(size), self.b.index(0));
        let any = self.b.compare(Cmp::Gt, size, zero);
        if !self.b.source().speculates && place.iter().all(|ix| matches!(ix, Ix::Uniform(_))) {
            let none = self.b.int(Ty::scalar(super::nest::register_dtype(self.dtype(x))), 0);
            return self.emit_if(any, &[none], |nest| vec![nest.pull(x, place)])[0];
        }
        let or_first = |nest: &mut Self, ix: &Ix| match *ix {
            Ix::Uniform(at) => Ix::Uniform(nest.b.select(any, at, zero)),
            lanes => lanes,
        };
        let place: Index = place.iter().map(|ix| or_first(self, ix)).collect();
        let outer = self.mask;
        let lanes = self.splat(any, self.lanes);
        self.mask = Some(self.and_mask(outer, lanes));
        let found = self.scoped(|nest| nest.pull(x, &place));
        self.mask = outer;
        let none = self.b.int(self.b.ty(found), 0);
        self.select_lanes(any, found, none)
    }

    /// Resolves an index that is a tensor element. Negative indices count from the end. Indices
    /// that are still out of range are clamped.
    pub fn resolve_index(&mut self, indices: Value, at: &[Ix], size: &Dim) -> Ix {
        let unsigned = self.dtype(indices) == DType::U64;
        let raw = self.pull(indices, at);
        let raw = self.b.convert(raw, DType::I64);
        let ty = self.b.ty(raw);
        let (zero, one) = (self.b.int(ty, 0), self.b.int(ty, 1));
        let size = self.dim(size);
        let size = self.splat(size, ty.lanes);
        let last = self.b.sub(size, one);
        let negative = self.b.compare(Cmp::Lt, raw, zero);
        let place = match unsigned {
            // A u64 index that is negative as an i64 is past the end.
            true => self.b.select(negative, last, raw),
            // Adds 0 to non-negative indices, because adding the size could overflow.
            false => {
                let shift = self.b.select(negative, size, zero);
                self.b.add(raw, shift)
            }
        };
        let place = self.b.binary(Binary::Min, place, last);
        let place = self.b.binary(Binary::Max, place, zero);
        self.ix(place)
    }

    fn slice_update(&mut self, op: &Operation, index: &[Ix]) -> V {
        let update = op.operands[1];
        let mut place: Index = index.into();
        let mut inside: Option<V> = None;
        for (axis, start, step) in slice_starts(op.op, &op.attrs, self.dims(op.operands[0])) {
            let start = self.dim(&start);
            // With a negative step, indices descend from the start.
            let moved = match step > 0 {
                true => self.arithmetic(Binary::Sub, index[axis], Ix::Uniform(start)),
                false => self.arithmetic(Binary::Sub, Ix::Uniform(start), index[axis]),
            };
            let (at, holds) = self.move_inside(moved, step.abs(), &self.dims(update)[axis]);
            place[axis] = at;
            inside = Some(self.and_mask(inside, holds));
        }
        self.select_updated(op, index, &place, inside)
    }

    fn dynamic_update(&mut self, op: &Operation, index: &[Ix]) -> V {
        let update = op.operands[1];
        let starts = self.starts(op, 2, self.dims(update));
        let mut place: Index = index.into();
        let mut inside: Option<V> = None;
        for (axis, start) in starts.into_iter().enumerate() {
            let moved = self.arithmetic(Binary::Sub, index[axis], start);
            let (at, holds) = self.move_inside(moved, 1, &self.dims(update)[axis]);
            place[axis] = at;
            inside = Some(self.and_mask(inside, holds));
        }
        self.select_updated(op, index, &place, inside)
    }

    fn select_updated(
        &mut self,
        op: &Operation,
        index: &[Ix],
        place: &[Ix],
        inside: Option<V>,
    ) -> V {
        let update = op.operands[1];
        let empty = self.dims(update).iter().any(|dim| dim.as_const() == Some(0));
        let old = self.pull(op.operands[0], index);
        match inside {
            _ if empty => old,
            Some(inside) => {
                let empty = self.dims(update).iter().any(may_be_empty);
                let new = self.pull_inside(update, place, inside, empty);
                self.select_lanes(inside, new, old)
            }
            None => self.pull(update, place),
        }
    }

    pub fn and_mask(&mut self, a: Option<V>, b: V) -> V {
        let Some(a) = a else {
            return b;
        };
        let lanes = self.b.ty(a).lanes.max(self.b.ty(b).lanes);
        let [a, b] = [a, b].map(|v| self.splat(v, lanes));
        self.b.binary(Binary::And, a, b)
    }

    /// Maps an index to an index in a part that covers every `step`-th element from 0 on. Also
    /// returns whether the index lies inside the part. Indices outside are moved inside. Contiguous
    /// lanes stay contiguous, so some of them may remain outside: read them with
    /// [`Nest::pull_inside`].
    pub fn move_inside(&mut self, moved: Ix, step: i64, size: &Dim) -> (Ix, V) {
        if let (Ix::Ascending(base), 1) = (moved, step) {
            return self.move_lanes_inside(base, size);
        }
        let (at, holds) = self.source_index(moved, step, size);
        let at = self.as_value(at);
        let zero = self.b.int(self.b.ty(at), 0);
        let at = self.b.select(holds, at, zero);
        (self.ix(at), holds)
    }

    /// [`Nest::move_inside`] for contiguous lanes. If all lanes are known to be on the same side,
    /// the condition is a scalar. Otherwise the lanes are moved to at most one vector past either
    /// end, because masked loads far outside the array are slow.
    fn move_lanes_inside(&mut self, base: V, size: &Dim) -> (Ix, V) {
        let lanes = i64::from(self.lanes);
        let same_side =
            size.as_const().is_some_and(|n| n > 0 && n % lanes == 0) && self.is_multiple(base);
        let (zero, end) = (self.b.index(0), self.dim(size));
        if same_side {
            let after_start = self.b.compare(Cmp::Ge, base, zero);
            let before_end = self.b.compare(Cmp::Lt, base, end);
            let inside = self.b.binary(Binary::And, after_start, before_end);
            let at = self.b.select(inside, base, zero);
            self.multiples.insert(at);
            return (Ix::Ascending(at), inside);
        }
        let (_, holds) = self.source_index(Ix::Ascending(base), 1, size);
        let lowest = self.b.index(-lanes);
        let at = self.b.binary(Binary::Max, base, lowest);
        let at = self.b.binary(Binary::Min, at, end);
        (Ix::Ascending(at), holds)
    }

    /// Returns the start of a block of `sizes` elements, clamped so that the block lies inside the
    /// first operand.
    fn starts(&mut self, op: &Operation, first: usize, sizes: &[Dim]) -> Vec<Ix> {
        let x = self.dims(op.operands[0]);
        let mut starts = Vec::with_capacity(x.len());
        for axis in 0..x.len() {
            let raw = self.pull(op.operands[first + axis], &[]);
            let raw = self.b.convert(raw, DType::I64);
            let room = self.dim(&(&x[axis] - &sizes[axis]));
            let zero = self.b.index(0);
            let at = self.b.binary(Binary::Min, raw, room);
            let at = self.b.binary(Binary::Max, at, zero);
            starts.push(Ix::Uniform(at));
        }
        starts
    }
}
