//! Machine code from the MLIR text of kernels.
//!
//! The one part of Mithril that sees MLIR and LLVM. It is a library of its own, which whoever needs
//! machine code opens on first use; [`ffi`] is its one C function.

mod assemble;
pub mod ffi;
mod lower;
mod recover;
mod single;
pub mod stage;

pub use stage::{Options, Stage, compile};
