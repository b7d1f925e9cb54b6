//! From outlined functions to loops over vectors: the code that every native target prints.
//!
//! A kernel is a function of the IR that the outliner made; [`lower`](lower::lower) gives its
//! [`Code`](code::Code), and [`mlir`] the text that the native code generator compiles. What C calls
//! is an [`entry`].

pub mod builder;
pub mod c;
pub mod code;
pub mod contract;
pub mod entry;
pub mod host;
pub mod interpret;
pub mod legalize;
pub mod library;
pub mod loops;
pub mod lower;
pub mod mlir;
pub mod program;
pub mod scalar;
pub mod target;
