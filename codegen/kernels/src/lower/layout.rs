//! Elements of views: layout operations as arithmetic on indices.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::access::Constant;
use mithril_ir::op::view::{AxisMap, IndexMap};
use smallvec::SmallVec;
use std::ops::Range;

use super::index::{Index, Ix};
use super::nest::{Nest, held};
use crate::code::{Binary, Cmp, Ty, V};

impl Nest<'_> {
    pub fn constant(&mut self, op: &Operation, constant: Constant, index: &[Ix]) -> V {
        match constant {
            Constant::Literal => self.literal(op, index),
            Constant::Iota => {
                let axis = int(op, "axis").rem_euclid(index.len() as i64) as usize;
                let at = self.position(index[axis]);
                self.integer(at, op)
            }
            Constant::Known => {
                let known = self.f.info(op.result()).known.clone();
                let dim = known.as_ref().and_then(|dims| dims.first().cloned());
                let dim = dim.unwrap_or(Dim::Const(0));
                let at = self.dim(&dim);
                self.integer(at, op)
            }
        }
    }

    /// An index in the dtype of a result.
    fn integer(&mut self, at: V, op: &Operation) -> V {
        self.b.convert(at, held(self.dtype(op.result())))
    }

    /// The index in the operand of a view.
    pub fn viewed(&mut self, op: &Operation, map: &IndexMap, index: &[Ix]) -> Index {
        let [from, to] = [op.operands[0], op.result()].map(|value| &self.f.ty(value).shape);
        match map {
            IndexMap::Affine(axes) => axes.iter().map(|map| self.affine(map, index)).collect(),
            IndexMap::Reshape(runs) => self.reshaped(runs, &from.dims, &to.dims, index),
        }
    }

    fn affine(&mut self, map: &AxisMap, index: &[Ix]) -> Ix {
        let mut place = match map.offset.as_const() {
            Some(0) => None,
            _ => Some(Ix::At(self.dim(&map.offset))),
        };
        for &(axis, coefficient) in &map.terms {
            let size = self.ix_const(coefficient.abs());
            let term = self.arith(Binary::Mul, index[axis], size);
            place = Some(match (place, coefficient < 0) {
                (None, false) => term,
                (None, true) => {
                    let zero = self.zero();
                    self.arith(Binary::Sub, zero, term)
                }
                (Some(place), false) => self.arith(Binary::Add, place, term),
                (Some(place), true) => self.arith(Binary::Sub, place, term),
            });
        }
        place.unwrap_or_else(|| self.zero())
    }

    /// Each run is reshaped separately, so that unchanged axes need no arithmetic.
    fn reshaped(
        &mut self,
        runs: &[(Range<usize>, Range<usize>)],
        operand: &[Dim],
        result: &[Dim],
        index: &[Ix],
    ) -> Index {
        let mut place: Index = SmallVec::new();
        for (from, to) in runs {
            let (own, ix) = (&operand[to.clone()], &index[from.clone()]);
            let dims = &result[from.clone()];
            let plain = |dims: &[Dim]| dims.iter().filter(|d| d.as_const() != Some(1)).count();
            match (plain(dims), plain(own)) {
                (0 | 1, 0 | 1) => {
                    let one = dims.iter().position(|d| d.as_const() != Some(1));
                    for dim in own {
                        let ix = match (dim.as_const(), one) {
                            (Some(1), _) | (_, None) => self.zero(),
                            (_, Some(at)) => ix[at],
                        };
                        place.push(ix);
                    }
                }
                _ => {
                    let number = self.flat(dims, ix);
                    place.extend(self.unflat(own, number));
                }
            }
        }
        place
    }

    fn literal(&mut self, op: &Operation, index: &[Ix]) -> V {
        let Attr::Tensor(tensor) = op.attr("value") else {
            return self.missing(op);
        };
        let ty = Ty::scalar(held(tensor.dtype()));
        let element = |nest: &mut Self, i: usize, ty: Ty| match ty.dtype.is_float() {
            true => nest.b.number(ty, tensor.element_f64(i)),
            false => nest.b.int(ty, tensor.element_i64(i)),
        };
        if tensor.is_empty() {
            return self.b.int(ty, 0);
        }
        let flat = self.flat(self.dims(op.result()), index);
        if tensor.is_uniform() {
            return element(self, 0, ty);
        }
        let at = self.position(flat);
        let (lanes, place) = (self.b.ty(at).lanes, self.b.ty(at));
        let ty = Ty { lanes, ..ty };
        let mut value = element(self, 0, ty);
        for i in 1..tensor.len() {
            let number = self.b.int(place, i as i64);
            let here = self.b.compare(Cmp::Eq, at, number);
            let other = element(self, i, ty);
            value = self.b.select(here, other, value);
        }
        value
    }

    /// Selects one of two values. All are widened to the largest number of lanes.
    pub fn either(&mut self, condition: V, yes: V, no: V) -> V {
        let count = [condition, yes, no].map(|v| self.b.ty(v).lanes);
        let lanes = count.into_iter().max().unwrap_or(1);
        let [condition, yes, no] = [condition, yes, no].map(|v| self.lift(v, lanes));
        self.b.select(condition, yes, no)
    }

    pub fn concat(&mut self, op: &Operation, index: &[Ix]) -> V {
        let axis = int(op, "axis").rem_euclid(index.len() as i64) as usize;
        let mut offset = Dim::Const(0);
        let mut value = None;
        for &part in &op.operands {
            let size = &self.dims(part)[axis];
            if size.as_const() == Some(0) {
                continue;
            }
            let start = self.dim(&offset);
            let place = self.arith(Binary::Sub, index[axis], Ix::At(start));
            let (at, inside) = self.within(place, 1, size);
            value = Some(self.part(part, axis, index, at, inside, value));
            offset = &offset + size;
        }
        let ty = Ty::scalar(held(self.dtype(op.result())));
        value.unwrap_or_else(|| self.b.int(ty, 0))
    }

    /// Selects a part of a concatenation where `inside` holds, otherwise `before`.
    fn part(
        &mut self,
        part: Value,
        axis: usize,
        index: &[Ix],
        at: Ix,
        inside: V,
        before: Option<V>,
    ) -> V {
        let mut place: Index = index.into();
        place[axis] = at;
        let empty = may_be_empty(&self.dims(part)[axis]);
        let value = self.pull_inside(part, &place, inside, empty);
        match before {
            None => value,
            Some(before) => self.either(inside, value, before),
        }
    }

    /// The element at an index that is valid only where `inside` holds. Contiguous lanes are
    /// masked. Other indices have been moved inside, where an element exists unless the array
    /// `may_be_empty`. If loads may run early, all have a mask.
    pub fn pull_inside(&mut self, value: Value, place: &[Ix], inside: V, may_be_empty: bool) -> V {
        let in_line = place.iter().any(|ix| matches!(ix, Ix::Lanes(_)));
        let uniform = self.b.ty(inside).lanes == 1;
        if !self.b.source().speculates && (!in_line || uniform) {
            if !may_be_empty {
                return self.pull(value, place);
            }
            if place.iter().all(|ix| matches!(ix, Ix::At(_))) && uniform {
                let none = self.b.int(Ty::scalar(held(self.dtype(value))), 0);
                return self.choose(inside, &[none], |nest| vec![nest.pull(value, place)])[0];
            }
        }
        let outer = self.mask;
        // A single condition may stand for all lanes.
        let inside = if in_line { self.lift(inside, self.lanes) } else { inside };
        self.mask = Some(self.both(outer, inside));
        let v = self.scoped(|nest| nest.pull(value, place));
        self.mask = outer;
        v
    }

    pub fn pad(&mut self, op: &Operation, index: &[Ix]) -> V {
        let operand = self.dims(op.operands[0]);
        let (low, interior) = (ints(op, "low"), ints(op, "interior"));
        let mut place: Index = index.into();
        let mut inside: Option<V> = None;
        let mut empty = false;
        for axis in 0..operand.len() {
            let step = interior.get(axis).copied().unwrap_or(0) + 1;
            let lead = low.get(axis).copied().unwrap_or(0);
            let high = ints(op, "high").get(axis).copied().unwrap_or(0);
            if (lead, high, step) == (0, 0, 1) {
                continue;
            }
            let lead = self.ix_const(lead);
            let moved = self.arith(Binary::Sub, index[axis], lead);
            let (at, holds) = self.within(moved, step, &operand[axis]);
            inside = Some(self.both(inside, holds));
            empty |= may_be_empty(&operand[axis]);
            place[axis] = at;
        }
        let Some(inside) = inside else {
            return self.pull(op.operands[0], &place);
        };
        let value = self.pull_inside(op.operands[0], &place, inside, empty);
        let filler = self.pull(op.operands[1], &[]);
        self.either(inside, value, filler)
    }

    /// The index in the operand for an index in the padded result, and whether it is an element
    /// there.
    pub fn hit(&mut self, moved: Ix, step: i64, size: &Dim) -> (Ix, V) {
        let at = self.position(moved);
        let ty = self.b.ty(at);
        let (zero, by) = (self.b.int(ty, 0), self.b.int(ty, step));
        let size = self.dim(size);
        let size = self.lift(size, ty.lanes);
        let mut holds = self.b.compare(Cmp::Ge, at, zero);
        let mut place = at;
        if step != 1 {
            let clear = self.b.binary(Binary::Max, at, zero);
            place = self.b.div(clear, by);
            let back = self.b.mul(place, by);
            let exact = self.b.compare(Cmp::Eq, back, clear);
            holds = self.b.binary(Binary::And, holds, exact);
        }
        let below = self.b.compare(Cmp::Lt, place, size);
        let holds = self.b.binary(Binary::And, holds, below);
        (self.ix(place), holds)
    }
}

/// Whether an axis may have no elements.
pub fn may_be_empty(size: &Dim) -> bool {
    size.lower_bound().is_none_or(|least| least < 1)
}

pub fn int(op: &Operation, name: &str) -> i64 {
    match op.attr(name) {
        Attr::Int(value) => *value,
        _ => 0,
    }
}

pub fn ints<'a>(op: &'a Operation, name: &str) -> &'a [i64] {
    match op.attr(name) {
        Attr::Ints(values) => values,
        _ => &[],
    }
}
