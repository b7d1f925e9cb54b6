//! Operations that are a kernel of their own: running sums, orders, places of extremes, scatters.

mod find;
mod scatter;

use crate::loops::Loops;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Fold};
use mithril_ir::scalar::Prim;

use super::fold::product;
use super::index::{Index, Ix};
use super::layout::int;
use super::nest::{Nest, held};
use super::{Isa, Lowered};
use crate::code::{Binary, Cmp, Ty, V};
use crate::scalar;

pub fn is_alone(access: &Access) -> bool {
    matches!(
        access,
        Access::Running(_)
            | Access::Sort { .. }
            | Access::Find { .. }
            | Access::ScatterAdd
            | Access::ScatterAddAlong
    )
}

pub fn lower(function: &Function, op: &Operation, isa: &Isa) -> Result<Lowered> {
    let nest = Nest::new(function, isa);
    let mut alone = Alone { nest, op, grain: 1, scratch: Dim::Const(0) };
    let tasks = alone.kernel();
    match alone.nest.fault.take() {
        Some(fault) => Err(fault),
        None => Ok(Lowered {
            code: alone.nest.b.finish(),
            tasks,
            grain: alone.grain,
            scratch: alone.scratch,
            partials: vec![],
        }),
    }
}

struct Alone<'f> {
    nest: Nest<'f>,
    op: &'f Operation,
    grain: i64,
    scratch: Dim,
}

impl<'f> Loops for Alone<'f> {
    type Through = Nest<'f>;

    fn through(&mut self) -> &mut Nest<'f> {
        &mut self.nest
    }
}

impl Alone<'_> {
    fn kernel(&mut self) -> Dim {
        match self.op.op.access {
            Access::Running(fold) => self.lines(|own, place, axis| own.running(place, axis, fold)),
            Access::Sort { places } => {
                let length = self.nest.dims(self.op.operands[0])[self.axis()].clone();
                let elements = &length + &Dim::Const(8);
                self.scratch = &elements * &Dim::Const(32);
                self.lines(|own, place, axis| own.sort(place, axis, places))
            }
            Access::Find { greatest } => self.find(greatest),
            _ => self.scatter(),
        }
    }

    fn axis(&self) -> usize {
        let rank = self.nest.dims(self.op.operands[0]).len() as i64;
        int(self.op, "axis").rem_euclid(rank.max(1)) as usize
    }

    /// A task for each line of the operand along the axis.
    fn lines(&mut self, body: impl FnOnce(&mut Self, &Index, usize)) -> Dim {
        let axis = self.axis();
        let mut others = self.nest.dims(self.op.operands[0]).to_vec();
        others[axis] = Dim::Const(1);
        self.tasks(&others, |own, place| body(own, place, axis))
    }

    /// A task for each position of the dims; how many there are.
    fn tasks(&mut self, dims: &[Dim], body: impl FnOnce(&mut Self, &Index)) -> Dim {
        if self.nest.b.is_portable() {
            self.every(dims, body);
            return Dim::Const(1);
        }
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        self.each(first, last, 1, |own, task| {
            let place = own.nest.unflat(dims, Ix::At(task));
            body(own, &place);
        });
        product(dims)
    }

    fn write(&mut self, place: &[Ix], v: V) {
        let dims = self.nest.dims(self.op.result());
        self.nest.write(self.nest.results[0], dims, place, v);
    }

    fn running(&mut self, place: &Index, axis: usize, fold: Fold) {
        let x = self.op.operands[0];
        let dtype = held(self.nest.dtype(x));
        let (prim, neutral) = match fold {
            Fold::Product => (Prim::Mul, 1),
            _ => (Prim::Add, 0),
        };
        let first = self.nest.b.int(Ty::scalar(dtype), neutral);
        let size = self.nest.dim(&self.nest.dims(x)[axis].clone());
        let from = self.nest.b.index(0);
        self.repeat(from, size, 1, &[first], |own, i, so_far| {
            let mut place = place.clone();
            place[axis] = Ix::At(i);
            let element = own.nest.pull(x, &place);
            let next = scalar::apply(&mut own.nest.b, prim, dtype, &[so_far[0], element], None);
            own.write(&place, next);
            vec![next]
        });
    }

    /// Whether an element beats the best so far; NaN is greatest, and least.
    fn better(&mut self, x: V, best: V, greatest: bool) -> V {
        let b = &mut self.nest.b;
        let beats = b.compare(if greatest { Cmp::Gt } else { Cmp::Lt }, x, best);
        if !b.ty(x).dtype.is_float() {
            return beats;
        }
        let new_nan = b.compare(Cmp::Ne, x, x);
        let old_number = b.compare(Cmp::Eq, best, best);
        let first_nan = b.binary(Binary::And, new_nan, old_number);
        b.binary(Binary::Or, beats, first_nan)
    }

    /// Whether `x` comes before `y`: NaN is last in ascending order, and first in descending.
    fn before(&mut self, x: V, y: V, descending: bool) -> V {
        match descending {
            true => self.better(x, y, true),
            false => {
                let b = &mut self.nest.b;
                let less = b.compare(Cmp::Lt, x, y);
                if !b.ty(x).dtype.is_float() {
                    return less;
                }
                let number = b.compare(Cmp::Eq, x, x);
                let nan = b.compare(Cmp::Ne, y, y);
                let both = b.binary(Binary::And, number, nan);
                b.binary(Binary::Or, less, both)
            }
        }
    }

    /// Merge sort from the bottom up, between two halves of scratch memory: stable.
    fn sort(&mut self, place: &Index, axis: usize, places: bool) {
        let x = self.op.operands[0];
        let descending = matches!(self.op.attr("descending"), mithril_ir::attr::Attr::Bool(true));
        let dtype = held(self.nest.dtype(x));
        let size = self.nest.dim(&self.nest.dims(x)[axis].clone());
        let (zero, one) = (self.nest.b.index(0), self.nest.b.index(1));
        let elements = self.nest.b.scratch(dtype, zero);
        let half = self.nest.b.offset(size, 8);
        let half = self.nest.b.times(half, 16);
        let numbers = self.nest.b.scratch(DType::I64, half);
        let at = |nest: &mut Nest, i: V| {
            let mut place = place.clone();
            place[axis] = Ix::At(i);
            nest.pull(x, &place)
        };
        self.nest.each(zero, size, 1, |nest, i| {
            let element = at(nest, i);
            nest.b.store(elements, i, element, None);
            nest.b.store(numbers, i, i, None);
        });
        // Widths double until one covers all; as many rounds as a length has bits.
        let rounds = self.nest.b.index(63);
        let done = self.repeat(zero, rounds, 1, &[one, zero], |own, _, state| {
            let (width, source) = (state[0], state[1]);
            let more = own.nest.b.compare(Cmp::Lt, width, size);
            own.nest.b.open_region();
            own.nest.enter();
            let target = own.nest.b.sub(size, source);
            own.merge_all([elements, numbers], size, width, source, target, descending);
            let doubled = own.nest.b.add(width, width);
            own.nest.leave();
            let yes = own.nest.b.close_region(vec![doubled, target]);
            own.nest.b.open_region();
            let no = own.nest.b.close_region(vec![width, source]);
            own.nest.b.place_choice(more, yes, no)
        });
        let source = done[1];
        let from = if places { numbers } else { elements };
        self.each(zero, size, 1, |own, i| {
            let at = own.nest.b.add(source, i);
            let value = own.nest.b.load(from, at, 1, None);
            let mut place = place.clone();
            place[axis] = Ix::At(i);
            own.write(&place, value);
        });
    }

    /// Merges runs of `width` at `source` into runs twice as long at `target`.
    fn merge_all(
        &mut self,
        mems: [crate::code::Mem; 2],
        size: V,
        width: V,
        source: V,
        target: V,
        descending: bool,
    ) {
        let zero = self.nest.b.index(0);
        let (left, right) = (zero, width);
        let (i, now) = self.nest.b.open_repeat(&[left, right, zero]);
        self.nest.enter();
        // Where a pair of runs is used up, the next begins.
        let pair = self.nest.b.add(width, width);
        let start = now[2];
        let over = self.nest.b.add(start, pair);
        let fresh = self.nest.b.compare(Cmp::Ge, i, over);
        let start = self.nest.b.select(fresh, over, start);
        let second = self.nest.b.add(start, width);
        let left = self.nest.b.select(fresh, start, now[0]);
        let right = self.nest.b.select(fresh, second, now[1]);
        let left_end = self.nest.b.binary(Binary::Min, second, size);
        let right_end = self.nest.b.add(start, pair);
        let right_end = self.nest.b.binary(Binary::Min, right_end, size);
        let has_left = self.nest.b.compare(Cmp::Lt, left, left_end);
        let has_right = self.nest.b.compare(Cmp::Lt, right, right_end);
        let last = self.nest.b.offset(size, -1);
        let read = |nest: &mut Nest, mem, at: V| {
            let at = nest.b.binary(Binary::Min, at, last);
            let at = nest.b.add(at, source);
            nest.b.load(mem, at, 1, None)
        };
        let a = read(&mut self.nest, mems[0], left);
        let c = read(&mut self.nest, mems[0], right);
        let earlier = self.before(c, a, descending);
        let b = &mut self.nest.b;
        let none = b.unary(crate::code::Unary::Not, has_left);
        let take_right = b.binary(Binary::Or, none, earlier);
        let take_right = b.binary(Binary::And, take_right, has_right);
        let from = b.select(take_right, right, left);
        let goal = b.add(target, i);
        for mem in mems {
            let v = read(&mut self.nest, mem, from);
            self.nest.b.store(mem, goal, v, None);
        }
        let b = &mut self.nest.b;
        let [more_left, more_right] = [left, right].map(|v| b.offset(v, 1));
        let next_left = b.select(take_right, left, more_left);
        let next_right = b.select(take_right, more_right, right);
        self.nest.leave();
        let next = vec![next_left, next_right, start];
        self.nest.b.close_repeat(zero, size, 1, &[zero, width, zero], i, now, next);
    }

    /// Loops over all positions of dims, one by one.
    fn every(&mut self, dims: &[Dim], body: impl FnOnce(&mut Self, &Index)) {
        if self.nest.b.is_portable() {
            let (place, axes) = self.nest.open_axes(dims);
            body(self, &place);
            return self.nest.close_axes(axes);
        }
        let count = self.nest.dim(&product(dims));
        let zero = self.nest.b.index(0);
        self.each(zero, count, 1, |own, i| {
            let place = own.nest.unflat(dims, Ix::At(i));
            body(own, &place);
        });
    }
}
