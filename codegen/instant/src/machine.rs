//! The processor that code is generated for.

use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use mithril_kernels::host::Host;

/// The processor features that Cranelift makes use of: LLVM's names and Cranelift's.
const FEATURES: [(&str, &str); 16] = [
    ("sse3", "has_sse3"),
    ("ssse3", "has_ssse3"),
    ("cx16", "has_cmpxchg16b"),
    ("sse4.1", "has_sse41"),
    ("sse4.2", "has_sse42"),
    ("popcnt", "has_popcnt"),
    ("avx", "has_avx"),
    ("avx2", "has_avx2"),
    ("fma", "has_fma"),
    ("bmi", "has_bmi1"),
    ("bmi2", "has_bmi2"),
    ("lzcnt", "has_lzcnt"),
    ("avx512f", "has_avx512f"),
    ("avx512dq", "has_avx512dq"),
    ("avx512vl", "has_avx512vl"),
    ("avx512vbmi", "has_avx512vbmi"),
];

/// A processor, as Cranelift knows it.
pub struct Machine {
    pub(crate) isa: OwnedTargetIsa,
    /// Whether it has fused multiply-add.
    pub(crate) fma: bool,
    /// Whether it has AVX, whose instructions read vectors from unaligned addresses.
    pub(crate) avx: bool,
}

impl Machine {
    /// The host's processor; code uses no features that it lacks. `None` if Cranelift generates no
    /// code for it.
    pub fn of(host: &Host) -> Option<Machine> {
        let mut flags = settings::builder();
        let settings = [
            ("opt_level", "none"),
            ("regalloc_algorithm", "single_pass"),
            ("enable_verifier", "false"),
            ("enable_probestack", "false"),
            ("unwind_info", "false"),
        ];
        for (name, value) in settings {
            flags.set(name, value).ok()?;
        }
        let mut builder = isa::lookup_by_name(host.level.architecture.triple()).ok()?;
        for (_, flag) in FEATURES.iter().filter(|(name, _)| host.has(name)) {
            builder.enable(flag).ok()?;
        }
        let isa = builder.finish(settings::Flags::new(flags)).ok()?;
        // Without SSE 4.1, Cranelift replaces some instructions by calls of library functions.
        host.has("sse4.1").then(|| Machine { isa, fma: host.has("fma"), avx: host.has("avx") })
    }
}
