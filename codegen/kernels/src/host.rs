//! The processors for which code is generated: a level, and features beyond the level.

mod levels;
mod machine;
mod x86_64;

use std::fmt;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};

use crate::entry::llvm::{CpuidBits, Processor};
use crate::isa::Isa;

pub use levels::{Architecture, Level};
pub use machine::{chosen, levels, machine, setting};

use levels::LEVELS;
use x86_64::Feature;

/// The processor that kernels are compiled for.
#[derive(Clone, PartialEq, Eq)]
pub struct Host {
    pub level: &'static Level,
    /// The properties that kernels depend on, including those of the extra features.
    pub isa: Isa,
    /// Features beyond LLVM's processor of the level, in LLVM's syntax.
    pub features: String,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Host {
    /// A processor of exactly this level.
    fn of_level(level: &'static Level) -> Host {
        Host { level, isa: level.isa, features: level.overrides.into() }
    }

    /// The lowest level of an architecture.
    pub fn plain(architecture: Architecture) -> Host {
        Host::of_level(Level::lowest(architecture))
    }

    /// Parses a processor: `native`, a level such as `x86-64-v3` or `v3`, or a level with extra
    /// features such as `v4+avx512bf16`.
    ///
    /// Errors: the level or feature does not exist; the processor is `native`, but kernels for this
    /// machine are not supported.
    pub fn parse(text: &str) -> Result<Host> {
        Host::parse_as(text, None, None)
    }

    /// Parses a processor. Errors name the environment variable from which the text comes, if any.
    /// They suggest the levels of `architecture`, if it is given.
    fn parse_as(
        text: &str,
        variable: Option<&str>,
        architecture: Option<Architecture>,
    ) -> Result<Host> {
        let unknown = |what: &str, got: &str, all: &str| {
            let given = variable.map_or(got.to_string(), |variable| format!("{variable}={text}"));
            let mut error = Diagnostic::of(ErrorKind::Argument, format!("there is no such {what}"))
                .got(given)
                .expected(all);
            error.hint = did_you_mean(got, all.split(", "));
            Err(Box::new(error))
        };
        let mut parts = text.split('+');
        let level = parts.next().unwrap_or("");
        let mut found = match Level::find(level) {
            Some(level) => Host::of_level(level),
            None if level == "native" => machine()?.clone(),
            None => return unknown("processor", level, &names(architecture)),
        };
        let features = found.level.architecture.features();
        for name in parts {
            if !features.iter().any(|feature| feature.name == name) {
                let names: Vec<&str> = features.iter().map(|feature| feature.name).collect();
                return unknown("feature of processors", name, &names.join(", "));
            }
            found.add(name);
        }
        Ok(found)
    }

    fn add(&mut self, feature: &str) {
        if let Some(other) = x86_64::implied(feature) {
            self.add(other);
        }
        if !self.has(feature) {
            let comma = if self.features.is_empty() { "" } else { "," };
            self.features += &format!("{comma}+{feature}");
            x86_64::extend(&mut self.isa, feature);
        }
    }

    /// The name of the processor: `x86-64-v4+avx512vnni`.
    pub fn name(&self) -> String {
        self.extras().fold(self.level.name.to_string(), |name, feature| name + "+" + feature)
    }

    /// The features beyond the level.
    pub fn extras(&self) -> impl Iterator<Item = &str> {
        self.features.split(',').filter_map(|name| name.strip_prefix('+'))
    }

    /// Whether code for the processor may use a feature, by LLVM's name.
    pub fn has(&self, feature: &str) -> bool {
        self.needs().any(|own| own.name == feature)
    }

    /// The features that code for the processor may use.
    fn needs(&self) -> impl Iterator<Item = &'static Feature> {
        let own = |feature: &Feature| {
            self.level.features.iter().any(|of_level| of_level.name == feature.name)
                || self.extras().any(|name| name == feature.name)
        };
        self.level.architecture.features().iter().filter(move |feature| own(feature))
    }

    /// The order of processors of one architecture by capability: the level, then the number of
    /// extra features.
    pub fn rank(&self) -> (usize, usize) {
        (self.level.rank(), self.needs().count())
    }

    /// The checks with which a library detects such a processor at run time.
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

/// Lists the names of the levels of one architecture, or of all.
fn names(architecture: Option<Architecture>) -> String {
    let levels = LEVELS.iter().rev();
    let levels = levels.filter(|level| architecture.is_none_or(|own| level.architecture == own));
    let names: Vec<&str> = ["native"].into_iter().chain(levels.map(|level| level.name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::x86_64::YMM;
    use super::*;

    #[test]
    fn processors_have_names() {
        for (text, name) in [
            ("v2", "x86-64-v2"),
            ("x86-64", "x86-64"),
            ("v4+avx512bf16", "x86-64-v4+avx512bf16"),
            ("v3+avx2", "x86-64-v3"),
            ("v4+amx-bf16", "x86-64-v4+amx-tile+amx-bf16"),
            ("arm64", "arm64"),
        ] {
            assert_eq!(Host::parse(text).unwrap().name(), name);
        }
        assert!(Host::parse("v5").is_err());
        assert!(Host::parse("v4+avx513").is_err());
        assert!(Host::parse("arm64+avx2").is_err());
    }

    #[test]
    fn amx_requires_level_4() {
        let amx = |text: &str| Host::parse(text).unwrap().isa.extensions.amx;
        assert!(amx("v4+amx-bf16") && amx("v4+avx512bf16+amx-tile+amx-bf16"));
        assert!(!amx("v4+amx-tile") && !amx("v4+amx-int8") && !amx("v3+amx-bf16"));
    }

    #[test]
    fn a_lowest_level_runs_everywhere() {
        for architecture in [Architecture::X86_64, Architecture::Arm64] {
            let plain = Host::plain(architecture);
            assert_eq!(plain.level.architecture, architecture);
            assert!(!plain.processor().needs_check());
        }
    }

    #[test]
    fn a_level_includes_lower_levels() {
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
