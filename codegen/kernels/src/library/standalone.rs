//! Kernels of a single operation: their tasks, and loops over lines and positions.

use crate::loops::Loops;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};

use crate::code::V;
use crate::isa::Isa;
use crate::lower::index::{Index, Ix};
use crate::lower::layout::int;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;
use crate::lower::reduce::product;

/// Lowers a kernel whose body `kernel` writes; it returns the number of tasks.
///
/// Errors: an operation that has no loops.
pub fn lower<'f>(
    function: &'f Function,
    op: &'f Operation,
    isa: &Isa,
    kernel: impl FnOnce(&mut Standalone<'f>) -> Dim,
) -> Result<Lowered> {
    let nest = Nest::new(function, isa);
    let mut standalone = Standalone { nest, op, grain: 1, scratch: Dim::Const(0) };
    let tasks = kernel(&mut standalone);
    match standalone.nest.fault.take() {
        Some(fault) => Err(fault),
        None => Ok(Lowered {
            code: standalone.nest.b.finish(),
            tasks,
            grain: standalone.grain,
            scratch: standalone.scratch,
            partials: vec![],
        }),
    }
}

pub struct Standalone<'f> {
    pub nest: Nest<'f>,
    pub op: &'f Operation,
    /// The fewest tasks that are worth another thread.
    pub grain: i64,
    /// The size of the scratch memory in bytes.
    pub scratch: Dim,
}

impl<'f> Loops for Standalone<'f> {
    type Through = Nest<'f>;

    fn through(&mut self) -> &mut Nest<'f> {
        &mut self.nest
    }
}

impl Standalone<'_> {
    pub fn axis(&self) -> usize {
        let rank = self.nest.dims(self.op.operands[0]).len() as i64;
        int(self.op, "axis").rem_euclid(rank.max(1)) as usize
    }

    /// Runs a task for each line of the operand along the axis.
    pub fn lines(&mut self, body: impl FnOnce(&mut Self, &Index, usize)) -> Dim {
        let axis = self.axis();
        let mut others = self.nest.dims(self.op.operands[0]).to_vec();
        others[axis] = Dim::Const(1);
        self.tasks(&others, |own, place| body(own, place, axis))
    }

    /// Runs a task for each position of the dims; returns the number of tasks.
    pub fn tasks(&mut self, dims: &[Dim], body: impl FnOnce(&mut Self, &Index)) -> Dim {
        if self.nest.b.source().all_tasks {
            self.every(dims, body);
            return Dim::Const(1);
        }
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        self.each(first, last, 1, |own, task| {
            let place = own.nest.unravel(dims, Ix::Uniform(task));
            body(own, &place);
        });
        product(dims)
    }

    pub fn write(&mut self, place: &[Ix], v: V) {
        let dims = self.nest.dims(self.op.result());
        self.nest.write(self.nest.results[0], dims, place, v);
    }

    /// Loops over all positions of the dims, one by one.
    pub fn every(&mut self, dims: &[Dim], body: impl FnOnce(&mut Self, &Index)) {
        if self.nest.b.source().all_tasks {
            let (place, axes) = self.nest.open_axes(dims);
            body(self, &place);
            return self.nest.close_axes(axes);
        }
        let count = self.nest.dim(&product(dims));
        let zero = self.nest.b.index(0);
        self.each(zero, count, 1, |own, i| {
            let place = own.nest.unravel(dims, Ix::Uniform(i));
            body(own, &place);
        });
    }
}
