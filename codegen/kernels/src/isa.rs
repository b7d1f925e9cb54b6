//! The properties of a target that kernels depend on.

/// A target of code generation: a processor level, or C.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Isa {
    /// The size of a vector register in bytes, and the number of registers.
    pub bytes: u32,
    pub registers: u32,
    /// Whether there is a fused multiply-add instruction.
    pub fma: bool,
    /// Whether there are instructions that convert from and to f16.
    pub f16: bool,
    /// Whether streaming stores pay. Results are aligned to cache lines.
    pub streams: bool,
    pub extensions: Extensions,
    pub source: Source,
}

/// The properties in which code for C differs from code for a processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// Whether formulas are calls of functions that the C file defines.
    pub calls: bool,
    /// Whether one call of a kernel runs all tasks, in nested loops.
    pub all_tasks: bool,
    /// Whether a compiler vectorizes the loops, so that they must not depend on the order of float
    /// operations.
    pub vectorizes: bool,
    /// Whether a compiler may execute loads speculatively, before the condition around them. Then a
    /// load that may be out of bounds needs a mask.
    pub speculates: bool,
}

impl Source {
    /// Code for a processor.
    pub const MACHINE: Source =
        Source { calls: false, all_tasks: false, vectorizes: false, speculates: false };
    /// Code for C.
    pub const C: Source =
        Source { calls: true, all_tasks: true, vectorizes: true, speculates: true };
}

/// Instructions that only some families of processors have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extensions {
    /// Multiplies the lanes of a 64-byte vector by powers of two (AVX-512).
    pub scales: bool,
    /// Multiplies pairs of bf16 and adds both products to an f32 sum.
    pub pairs: bool,
    /// Multiplies tiles of bf16 and adds the products to tiles of f32 (AMX).
    pub amx: bool,
}

impl Extensions {
    pub const NONE: Extensions = Extensions { scales: false, pairs: false, amx: false };
}

impl Isa {
    /// Portable scalar code for C. It may use all operations, because the C library has functions
    /// for those that a processor lacks.
    pub const PORTABLE: Isa = Isa { fma: true, f16: true, source: Source::C, ..Isa::new(0, 0) };

    /// A processor with vector registers of this size and number, and without optional
    /// instructions.
    pub const fn new(bytes: u32, registers: u32) -> Isa {
        let extensions = Extensions::NONE;
        let source = Source::MACHINE;
        Isa { bytes, registers, fma: false, f16: false, streams: false, extensions, source }
    }
}
