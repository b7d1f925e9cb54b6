//! Lowers a kernel, which is a function of the IR, to loop code.

mod contraction;
mod flatten;
mod gathers;
pub(crate) mod index;
mod ix;
pub(crate) mod layout;
pub(crate) mod lowered;
pub(crate) mod nest;
pub mod packing;
mod random;
pub(crate) mod reduce;
mod rows;

use mithril_ir::diagnostic::Result;
use mithril_passes::outline::Kernel;
use mithril_passes::outline::schedule::Schedule;

use crate::isa::Isa;
use crate::legalize::legalize;
use crate::library;
use packing::Packing;

pub use lowered::{Lowered, Partial};

/// Lowers a kernel to loop code. The buffers of the code are the kernel's arguments, then its
/// results. Its dims are the numbered symbols. If `packing` is given, it describes the layout of
/// the argument `packing.arg`, which is packed.
///
/// Errors: the kernel has an operation without loops.
pub fn lower(kernel: &Kernel, isa: &Isa, packing: Option<&Packing>) -> Result<Lowered> {
    let function = &kernel.function;
    let mut lowered = match &kernel.schedule {
        Schedule::Loops(loops) => rows::lower(function, loops, isa)?,
        Schedule::Contraction { op, reads } => {
            contraction::lower(function, &function.ops[*op], reads, isa, packing)?
        }
        Schedule::Library { op } => library::lower(function, &function.ops[*op], isa)?,
    };
    legalize(&mut lowered.code, isa);
    Ok(lowered)
}

/// Returns the packing that the kernel prefers for one of its arguments. Only constant arguments
/// are packed.
pub fn packing(kernel: &Kernel, isa: &Isa) -> Option<Packing> {
    match &kernel.schedule {
        Schedule::Contraction { op, reads } => {
            contraction::packing(&kernel.function, &kernel.function.ops[*op], reads, isa)
        }
        Schedule::Loops(_) | Schedule::Library { .. } => None,
    }
}
