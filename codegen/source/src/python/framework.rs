//! What frameworks differ in beside the templates of the op table.

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::op::OpDef;

/// Whether NumPy has the dtype from `ml_dtypes` alone.
pub fn is_foreign(dtype: DType) -> bool {
    dtype == DType::BF16 || dtype.is_storage_only()
}

/// A Python framework that source is emitted for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Framework {
    Numpy,
    Torch,
    Jax,
}

/// Where random numbers come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Random {
    /// The framework's own generator, seeded by the key and the paths of blocks. JAX's is by keys.
    #[default]
    Framework,
    /// The bits that every target draws: those of JAX.
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

/// How a framework spells what is not an operation of its own.
pub struct Dialect {
    /// The name in text.
    pub label: &'static str,
    /// What `@` stands for in templates.
    pub module: &'static str,
    /// Functions for what the framework lacks.
    pub prelude: &'static str,
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
    /// Arrays live on a device that those made anew must share.
    pub devices: bool,
    /// 64-bit elements must be asked for.
    pub narrow: bool,
    /// Whether Python numbers leave the dtypes alone that are not the framework's own (`ml_dtypes`).
    pub mixes: bool,
    /// The name of the dtype of truth values.
    pub truth: &'static str,
    /// The framework takes gradients itself, by its own rules.
    pub differentiates: bool,
    /// The framework has loops of its own: those of Python would be unrolled.
    pub loops: bool,
    /// Templates of operations on keys for the framework's own generator. A key that was folded is a
    /// tuple of numbers: no other operation reads one.
    pub random: &'static [(&'static str, &'static str)],
    /// Operations run one after the other, and take memory for their results as they do.
    pub eager: bool,
}

impl Framework {
    pub const ALL: [Framework; 3] = [Framework::Numpy, Framework::Torch, Framework::Jax];

    /// The name in commands and file names.
    pub fn name(self) -> &'static str {
        match self {
            Framework::Numpy => "numpy",
            Framework::Torch => "torch",
            Framework::Jax => "jax",
        }
    }

    /// The template of an operation; empty where the framework lacks it.
    pub fn template(self, op: &OpDef, random: Random) -> &'static str {
        let own = self.dialect().random.iter().find(|(name, _)| *name == op.name);
        if let (Random::Framework, Some((_, template))) = (random, own) {
            return template;
        }
        match self {
            Framework::Numpy => op.python.numpy,
            Framework::Torch => op.python.torch,
            Framework::Jax => op.python.jax,
        }
    }

    pub fn dialect(self) -> &'static Dialect {
        match self {
            Framework::Numpy => &NUMPY,
            Framework::Torch => &TORCH,
            Framework::Jax => &JAX,
        }
    }

    /// The dtype's expression, as a template. `wide`: 64-bit elements have been asked for.
    /// Errors: the framework has no such dtype.
    pub fn dtype(self, dtype: DType, wide: bool) -> Result<String> {
        let dialect = self.dialect();
        let name = match dtype {
            DType::Bool => dialect.truth,
            DType::I64 if dialect.narrow && !wide => "int32",
            DType::U64 if dialect.narrow && !wide => "uint32",
            _ => dtype.array_name(),
        };
        let four_bits = matches!(dtype, DType::I4 | DType::U4);
        match self {
            Framework::Numpy if is_foreign(dtype) => Ok(format!("ml_dtypes.{name}")),
            Framework::Torch if four_bits => Diagnostic::new(format!(
                "Backend does not support operation on {dtype}: torch has no such dtype"
            ))
            .err(),
            Framework::Numpy | Framework::Torch | Framework::Jax => Ok(format!("@{name}")),
        }
    }
}

static NUMPY: Dialect = Dialect {
    label: "NumPy",
    module: "np",
    prelude: include_str!("prelude/numpy.py"),
    scalar: "{dtype}({x})",
    array: "@array({x}, dtype={dtype})",
    full: "@full({shape}, {x}, dtype={dtype})",
    zeros: "@zeros({shape}, dtype={dtype})",
    ones: "@ones({shape}, dtype={dtype})",
    load: "{x}",
    devices: false,
    narrow: false,
    mixes: false,
    truth: "bool_",
    differentiates: false,
    loops: false,
    random: &[
        ("key_fold", "(*{key}, {data.word})"),
        ("key_split", "@random.default_rng({key}).integers(0, 4294967296, ({count}, 2), @uint32)"),
        ("random_bits", "_bits({key}, {shape}, {dtype})"),
        (
            "uniform",
            "@random.default_rng({key}).random({shape}, {dtype}) if low is default and high is \
             default and dtype is f32; _rand({key}, {shape}, {dtype}[, {low}, {high}])",
        ),
        (
            "normal",
            "@random.default_rng({key}).standard_normal({shape}, {dtype}) if dtype is f32; \
             _randn({key}, {shape}, {dtype})",
        ),
    ],
    eager: true,
};

static TORCH: Dialect = Dialect {
    label: "PyTorch",
    module: "torch",
    prelude: include_str!("prelude/torch.py"),
    scalar: "@tensor({x}, dtype={dtype}[, device={device}])",
    array: "@tensor({x}, dtype={dtype}[, device={device}])",
    full: "@full({shape}, {x}, dtype={dtype}[, device={device}])",
    zeros: "@zeros({shape}, dtype={dtype}[, device={device}])",
    ones: "@ones({shape}, dtype={dtype}[, device={device}])",
    load: "@from_numpy({x})",
    devices: true,
    narrow: false,
    mixes: true,
    truth: "bool",
    differentiates: true,
    loops: false,
    random: &[
        ("key_fold", "(*_key_words({key}), {data.word})"),
        ("key_split", "_keys({key}, {count}[, {device}])"),
        ("random_bits", "_bits({key}, {shape}, {dtype}[, {device}])"),
        (
            "uniform",
            "@rand({shape}, generator=_generator({key}[, {device}]), dtype={dtype}[, \
             device={device}]) if low is default and high is default; _rand({key}, {shape}, \
             {dtype}, {low}, {high}[, {device}])",
        ),
        (
            "normal",
            "@randn({shape}, generator=_generator({key}[, {device}]), dtype={dtype}[, \
             device={device}])",
        ),
    ],
    eager: true,
};

static JAX: Dialect = Dialect {
    label: "JAX",
    module: "jnp",
    prelude: include_str!("prelude/jax.py"),
    scalar: "{dtype}({x})",
    array: "@array({x}, dtype={dtype})",
    full: "@full({shape}, {x}, dtype={dtype})",
    zeros: "@zeros({shape}, dtype={dtype})",
    ones: "@ones({shape}, dtype={dtype})",
    load: "@asarray({x})",
    devices: false,
    narrow: true,
    mixes: true,
    truth: "bool_",
    differentiates: true,
    loops: true,
    random: &[],
    eager: false,
};
