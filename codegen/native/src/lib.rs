//! Compiles the MLIR text of kernels to machine code.
//!
//! This is the only part of Mithril that uses MLIR and LLVM. It is a separate library that is
//! opened when machine code is first needed; [`ffi`] has its only C function.

mod assemble;
pub mod ffi;
mod lower;
mod recover;
mod single;
pub mod stage;

pub use stage::{Options, Stage, compile};
