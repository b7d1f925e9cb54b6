//! The features of x86-64 processors.

use crate::entry::llvm::CpuidBits;
use crate::isa::Isa;

/// A processor feature, by LLVM's name.
pub struct Feature {
    pub name: &'static str,
    pub bits: CpuidBits,
    /// The XCR0 bits of the registers that the operating system must save for the feature.
    pub xcr0: u32,
}

const fn feature(
    name: &'static str,
    (leaf, subleaf): (u32, u32),
    register: usize,
    bit: u32,
    xcr0: u32,
) -> Feature {
    Feature { name, bits: CpuidBits { leaf, subleaf, register, mask: 1 << bit }, xcr0 }
}

const EAX: usize = 0;
const EBX: usize = 1;
pub const ECX: usize = 2;
const EDX: usize = 3;
/// The XCR0 bits of 256-bit registers, 512-bit registers and tiles.
pub const YMM: u32 = 0x6;
const ZMM: u32 = 0xe6;
pub const TILE: u32 = 0x6_0000;

/// The features of the levels, then those that `--cpu=` accepts in addition to a level.
pub static FEATURES: [Feature; 33] = [
    feature("sse3", (1, 0), ECX, 0, 0),
    feature("ssse3", (1, 0), ECX, 9, 0),
    feature("cx16", (1, 0), ECX, 13, 0),
    feature("sse4.1", (1, 0), ECX, 19, 0),
    feature("sse4.2", (1, 0), ECX, 20, 0),
    feature("popcnt", (1, 0), ECX, 23, 0),
    feature("sahf", (0x8000_0001, 0), ECX, 0, 0),
    feature("fma", (1, 0), ECX, 12, YMM),
    feature("movbe", (1, 0), ECX, 22, 0),
    feature("avx", (1, 0), ECX, 28, YMM),
    feature("f16c", (1, 0), ECX, 29, YMM),
    feature("bmi", (7, 0), EBX, 3, 0),
    feature("avx2", (7, 0), EBX, 5, YMM),
    feature("bmi2", (7, 0), EBX, 8, 0),
    feature("lzcnt", (0x8000_0001, 0), ECX, 5, 0),
    feature("avx512f", (7, 0), EBX, 16, ZMM),
    feature("avx512dq", (7, 0), EBX, 17, ZMM),
    feature("avx512cd", (7, 0), EBX, 28, ZMM),
    feature("avx512bw", (7, 0), EBX, 30, ZMM),
    feature("avx512vl", (7, 0), EBX, 31, ZMM),
    feature("avx512ifma", (7, 0), EBX, 21, ZMM),
    feature("avx512vbmi", (7, 0), ECX, 1, ZMM),
    feature("avx512vbmi2", (7, 0), ECX, 6, ZMM),
    feature("avx512vnni", (7, 0), ECX, 11, ZMM),
    feature("avx512bf16", (7, 1), EAX, 5, ZMM),
    feature("avx512fp16", (7, 0), EDX, 23, ZMM),
    feature("avxvnni", (7, 1), EAX, 4, YMM),
    feature("amx-tile", (7, 0), EDX, 24, TILE),
    feature("amx-bf16", (7, 0), EDX, 22, TILE),
    feature("amx-int8", (7, 0), EDX, 25, TILE),
    feature("amx-fp16", (7, 1), EAX, 21, TILE),
    feature("avxneconvert", (7, 1), EDX, 5, YMM),
    feature("gfni", (7, 0), ECX, 8, 0),
];

/// The first `count` of [`FEATURES`], which are the features of a level.
pub const fn first(count: usize) -> &'static [Feature] {
    FEATURES.split_at(count).0
}

/// The feature that LLVM enables along with this one.
pub fn implied(feature: &str) -> Option<&'static str> {
    matches!(feature, "amx-bf16" | "amx-fp16" | "amx-int8").then_some("amx-tile")
}

/// Adds the instructions of a feature to the properties that kernels depend on.
pub fn extend(isa: &mut Isa, feature: &str) {
    let wide = isa.bytes == 64;
    isa.extensions.pairs |= feature == "avx512bf16" && wide;
    isa.extensions.amx |= feature == "amx-bf16" && wide;
    // Streaming stores pay on cores with bf16, which are newer.
    isa.streams |= feature == "avx512bf16" && wide;
}
