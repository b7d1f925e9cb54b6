//! Compiles MLIR text to an object file, or to an intermediate form for inspection.

use crate::{assemble, lower, recover};

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// MLIR in the llvm dialect.
    Mlir,
    /// LLVM IR before LLVM's optimization passes.
    Llvm,
    /// LLVM IR after LLVM's optimization passes.
    Optimized,
    Assembly,
    Object,
}

impl Stage {
    pub const ALL: [Stage; 5] =
        [Stage::Mlir, Stage::Llvm, Stage::Optimized, Stage::Assembly, Stage::Object];

    /// The stage at this index in [`Stage::ALL`].
    pub fn from_index(index: u32) -> Option<Stage> {
        Stage::ALL.get(index as usize).copied()
    }
}

/// The target and the processor that machine code is generated for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// LLVM's name of the target; empty for x86-64 Linux.
    pub triple: String,
    /// LLVM's name of the processor; empty for the target's baseline.
    pub cpu: String,
    /// The processor's features as LLVM spells them: `+avx2,+fma`.
    pub features: String,
}

/// Compiles the text of a module to the output of `stage`: text, or the bytes of a relocatable
/// object.
///
/// Errors: messages of MLIR or LLVM about the text or about an unknown processor, including those
/// of fatal errors.
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
