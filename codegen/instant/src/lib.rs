//! Compiles loop code to machine code with Cranelift, which takes less than a millisecond for small
//! kernels. The code serves the calls of a model until LLVM's code is available.
//!
//! LLVM compiles the same loop code, which is made for this machine's registers, so the results are
//! equal bit by bit: each lane computes what it would in the wide register, and lanes are reduced
//! in the same order. Cranelift has vectors of 16 bytes; a wider vector is several of them.

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

/// Why a kernel has no instant code: what it needs that Cranelift does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no instant code: {0}")]
pub struct Unsupported(pub String);

type Result<T> = std::result::Result<T, Unsupported>;

fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(Unsupported(what.into()))
}
