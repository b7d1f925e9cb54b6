//! One call: arrays are converted to pointers, and result memory to arrays.

use std::time::{Duration, Instant};

use mithril_driver::call::interface::{self, Interface, out_of_memory, runtime_error};
use mithril_driver::call::signature::{Binding, Group, Signature, Sizes};
use mithril_driver::compile::Program;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_runtime::execute::{Error, Executable};
use mithril_runtime::memory::Block;
use mithril_runtime::threads::Pool;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;

use crate::arrays::{Numpy, Reader};
use crate::check::Checker;
use crate::error::Answer;
use crate::output::Maker;

/// The environment of a call.
pub struct CallContext<'a> {
    pub checker: &'a Checker,
    pub executable: &'a Executable,
    pub pool: &'a Pool,
    /// Whether the next state overwrites the arrays of the given state.
    pub donates: bool,
}

/// The size of results in bytes from which the GIL is released during a call.
const LARGE: usize = 1 << 15;

/// The information needed to call a function of a program.
pub struct Call {
    maker: Maker,
    interface: Interface,
    /// The names of the results.
    keys: Vec<Py<PyString>>,
}

/// The results of a call: memory, sizes, and the array that the result overwrites, if any.
type CallResults<'py> = SmallVec<[(Block, Sizes, Option<Bound<'py, PyAny>>); 8]>;

/// The arrays of a call, by slot.
#[derive(Default)]
pub struct CallArrays<'py>(SmallVec<[Option<Bound<'py, PyAny>>; 16]>);

impl<'py> CallArrays<'py> {
    pub fn clear(&mut self, slots: usize) {
        self.0.clear();
        self.0.resize(slots, None);
    }

    pub fn keep(&mut self, at: usize, value: &Bound<'py, PyAny>) {
        self.0[at] = Some(value.clone());
    }
}

impl Call {
    /// The forward function, or with `joint` the one that also returns gradients.
    pub fn of(
        py: Python<'_>,
        program: &Program,
        signature: &Signature,
        joint: bool,
    ) -> Answer<Call> {
        let interface = Interface::of(program, signature, joint)?;
        let keys = interface.results.iter().map(|own| PyString::intern(py, &own.name).unbind());
        Ok(Call { maker: Maker::new(py)?, keys: keys.collect(), interface })
    }

    /// Runs the function on checked arrays. `gradients` says whether gradients are returned, even
    /// if there are none.
    pub fn run<'py>(
        &self,
        py: Python<'py>,
        context: &CallContext,
        mut taken: CallArrays<'py>,
        binding: &Binding,
        gradients: bool,
    ) -> Answer<Bound<'py, PyAny>> {
        let CallContext { checker, executable, pool, donates } = context;
        let Reader::Numpy(reader) = &*checker.reader else {
            let what = "Native code cannot read this version of NumPy's arrays";
            return Err(Diagnostic::of(ErrorKind::Native, what).into());
        };
        let symbols = self.interface.values(binding);
        let prepared = executable.prepare(&symbols).map_err(runtime_error)?;
        let mut zeros: SmallVec<[Block; 2]> = SmallVec::new();
        let mut args: SmallVec<[*const u8; 16]> = SmallVec::new();
        for at in 0..self.interface.arguments {
            args.push(argument(py, checker, reader, &mut taken, binding, &mut zeros, at)?);
        }
        let mut made = CallResults::new();
        for (result, &bytes) in self.interface.results.iter().zip(prepared.result_bytes()) {
            let sizes = checker.signature.sizes(&result.dims, binding)?;
            debug_assert_eq!(interface::bytes(&sizes, result.dtype).ok(), Some(bytes));
            let before = match result.before.filter(|_| *donates) {
                Some(at) if does_not_overlap(&checker.signature, binding, &args, at)? => {
                    taken.0[at].clone()
                }
                _ => None,
            };
            made.push((Block::new(bytes).map_err(out_of_memory)?, sizes, before));
        }
        let results: SmallVec<[*mut u8; 8]> =
            made.iter().map(|(block, ..)| block.as_ptr()).collect();
        let pointers = Pointers { args: &args, results: &results };
        let long = prepared.is_shared() || prepared.result_bytes().iter().sum::<usize>() >= LARGE;
        match long {
            true => {
                let mut signals = Signals::new();
                let mut raised = || signals.raised();
                // SAFETY: the arrays were checked against the signature that the program was
                // planned for, and live until the end of this function; the blocks are new.
                let ran =
                    py.detach(|| unsafe { pointers.run(executable, &symbols, pool, &mut raised) });
                if let Some(error) = signals.error {
                    return Err(error.into());
                }
                ran
            }
            // SAFETY: as above.
            false => unsafe { pointers.run(executable, &symbols, pool, &mut || false) },
        }
        .map_err(runtime_error)?;
        self.gather(py, reader, made, gradients)
    }

    /// Returns the results as generated source does: a tuple of outputs, gradients and next state,
    /// or only the outputs.
    fn gather<'py>(
        &self,
        py: Python<'py>,
        reader: &Numpy,
        made: CallResults<'py>,
        gradients: bool,
    ) -> Answer<Bound<'py, PyAny>> {
        let outputs = PyDict::new(py);
        let gradients = gradients.then(|| PyDict::new(py));
        let state = self.interface.has_state.then(|| PyDict::new(py));
        let results = self.interface.results.iter().zip(&self.keys);
        for ((result, key), (block, sizes, before)) in results.zip(made) {
            let array = match before.filter(|array| overwrite(reader, array, &block)) {
                Some(array) => array,
                None => self.maker.array(py, reader, result.dtype, &sizes, block)?,
            };
            let into = match result.group {
                Group::State => state.as_ref(),
                Group::Params => gradients.as_ref(),
                Group::Inputs | Group::OutputGradients => None,
            };
            into.unwrap_or(&outputs).set_item(key, array)?;
        }
        let others: SmallVec<[_; 2]> = gradients.into_iter().chain(state).collect();
        if others.is_empty() {
            return Ok(outputs.into_any());
        }
        let all: Vec<_> = std::iter::once(outputs).chain(others).collect();
        Ok(PyTuple::new(py, all)?.into_any())
    }
}

/// Copies a result over an array of its shape and dtype, if the array is writeable.
fn overwrite(reader: &Numpy, array: &Bound<'_, PyAny>, block: &Block) -> bool {
    let Some(data) = reader.data_to_write(array) else { return false };
    // SAFETY: a state has the shape and the dtype of the next state, and the block is new memory.
    unsafe { data.copy_from_nonoverlapping(block.as_ptr(), block.len()) };
    true
}

/// Whether the memory of an argument does not overlap with that of another argument.
fn does_not_overlap(
    signature: &Signature,
    binding: &Binding,
    args: &[*const u8],
    at: usize,
) -> Answer<bool> {
    let span = |at: usize| -> Answer<_> {
        let slot = &signature.slots[at];
        let bytes = interface::bytes(&signature.sizes(&slot.dims, binding)?, slot.ty.dtype)?;
        Ok((args[at].addr(), args[at].addr() + bytes))
    };
    let (begin, end) = span(at)?;
    for other in (0..args.len()).filter(|&other| other != at) {
        let (first, last) = span(other)?;
        if first < end && begin < last {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The address of the elements of an argument.
fn argument<'py>(
    py: Python<'py>,
    checker: &Checker,
    reader: &Numpy,
    taken: &mut CallArrays<'py>,
    binding: &Binding,
    zeros: &mut SmallVec<[Block; 2]>,
    at: usize,
) -> Answer<*const u8> {
    let slot = &checker.signature.slots[at];
    match &mut taken.0[at] {
        Some(array) => match reader.data(array) {
            Some(data) => Ok(data),
            None => {
                let Some(dtype) = reader.dtype(slot.ty.dtype) else {
                    return Err(Diagnostic::new("NumPy does not have this dtype").into());
                };
                let require = py.import(intern!(py, "numpy"))?.getattr(intern!(py, "require"))?;
                *array = require.call1((&*array, dtype, ("C", "A")))?;
                let plain = reader.data(array);
                Ok(plain.ok_or_else(|| Diagnostic::new("NumPy does not return a plain array"))?)
            }
        },
        None if slot.optional => {
            let sizes = checker.signature.sizes(&slot.dims, binding)?;
            let bytes = interface::bytes(&sizes, slot.ty.dtype)?;
            let mut block = Block::new(bytes).map_err(out_of_memory)?;
            block.as_mut_slice().fill(0);
            zeros.push(block);
            Ok(zeros[zeros.len() - 1].as_ptr())
        }
        None => Err(checker.missing(py, slot.group).into()),
    }
}

/// The arguments and results of a call as pointers.
struct Pointers<'a> {
    args: &'a [*const u8],
    results: &'a [*mut u8],
}

// SAFETY: the creator keeps the memory alive, and no other thread writes it.
unsafe impl Send for Pointers<'_> {}
// SAFETY: as above.
unsafe impl Sync for Pointers<'_> {}

impl Pointers<'_> {
    /// # Safety
    /// As for [`Executable::run`].
    unsafe fn run(
        &self,
        executable: &Executable,
        symbols: &[i64],
        pool: &Pool,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        // SAFETY: guaranteed by the caller.
        unsafe { executable.run_until(self.args, symbols, self.results, pool, stop) }
    }
}

/// Checks for signals while a call runs without the GIL.
struct Signals {
    checked: Instant,
    /// The exception that a signal raised, such as `KeyboardInterrupt`.
    error: Option<PyErr>,
}

impl Signals {
    /// The time between two checks. Each check takes the GIL from other threads.
    const INTERVAL: Duration = Duration::from_millis(50);

    fn new() -> Signals {
        Signals { checked: Instant::now(), error: None }
    }

    /// Whether a signal has raised an exception.
    fn raised(&mut self) -> bool {
        if self.checked.elapsed() >= Signals::INTERVAL {
            self.error = Python::attach(|py| py.check_signals()).err();
            self.checked = Instant::now();
        }
        self.error.is_some()
    }
}
