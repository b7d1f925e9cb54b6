//! Library kernels as fusion sees them: algorithms that loops over elements cannot express.
//!
//! A code generator supplies them, and the passes are handed a [`Library`].

use mithril_ir::graph::{Function, Operation, Value};

/// Finds the library kernel that computes an operation.
pub type Library = fn(&Operation) -> Option<&'static LibraryKernel>;

/// The properties of a library kernel that fusion needs.
pub struct LibraryKernel {
    pub name: &'static str,
    /// Whether it supports the operands and attributes of this operation.
    pub fits: fn(&Function, &Operation) -> bool,
    /// Whether one launch computes the results of both operations.
    pub shares: fn(&Operation, &Operation) -> bool,
    /// Whether it can store the result of the first operation directly as the given value, which is
    /// a copy of it.
    pub stores: fn(&Function, &[Option<u32>], &Operation, Value) -> bool,
    /// Whether it can read its operands through views with fixed strides.
    pub reads_views: bool,
}

impl LibraryKernel {
    /// A kernel that computes one operation, and takes all operands.
    pub const fn plain(name: &'static str) -> LibraryKernel {
        LibraryKernel {
            name,
            fits: |_, _| true,
            shares: |_, _| false,
            stores: |_, _, _, _| false,
            reads_views: false,
        }
    }
}

/// No library kernels.
pub fn none(_: &Operation) -> Option<&'static LibraryKernel> {
    None
}
