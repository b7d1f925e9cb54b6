//! The processor levels, as data.

use super::x86_64::{self, Feature};
use crate::isa::{Extensions, Isa};

/// A family of processors that run the same code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Architecture {
    X86_64,
    Arm64,
}

impl Architecture {
    /// LLVM's name of the target.
    pub fn triple(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64-unknown-linux-gnu",
            Architecture::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The features that `--cpu=` accepts in addition to a level.
    pub fn features(self) -> &'static [Feature] {
        match self {
            Architecture::X86_64 => &x86_64::FEATURES,
            Architecture::Arm64 => &[],
        }
    }
}

/// A processor level.
pub struct Level {
    /// The name, which `--cpu=` accepts.
    pub name: &'static str,
    pub architecture: Architecture,
    /// LLVM's name of the processor, and features that override LLVM's defaults.
    pub cpu: &'static str,
    pub overrides: &'static str,
    /// The properties that kernels depend on.
    pub isa: Isa,
    /// The features that all processors of the level have, but not all processors of the
    /// architecture.
    pub features: &'static [Feature],
}

/// All levels. The levels of one architecture are in descending order.
pub static LEVELS: [Level; 5] = [
    Level {
        name: "arm64",
        architecture: Architecture::Arm64,
        cpu: "generic",
        overrides: "",
        isa: Isa { fma: true, f16: true, ..Isa::new(16, 32) },
        features: &[],
    },
    Level {
        name: "x86-64-v4",
        architecture: Architecture::X86_64,
        cpu: "x86-64-v4",
        // LLVM prefers 256-bit vectors by default; kernels use 512 bits on purpose.
        overrides: "-prefer-256-bit",
        isa: Isa {
            fma: true,
            f16: true,
            extensions: Extensions { scales: true, ..Extensions::NONE },
            ..Isa::new(64, 32)
        },
        features: x86_64::first(20),
    },
    Level {
        name: "x86-64-v3",
        architecture: Architecture::X86_64,
        cpu: "x86-64-v3",
        overrides: "",
        isa: Isa { fma: true, f16: true, ..Isa::new(32, 16) },
        features: x86_64::first(15),
    },
    Level {
        name: "x86-64-v2",
        architecture: Architecture::X86_64,
        cpu: "x86-64-v2",
        overrides: "",
        isa: Isa::new(16, 16),
        features: x86_64::first(7),
    },
    Level {
        name: "x86-64",
        architecture: Architecture::X86_64,
        cpu: "x86-64",
        overrides: "",
        isa: Isa::new(16, 16),
        features: &[],
    },
];

impl Level {
    /// Returns the level with this name. The prefix `x86-64-` is optional.
    pub fn find(name: &str) -> Option<&'static Level> {
        LEVELS
            .iter()
            .find(|level| level.name == name || level.name.strip_prefix("x86-64-") == Some(name))
    }

    /// The lowest level of an architecture.
    pub fn lowest(architecture: Architecture) -> &'static Level {
        let mut levels = LEVELS.iter().rev();
        levels.find(|level| level.architecture == architecture).expect("each has a level")
    }

    /// The order of the levels of one architecture, ascending.
    pub fn rank(&self) -> usize {
        LEVELS.iter().rev().position(|level| level == self).expect("one of the levels")
    }
}

impl PartialEq for Level {
    fn eq(&self, other: &Level) -> bool {
        self.name == other.name
    }
}

impl Eq for Level {}
