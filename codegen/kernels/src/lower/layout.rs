//! Lowers layout operations (views, concat, pad) and constants to arithmetic on indices.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::access::Constant;
use mithril_ir::op::view::{AxisMap, IndexMap};
use smallvec::SmallVec;
use std::ops::Range;

use super::index::{Index, Ix};
use super::nest::{Nest, register_dtype};
use crate::code::{Binary, Cmp, Ty, V};

impl Nest<'_> {
    pub fn constant(&mut self, op: &Operation, constant: Constant, index: &[Ix]) -> V {
        match constant {
            Constant::Literal => self.literal(op, index),
            Constant::Iota => {
                let axis = int(op, "axis").rem_euclid(index.len() as i64) as usize;
                let at = self.as_value(index[axis]);
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

    /// Converts an index to the dtype of the operation's result.
    fn integer(&mut self, at: V, op: &Operation) -> V {
        self.b.convert(at, register_dtype(self.dtype(op.result())))
    }

    /// Maps an index in the result of a view to an index in its operand.
    pub fn view_operand_index(&mut self, op: &Operation, map: &IndexMap, index: &[Ix]) -> Index {
        let [from, to] = [op.operands[0], op.result()].map(|value| &self.f.ty(value).shape);
        match map {
            IndexMap::Affine(axes) => axes.iter().map(|map| self.affine(map, index)).collect(),
            IndexMap::Reshape(runs) => self.reshaped(runs, &from.dims, &to.dims, index),
        }
    }

    fn affine(&mut self, map: &AxisMap, index: &[Ix]) -> Ix {
        let mut place = match map.offset.as_const() {
            Some(0) => None,
            _ => Some(Ix::Uniform(self.dim(&map.offset))),
        };
        for &(axis, coefficient) in &map.terms {
            let size = self.ix_const(coefficient.abs());
            let term = self.arithmetic(Binary::Mul, index[axis], size);
            place = Some(match (place, coefficient < 0) {
                (None, false) => term,
                (None, true) => {
                    let zero = self.zero();
                    self.arithmetic(Binary::Sub, zero, term)
                }
                (Some(place), false) => self.arithmetic(Binary::Add, place, term),
                (Some(place), true) => self.arithmetic(Binary::Sub, place, term),
            });
        }
        place.unwrap_or_else(|| self.zero())
    }

    /// Maps an index through a reshape. Each run of axes is mapped separately, so unchanged axes
    /// need no arithmetic.
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
                    let number = self.flat_index(dims, ix);
                    place.extend(self.unravel(own, number));
                }
            }
        }
        place
    }

    fn literal(&mut self, op: &Operation, index: &[Ix]) -> V {
        let Attr::Tensor(tensor) = op.attr("value") else {
            return self.unsupported(op);
        };
        let ty = Ty::scalar(register_dtype(tensor.dtype()));
        let element = |nest: &mut Self, i: usize, ty: Ty| match ty.dtype.is_float() {
            true => nest.b.number(ty, tensor.element_f64(i)),
            false => nest.b.int(ty, tensor.element_i64(i)),
        };
        if tensor.is_empty() {
            return self.b.int(ty, 0);
        }
        let flat = self.flat_index(self.dims(op.result()), index);
        if tensor.is_uniform() {
            return element(self, 0, ty);
        }
        let at = self.as_value(flat);
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

    /// Selects one of two values after splatting scalars to the largest number of lanes.
    pub fn select_lanes(&mut self, condition: V, yes: V, no: V) -> V {
        let count = [condition, yes, no].map(|v| self.b.ty(v).lanes);
        let lanes = count.into_iter().max().unwrap_or(1);
        let [condition, yes, no] = [condition, yes, no].map(|v| self.splat(v, lanes));
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
            let place = self.arithmetic(Binary::Sub, index[axis], Ix::Uniform(start));
            let (at, inside) = self.move_inside(place, 1, size);
            value = Some(self.part(part, axis, index, at, inside, value));
            offset = &offset + size;
        }
        let ty = Ty::scalar(register_dtype(self.dtype(op.result())));
        value.unwrap_or_else(|| self.b.int(ty, 0))
    }

    /// Selects the element of one concatenated part where `inside` holds, otherwise `before`.
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
            Some(before) => self.select_lanes(inside, value, before),
        }
    }

    /// Computes the element at an index that is valid only where `inside` holds. Loads of
    /// contiguous lanes are masked. Other indices have been moved inside by [`Nest::move_inside`],
    /// so they need no mask unless the array `may_be_empty`. If the target may execute loads
    /// speculatively, all loads are masked.
    pub fn pull_inside(&mut self, value: Value, place: &[Ix], inside: V, may_be_empty: bool) -> V {
        let contiguous = place.iter().any(|ix| matches!(ix, Ix::Ascending(_)));
        let uniform = self.b.ty(inside).lanes == 1;
        if !self.b.source().speculates && (!contiguous || uniform) {
            if !may_be_empty {
                return self.pull(value, place);
            }
            if place.iter().all(|ix| matches!(ix, Ix::Uniform(_))) && uniform {
                let none = self.b.int(Ty::scalar(register_dtype(self.dtype(value))), 0);
                return self.emit_if(inside, &[none], |nest| vec![nest.pull(value, place)])[0];
            }
        }
        let outer = self.mask;
        // A scalar condition applies to all lanes.
        let inside = if contiguous { self.splat(inside, self.lanes) } else { inside };
        self.mask = Some(self.and_mask(outer, inside));
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
            let moved = self.arithmetic(Binary::Sub, index[axis], lead);
            let (at, holds) = self.move_inside(moved, step, &operand[axis]);
            inside = Some(self.and_mask(inside, holds));
            empty |= may_be_empty(&operand[axis]);
            place[axis] = at;
        }
        let Some(inside) = inside else {
            return self.pull(op.operands[0], &place);
        };
        let value = self.pull_inside(op.operands[0], &place, inside, empty);
        let filler = self.pull(op.operands[1], &[]);
        self.select_lanes(inside, value, filler)
    }

    /// Maps an index in a padded result to an index in its operand. Also returns whether there is
    /// an element at that index, rather than padding. `moved` is the index minus the leading
    /// padding; `step` is the distance of elements in the result.
    pub fn source_index(&mut self, moved: Ix, step: i64, size: &Dim) -> (Ix, V) {
        let at = self.as_value(moved);
        let ty = self.b.ty(at);
        let (zero, by) = (self.b.int(ty, 0), self.b.int(ty, step));
        let size = self.dim(size);
        let size = self.splat(size, ty.lanes);
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
    size.lower_bound().is_none_or(|lowest| lowest < 1)
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
