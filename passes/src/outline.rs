//! Outlining: a function becomes a list of launches of kernels, each a function of its own.
//!
//! Kernels are found by fusion: an operation joins the kernel of one of its operands where that
//! saves memory traffic and makes no cycle. Equal kernels are one, whatever they were called.

mod cuts;
mod extract;
mod group;
pub mod schedule;
pub mod strides;
mod views;

pub use views::joins_many;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::Gradient;

use crate::library::Library;
use schedule::Schedule;

/// A function as launches of kernels and loops, in the order in which they run.
#[derive(Clone, Debug)]
pub struct Outline {
    /// No two of them are equal.
    pub kernels: Vec<Kernel>,
    pub steps: Vec<Step>,
}

/// A kernel: what it computes, and how.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub function: Function,
    pub schedule: Schedule,
}

#[derive(Clone, Debug)]
pub enum Step {
    Launch(Launch),
    /// The operation of this number, a scan: launches of its callee in a loop.
    Scan(usize),
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

/// Outlines a function that was legalized for native code and calls others by scans alone.
///
/// Errors: an operation that has no loops, such as another call; an unknown rank.
/// A library kernel computes what `library` finds one for.
pub fn outline(function: &Function, library: Library) -> Result<Outline> {
    extract::extract(function, &group::group(function, library)?)
}

/// Whether the operation runs its callee in a loop.
fn is_scan(op: &Operation) -> bool {
    matches!(op.op.gradient, Gradient::Scan)
}
