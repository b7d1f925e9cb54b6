//! Elements at indices that are data: gathers and updates.

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
                let at = self.resolved(op.operands[1], places, &self.dims(x)[axis]);
                let mut place: Index = index[..axis].into();
                place.push(at);
                place.extend_from_slice(&index[axis + rank..]);
                self.pull_within(x, axis, &place)
            }
            Gather::TakeAlong => {
                let axis = int(op, "axis").rem_euclid(self.dims(x).len() as i64) as usize;
                let at = self.resolved(op.operands[1], index, &self.dims(x)[axis]);
                let mut place: Index = index.into();
                place[axis] = at;
                self.pull_within(x, axis, &place)
            }
            Gather::SliceUpdate => self.slice_update(op, index),
            Gather::DynamicSlice => {
                let starts = self.starts(op, 1, self.dims(op.result()));
                let pairs: Vec<(Ix, Ix)> = index.iter().copied().zip(starts).collect();
                let place: Index =
                    pairs.into_iter().map(|(i, s)| self.arith(Binary::Add, i, s)).collect();
                self.pull(x, &place)
            }
            Gather::DynamicUpdate => self.dynamic_update(op, index),
        }
    }

    /// The element at an index; 0 where the axis is empty.
    fn pull_within(&mut self, x: Value, axis: usize, place: &[Ix]) -> V {
        let size = self.dims(x)[axis].clone();
        match size.as_const() {
            Some(0) => {
                let ty = Ty::scalar(super::nest::held(self.dtype(x)));
                self.b.int(ty, 0)
            }
            Some(_) => self.pull(x, place),
            None => self.pull_if_any(x, &size, place),
        }
    }

    /// The same along an axis of `size`, which may be empty. If it is, lanes are masked and a
    /// single element is not read. If loads may run early, it is read at index 0, under a mask.
    fn pull_if_any(&mut self, x: Value, size: &Dim, place: &[Ix]) -> V {
        let (size, zero) = (self.dim(size), self.b.index(0));
        let any = self.b.compare(Cmp::Gt, size, zero);
        if !self.b.source().speculates && place.iter().all(|ix| matches!(ix, Ix::At(_))) {
            let none = self.b.int(Ty::scalar(super::nest::held(self.dtype(x))), 0);
            return self.choose(any, &[none], |nest| vec![nest.pull(x, place)])[0];
        }
        let brought = |nest: &mut Self, ix: &Ix| match *ix {
            Ix::At(at) => Ix::At(nest.b.select(any, at, zero)),
            lanes => lanes,
        };
        let place: Index = place.iter().map(|ix| brought(self, ix)).collect();
        let outer = self.mask;
        let lanes = self.lift(any, self.lanes);
        self.mask = Some(self.both(outer, lanes));
        let found = self.scoped(|nest| nest.pull(x, &place));
        self.mask = outer;
        let none = self.b.int(self.b.ty(found), 0);
        self.either(any, found, none)
    }

    /// The position that a data index refers to. Negative indices count from the end, once; an
    /// index that is still out of range is clamped to the nearest element.
    pub fn resolved(&mut self, indices: Value, at: &[Ix], size: &Dim) -> Ix {
        let unsigned = self.dtype(indices) == DType::U64;
        let raw = self.pull(indices, at);
        let raw = self.b.convert(raw, DType::I64);
        let ty = self.b.ty(raw);
        let (zero, one) = (self.b.int(ty, 0), self.b.int(ty, 1));
        let size = self.dim(size);
        let size = self.lift(size, ty.lanes);
        let last = self.b.sub(size, one);
        let negative = self.b.compare(Cmp::Lt, raw, zero);
        let place = match unsigned {
            // As an i64, an index that looks negative is beyond the end.
            true => self.b.select(negative, last, raw),
            // An index that is not negative has 0 added: large ones would overflow.
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
                true => self.arith(Binary::Sub, index[axis], Ix::At(start)),
                false => self.arith(Binary::Sub, Ix::At(start), index[axis]),
            };
            let (at, holds) = self.within(moved, step.abs(), &self.dims(update)[axis]);
            place[axis] = at;
            inside = Some(self.both(inside, holds));
        }
        self.updated(op, index, &place, inside)
    }

    fn dynamic_update(&mut self, op: &Operation, index: &[Ix]) -> V {
        let update = op.operands[1];
        let starts = self.starts(op, 2, self.dims(update));
        let mut place: Index = index.into();
        let mut inside: Option<V> = None;
        for (axis, start) in starts.into_iter().enumerate() {
            let moved = self.arith(Binary::Sub, index[axis], start);
            let (at, holds) = self.within(moved, 1, &self.dims(update)[axis]);
            place[axis] = at;
            inside = Some(self.both(inside, holds));
        }
        self.updated(op, index, &place, inside)
    }

    fn updated(&mut self, op: &Operation, index: &[Ix], place: &[Ix], inside: Option<V>) -> V {
        let update = op.operands[1];
        let empty = self.dims(update).iter().any(|dim| dim.as_const() == Some(0));
        let old = self.pull(op.operands[0], index);
        match inside {
            _ if empty => old,
            Some(inside) => {
                let empty = self.dims(update).iter().any(may_be_empty);
                let new = self.pull_inside(update, place, inside, empty);
                self.either(inside, new, old)
            }
            None => self.pull(update, place),
        }
    }

    pub fn both(&mut self, a: Option<V>, b: V) -> V {
        let Some(a) = a else {
            return b;
        };
        let lanes = self.b.ty(a).lanes.max(self.b.ty(b).lanes);
        let [a, b] = [a, b].map(|v| self.lift(v, lanes));
        self.b.binary(Binary::And, a, b)
    }

    /// The index in a part that begins at 0 and covers every `step`-th element, moved inside, and
    /// whether it was inside. Contiguous lanes stay contiguous, and some may remain outside: read
    /// them with [`Nest::pull_inside`].
    pub fn within(&mut self, moved: Ix, step: i64, size: &Dim) -> (Ix, V) {
        if let (Ix::Lanes(base), 1) = (moved, step) {
            return self.lanes_within(base, size);
        }
        let (at, holds) = self.hit(moved, step, size);
        let at = self.position(at);
        let zero = self.b.int(self.b.ty(at), 0);
        let at = self.b.select(holds, at, zero);
        (self.ix(at), holds)
    }

    /// Where the lanes are known to be either all inside or all outside, the condition is a scalar.
    /// Other lanes are moved to at most a vector beyond either end, because masked reads far away
    /// are slow.
    fn lanes_within(&mut self, base: V, size: &Dim) -> (Ix, V) {
        let lanes = i64::from(self.lanes);
        let whole =
            size.as_const().is_some_and(|n| n > 0 && n % lanes == 0) && self.is_multiple(base);
        let (zero, end) = (self.b.index(0), self.dim(size));
        if whole {
            let behind = self.b.compare(Cmp::Ge, base, zero);
            let before = self.b.compare(Cmp::Lt, base, end);
            let inside = self.b.binary(Binary::And, behind, before);
            let at = self.b.select(inside, base, zero);
            self.multiples.insert(at);
            return (Ix::Lanes(at), inside);
        }
        let (_, holds) = self.hit(Ix::Lanes(base), 1, size);
        let least = self.b.index(-lanes);
        let at = self.b.binary(Binary::Max, base, least);
        let at = self.b.binary(Binary::Min, at, end);
        (Ix::Lanes(at), holds)
    }

    /// The start of a block of `sizes`, clamped so that the block lies within the first operand.
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
            starts.push(Ix::At(at));
        }
        starts
    }
}
