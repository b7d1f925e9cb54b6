//! From a kernel, as a function of the IR, to loop code.

mod alone;
mod attention;
mod contraction;
mod flatten;
mod fold;
mod index;
mod layout;
mod nest;
pub mod packing;
mod positions;
mod random;
mod rows;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_passes::outline::Kernel;
use mithril_passes::outline::attention::is_attention;
use mithril_passes::outline::schedule::Schedule;

use crate::code::Code;
use crate::legalize::legalize;
use packing::Packing;

pub use crate::contract::Isa;

/// A kernel ready to be printed, and how it is launched. Dims are in the kernel's symbols.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub code: Code,
    /// How many tasks there are.
    pub tasks: Dim,
    /// The fewest tasks worth a thread of their own.
    pub grain: i64,
    /// Bytes of scratch memory.
    pub scratch: Dim,
    /// Results that another kernel finishes.
    pub partials: Vec<Partial>,
}

/// A result that is not written, but numbers by which another kernel has it.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The number of the result. Its buffer is one of so many bytes instead.
    pub result: usize,
    pub bytes: Dim,
    /// Takes that buffer, as `count` rows of `length` numbers, and gives the result; its dims `d0`
    /// and `d1` are these.
    pub rest: Kernel,
    pub count: Dim,
    pub length: Dim,
}

/// The loop code of a kernel whose buffers are its arguments and then its results, and whose dims
/// are its symbols `d0`, `d1`, …. An argument is packed where `packing` says how.
///
/// Errors: an operation that has no loops.
pub fn lower(kernel: &Kernel, isa: &Isa, packing: Option<&Packing>) -> Result<Lowered> {
    let function = &kernel.function;
    let mut lowered = match &kernel.schedule {
        Schedule::Loops(loops) => rows::lower(function, loops, isa)?,
        Schedule::Contraction { op } => {
            contraction::lower(function, &function.ops[*op], isa, packing)?
        }
        Schedule::Library { op } => library(function, &function.ops[*op], isa)?,
    };
    legalize(&mut lowered.code, isa);
    Ok(lowered)
}

fn library(function: &Function, op: &Operation, isa: &Isa) -> Result<Lowered> {
    match is_attention(&op.op.access) {
        true => attention::lower(function, op, isa),
        false => alone::lower(function, op, isa),
    }
}

/// How the kernel would have one of its arguments, if that is constant.
pub fn packing(kernel: &Kernel, isa: &Isa) -> Option<Packing> {
    match &kernel.schedule {
        Schedule::Contraction { op } => {
            contraction::packing(&kernel.function, &kernel.function.ops[*op], isa)
        }
        Schedule::Loops(_) | Schedule::Library { .. } => None,
    }
}
