//! The arguments and results of a function of native code.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_runtime::execute::Error;
use mithril_runtime::memory::OutOfMemory;
use smallvec::SmallVec;

use super::signature::{Binding, Group, Signature, SizeRule, Sizes};
use crate::compile::Program;

/// The arguments and the results of one function, in their order.
pub struct Interface {
    /// For each symbol of the function, its position in a binding.
    pub symbols: Vec<usize>,
    /// The number of slots that are arguments.
    pub arguments: usize,
    pub results: Vec<Outcome>,
    pub has_state: bool,
}

/// A result: an output, the gradient of a param, or the next value of a state.
pub struct Outcome {
    pub name: Arc<str>,
    pub group: Group,
    pub dtype: DType,
    pub dims: SmallVec<[SizeRule; 4]>,
    /// For a next state, the slot of the current state.
    pub before: Option<usize>,
}

impl Interface {
    /// The interface of the forward function, or with `joint` of the function that also returns
    /// gradients.
    ///
    /// Errors: the function has a dim that no argument determines.
    pub fn of(program: &Program, signature: &Signature, joint: bool) -> Result<Interface> {
        let native = program.native();
        let part = native.and_then(|native| match joint {
            true => native.joint.as_ref(),
            false => Some(&native.forward),
        });
        let wanted = part.map_or(&[][..], |part| &part.plan.symbols);
        let place = |symbol| signature.symbols.iter().position(|own| own == symbol);
        let symbols: Option<Vec<usize>> = wanted.iter().map(place).collect();
        let Some(symbols) = symbols else {
            return Diagnostic::new("a dim of the program has no value").err();
        };
        let outcomes = program.results.iter().map(|result| {
            let (name, group) = match &result.state {
                Some(state) => (state.clone(), Group::State),
                None => (result.name.clone(), Group::Inputs),
            };
            let dims = signature.size_rules(&result.ty.shape);
            let mut slots = signature.slots.iter();
            let before =
                slots.position(|s| group == Group::State && s.group == group && s.name == name);
            Outcome { name, group, dtype: result.ty.dtype, dims, before }
        });
        let learned = signature.slots.iter().filter(|slot| slot.group == Group::Params);
        let gradients = learned.filter(|slot| joint && slot.ty.dtype.is_float()).map(|slot| {
            let dims = signature.size_rules(&slot.ty.shape);
            let (name, group) = (slot.name.clone(), Group::Params);
            Outcome { name, group, dtype: slot.ty.dtype, dims, before: None }
        });
        let results = outcomes.chain(gradients).collect();
        let given = |group: Group| joint || group != Group::OutputGradients;
        let arguments = signature.slots.iter().filter(|slot| given(slot.group)).count();
        let has_state = signature.slots.iter().any(|slot| slot.group == Group::State);
        Ok(Interface { symbols, arguments, results, has_state })
    }

    /// The values of the function's symbols.
    pub fn values(&self, binding: &Binding) -> SmallVec<[i64; 8]> {
        self.symbols.iter().map(|&at| binding.values[at]).collect()
    }
}

impl Signature {
    /// The sizes of an array with these dims.
    ///
    /// Errors: a size would be negative, or has no value.
    pub fn sizes(&self, dims: &[SizeRule], binding: &Binding) -> Result<Sizes> {
        let size = |want: &SizeRule| match want {
            SizeRule::Is(size) => Some(*size),
            SizeRule::Symbol(at) => Some(binding.values[*at]).filter(|value| *value >= 0),
            SizeRule::Equals(dim) => self.evaluate(dim, binding).filter(|value| *value >= 0),
            SizeRule::Anything => None,
        };
        let sizes: Option<Sizes> = dims.iter().map(size).collect();
        sizes.ok_or_else(|| {
            let what = "the size of a result is negative or unknown for these inputs";
            Box::new(Diagnostic::of(ErrorKind::ShapesAtCall, what))
        })
    }
}

/// The size of an array in bytes. Errors: the size overflows.
pub fn bytes(sizes: &[i64], dtype: DType) -> Result<usize> {
    let bytes = sizes.iter().try_fold(dtype.bytes() as i64, |all, size| all.checked_mul(*size));
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(too_large)
}

fn too_large() -> Box<Diagnostic> {
    Box::new(Diagnostic::of(ErrorKind::Memory, "Out of memory: an array would be too large"))
}

/// The error for memory that cannot be allocated.
pub fn out_of_memory(error: OutOfMemory) -> Box<Diagnostic> {
    let what = format!("Out of memory: {} bytes cannot be allocated", error.bytes);
    Box::new(Diagnostic::of(ErrorKind::Memory, what))
}

/// The error for a call that failed in the runtime.
pub fn runtime_error(error: Error) -> Box<Diagnostic> {
    match error {
        Error::OutOfMemory(error) => out_of_memory(error),
        Error::Size { value: None, .. } => too_large(),
        other => Box::new(Diagnostic::of(ErrorKind::Native, "Native code did not run").got(other)),
    }
}
