//! Frameworks, and the dtypes and templates of each.

use std::fmt;
use std::hash::{Hash, Hasher};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::op::Op;

use crate::backends::{self, BACKENDS, Backend};

/// Whether NumPy has the dtype only through `ml_dtypes`.
pub fn is_foreign(dtype: DType) -> bool {
    dtype == DType::BF16 || dtype.is_storage_only()
}

/// A Python framework that source is emitted for.
#[derive(Clone, Copy)]
pub struct Framework(&'static Backend);

impl PartialEq for Framework {
    /// Compares names, which are unique.
    fn eq(&self, other: &Framework) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Framework {}

impl Hash for Framework {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Framework {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
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

impl Framework {
    /// The framework whose arrays native code and C take and return.
    pub const NUMPY: Framework = Framework(backends::NUMPY);

    pub fn all() -> impl Iterator<Item = Framework> + Clone {
        BACKENDS.iter().map(|backend| Framework(backend))
    }

    /// The framework of this name.
    ///
    /// Panics if there is none.
    pub fn named(name: &str) -> Framework {
        let found = Framework::all().find(|framework| framework.name() == name);
        found.unwrap_or_else(|| panic!("there is no framework `{name}`"))
    }

    /// The name in commands and file names.
    pub fn name(self) -> &'static str {
        self.0.target.name
    }

    pub fn backend(self) -> &'static Backend {
        self.0
    }

    /// The template of an operation; empty where the framework lacks it.
    pub fn template(self, op: Op, random: Random) -> &'static str {
        let own = self.0.random.iter().find(|(name, _)| *name == op.name);
        match (random, own) {
            (Random::Framework, Some((_, template))) => template,
            (Random::Framework, None) | (Random::Exact, _) => self.0.spelling(op),
        }
    }

    /// The dtype's expression, as a template. `wide` tells whether 64-bit elements are enabled.
    ///
    /// Errors: the framework does not have this dtype.
    pub fn dtype(self, dtype: DType, wide: bool) -> Result<String> {
        let (backend, name) = (self.0, self.name());
        if backend.lacks.contains(&dtype) {
            return Diagnostic::of(
                ErrorKind::Unsupported,
                format!(
                    "Backend does not support operation on {dtype}: {name} does not have this dtype"
                ),
            )
            .err();
        }
        let name = match dtype {
            DType::Bool => backend.truth,
            DType::I64 if backend.narrow && !wide => "int32",
            DType::U64 if backend.narrow && !wide => "uint32",
            _ => dtype.array_name(),
        };
        Ok(match backend.foreign.filter(|_| is_foreign(dtype)) {
            Some(module) => format!("{module}.{name}"),
            None => format!("@{name}"),
        })
    }
}
