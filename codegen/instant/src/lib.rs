//! Machine code from loop code, small kernels' in less than a millisecond, by Cranelift: for the calls of a model until
//! LLVM's code of it is there.
//!
//! It is the same loop code that LLVM compiles, made for this machine's registers, so the numbers
//! are the same, bit by bit: each lane does what it would do in the wide register, and lanes are
//! folded in the same order. Cranelift knows vectors of 16 bytes; a wider one is as many of them.

mod arithmetic;
mod calls;
mod compile;
mod convert;
mod held;
mod lanes;
mod machine;
mod memory;
mod translate;
mod translator;
mod values;

pub use machine::Machine;

/// Why there is no instant code of a kernel: what of it Cranelift does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no instant code: {0}")]
pub struct Unsupported(pub String);

type Result<T> = std::result::Result<T, Unsupported>;

fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(Unsupported(what.into()))
}
