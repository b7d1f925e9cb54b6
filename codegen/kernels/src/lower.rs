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
use mithril_ir::op::access::Access;
use mithril_passes::outline::attention::is_attention;

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
    pub rest: Function,
    pub count: Dim,
    pub length: Dim,
}

/// The loop code of a kernel whose buffers are its arguments and then its results, and whose dims
/// are its symbols `d0`, `d1`, …. An argument is packed where `packing` says how.
///
/// Errors: an operation that has no loops.
pub fn lower(function: &Function, isa: &Isa, packing: Option<&Packing>) -> Result<Lowered> {
    let mut lowered = loops(function, isa, packing)?;
    legalize(&mut lowered.code, isa);
    Ok(lowered)
}

fn loops(function: &Function, isa: &Isa, packing: Option<&Packing>) -> Result<Lowered> {
    if let Some(op) = single(function, |op| matches!(op.op.access, Access::Contract)) {
        return contraction::lower(function, op, isa, packing);
    }
    if let Some(op) = single(function, |op| is_attention(&op.op.access)) {
        return attention::lower(function, op, isa);
    }
    if let Some(op) = single(function, alone::is_alone) {
        return alone::lower(function, op, isa);
    }
    rows::lower(function, isa)
}

/// How the kernel would have one of its arguments, if that is constant.
pub fn packing(function: &Function, isa: &Isa) -> Option<Packing> {
    let dot = single(function, |op| matches!(op.op.access, Access::Contract))?;
    contraction::packing(function, dot, isa)
}

fn single(function: &Function, is: fn(&Operation) -> bool) -> Option<&Operation> {
    function.ops.iter().find(|op| is(op))
}
