//! The machine that code is made for, and the way from a function of Cranelift's to bytes.

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use mithril_kernels::code::Code;
use mithril_kernels::host::Host;

use crate::translate::translate;
use crate::{Result, Unsupported};

/// Cranelift's names of the features that it makes use of, by LLVM's.
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
    isa: OwnedTargetIsa,
    /// Whether it multiplies and adds in one step.
    pub(crate) fma: bool,
    /// Whether its instructions read vectors from any address.
    pub(crate) avx: bool,
}

impl Machine {
    /// A processor, of which code uses no more than it has. None: Cranelift makes no code for it.
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
        let mut builder = isa::lookup_by_name("x86_64-unknown-linux-gnu").ok()?;
        for (_, flag) in FEATURES.iter().filter(|(name, _)| host.has(name)) {
            builder.enable(flag).ok()?;
        }
        let isa = builder.finish(settings::Flags::new(flags)).ok()?;
        // Without these Cranelift calls functions for what they do.
        host.has("sse4.1").then(|| Machine { isa, fma: host.has("fma"), avx: host.has("avx") })
    }

    /// The code of a kernel: bytes that may lie anywhere and begin with the function that the
    /// runtime calls.
    ///
    /// # Errors
    /// [`Unsupported`] where Cranelift has not what the kernel needs.
    pub fn compile(&self, code: &Code) -> Result<Vec<u8>> {
        let mut context = Context::for_function(translate(code, self)?);
        let made = context.compile(&*self.isa, &mut ControlPlane::default());
        let made = made.map_err(|error| Unsupported(format!("{:?}", error.inner)))?;
        match made.buffer.relocs() {
            [] => Ok(made.code_buffer().to_vec()),
            [first, ..] => Err(Unsupported(format!("{:?}", first.target))),
        }
    }

    /// The text of a kernel as Cranelift is given it.
    ///
    /// # Errors
    /// As [`Machine::compile`]; what Cranelift's verifier finds.
    pub fn text(&self, code: &Code) -> Result<String> {
        let function: Function = translate(code, self)?;
        let verified = cranelift_codegen::verify_function(&function, &*self.isa);
        verified.map_err(|errors| Unsupported(format!("{errors}\n{function}")))?;
        Ok(function.to_string())
    }
}
