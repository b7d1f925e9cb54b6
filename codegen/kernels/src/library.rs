//! The library kernels: hand-written algorithms for operations that are not plain loops. Each has
//! its own file.

mod arg_extremum;
mod attention;
mod concat;
mod cumulative;
mod fourier;
mod grouped;
mod matrix;
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

/// A library kernel: its fusion rules and its lowering.
struct LibraryEntry {
    fusion: LibraryKernel,
    /// Lowers the operation to the loop code of a kernel. Buffers and dims are numbered as in
    /// [`lower`](crate::lower::lower).
    lower: fn(&Function, &Operation, &Isa) -> Result<Lowered>,
}

/// Returns the fusion rules of the library kernel that computes an operation, if there is one.
pub fn kernel(op: &Operation) -> Option<&'static LibraryKernel> {
    entry(op).map(|entry| &entry.fusion)
}

fn entry(op: &Operation) -> Option<&'static LibraryEntry> {
    match op.op.access {
        Access::Library(library) => Some(match library {
            access::Library::ArgExtremum { .. } => &arg_extremum::ENTRY,
            access::Library::Cumulative(_) => &cumulative::ENTRY,
            access::Library::Sort { .. } => &sort::ENTRY,
            access::Library::Attention(_) => &attention::ENTRY,
            access::Library::Fourier(_) => &fourier::ENTRY,
            access::Library::Matrix(_) => &matrix::ENTRY,
            access::Library::Grouped { .. } => &grouped::ENTRY,
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

/// Lowers an operation to the loop code of its library kernel.
///
/// Errors: the kernel does not support the operands.
pub(crate) fn lower(function: &Function, op: &Operation, isa: &Isa) -> Result<Lowered> {
    let entry = entry(op).expect("the schedule names an operation that has a library kernel");
    (entry.lower)(function, op, isa)
}
