//! Outlining: a function becomes a list of launches of kernels, each a function of its own.
//!
//! Kernels are found by fusion: an operation joins the kernel of one of its operands where that
//! saves memory traffic and makes no cycle. Equal kernels are one, whatever they were called.

mod extract;
mod group;
mod views;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Value};
use mithril_ir::loc::Loc;

/// A function as launches of kernels, in the order in which they run.
#[derive(Clone, Debug)]
pub struct Outline {
    /// No two of them are equal.
    pub kernels: Vec<Function>,
    pub launches: Vec<Launch>,
}

/// One kernel on values of the function.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its number among the kernels.
    pub kernel: usize,
    /// The values that the kernel's arguments are.
    pub operands: Vec<Value>,
    /// The values that its results are.
    pub results: Vec<Value>,
    /// What the kernel's symbols `d0`, `d1`, … are in the function's symbols.
    pub dims: Vec<Dim>,
    /// The blocks it comes from.
    pub loc: Loc,
}

/// Outlines a function that was legalized for native code and calls no other.
///
/// Errors: an operation that has no loops, such as a call; an unknown rank.
pub fn outline(function: &Function) -> Result<Outline> {
    let groups = group::group(function)?;
    extract::extract(function, &groups)
}
