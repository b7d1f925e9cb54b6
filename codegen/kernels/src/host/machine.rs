//! The processor of this machine: its features, and the level that this process compiles for.

use std::env;
use std::sync::OnceLock;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::levels::LEVELS;
use super::x86_64::Feature;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::x86_64::{ECX, FEATURES, TILE};
use super::{Architecture, Host};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::entry::llvm::{CpuidBits, REQUEST, TILE_DATA};

/// The environment variable that selects the processor for which native code in this process is
/// compiled.
const VARIABLE: &str = "MITHRIL_CPU";

/// The architecture whose code this process can run.
const OWN: Architecture = Architecture::X86_64;

/// The features beyond the level that code for this machine uses, if it has them.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const EXTRAS: [&str; 4] = ["avx512vnni", "avx512bf16", "amx-tile", "amx-bf16"];

/// The processors for which tests compile code if the machine supports them, the lowest first.
const TESTED: [&str; 5] =
    ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512bf16", "x86-64-v4+amx-bf16"];

/// A processor, and all its features.
struct Machine {
    host: Host,
    features: Vec<&'static str>,
}

/// Returns the processor of this machine.
///
/// Errors: kernels for this machine are not supported.
pub fn machine() -> Result<&'static Host> {
    Ok(&here()?.host)
}

/// The processors of [`TESTED`] that this machine can run, the lowest first.
pub fn levels() -> Vec<Host> {
    let known = TESTED.iter().filter_map(|name| Host::parse(name).ok());
    known.filter(|host| here().is_ok_and(|machine| machine.lacks(host).is_empty())).collect()
}

/// The value of MITHRIL_CPU, if it is set and not empty.
pub fn setting() -> Option<String> {
    let set = env::var_os(VARIABLE).filter(|text| !text.is_empty());
    set.map(|text| text.to_string_lossy().into_owned())
}

/// Returns the processor for which code in this process is compiled: the one named `name` (see
/// [`Host::parse`]), otherwise the one in MITHRIL_CPU, otherwise that of this machine.
///
/// Errors: the processor does not exist or has features that this machine lacks; kernels for this
/// machine are not supported.
pub fn chosen(name: Option<&str>) -> Result<Host> {
    let set = setting().filter(|_| name.is_none());
    let text = name.or(set.as_deref()).unwrap_or("native");
    let source = || match set {
        Some(_) => format!("{VARIABLE}={text}"),
        None => text.to_string(),
    };
    let host = Host::parse_as(text, set.as_ref().map(|_| VARIABLE), Some(OWN))?;
    let lacking = here()?.lacks(&host);
    let why = match host.level.architecture == OWN {
        true if lacking.is_empty() => return Ok(host),
        true => format!("which lacks {}", lacking.join(", ")),
        false => "whose processor is of another architecture".into(),
    };
    let levels: Vec<String> = levels().iter().map(Host::name).collect();
    Diagnostic::of(
        ErrorKind::Native,
        format!("Native code for {} cannot run on this machine, {why}", host.name()),
    )
    .got(source())
    .expected(format!("what the machine has: native, {}", levels.join(", ")))
    .hint("`export(cpu=)` and `mithril compile --cpu` make libraries for other machines")
    .err()
}

fn here() -> Result<&'static Machine> {
    static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
    match MACHINE.get_or_init(detect) {
        Some(machine) => Ok(machine),
        None => Diagnostic::of(
            ErrorKind::Native,
            "Native code is generated only for x86-64 processors under Linux",
        )
        .got(format!("{} under {}", env::consts::ARCH, env::consts::OS))
        .hint("`ml.CBackend()` and `ml.NumpyBackend()` run everywhere")
        .err(),
    }
}

impl Machine {
    /// Returns the features that code for a processor may use, but this machine lacks.
    fn lacks(&self, host: &Host) -> Vec<&'static str> {
        let needs = host.needs().map(|feature: &Feature| feature.name);
        needs.filter(|name| !self.features.contains(name)).collect()
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn detect() -> Option<Machine> {
    use std::arch::x86_64::{__cpuid_count, _xgetbv};
    // Later versions of Rust do not consider the intrinsic unsafe.
    #[allow(unused_unsafe)]
    // SAFETY: every 64-bit x86 processor has the instruction.
    let cpuid = |leaf, subleaf| unsafe { __cpuid_count(leaf, subleaf) };
    let leaf = |leaf: u32, subleaf: u32| {
        let there = cpuid(leaf & 0x8000_0000, 0).eax >= leaf;
        let all = there.then(|| cpuid(leaf, subleaf));
        all.map_or([0; 4], |all| [all.eax, all.ebx, all.ecx, all.edx])
    };
    // Each leaf is read once, because `cpuid` is slow in virtual machines.
    let needed_leaves = [(1, 0), (7, 0), (7, 1), (0x8000_0001, 0)];
    let answers = needed_leaves.map(|(number, subleaf)| ((number, subleaf), leaf(number, subleaf)));
    let set = |bits: &CpuidBits| {
        let mut answers = answers.iter();
        let answer = answers.find(|(needed_leaves, _)| *needed_leaves == (bits.leaf, bits.subleaf));
        answer.is_some_and(|(_, registers)| registers[bits.register] & bits.mask == bits.mask)
    };
    let xsave = set(&CpuidBits { leaf: 1, subleaf: 0, register: ECX, mask: 1 << 27 });
    // SAFETY: the processor reports that it has the instruction.
    let xcr0 = if xsave { unsafe { _xgetbv(0) as u32 } } else { 0 };
    let mut granted = None;
    let mut has = |feature: &Feature| {
        set(&feature.bits)
            && xcr0 & feature.xcr0 == feature.xcr0
            // Requested last, and only if the processor has tiles.
            && (feature.xcr0 != TILE || *granted.get_or_insert_with(tiles_are_granted))
    };
    let features: Vec<&'static str> =
        FEATURES.iter().filter(|feature| has(feature)).map(|feature| feature.name).collect();
    let fits = |level: &&super::Level| {
        level.architecture == OWN && level.features.iter().all(|own| features.contains(&own.name))
    };
    let mut host = Host::of_level(LEVELS.iter().find(fits)?);
    // The extra features are only used with the highest level.
    let wide = host.isa.bytes == 64;
    for extra in EXTRAS.into_iter().filter(|name| wide && features.contains(name)) {
        host.add(extra);
    }
    Some(Machine { host, features })
}

/// Requests permission to use tile registers, which Linux grants per process. It refuses if a
/// thread's signal stack is too small for them.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn tiles_are_granted() -> bool {
    // SAFETY: it only changes which registers this process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn detect() -> Option<Machine> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_its_own_features() {
        let Ok(here) = here() else { return };
        assert_eq!(here.lacks(&here.host), Vec::<&str>::new());
        assert_eq!(Host::parse(&here.host.name()).unwrap(), here.host);
        assert!(levels().windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
    }

    #[test]
    fn missing_features_are_named() {
        let host = Host::parse("v2").unwrap();
        let old = Machine { host, features: vec!["sse3", "ssse3"] };
        assert_eq!(old.lacks(&Host::parse("x86-64").unwrap()), Vec::<&str>::new());
        let lacking = old.lacks(&Host::parse("v2+avx").unwrap());
        assert_eq!(lacking, ["cx16", "sse4.1", "sse4.2", "popcnt", "sahf", "avx"]);
    }
}
