//! Outlining: divides a function into a list of launches of kernels, each a function of its own.
//!
//! Kernels are found by fusion: an operation joins the kernel of one of its operands if that saves
//! memory traffic and makes no cycle. Equal kernels are shared.

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
use mithril_ir::op::Kind;

use crate::library::Library;
use schedule::Schedule;

/// A function as launches of kernels and loops, in execution order.
#[derive(Clone, Debug)]
pub struct Outline {
    /// No two kernels are equal.
    pub kernels: Vec<Kernel>,
    pub steps: Vec<Step>,
}

/// A kernel: its function, and the loop structure that computes it.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub function: Function,
    pub schedule: Schedule,
}

#[derive(Clone, Debug)]
pub enum Step {
    Launch(Launch),
    /// Control flow, by the index of its operation: launches of its functions in loops.
    Control(usize),
    /// A call of a function that is not inlined, by the index of its operation.
    Call(usize),
}

/// One kernel applied to values of the function.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Index of the kernel.
    pub kernel: usize,
    /// The values passed as the kernel's arguments.
    pub operands: Vec<Value>,
    /// The values that the kernel's results define.
    pub results: Vec<Value>,
    /// The values of the kernel's symbols, by number, in the function's symbols.
    pub dims: Vec<Dim>,
    /// The blocks it comes from.
    pub loc: Loc,
}

/// Outlines a function that was legalized for native code. It calls others only by control flow, and
/// external functions.
///
/// Operations that `library` finds a kernel for are computed by that library kernel.
///
/// Errors: an operation that has no loops; an unknown rank.
pub fn outline(function: &Function, library: Library) -> Result<Outline> {
    extract::extract(function, &group::group(function, library)?)
}

/// Whether the operation calls a function: control flow, or an external function.
fn is_call(op: &Operation) -> bool {
    op.op.kind == Kind::Call
}
