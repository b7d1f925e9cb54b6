//! Lowers a kernel, which is a function of the IR, to loop code.

mod contraction;
mod flatten;
pub(crate) mod fold;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod lowered;
pub(crate) mod nest;
pub mod packing;
mod position;
mod positions;
mod random;
mod rows;

use mithril_ir::diagnostic::Result;
use mithril_passes::outline::Kernel;
use mithril_passes::outline::schedule::Schedule;

use crate::isa::Isa;
use crate::legalize::legalize;
use crate::library;
use packing::Packing;

pub use lowered::{Lowered, Partial};

/// The loop code of a kernel. Its buffers are the kernel's arguments and then its results, and its
/// dims are the numbered symbols. If `packing` is given, the argument that it names is packed
/// in that way.
///
/// Errors: an operation that has no loops.
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

/// The packing that the kernel prefers for one of its arguments, if that argument is constant.
pub fn packing(kernel: &Kernel, isa: &Isa) -> Option<Packing> {
    match &kernel.schedule {
        Schedule::Contraction { op, reads } => {
            contraction::packing(&kernel.function, &kernel.function.ops[*op], reads, isa)
        }
        Schedule::Loops(_) | Schedule::Library { .. } => None,
    }
}
