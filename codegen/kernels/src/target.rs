//! The targets of loop code, for the passes.

use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Library};
use mithril_ir::op::{Meaning, Op};
use mithril_passes::profile;
use mithril_passes::target::{Target, Targets};

use crate::library;

/// All of them, by the names that options have.
pub const TARGETS: Targets = &[C, CPU];

/// Machine code for a processor.
pub const CPU: Target = Target {
    name: "cpu",
    takes: has_kernel,
    pulls_back: has_backward_kernel,
    profile: profile::CPU,
};

/// C source.
pub const C: Target = Target { name: "c", ..CPU };

/// Loops are generated from scalar expressions and for each kind of access: through any view they
/// read where it is. A library kernel computes
/// a composite whose operands it takes.
fn has_kernel(function: &Function, op: &Operation) -> bool {
    match library::kernel(op) {
        Some(kernel) => (kernel.fits)(function, op),
        None => match op.op.meaning {
            Meaning::Scalar(_) | Meaning::Kernel(_) | Meaning::Call(_) => true,
            Meaning::Decompose(_) => matches!(op.op.access, Access::View(_)),
        },
    }
}

/// The kernel of attention's gradient is for whatever that of attention is for. A gradient that is
/// elementwise is computed like any other elementwise operation.
fn has_backward_kernel(function: &Function, op: &Operation, by: Op) -> bool {
    match by.meaning {
        Meaning::Scalar(_) => true,
        Meaning::Kernel(_) | Meaning::Decompose(_) | Meaning::Call(_) => {
            matches!(by.access, Access::Library(Library::Attention(_))) && has_kernel(function, op)
        }
    }
}
