//! Lowers outlined functions to loops over vectors: the loop code that every native target prints.
//!
//! A kernel is a function of the IR that the outliner made. [`lower`](lower::lower) turns it into
//! [`Code`](code::Code), and [`mlir`] prints that as text for the native code generator. An
//! [`entry`] is the function that C calls.

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
