//! The state of a translation from loop code to a function of Cranelift's.

use std::collections::HashMap;

use cranelift_codegen::ir::{StackSlot, Type, Value};
use cranelift_frontend::FunctionBuilder;
use mithril_kernels::code::{Code, Mem, V};

use crate::held::Held;
use crate::machine::Machine;
use crate::{Result, unsupported};

/// A kernel on its way.
pub struct Translator<'a> {
    pub code: &'a Code,
    pub machine: &'a Machine,
    pub b: FunctionBuilder<'a>,
    pub values: Vec<Held>,
    /// The index that another is, plus a constant.
    pub sums: Vec<Option<(V, i64)>>,
    /// What the runtime gives; the kernel's own functions have none of it.
    pub given: Option<Given>,
    /// Constants that this block has.
    pub constants: HashMap<(Type, u64), Value>,
    /// Addresses of elements that this block or one around it has.
    pub addresses: HashMap<(Mem, V), Value>,
    /// Memory to take vectors apart in: for elements, and for where they are.
    pub slots: [Option<StackSlot>; 2],
}

/// What the runtime gives a kernel.
pub struct Given {
    pub buffers: Vec<Value>,
    pub dims: Vec<Value>,
    pub scratch: Value,
    pub first: Value,
    pub last: Value,
}

impl Translator<'_> {
    /// What the runtime gives.
    pub fn given(&self) -> Result<&Given> {
        match &self.given {
            Some(given) => Ok(given),
            None => unsupported("memory or dims in a function of the kernel's own"),
        }
    }
}
