//! Processors: the levels of x86-64 as data, and processors given by name.

mod machine;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};

use crate::entry::llvm::{CpuidBits, Processor};
use crate::isa::{Extensions, Isa};

pub use machine::{chosen, levels, machine, setting};

/// The processor that kernels are compiled for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    pub isa: Isa,
    /// The processor's level, by LLVM's name.
    pub cpu: &'static str,
    /// Features beyond that level, in LLVM's syntax.
    pub features: String,
}

/// A processor feature, by LLVM's name.
struct Feature {
    name: &'static str,
    bits: CpuidBits,
    /// The XCR0 bits of the registers that the operating system must save for it.
    xcr0: u32,
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
const ECX: usize = 2;
const EDX: usize = 3;
/// XCR0 bits of registers of 256 bits, registers of 512 bits, and tiles.
const YMM: u32 = 0x6;
const ZMM: u32 = 0xe6;
const TILE: u32 = 0x6_0000;

/// The features that make up the levels, and those that `--cpu=` takes in addition to a level.
const FEATURES: [Feature; 33] = [
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

/// The levels of x86-64, the highest first: the vectors that kernels use, features that override
/// LLVM's defaults, and how many of [`FEATURES`] the level includes.
const V3: Isa = Isa { fma: true, f16: true, ..Isa::new(32, 16) };
const V4: Isa = Isa {
    fma: true,
    f16: true,
    extensions: Extensions { scales: true, ..Extensions::NONE },
    ..Isa::new(64, 32)
};
const LEVELS: [(&str, Isa, &str, usize); 4] = [
    // LLVM prefers 256-bit vectors by default; kernels use 512 bits on purpose.
    ("x86-64-v4", V4, "-prefer-256-bit", 20),
    ("x86-64-v3", V3, "", 15),
    ("x86-64-v2", Isa::new(16, 16), "", 7),
    ("x86-64", Isa::new(16, 16), "", 0),
];

impl Host {
    /// A processor of exactly this level, whatever this machine is.
    fn of_level(at: usize) -> Host {
        let (cpu, isa, features, _) = LEVELS[at];
        Host { isa, cpu, features: features.into() }
    }

    /// The lowest level.
    pub fn plain() -> Host {
        Host::of_level(LEVELS.len() - 1)
    }

    /// Parses a processor: `native`, a level such as `x86-64-v3` or `v3`, or a level with features
    /// added to it, `v4+avx512bf16`.
    ///
    /// Errors: no such level or feature; `native` where kernels cannot be made for this machine.
    pub fn parse(text: &str) -> Result<Host> {
        Host::parse_from(text, None)
    }

    /// The same for text from an environment variable, which errors name.
    fn parse_from(text: &str, variable: Option<&str>) -> Result<Host> {
        let unknown = |what: &str, got: &str, all: &str| {
            let given = variable.map_or(got.to_string(), |variable| format!("{variable}={text}"));
            let mut error =
                Diagnostic::new(format!("there is no such {what}")).got(given).expected(all);
            error.hint = did_you_mean(got, all.split(", "));
            Err(Box::new(error))
        };
        let mut parts = text.split('+');
        let level = parts.next().unwrap_or("");
        let mut found = match LEVELS.iter().position(|(name, ..)| is_level(name, level)) {
            Some(at) => Host::of_level(at),
            None if level == "native" => machine()?.clone(),
            None => return unknown("processor", level, &names()),
        };
        for name in parts {
            if !FEATURES.iter().any(|feature| feature.name == name) {
                let names = FEATURES.map(|feature| feature.name).join(", ");
                return unknown("feature of processors", name, &names);
            }
            found.add(name);
        }
        Ok(found)
    }

    fn add(&mut self, feature: &str) {
        // Includes the features that LLVM implies.
        if matches!(feature, "amx-bf16" | "amx-fp16" | "amx-int8") {
            self.add("amx-tile");
        }
        if !self.has(feature) {
            let comma = if self.features.is_empty() { "" } else { "," };
            self.features += &format!("{comma}+{feature}");
            let wide = self.isa.bytes == 64;
            self.isa.extensions.pairs |= feature == "avx512bf16" && wide;
            self.isa.extensions.amx |= feature == "amx-bf16" && wide;
            // Streaming stores pay off on cores with bf16, which are newer than the others.
            self.isa.streams |= feature == "avx512bf16" && wide;
        }
    }

    /// Its name: `x86-64-v4+avx512vnni`.
    pub fn name(&self) -> String {
        self.extras().fold(self.cpu.to_string(), |name, feature| name + "+" + feature)
    }

    /// The features that it has in addition to its level.
    pub fn extras(&self) -> impl Iterator<Item = &str> {
        self.features.split(',').filter_map(|name| name.strip_prefix('+'))
    }

    /// Whether its code may use this feature, by LLVM's name.
    pub fn has(&self, feature: &str) -> bool {
        self.needs().any(|own| own.name == feature)
    }

    /// The features that its code may use.
    fn needs(&self) -> impl Iterator<Item = &'static Feature> {
        let level = LEVELS.iter().find(|(name, ..)| *name == self.cpu);
        let count = level.map_or(0, |(.., count)| *count);
        let named = |feature: &Feature| {
            self.features.split(',').any(|name| name.strip_prefix('+') == Some(feature.name))
        };
        let all = FEATURES.iter().enumerate();
        all.filter(move |(at, feature)| *at < count || named(feature)).map(|(_, feature)| feature)
    }

    /// Higher for more capable processors; compares the level first.
    pub fn rank(&self) -> (usize, usize) {
        (
            LEVELS.iter().rev().position(|(name, ..)| *name == self.cpu).unwrap_or(0),
            self.needs().count(),
        )
    }

    /// The checks by which a library detects such a processor at run time.
    pub fn processor(&self) -> Processor {
        let mut bits: Vec<CpuidBits> = Vec::new();
        for need in self.needs() {
            let CpuidBits { leaf, subleaf, register, mask } = need.bits;
            let place = |own: &&mut CpuidBits| {
                (own.leaf, own.subleaf, own.register) == (leaf, subleaf, register)
            };
            match bits.iter_mut().find(place) {
                Some(own) => own.mask |= mask,
                None => bits.push(need.bits),
            }
        }
        let xcr0 = self.needs().fold(0, |all, need| all | need.xcr0);
        Processor { name: self.name(), bits, xcr0 }
    }
}

/// Whether `text` is a level's name, with or without the prefix.
fn is_level(name: &str, text: &str) -> bool {
    name == text || name.strip_prefix("x86-64-") == Some(text)
}

/// The names that a processor's level may have.
fn names() -> String {
    let levels: Vec<&str> = LEVELS.iter().rev().map(|(name, ..)| *name).collect();
    format!("native, {}", levels.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_names() {
        for (text, name) in [
            ("v2", "x86-64-v2"),
            ("x86-64", "x86-64"),
            ("v4+avx512bf16", "x86-64-v4+avx512bf16"),
            ("v3+avx2", "x86-64-v3"),
            ("v4+amx-bf16", "x86-64-v4+amx-tile+amx-bf16"),
        ] {
            assert_eq!(Host::parse(text).unwrap().name(), name);
        }
        assert!(Host::parse("v5").is_err());
        assert!(Host::parse("v4+avx513").is_err());
    }

    #[test]
    fn tiles_are_for_the_widest() {
        let amx = |text: &str| Host::parse(text).unwrap().isa.extensions.amx;
        assert!(amx("v4+amx-bf16") && amx("v4+avx512bf16+amx-tile+amx-bf16"));
        assert!(!amx("v4+amx-tile") && !amx("v4+amx-int8") && !amx("v3+amx-bf16"));
    }

    #[test]
    fn a_level_needs_those_below() {
        let [v2, v3] = ["v2", "v3"].map(|name| Host::parse(name).unwrap().processor());
        assert_eq!((v2.xcr0, v3.xcr0), (0, YMM));
        for bits in &v2.bits {
            let same = |own: &&CpuidBits| {
                (own.leaf, own.subleaf, own.register) == (bits.leaf, bits.subleaf, bits.register)
            };
            assert_eq!(v3.bits.iter().find(same).unwrap().mask & bits.mask, bits.mask);
        }
    }
}
