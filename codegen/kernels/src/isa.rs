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
    pub const PORTABLE: Isa = Isa::new(0, 0);

    /// A processor with such vectors and no other instructions.
    pub const fn new(bytes: u32, registers: u32) -> Isa {
        let extensions = Extensions::NONE;
        Isa { bytes, registers, fma: false, f16: false, streams: false, extensions }
    }

    pub fn is_portable(&self) -> bool {
        *self == Isa::PORTABLE
    }
}
