//! Python source for array frameworks: one emitter, a small table per framework, and the op table's
//! templates.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_passes::shard::layout::Mesh;

use crate::backends::{Backend, InPlace, Random};

mod body;
mod calls;
mod complex;
mod constants;
mod contraction;
mod control;
mod dims;
mod expr;
mod external;
mod facts;
mod file;
mod in_place;
mod layout;
mod linear;
mod mesh;
mod names;
mod neighbours;
mod operation;
mod prelude;
mod scan;
mod settle;
mod shape_sources;
mod slices;
mod survey;
mod template;
mod transposes;
mod unit;
mod views;

pub use unit::wants_wide;

pub(crate) use expr::{Expr, MAX_PARTS};
pub(crate) use file::has_module;
pub(crate) use names::is_variable;
pub(crate) use prelude::{defines, definitions};
pub(crate) use template::{Alternative, Guard, Test, parse};

/// The names in the emitted file, and its source of random numbers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model in a few words, for the docstring: `A linear model`.
    pub summary: String,
    /// The file's name without `.py`. Large constants are stored next to it in `<stem>.npz`.
    pub stem: String,
    /// Where random numbers come from.
    pub random: Random,
    /// The device mesh that operations `constrain` refer to.
    pub mesh: Option<Mesh>,
    pub in_place: InPlace,
    /// Whether the file runs in mixed precision, such as PyTorch's autocast: its framework chooses
    /// the dtypes of operations.
    pub mixed_precision: bool,
    /// Whether gradients may be computed from the file.
    pub training: bool,
    /// How the mesh divides params and inputs, by name: mesh axes with the axes that they divide.
    pub layouts: Vec<(String, Vec<(String, i64)>)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            summary: "A model".into(),
            stem: "model".into(),
            random: Random::default(),
            mesh: None,
            in_place: InPlace::default(),
            mixed_precision: false,
            training: true,
            layouts: Vec::new(),
        }
    }
}

/// An emitted file.
///
/// To run it in memory, execute the text with `__file__` set to any path in the directory of the
/// `.npz`. If `constants` is empty, no `__file__` is needed.
#[derive(Clone, Debug)]
pub struct Source {
    pub text: String,
    /// The arrays of the `.npz`, by name. NumPy stores dtypes that it lacks as raw bits, and the
    /// file views them as their dtype again.
    pub constants: Vec<(String, Tensor)>,
}

/// Emits the Python source of a module that is legal for the framework. The first function becomes
/// `forward(params, inputs)`, or `forward(params, inputs, state)` if it has state. An entry that
/// has arguments of role cotangent becomes `gradients(params, inputs, output_gradients)` under its
/// own name. If it returns the first function's results before the gradients, it also becomes
/// `outputs_and_gradients`, whose last argument is a function of the outputs. Keys and constants
/// are entries of `inputs`.
///
/// Errors: an operation or a dtype that the framework lacks; a dim that no shape gives.
pub fn emit(module: &Module, backend: &'static Backend, options: &Options) -> Result<Source> {
    unit::File::new(module, backend, options).finish(options)
}
