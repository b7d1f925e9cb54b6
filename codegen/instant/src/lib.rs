//! Compiles loop code to machine code with Cranelift, which takes less than a millisecond for small
//! kernels. The code serves the calls of a model until LLVM's code is available.
//!
//! LLVM compiles the same loop code, and the results have the same bits: each lane computes the
//! same operations, and lanes are reduced in the same order. The vectors of loop code are as wide
//! as the machine's registers. Cranelift has vectors of 16 bytes, so a wider vector becomes several
//! pieces.

mod arithmetic;
mod calls;
mod compile;
mod convert;
mod lanes;
mod machine;
mod memory;
mod representation;
mod translate;
mod translator;
mod values;

pub use machine::Machine;

/// Why a kernel has no instant code: a feature that Cranelift lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no instant code: {0}")]
pub struct Unsupported(pub String);

type Result<T> = std::result::Result<T, Unsupported>;

fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(Unsupported(what.into()))
}
