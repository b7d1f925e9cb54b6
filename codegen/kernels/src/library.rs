//! The library kernels: hand-written algorithms, one file each.

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

use crate::isa::Isa;
use crate::lower::lowered::Lowered;

/// A library kernel: how it fuses, and how it is lowered.
struct Entry {
    fusion: LibraryKernel,
    /// Lowers the operation to the loop code of a kernel, with buffers and dims numbered as by
    /// [`lower`](crate::lower::lower).
    lower: fn(&Function, &Operation, &Isa) -> Result<Lowered>,
}

/// The library kernel that computes an operation, as the passes see it.
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

/// The loop code of the library kernel for an operation.
///
/// Errors: operands that the kernel does not take.
pub(crate) fn lower(function: &Function, op: &Operation, isa: &Isa) -> Result<Lowered> {
    let entry = entry(op).expect("fusion gives library kernels only what they compute");
    (entry.lower)(function, op, isa)
}
