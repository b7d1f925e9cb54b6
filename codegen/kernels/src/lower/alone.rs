//! Operations that are a kernel of their own: running sums, orders, places of extremes, scatters,
//! concatenations of many parts.

mod concat;
mod find;
mod scatter;
mod sort;

use crate::loops::Loops;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Fold};
use mithril_ir::scalar::Prim;

use super::fold::product;
use super::index::{Index, Ix};
use super::layout::int;
use super::nest::{Nest, held};
use super::{Isa, Lowered};
use crate::code::{Ty, V};
use crate::scalar;

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
            Access::Sort { places } => self.order(places),
            Access::Find { greatest } => self.find(greatest),
            Access::Concat => self.concat(),
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
