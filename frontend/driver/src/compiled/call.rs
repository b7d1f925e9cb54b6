//! One call: arrays are converted to pointers, and result memory to arrays.

use std::sync::atomic::AtomicBool;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_runtime::memory::Block as Memory;
use smallvec::SmallVec;

use super::{Call, Compiled, Step};
use crate::arrays::{Array, Arrays, Contiguous};
use crate::call::explain::Given;
use crate::call::interface::{self, Interface, out_of_memory, runtime_error};
use crate::call::signature::{Binding, Group, Mismatch, Signature, Sizes};
use crate::native::PlannedFunction;

impl Compiled {
    /// Runs native code. The C target is compiled by the system's compiler. The first call compiles
    /// the kernels that are not in the disk cache.
    ///
    /// Errors: names, shapes and dtypes that do not fit; an index out of range; gradients of a
    /// program that has none; a program that is Python source; no code generator; out of memory.
    pub fn call(&self, call: &Call<'_>) -> Result<Step> {
        let (part, interface) = self.function(call.output_gradients.is_some())?;
        let (given, binding) = self.checked(call)?;
        let ready = part.ready(&AtomicBool::new(false))?;
        let symbols = interface.values(&binding);
        let executable = &ready.executable;
        let prepared = executable.prepare(&symbols).map_err(runtime_error)?;
        let zeros = self.zeros(&given, interface.arguments, &binding)?;
        let args: SmallVec<[*const u8; 16]> = given.iter().zip(&zeros).map(pointer).collect();
        let mut made: Vec<(Sizes, Memory)> = Vec::with_capacity(interface.results.len());
        for (result, &bytes) in interface.results.iter().zip(prepared.result_bytes()) {
            let sizes = self.signature.sizes(&result.dims, &binding)?;
            made.push((sizes, Memory::new(bytes).map_err(out_of_memory)?));
        }
        let results: SmallVec<[*mut u8; 8]> =
            made.iter().map(|(_, memory)| memory.as_ptr()).collect();
        // SAFETY: the arrays were checked against the signature that the program was planned for,
        // and are borrowed until the end of the call; the result memory is new.
        unsafe { executable.run(&args, &symbols, &results, &self.pool) }.map_err(runtime_error)?;
        let mut step = Step { warnings: ready.warnings.take(), ..Step::default() };
        step.state = call.state.cloned().unwrap_or_default();
        for (result, (sizes, memory)) in interface.results.iter().zip(made) {
            let shape: SmallVec<[usize; 6]> = sizes.iter().map(|size| *size as usize).collect();
            let array = Array::of_bytes(result.dtype, &shape, memory.as_slice())?;
            let into = match result.group {
                Group::Inputs | Group::OutputGradients => &mut step.outputs,
                Group::Params => &mut step.gradients,
                Group::State => &mut step.state,
            };
            into.insert(&result.name, array);
        }
        if let Some(tier_up) = &ready.tier_up {
            tier_up.begin();
        }
        Ok(step)
    }

    /// The function to call: the forward one, or with `joint` the one that also returns gradients.
    ///
    /// Errors: the program does not have it.
    fn function(&self, joint: bool) -> Result<(&PlannedFunction, &Interface)> {
        let native = self.program.native_code()?;
        let part = match joint {
            false => self.forward.as_ref().map(|forward| (&native.forward, forward)),
            true => native.joint.as_ref().zip(self.joint.as_ref()),
        };
        part.ok_or_else(|| {
            let error = Diagnostic::of(ErrorKind::Training, "the model has no gradients");
            Box::new(error.expected("a model with params, compiled for training"))
        })
    }

    /// Checks the arrays of a call. Returns them by slot, with the values of the symbols.
    fn checked<'a>(&self, call: &'a Call<'a>) -> Result<(Vec<Option<Contiguous<'a>>>, Binding)> {
        let given = Named { signature: &self.signature, call };
        for group in Group::ALL {
            let own = self.signature.names(group);
            let names = given.names(group);
            let all = own.len() == names.len() || group == Group::OutputGradients;
            if !(all && names.iter().all(|name| own.contains(&name.as_str()))) {
                return self.signature.names_error(&given, group).err();
            }
        }
        let mut binding = self.signature.binding();
        let mut arrays = Vec::with_capacity(self.signature.slots.len());
        for (at, slot) in self.signature.slots.iter().enumerate() {
            let Some(array) = given.find(at) else {
                arrays.push(None);
                continue;
            };
            let plain = match array.dtype() == slot.ty.dtype {
                true => Some(array.contiguous()),
                false if slot.any_integer => {
                    array.with_integers(slot.ty.dtype).map(Contiguous::from)
                }
                false => None,
            };
            let fits = self.signature.take(at, &sizes_of(array), &mut binding);
            let Some(plain) = plain.filter(|_| fits) else {
                return self.signature.mismatch(&given, at).err();
            };
            arrays.push(Some(plain));
        }
        match self.signature.check_late(&binding) {
            Ok(()) => {}
            Err(Mismatch::Slot(at)) => return self.signature.mismatch(&given, at).err(),
            Err(Mismatch::Guard(at, binding)) => {
                return self.signature.guard_error(at, &binding).err();
            }
        }
        for (at, array) in arrays.iter().enumerate() {
            if let Some(plain) = array.as_ref().filter(|_| self.signature.slots[at].indexes) {
                let outside = self.signature.check_indices(at, &plain.elements(), &binding);
                outside.map_err(|outside| Box::new(self.signature.out_of_range(&outside)))?;
            }
        }
        Ok((arrays, binding))
    }

    /// Allocates zeros for the omitted ones of the first `arguments` slots.
    fn zeros(
        &self,
        given: &[Option<Contiguous>],
        arguments: usize,
        binding: &Binding,
    ) -> Result<Vec<Memory>> {
        let slots = self.signature.slots.iter().zip(given).take(arguments);
        let zeros = slots.map(|(slot, given)| {
            if given.is_some() {
                return Ok(Memory::empty());
            }
            let sizes = self.signature.sizes(&slot.dims, binding)?;
            let bytes = interface::bytes(&sizes, slot.ty.dtype)?;
            let mut memory = Memory::new(bytes).map_err(out_of_memory)?;
            memory.as_mut_slice().fill(0);
            Ok(memory)
        });
        zeros.collect()
    }
}

/// The address of an argument: that of the given array, or of zeros.
fn pointer((given, zeros): (&Option<Contiguous>, &Memory)) -> *const u8 {
    match given {
        Some(plain) => plain.as_ptr(),
        None => zeros.as_ptr(),
    }
}

fn sizes_of(array: &Array) -> Sizes {
    array.shape().iter().map(|size| *size as i64).collect()
}

/// The arrays of a call by name.
struct Named<'s, 'a> {
    signature: &'s Signature,
    call: &'a Call<'a>,
}

impl<'a> Named<'_, 'a> {
    fn group(&self, group: Group) -> Option<&'a Arrays> {
        match group {
            Group::Params => Some(self.call.params),
            Group::Inputs => Some(self.call.inputs),
            Group::State => self.call.state,
            Group::OutputGradients => self.call.output_gradients,
        }
    }

    fn find(&self, slot: usize) -> Option<&'a Array> {
        let slot = &self.signature.slots[slot];
        self.group(slot.group)?.find(&slot.name)
    }
}

impl Given for Named<'_, '_> {
    fn names(&self, group: Group) -> Vec<String> {
        let arrays = self.group(group).into_iter();
        arrays.flat_map(|arrays| arrays.names().map(String::from)).collect()
    }

    fn array(&self, slot: usize) -> Option<(DType, Sizes)> {
        self.find(slot).map(|array| (array.dtype(), sizes_of(array)))
    }
}
