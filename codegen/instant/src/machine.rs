//! The machine that code is made for, and the way from a function of Cranelift's to bytes.

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use mithril_kernels::code::Code;

use crate::translate::translate;
use crate::{Result, Unsupported};

/// This machine, as Cranelift knows it.
pub struct Machine {
    isa: OwnedTargetIsa,
    /// Whether it multiplies and adds in one step.
    pub(crate) fma: bool,
}

impl Machine {
    /// The machine that this process runs on. None: Cranelift makes no code for it.
    pub fn host() -> Option<Machine> {
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
        let isa = cranelift_native::builder().ok()?.finish(settings::Flags::new(flags)).ok()?;
        let own = isa.isa_flags();
        let has =
            |name: &str| own.iter().any(|flag| flag.name == name && flag.as_bool() == Some(true));
        // Without these Cranelift calls functions for what they do.
        let fma = has("has_fma");
        has("has_sse41").then(|| Machine { isa, fma })
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
