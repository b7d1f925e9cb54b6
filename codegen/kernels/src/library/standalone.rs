//! The frame of library kernels that compute a single operation: loops over tasks, lines and
//! indices.

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

/// Lowers a kernel. `kernel` emits its body and returns the number of tasks.
///
/// Errors: a fused operation has no loops.
pub fn lower<'f>(
    function: &'f Function,
    op: &'f Operation,
    isa: &Isa,
    kernel: impl FnOnce(&mut Standalone<'f>) -> Dim,
) -> Result<Lowered> {
    let nest = Nest::new(function, isa);
    let mut standalone = Standalone { nest, op, grain: 1, scratch: Dim::Const(0), fma: isa.fma };
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

/// A library kernel whose code is being emitted.
pub struct Standalone<'f> {
    pub nest: Nest<'f>,
    pub op: &'f Operation,
    /// The minimum number of tasks per thread. With fewer, starting a thread does not pay.
    pub grain: i64,
    /// The size of the scratch memory in bytes.
    pub scratch: Dim,
    /// Whether the processor multiplies and adds in one instruction.
    pub fma: bool,
}

impl<'f> Loops for Standalone<'f> {
    type Inner = Nest<'f>;

    fn inner(&mut self) -> &mut Nest<'f> {
        &mut self.nest
    }
}

impl Standalone<'_> {
    pub fn axis(&self) -> usize {
        let rank = self.nest.dims(self.op.operands[0]).len() as i64;
        int(self.op, "axis").rem_euclid(rank.max(1)) as usize
    }

    /// Emits one task for each line of the operand along the axis. Returns the number of tasks.
    pub fn lines(&mut self, body: impl FnOnce(&mut Self, &Index, usize)) -> Dim {
        let axis = self.axis();
        let mut others = self.nest.dims(self.op.operands[0]).to_vec();
        others[axis] = Dim::Const(1);
        self.tasks(&others, |own, place| body(own, place, axis))
    }

    /// Emits one task for each index of `dims`. Returns the number of tasks.
    pub fn tasks(&mut self, dims: &[Dim], body: impl FnOnce(&mut Self, &Index)) -> Dim {
        if self.nest.b.source().all_tasks {
            self.each_index(dims, body);
            return Dim::Const(1);
        }
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        self.each(first, last, 1, |own, task| {
            let place = own.nest.unravel(dims, Ix::Uniform(task));
            body(own, &place);
        });
        product(dims)
    }

    /// Stores elements of the result.
    pub fn write(&mut self, place: &[Ix], v: V) {
        let dims = self.nest.dims(self.op.result());
        self.nest.write(self.nest.results[0], dims, place, v);
    }

    /// Emits a loop over all indices of `dims`.
    pub fn each_index(&mut self, dims: &[Dim], body: impl FnOnce(&mut Self, &Index)) {
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
