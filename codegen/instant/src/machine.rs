//! The machine that code is made for, and the way from a function of Cranelift's to bytes.

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use mithril_kernels::code::Code;
use mithril_kernels::host::Host;

use crate::calls::Call;
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

/// Where functions begin: at multiples of so many bytes.
const ALIGNMENT: usize = 64;

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
        let mut bytes = Vec::new();
        let (mut starts, mut calls) = (Vec::new(), Vec::new());
        for function in translate(code, self)? {
            let mut context = Context::for_function(function);
            let made = context.compile(&*self.isa, &mut ControlPlane::default());
            let made = made.map_err(|error| Unsupported(format!("{:?}", error.inner)))?;
            // So that its constants lie as they do in code that is alone.
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            let start = bytes.len();
            bytes.extend_from_slice(made.code_buffer());
            let relocs: Vec<_> = made.buffer.relocs().to_vec();
            for reloc in &relocs {
                calls.push(Call::of(reloc, &context.func, start)?);
            }
            starts.push(start);
        }
        // The kernel itself is the first.
        calls.iter().for_each(|call| call.resolve(&mut bytes, starts[call.function + 1]));
        Ok(bytes)
    }

    /// The text of a kernel as Cranelift is given it.
    ///
    /// # Errors
    /// As [`Machine::compile`]; what Cranelift's verifier finds.
    pub fn text(&self, code: &Code) -> Result<String> {
        let functions = translate(code, self)?;
        for function in &functions {
            let verified = cranelift_codegen::verify_function(function, &*self.isa);
            verified.map_err(|errors| Unsupported(format!("{errors}\n{function}")))?;
        }
        Ok(functions.iter().map(Function::to_string).collect::<Vec<_>>().join("\n"))
    }
}
