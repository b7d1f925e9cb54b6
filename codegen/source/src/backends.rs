//! The Python backends: one file per framework, with its spellings of operations and its other
//! properties.
//!
//! A template is a Python expression with slots. `@` is the array module (`@exp` is `np.exp`,
//! `torch.exp`, `jnp.exp`). A called name that begins with `_` is a function of the framework's
//! prelude. An optional segment, such as `[, axis={axis}]`, is left out if all its slots are absent
//! or at their defaults. Alternatives are separated by `; `, and the first one whose conditions
//! hold is used:
//! `{x}.T if permutation == (1, 0); @transpose({x}, {permutation.tuple})`.
//!
//! Slots are operands (`{x}`; a variadic operand fills it with several) and attributes (`{axis}`),
//! and:
//! - `{x.number}`: may be filled with a Python number, as may every operand of an elementwise
//!   operation; `{x.array}`: always an array; `{x.last}`: the last dim of the operand
//! - `{axes}`: a number for one axis, a tuple for several; `{axes.tuple}`: always a tuple;
//!   `{strides.same}`: a number if all are equal
//! - `{axis.front}`: counted from the front of the result; `{data.word}`: as unsigned 32 bits
//! - `{shape}`: a tuple or another array's shape; `{shape.args}`: arguments of a call;
//!   `{shape.dims}`: the dims, as several arguments;
//!   `{shape.one}`: the only dim; `{result}`: the shape of the result, with the same forms
//! - `{dtype}`: the attribute, or else the result's dtype; `{narrow}`: the same, at its default
//!   unless the framework would widen it; `{device}`: the device for new arrays, at its default if
//!   it does not matter
//! - `{slices}`, `{bounds}`: a slice as written inside brackets, and as `slice` objects;
//!   `{padding}`, `{widths}`, `{pads}`: (low, high, interior) per axis, (low, high) per axis, and
//!   low and high from the last axis to the first; `{left}`, `{right}`: the operands of a
//!   contraction, transposed as `@` needs them; `{equation}`: the subscripts of `einsum`;
//!   `{contracted}`: the axes of `tensordot`;
//!   `{input}`, `{weights}`, `{bias}`: the parts of a linear layer; `{weights.T}`: with a row for
//!   each output;
//!   `{mesh}`: the device mesh; `{spec}`: for each axis of a constrained array, the mesh axes that
//!   divide it; `{split}`: for each mesh axis, the axis that it divides;
//!   `{summed}`, `{kept}`: the axes that `sum_to` sums over, and whether they stay as dims of 1
//!
//! Conditions are `attribute == value` and `slot is word`, joined by ` and `. The words are:
//! - for operands: `number`, `array`, `zero`, `one` (the form in which the operand is available),
//!   `computed` (its elements depend on floats), `drawn` (they are random floats), `filled` (it has
//!   elements), `fixed` (all dims are numbers),
//!   `scalar`, `vector`, `matrix`, `alike` (several of one dtype), `smaller` (than the first
//!   operand, along some axis), dtypes, and `half`, `index`, `integer`, `unsigned` (of more than 8
//!   bits), `short` (an integer of less than 32 bits), `float`, `bool`
//! - for attributes: `default`, `single`, `empty`, `natural` (nowhere negative), and dtypes
//! - `result is matmul`, `result is tensordot`: `@` or `tensordot` can compute the result; `result is summed`: a plain sum can;
//!   `result is scaled`: one operand is a number; `result is linear`: the sum of a product with a
//!   matrix and a bias, where the product is not written by itself; `result is mixed`: the framework
//!   chooses dtypes, as PyTorch's autocast does
//! - `name is sibling`: the operation of this name exists on the same operands; `name is reader`:
//!   it
//!   reads the result; `name is used`: it exists anywhere in the file
//! - `axes is vacant`: one of those axes may be empty; `strides is sizes`: the two are equal
//! - `x is signal`, `image`, `volume`: a batch of channels with one, two or three axes that windows
//!   slide over; `low is symmetric`: the padding after each axis is that before it, and at most half
//!   of a pooling window
//!
//! `f({x})[0 / 3]` is the first of three parts that a call returns. Operations on the same operands
//! that are parts of one call become one statement. `{wanted.3}` is a list of three bools: for each
//! value 0, 1 and 2 of the attribute `of`, whether an operation with that value exists.

pub(crate) mod array_api;
mod attention;
mod fourier;
mod jax;
mod mlx;
mod numpy;
mod tinygrad;
mod torch;

pub use torch::transposed_params;

use std::fmt;
use std::sync::{OnceLock, RwLock};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::op::{Meaning, Op};
use mithril_passes::target::{Takes, Target};
use rustc_hash::FxHashMap;

/// Every backend.
pub static BACKENDS: [&Backend; 5] =
    [&numpy::BACKEND, &torch::BACKEND, &jax::BACKEND, &mlx::BACKEND, &tinygrad::BACKEND];

/// The backend of this name.
pub fn find(name: &str) -> Option<&'static Backend> {
    let registered = REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut all = BACKENDS.iter().chain(registered.iter()).copied();
    all.find(|backend| backend.name() == name)
}

/// Backends that were registered at run time: see [`custom`](crate::custom).
static REGISTERED: RwLock<Vec<&Backend>> = RwLock::new(Vec::new());

/// Adds a backend whose name is not taken.
pub(crate) fn add(backend: &'static Backend) {
    REGISTERED.write().unwrap_or_else(|poisoned| poisoned.into_inner()).push(backend);
}

/// The built-in backend of this name.
pub(crate) fn built_in(name: &str) -> Option<&'static Backend> {
    BACKENDS.iter().copied().find(|backend| backend.name() == name)
}

/// Templates by operation name. An empty template means that the backend lacks the operation, which
/// is then decomposed.
pub type Spellings = &'static [(&'static str, &'static str)];

/// A Python framework that source is emitted for.
pub struct Backend {
    /// The framework's name in prose.
    pub label: &'static str,
    /// The framework as a target of the passes, with its name.
    pub target: Target,
    /// The operations that the target takes in a program for a device mesh, if they are others.
    pub takes_on_mesh: Option<Takes>,
    /// What `@` stands for in templates.
    pub module: &'static str,
    /// Modules that its files may import besides those that every file may, by their names in the
    /// files: with their import lines.
    pub imports: &'static [(&'static str, &'static str)],
    /// Files of functions that supply what the framework lacks.
    pub prelude: &'static [&'static str],
    /// Templates that take precedence over those of the array API.
    pub spellings: Spellings,
    /// Templates of operations on keys, for the framework's own generator. A folded key is then a
    /// tuple of numbers, which no other operation reads.
    pub random: Spellings,
    /// Templates of operations that write their result into their first operand.
    pub in_place: Spellings,
    /// Makes an array of rank 0: `{x}` is the number, `{dtype}` its dtype.
    pub scalar: &'static str,
    /// Makes an array from nested lists.
    pub array: &'static str,
    /// Makes an array of one number repeated.
    pub full: &'static str,
    pub zeros: &'static str,
    pub ones: &'static str,
    /// Makes an array from a NumPy array, such as the constants stored next to the file.
    pub load: &'static str,
    /// Makes an array of a dtype that NumPy lacks from its elements as integers. `None` if `load`
    /// takes arrays of `ml_dtypes`.
    pub load_bits: Option<&'static str>,
    /// The name of the bool dtype.
    pub truth: &'static str,
    /// The module of the dtypes that NumPy lacks, if it is not the array module.
    pub foreign: Option<&'static str>,
    /// The object whose attributes are the dtypes, if it is not the array module.
    pub dtypes: Option<&'static str>,
    /// The module of `inf` and `nan`, if it is not the array module.
    pub infinities: Option<&'static str>,
    /// Dtypes that the framework lacks.
    pub lacks: &'static [DType],
    /// Unsigned dtypes whose sums are signed unless a dtype is given.
    pub signed_sums: &'static [DType],
    /// Arrays live on a device, and new arrays must be created on the same one.
    pub devices: bool,
    /// 64-bit elements must be enabled explicitly.
    pub narrow: bool,
    /// Whether arithmetic with Python numbers keeps the dtypes of `ml_dtypes`.
    pub mixes: bool,
    /// The framework computes gradients itself, by its own rules.
    pub differentiates: bool,
    /// Whether it also differentiates models in which elements of arrays decide which operations run.
    pub differentiates_branches: bool,
    /// The framework has a loop construct of its own, and would unroll Python loops.
    pub loops: bool,
    /// Operations run one after the other, and each allocates its result as it runs.
    pub eager: bool,
    /// Operations run when a result is read, and `item()` reads a bool that decides what runs.
    pub lazy: bool,
    /// Templates by operation, filled at the first lookup.
    pub known: OnceLock<FxHashMap<&'static str, &'static str>>,
}

/// Where random numbers come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Random {
    /// The framework's own generator, seeded by the key and the paths of blocks. JAX's takes keys
    /// itself.
    #[default]
    Framework,
    /// The same bits on every target: those of JAX.
    Exact,
}

impl Random {
    /// The source of this name.
    pub fn find(name: &str) -> Option<Random> {
        [("framework", Random::Framework), ("exact", Random::Exact)]
            .iter()
            .find(|(own, _)| *own == name)
            .map(|(_, random)| *random)
    }
}

/// Which operations write their result into an operand that nothing else reads, where the framework
/// can.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum InPlace {
    #[default]
    None,
    /// Those on a single array. Under PyTorch's autocast, two arrays of one operation may have
    /// different dtypes, and the result that of either.
    OneArray,
    All,
}

impl InPlace {
    /// The choice of this name.
    pub fn find(name: &str) -> Option<InPlace> {
        [("none", InPlace::None), ("one", InPlace::OneArray), ("all", InPlace::All)]
            .iter()
            .find(|(own, _)| *own == name)
            .map(|(_, choice)| *choice)
    }
}

/// Whether NumPy has the dtype only through `ml_dtypes`.
pub fn is_foreign(dtype: DType) -> bool {
    dtype == DType::BF16 || dtype.is_storage_only()
}

impl PartialEq for Backend {
    /// Compares names, which are unique.
    fn eq(&self, other: &Backend) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Backend {
    /// The name in commands and file names.
    pub fn name(&self) -> &'static str {
        self.target.name
    }

    /// The template of an operation; empty where the framework lacks it.
    pub fn spelling(&self, op: Op) -> &'static str {
        let known = self
            .known
            .get_or_init(|| array_api::SPELLINGS.iter().chain(self.spellings).copied().collect());
        known.get(op.name).copied().unwrap_or("")
    }

    /// The template of an operation, with random numbers from this source; empty where the framework
    /// lacks it.
    pub fn template(&self, op: Op, random: Random) -> &'static str {
        let own = self.random.iter().find(|(name, _)| *name == op.name);
        match (random, own) {
            (Random::Framework, Some((_, template))) => template,
            (Random::Framework, None) | (Random::Exact, _) => self.spelling(op),
        }
    }

    /// The template of an operation that writes its result into its first operand; empty where the
    /// framework has none.
    pub fn template_in_place(&self, op: Op) -> &'static str {
        let own = self.in_place.iter().find(|(name, _)| *name == op.name);
        own.map_or("", |(_, template)| template)
    }

    /// The dtype's expression, as a template. `wide` tells whether 64-bit elements are enabled.
    ///
    /// Errors: the framework does not have this dtype.
    pub fn dtype(&self, dtype: DType, wide: bool) -> Result<String> {
        if self.lacks.contains(&dtype) {
            let name = self.name();
            return Diagnostic::of(
                ErrorKind::Unsupported,
                format!(
                    "Backend does not support operation on {dtype}: {name} does not have this dtype"
                ),
            )
            .err();
        }
        let name = match dtype {
            DType::Bool => self.truth,
            DType::I64 if self.narrow && !wide => "int32",
            DType::U64 if self.narrow && !wide => "uint32",
            _ => dtype.array_name(),
        };
        Ok(match self.foreign.filter(|_| is_foreign(dtype)) {
            Some(module) => format!("{module}.{name}"),
            None => format!("{}.{name}", self.dtypes.unwrap_or("@")),
        })
    }

    /// Whether the framework supports an operation. It supports every primitive and call: the
    /// emitter writes those without a spelling in Python's own syntax.
    pub fn spells(&self, op: Op) -> bool {
        match op.meaning {
            Meaning::Scalar(_) | Meaning::Decompose(_) => !self.spelling(op).is_empty(),
            Meaning::Kernel(_) | Meaning::Call(_) => true,
        }
    }
}
