//! Cumulative sums and products. Each line along the axis is a task.

use mithril_ir::dim::Dim;
use mithril_ir::op::access::{Access, Fold, Library};
use mithril_ir::scalar::Prim;
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::code::Ty;
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::register_dtype;
use crate::scalar;

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel::plain("cumulative"),
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::cumulative),
};

impl Standalone<'_> {
    fn cumulative(&mut self) -> Dim {
        let (prim, neutral) = match self.op.op.access {
            Access::Library(Library::Cumulative(Fold::Product)) => (Prim::Mul, 1),
            _ => (Prim::Add, 0),
        };
        self.lines(|own, place, axis| own.accumulate(place, axis, prim, neutral))
    }

    fn accumulate(&mut self, place: &Index, axis: usize, prim: Prim, neutral: i64) {
        let x = self.op.operands[0];
        let dtype = register_dtype(self.nest.dtype(x));
        let first = self.nest.b.int(Ty::scalar(dtype), neutral);
        let size = self.nest.dim(&self.nest.dims(x)[axis].clone());
        let from = self.nest.b.index(0);
        self.repeat(from, size, 1, &[first], |own, i, so_far| {
            let mut place = place.clone();
            place[axis] = Ix::Uniform(i);
            let element = own.nest.pull(x, &place);
            let next = scalar::apply(&mut own.nest.b, prim, dtype, &[so_far[0], element], None);
            own.write(&place, next);
            vec![next]
        });
    }
}
