//! The targets of loop code, as data for the passes.

use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Library};
use mithril_ir::op::{Meaning, Op};
use mithril_passes::profile;
use mithril_passes::target::{Language, Target, Targets};

use crate::library;

/// All targets, under the names that command-line options use.
pub const TARGETS: Targets = &[C, CPU];

/// Machine code for a processor.
pub const CPU: Target = Target {
    name: "cpu",
    takes: &has_kernel,
    pulls_back: &has_backward_kernel,
    profile: profile::CPU,
    language: Language::C,
    bodies: &["cpu", "c"],
    standard: |_| None,
};

/// C source.
pub const C: Target = Target { name: "c", bodies: &["c"], ..CPU };

/// Whether an operation can be lowered. Scalar expressions and all kinds of access become loops,
/// which read operands through any views. An operation with a library kernel can be lowered if the
/// kernel supports the operands.
fn has_kernel(function: &Function, op: &Operation) -> bool {
    match library::kernel(op) {
        Some(kernel) => (kernel.fits)(function, op),
        None => match op.op.meaning {
            Meaning::Scalar(_) | Meaning::Kernel(_) | Meaning::Call(_) => true,
            Meaning::Decompose(_) => matches!(op.op.access, Access::View(_)),
        },
    }
}

/// Whether a gradient operation can be lowered. The kernel of attention's gradient supports the
/// same operands as attention's kernel. Elementwise gradients are lowered like all elementwise
/// operations.
fn has_backward_kernel(function: &Function, op: &Operation, by: Op) -> bool {
    match by.meaning {
        Meaning::Scalar(_) => true,
        Meaning::Kernel(_) | Meaning::Decompose(_) | Meaning::Call(_) => {
            matches!(by.access, Access::Library(Library::Attention(_))) && has_kernel(function, op)
        }
    }
}
