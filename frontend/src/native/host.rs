//! The processor that this process runs on, as the code generator has to know it.

use std::sync::OnceLock;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_kernels::contract::Isa;

/// What kernels are made for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    pub isa: Isa,
    /// The processor's level as LLVM calls it.
    pub cpu: &'static str,
    /// What it has beyond that, as LLVM spells it.
    pub features: String,
}

/// The processor of this machine. Errors: one that kernels cannot be made for.
pub fn host() -> Result<&'static Host> {
    static HOST: OnceLock<Option<Host>> = OnceLock::new();
    match HOST.get_or_init(detect) {
        Some(host) => Ok(host),
        None => Diagnostic::new("Native code is made for x86-64 processors under Linux alone")
            .got(format!("{} under {}", std::env::consts::ARCH, std::env::consts::OS))
            .hint("`ml.NumpyBackend()` runs everywhere")
            .err(),
    }
}

impl Host {
    /// The levels of x86-64, by LLVM's names.
    pub const LEVELS: [&str; 4] = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

    /// Any processor of a level, this machine's or not.
    pub fn of_level(name: &str) -> Option<Host> {
        let (isa, features) = level(name)?;
        let cpu = Host::LEVELS.into_iter().find(|level| *level == name)?;
        Some(Host { isa, cpu, features: features.into() })
    }
}

/// What kernels may use of a level, and its features as LLVM should take them.
fn level(name: &str) -> Option<(Isa, &'static str)> {
    let isa = |bytes, registers, fma| Isa { bytes, registers, fma, streams: false };
    match name {
        "x86-64" | "x86-64-v2" => Some((isa(16, 16, false), "")),
        "x86-64-v3" => Some((isa(32, 16, true), "")),
        "x86-64-v4" => Some((isa(64, 32, true), WIDE)),
        _ => None,
    }
}

/// Wide vectors are chosen on purpose.
const WIDE: &str = "-prefer-256-bit";

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn detect() -> Option<Host> {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("sse4.2") && has!("popcnt") && has!("ssse3");
    let v3 = v2 && has!("avx2") && has!("fma") && has!("bmi2") && has!("f16c") && has!("lzcnt");
    let v4 = v3 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    let v4 = v4 && has!("avx512cd");
    let extras = [
        (WIDE, v4),
        ("+avx512vnni", v4 && has!("avx512vnni")),
        ("+avx512bf16", v4 && has!("avx512bf16")),
    ];
    let features: Vec<&str> = extras.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let cpu = match (v4, v3, v2) {
        (true, ..) => "x86-64-v4",
        (_, true, _) => "x86-64-v3",
        (.., true) => "x86-64-v2",
        _ => "x86-64",
    };
    let (isa, _) = level(cpu)?;
    // Newer cores than those without bf16 lose nothing by it.
    let isa = Isa { streams: v4 && has!("avx512bf16"), ..isa };
    Some(Host { isa, cpu, features: features.join(",") })
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn detect() -> Option<Host> {
    None
}
