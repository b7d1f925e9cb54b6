//! From MLIR text to an object, stopping wherever one wants to look.

use crate::{assemble, lower, recover};

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// MLIR in the dialect llvm.
    Mlir,
    /// LLVM IR before its own passes.
    Llvm,
    /// LLVM IR behind them.
    Optimized,
    Assembly,
    Object,
}

impl Stage {
    pub const ALL: [Stage; 5] =
        [Stage::Mlir, Stage::Llvm, Stage::Optimized, Stage::Assembly, Stage::Object];

    /// The stage of this number in [`Stage::ALL`].
    pub fn from_index(index: u32) -> Option<Stage> {
        Stage::ALL.get(index as usize).copied()
    }
}

/// How machine code is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What LLVM calls the processor; empty for the plainest.
    pub cpu: String,
    /// Its features as LLVM spells them: `+avx2,+fma`.
    pub features: String,
}

/// What `stage` gives for the text of a module: text, or the bytes of a relocatable object.
///
/// Errors: what MLIR or LLVM says of the text, or of a processor that it does not know; also where
/// it would end the process.
pub fn compile(text: &str, options: &Options, stage: Stage) -> Result<Vec<u8>, String> {
    let work = |context: &melior::Context| {
        let module = lower::lower(context, text)?;
        if stage == Stage::Mlir {
            return Ok(module.as_operation().to_string().into_bytes());
        }
        assemble::assemble(&module, options, stage)
    };
    recover::compilation(|| lower::with_context(work))
}
