//! The Python backends: one file each, with the spellings of operations and what else is a
//! framework's own.
//!
//! A template is a Python expression with slots. `@` is the array module (`@exp` is `np.exp`,
//! `torch.exp`, `jnp.exp`). A call of a name that begins with `_` is one of the framework's prelude.
//! `[, axis={axis}]` is left out where all its slots are at their defaults or absent.
//! Alternatives are divided by `; `, and the first whose conditions hold is taken:
//! `{x}.T if permutation == (1, 0); @transpose({x}, {permutation.tuple})`.
//!
//! Slots are operands (`{x}`; many in a row where there are many) and attributes (`{axis}`), and:
//! - `{x.number}`: a Python number may stand for it, as it may for every operand of an elementwise
//!   operation; `{x.array}`: there it may not; `{x.last}`: its last dim
//! - `{axes}`: one axis as a number, several as a tuple; `{axes.tuple}`: always a tuple
//! - `{axis.front}`: counted from the front of the result; `{data.word}`: as 32 bits without sign
//! - `{shape}`: a tuple or another array's shape; `{shape.args}`: arguments of a call;
//!   `{shape.one}`: the only dim
//! - `{dtype}`: the attribute, else the result's; `{narrow}`: the same, at its default unless the
//!   framework would widen it; `{device}`: where arrays made anew lie, at its default where that
//!   does not matter
//! - `{slices}`, `{bounds}`: inside the brackets of a slice, and as `slice` objects; `{padding}`,
//!   `{widths}`, `{pads}`: (low, high, interior) and (low, high) of each axis, and low and high
//!   from the last axis back; `{left}`, `{right}`: the sides of a contraction as `@` takes them;
//!   `{equation}`: that of `einsum`; `{summed}`, `{kept}`: the axes by whose sum `sum_to` comes to
//!   its shape, and whether they stay as 1
//!
//! Conditions, joined by ` and `, are `attribute == value` and `slot is word`. Of operands the words
//! are `number`, `array`, `zero`, `one` (how they are at hand), `scalar`, `vector`, `matrix`,
//! `alike` (many of one dtype), `smaller` (than the first operand, along some axis), and dtypes or
//! `half`, `index`, `integer`, `unsigned` (of more than 8 bits), `float`, `bool`; of attributes `default`, `single`, `empty`, `natural`
//! (nowhere negative), and dtypes. `result is matmul` says that `@` will do, `result is summed` that
//! a plain sum will, `result is scaled` that one operand is a number; `name is beside` that the
//! operation of this name is there, on the same operands; `name is reader` that it
//! reads the result, `name is used` that it is anywhere in the file; `axes is vacant` that one of
//! those axes may be empty.
//!
//! `f({x})[0 / 3]` is the first of the three parts that a call gives. Operations on the same operands
//! that are parts of one call become one statement; `{wanted.3}` says which of three numbers `of` has
//! among them.

mod array_api;
mod jax;
mod numpy;
mod torch;

use std::sync::OnceLock;

use mithril_ir::dtype::DType;
use mithril_ir::op::{Meaning, Op};
use mithril_passes::target::{Target, Targets};
use rustc_hash::FxHashMap;

/// The backend whose arrays other targets take and give.
pub const NUMPY: &Backend = &numpy::BACKEND;

/// Every backend.
pub static BACKENDS: [&Backend; 3] = [&numpy::BACKEND, &torch::BACKEND, &jax::BACKEND];

/// Templates, by the names of operations. An empty one says that the backend lacks the operation, so
/// that it is decomposed.
pub type Spellings = &'static [(&'static str, &'static str)];

/// A Python framework that source is emitted for.
pub struct Backend {
    /// What it is called in prose.
    pub label: &'static str,
    /// What the passes know of it, its name among others.
    pub target: Target,
    /// What `@` stands for in templates.
    pub module: &'static str,
    /// Functions for what the framework lacks.
    pub prelude: &'static str,
    /// Templates that take precedence over those of the array API.
    pub spellings: Spellings,
    /// Templates of operations on keys for the framework's own generator. A key that was folded is a
    /// tuple of numbers: no other operation reads one.
    pub random: Spellings,
    /// One number as an array: `{x}` the number, `{dtype}` its dtype.
    pub scalar: &'static str,
    /// An array from nested lists.
    pub array: &'static str,
    /// An array of one number repeated.
    pub full: &'static str,
    pub zeros: &'static str,
    pub ones: &'static str,
    /// An array from NumPy's, as the constants beside the file are.
    pub load: &'static str,
    /// The name of the dtype of truth values.
    pub truth: &'static str,
    /// The module of the dtypes that NumPy lacks, where it is another one.
    pub foreign: Option<&'static str>,
    /// Dtypes that the framework lacks.
    pub lacks: &'static [DType],
    /// Unsigned dtypes whose sums are signed unless told otherwise.
    pub signed_sums: &'static [DType],
    /// Arrays live on a device that those made anew must share.
    pub devices: bool,
    /// 64-bit elements must be asked for.
    pub narrow: bool,
    /// Whether Python numbers leave the dtypes alone that are not the framework's own (`ml_dtypes`).
    pub mixes: bool,
    /// The framework takes gradients itself, by its own rules.
    pub differentiates: bool,
    /// The framework has loops of its own: those of Python would be unrolled.
    pub loops: bool,
    /// Operations run one after the other, and take memory for their results as they do.
    pub eager: bool,
    /// The templates by operation, once they were looked for.
    pub known: OnceLock<FxHashMap<&'static str, &'static str>>,
}

impl Backend {
    /// The template of an operation; empty where the framework lacks it.
    pub fn spelling(&self, op: Op) -> &'static str {
        let known = self
            .known
            .get_or_init(|| array_api::SPELLINGS.iter().chain(self.spellings).copied().collect());
        known.get(op.name).copied().unwrap_or("")
    }

    /// Whether the framework takes an operation. It takes primitives and calls in any case: the
    /// emitter writes those without a spelling in Python's own syntax.
    pub fn spells(&self, op: Op) -> bool {
        match op.meaning {
            Meaning::Scalar(_) | Meaning::Decompose(_) => !self.spelling(op).is_empty(),
            Meaning::Kernel(_) | Meaning::Call(_) => true,
        }
    }
}

/// The backends as the passes have them.
pub fn targets() -> Targets {
    static TARGETS: OnceLock<Vec<Target>> = OnceLock::new();
    TARGETS.get_or_init(|| BACKENDS.iter().map(|backend| backend.target).collect())
}
