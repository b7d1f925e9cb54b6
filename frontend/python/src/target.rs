//! The registry of targets, for Python.

use mithril_driver::native::Tier;
use mithril_driver::targets::{Definition, Dialect, TargetEntry, all, find, register};
use pyo3::prelude::*;

use super::error::{Answer, guarded};

/// A target by its name, such as `numpy` or `cpu`.
///
/// Errors: `UsageError` if there is no such target.
#[pyclass(frozen, module = "mithril._core")]
pub struct Target(&'static TargetEntry);

#[pymethods]
impl Target {
    #[new]
    fn new(name: &str) -> Answer<Target> {
        Ok(Target(find(name)?))
    }

    /// The name in commands and messages, such as `numpy`.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The name of the class of its backends. The class is in the module of `mithril.backends` that
    /// has the target's name.
    #[getter]
    fn class_name(&self) -> String {
        let (first, rest) = self.0.name().split_at(1);
        format!("{}{rest}Backend", first.to_uppercase())
    }

    /// The kind of its code: `python` or `c` for source, `machine` for machine code.
    #[getter]
    fn dialect(&self) -> &'static str {
        match self.0.dialect {
            Dialect::Python(_) => "python",
            Dialect::C => "c",
            Dialect::Machine => "machine",
        }
    }

    /// The suffix of files of its code.
    #[getter]
    fn suffix(&self) -> String {
        format!(".{}", self.0.extension)
    }

    /// The name of the framework whose arrays calls take and return.
    #[getter]
    fn arrays(&self) -> &'static str {
        self.0.arrays
    }

    /// The compilers that the first calls may use, if there is a choice.
    #[getter]
    fn tiers(&self) -> Vec<&'static str> {
        self.0.tiers.iter().copied().map(Tier::name).collect()
    }

    /// Whether the framework has automatic differentiation.
    #[getter]
    fn differentiates(&self) -> bool {
        self.0.differentiates
    }

    /// Whether `mithril bench` measures its performance.
    #[getter]
    fn measured(&self) -> bool {
        self.0.measured
    }

    fn __repr__(&self) -> String {
        format!("Target({:?})", self.0.name())
    }
}

/// Every target, the built-in ones first, in the order in which messages list them.
#[pyfunction]
pub fn targets() -> Vec<Target> {
    all().into_iter().map(Target).collect()
}

/// Registers a backend that generates Python source, as a target. Its definition is a JSON text.
/// The same definition may be registered again.
///
/// Errors: `UsageError` for a name that is taken, for an unknown operation, and for a template that
/// cannot be read.
#[pyfunction]
pub fn register_target(definition: &str) -> Answer<Target> {
    guarded(|| Ok(Target(register(Definition::from_json(definition)?)?)))
}

/// The functions of the array module that the templates of a definition name, and those of the
/// templates that it starts from.
///
/// Errors: as for `register_target`.
#[pyfunction]
pub fn array_functions(definition: &str) -> Answer<Vec<String>> {
    guarded(|| Ok(Definition::from_json(definition)?.functions()?.into_iter().collect()))
}
