//! From a kernel, as a function of the IR, to loop code.

mod alone;
mod attention;
mod contraction;
mod flatten;
mod fold;
mod index;
mod layout;
mod nest;
mod positions;
mod random;
mod rows;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::Function;
use mithril_ir::op::access::Access;

use crate::code::Code;
use crate::unfuse::unfuse;

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
}

/// The loop code of a kernel whose buffers are its arguments and then its results, and whose dims
/// are its symbols `d0`, `d1`, ….
///
/// Errors: an operation that has no loops.
pub fn lower(function: &Function, isa: &Isa) -> Result<Lowered> {
    let mut lowered = loops(function, isa)?;
    if !isa.fma {
        unfuse(&mut lowered.code);
    }
    Ok(lowered)
}

fn loops(function: &Function, isa: &Isa) -> Result<Lowered> {
    let single = |access: fn(&Access) -> bool| function.ops.iter().find(|op| access(&op.op.access));
    if let Some(op) = single(|a| matches!(a, Access::Contract)) {
        return contraction::lower(function, op, isa);
    }
    if let Some(op) = single(|a| matches!(a, Access::Attention)) {
        return attention::lower(function, op, isa);
    }
    if let Some(op) = single(alone::is_alone) {
        return alone::lower(function, op, isa);
    }
    rows::lower(function, isa)
}
