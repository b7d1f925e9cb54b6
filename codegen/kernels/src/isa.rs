//! What kernels may use of a processor, as data.

/// What code generation knows of a processor level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Isa {
    /// The size of a vector register in bytes, and the number of registers.
    pub bytes: u32,
    pub registers: u32,
    /// Whether it has a fused multiply-add.
    pub fma: bool,
    /// Whether it converts from and to f16.
    pub f16: bool,
    /// Whether streaming stores pay. Results are aligned to cache lines.
    pub streams: bool,
    pub extensions: Extensions,
    pub source: Source,
}

/// What differs where kernels are printed in a language whose compiler makes the machine code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// Formulas are calls of functions that the file defines.
    pub calls: bool,
    /// One call of a kernel runs all its tasks, in nested loops.
    pub all_tasks: bool,
    /// The compiler vectorizes loops, which then must not depend on the order of float operations.
    pub vectorizes: bool,
    /// The compiler may run a load before the condition around it, so a load that may be out of
    /// bounds has a mask.
    pub speculates: bool,
}

impl Source {
    /// Kernels become machine code as they are.
    pub const NONE: Source =
        Source { calls: false, all_tasks: false, vectorizes: false, speculates: false };
    /// A language such as C.
    pub const LANGUAGE: Source =
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
    /// No particular processor: scalar code in a language that every processor has a compiler for.
    /// What a processor lacks, the language has functions for.
    pub const PORTABLE: Isa =
        Isa { fma: true, f16: true, source: Source::LANGUAGE, ..Isa::new(0, 0) };

    /// A processor with such vectors and no other instructions.
    pub const fn new(bytes: u32, registers: u32) -> Isa {
        let extensions = Extensions::NONE;
        let source = Source::NONE;
        Isa { bytes, registers, fma: false, f16: false, streams: false, extensions, source }
    }
}
