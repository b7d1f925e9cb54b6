//! Compiles loop code to machine code, by way of Cranelift functions.

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::Function;
use mithril_kernels::code::Code;

use crate::calls::Call;
use crate::machine::Machine;
use crate::translate::translate;
use crate::{Result, Unsupported};

/// Alignment of functions in bytes.
const ALIGNMENT: usize = 64;

impl Machine {
    /// The code of a kernel. Its bytes may be placed at any address and begin with the function
    /// that the runtime calls.
    ///
    /// # Errors
    /// [`Unsupported`] if Cranelift lacks something that the kernel needs.
    pub fn compile(&self, code: &Code) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let (mut starts, mut calls) = (Vec::new(), Vec::new());
        for function in translate(code, self)? {
            let mut context = Context::for_function(function);
            let compiled = context.compile(&*self.isa, &mut ControlPlane::default());
            let compiled = compiled.map_err(|error| Unsupported(format!("{:?}", error.inner)))?;
            // Gives the function's constants the alignment that they have in a function compiled
            // separately.
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            let start = bytes.len();
            bytes.extend_from_slice(compiled.code_buffer());
            let relocs: Vec<_> = compiled.buffer.relocs().to_vec();
            for reloc in &relocs {
                calls.push(Call::of(reloc, &context.func, start)?);
            }
            starts.push(start);
        }
        // The first function is the kernel itself, so private function `n` is at `n + 1`.
        calls.iter().for_each(|call| call.resolve(&mut bytes, starts[call.function + 1]));
        Ok(bytes)
    }

    /// The Cranelift IR of a kernel, as text.
    ///
    /// # Errors
    /// As [`Machine::compile`], and errors of Cranelift's verifier.
    pub fn text(&self, code: &Code) -> Result<String> {
        let functions = translate(code, self)?;
        for function in &functions {
            let verified = cranelift_codegen::verify_function(function, &*self.isa);
            verified.map_err(|errors| Unsupported(format!("{errors}\n{function}")))?;
        }
        Ok(functions.iter().map(Function::to_string).collect::<Vec<_>>().join("\n"))
    }
}
