//! The library kernels: algorithms of their own, one file each.

mod arg_extremum;
mod attention;
mod concat;
mod cumulative;
mod scatter;
mod sort;
mod standalone;

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{self, Access, Pieces};
use mithril_passes::library::LibraryKernel;
use mithril_passes::outline::joins_many;

use crate::contract::Isa;
use crate::lower::lowered::Lowered;

/// A library kernel.
struct Entry {
    fusion: LibraryKernel,
    /// The loop code of a kernel for the operation, whose buffers and dims are as those of
    /// [`lower`](crate::lower::lower).
    lower: fn(&Function, &Operation, &Isa) -> Result<Lowered>,
}

/// The library kernel that computes an operation, for the passes.
pub fn kernel(op: &Operation) -> Option<&'static LibraryKernel> {
    entry(op).map(|entry| &entry.fusion)
}

fn entry(op: &Operation) -> Option<&'static Entry> {
    match op.op.access {
        Access::Library(library) => Some(match library {
            access::Library::ArgExtremum { .. } => &arg_extremum::ENTRY,
            access::Library::Cumulative(_) => &cumulative::ENTRY,
            access::Library::Sort { .. } => &sort::ENTRY,
            access::Library::Attention(_) => &attention::ENTRY,
        }),
        Access::Scatter(_) => Some(&scatter::ENTRY),
        Access::Pieces(Pieces::Concat) => joins_many(op).then_some(&concat::ENTRY),
        Access::Meaning
        | Access::Constant(_)
        | Access::View(_)
        | Access::Pieces(Pieces::Pad)
        | Access::Gather(_)
        | Access::Fold(_)
        | Access::Contract
        | Access::Random(_) => None,
    }
}

/// The loop code of the library kernel for an operation of a kernel.
///
/// Errors: operands that it does not take.
pub(crate) fn lower(function: &Function, op: &Operation, isa: &Isa) -> Result<Lowered> {
    let entry = entry(op).expect("fusion gives library kernels only what they compute");
    (entry.lower)(function, op, isa)
}
