//! The Rust API of compiled models: initial params, calls with `ndarray` arrays, gradients, export.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::Role;
use mithril_model::block::Block;
use mithril_model::init::Other;
use mithril_runtime::threads::Pool;

use crate::arrays::{Array, Arrays};
use crate::call::interface::Interface;
use crate::call::signature::Signature;
use crate::compile::{Argument, Code, CompileOptions, Program, compile};
use crate::native::export::{Export, Files, Library, export};
use crate::native::pool;

mod call;

/// A compiled model: native code, which it can run, or source.
pub struct Compiled {
    program: Arc<Program>,
    signature: Signature,
    /// The arguments and results of the functions of native code.
    forward: Option<Interface>,
    joint: Option<Interface>,
    pool: Arc<Pool>,
}

/// The arrays of a call.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub params: &'a Arrays,
    /// Inputs, and keys of random numbers as two `u32` words each.
    pub inputs: &'a Arrays,
    /// Required if the model has states.
    pub state: Option<&'a Arrays>,
    /// The gradients of outputs; omitted ones are zeros. `None` if no gradients of params are
    /// requested.
    pub output_gradients: Option<&'a Arrays>,
}

/// The results of a call.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub outputs: Arrays,
    /// Gradients by name of the param, if they were requested.
    pub gradients: Arrays,
    /// The next state. States that the call does not update keep their values.
    pub state: Arrays,
    /// One for each kernel that LLVM failed on. These kernels run slower.
    pub warnings: Vec<String>,
}

impl Compiled {
    /// Compiles a block. The code runs on as many threads as there are cores.
    ///
    /// Errors: those of [`compile`]; shapes or dtypes that the code needs but the options do not
    /// give.
    pub fn new(block: &Block, options: &CompileOptions) -> Result<Compiled> {
        Compiled::of(compile(block, options)?)
    }

    /// Prepares a program for calls.
    ///
    /// Errors: shapes or dtypes that the code needs are not known.
    pub fn of(program: Arc<Program>) -> Result<Compiled> {
        program.settled()?;
        let signature = Signature::new(&program, &|dtype| dtype);
        let native = program.native();
        let interface = |joint| Interface::of(&program, &signature, joint);
        let forward = native.map(|_| interface(false)).transpose()?;
        let joint = native.and_then(|native| native.joint.as_ref());
        let joint = joint.map(|_| interface(true)).transpose()?;
        Ok(Compiled { program, signature, forward, joint, pool: pool::of(0) })
    }

    /// Sets the number of threads; 0 means one for each core.
    pub fn with_threads(self, threads: usize) -> Compiled {
        Compiled { pool: pool::of(threads), ..self }
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The generated source in Python or C. `None` for native code.
    pub fn source(&self) -> Option<&str> {
        match &self.program.code {
            Code::Source(source) => Some(&source.text),
            Code::Native(native) => native.c(),
            Code::Parts(_) | Code::Open(_) => None,
        }
    }

    /// Draws the initial values of the params, as the blocks define them. A seed gives the same
    /// values as in Python.
    ///
    /// Errors: a param whose shape is not known, or that a Python function draws.
    pub fn first_params(&self, seed: u64) -> Result<Arrays> {
        self.initial_arrays(Role::Param, seed)
    }

    /// The initial state.
    ///
    /// Errors: as for [`Compiled::first_params`].
    pub fn first_state(&self) -> Result<Arrays> {
        self.initial_arrays(Role::State, 0)
    }

    fn initial_arrays(&self, role: Role, seed: u64) -> Result<Arrays> {
        let mut drawn = Arrays::new();
        for argument in self.program.arguments.iter().filter(|argument| argument.role == role) {
            let sizes = known_sizes(argument)?;
            let other = argument.fan_of.as_ref();
            let other =
                other.and_then(|name| self.program.arguments.iter().find(|own| own.name == *name));
            let other_sizes = other.map(known_sizes).transpose()?;
            let other = other.zip(other_sizes.as_deref());
            let other =
                other.map(|(own, sizes)| Other { name: &own.name, sizes, start: &own.start });
            let draw = argument.start.draw(&argument.name, &sizes, other)?;
            let shape: Vec<usize> = sizes.iter().map(|size| *size as usize).collect();
            let values = draw.values(seed, &argument.name, &shape)?;
            drawn.insert(&argument.name, Array::of_floats(argument.ty.dtype, &shape, values)?);
        }
        Ok(drawn)
    }

    /// Runs a model without states and returns its outputs.
    ///
    /// Errors: as for [`Compiled::call`].
    pub fn evaluate(&self, params: &Arrays, inputs: &Arrays) -> Result<Arrays> {
        let call = Call { params, inputs, state: None, output_gradients: None };
        Ok(self.call(&call)?.outputs)
    }

    /// Exports the model to a folder as a shared library for C, with its header, its metadata and,
    /// if params are given, its weights.
    ///
    /// Errors: an invalid name or processor; params that do not fit; those of [`export`].
    pub fn export(
        &self,
        folder: &Path,
        library: &Library,
        params: Option<&Arrays>,
    ) -> Result<Files> {
        let tensor = |(name, array): (&str, &Array)| Ok((name.to_string(), array.tensor()?));
        let weights = params.map(|params| params.iter().map(tensor).collect::<Result<Vec<_>>>());
        let request = Export::of(&self.program, folder, library, weights.transpose()?)?;
        export(&self.program.module, &request, &AtomicBool::new(false))
    }
}

fn known_sizes(argument: &Argument) -> Result<Vec<i64>> {
    argument.sizes().ok_or_else(|| {
        let what =
            format!("the shape of the {} `{}` is not known", argument.role.name(), argument.name);
        let error = Diagnostic::new(what).got(&argument.ty.shape);
        Box::new(error.hint("give the shapes of the inputs that it depends on"))
    })
}
