//! The state of the translation from loop code to a Cranelift function.

use std::collections::HashMap;

use cranelift_codegen::ir::{StackSlot, Type, Value};
use cranelift_frontend::FunctionBuilder;
use mithril_kernels::code::{Code, Mem, V};

use crate::machine::Machine;
use crate::representation::Representation;
use crate::{Result, unsupported};

/// A function under translation.
pub struct Translator<'a> {
    pub code: &'a Code,
    pub machine: &'a Machine,
    pub b: FunctionBuilder<'a>,
    pub values: Vec<Representation>,
    /// For each index that is another index plus a constant: that index and the constant.
    pub sums: Vec<Option<(V, i64)>>,
    /// The arguments from the runtime; private functions have none.
    pub arguments: Option<KernelArguments>,
    /// Constants already materialized in this block.
    pub constants: HashMap<(Type, u64), Value>,
    /// Addresses of elements already computed in this block or an enclosing one.
    pub addresses: HashMap<(Mem, V), Value>,
    /// Stack slots for accessing vectors lane by lane: one for elements, one for their indices.
    pub slots: [Option<StackSlot>; 2],
}

/// The arguments that the runtime passes to a kernel.
pub struct KernelArguments {
    pub buffers: Vec<Value>,
    pub dims: Vec<Value>,
    pub scratch: Value,
    pub first: Value,
    pub last: Value,
}

impl Translator<'_> {
    /// The arguments from the runtime.
    pub fn arguments(&self) -> Result<&KernelArguments> {
        match &self.arguments {
            Some(arguments) => Ok(arguments),
            None => unsupported("memory or dims in a private function"),
        }
    }
}
