//! Lowers outlined functions to loop code, and prints loop code for the native targets.
//!
//! A kernel is an IR function that the outliner has extracted. [`lower`](lower::lower) lowers it to
//! loop code ([`Code`](code::Code)). [`mlir`] prints loop code as MLIR for LLVM, and [`c`] prints
//! it as C. [`entry`] describes the functions that C programs call.

pub mod builder;
pub mod c;
pub mod code;
pub mod contract;
pub mod entry;
pub mod host;
pub mod interpret;
pub mod isa;
pub mod legalize;
pub mod library;
pub mod loops;
pub mod lower;
pub mod mlir;
pub mod program;
pub mod scalar;
pub mod target;
