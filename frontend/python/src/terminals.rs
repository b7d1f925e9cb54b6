//! Arguments and results of compiled models, as Python sees them.

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::dtype::DType;

/// An argument of a program.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Argument {
    /// The name; for a param or state, the path of its block and the terminal. It is always the
    /// same Python object, so that dicts can be compared by the addresses of their keys.
    pub name: Py<PyString>,
    /// `data`, `param`, `state`, `key` or `constant`.
    pub role: &'static str,
    /// The dtype in the framework.
    pub dtype: DType,
    /// The dims as text: numbers, names, or expressions.
    pub dims: Vec<String>,
    /// The sizes, if all are known.
    pub shape: Option<Vec<i64>>,
    /// The argument whose shape determines the fan of the initial values, if it is another one.
    pub fan_of: Option<String>,
    /// Whether the initial value follows from that of the argument `fan_of`.
    pub derived: bool,
    /// Whether integers of every dtype are accepted, and converted.
    pub any_integer: bool,
    /// Whether the source transposes it, and copies it unless it lies transposed in memory.
    pub transposed: bool,
}

/// A result of a program.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Outcome {
    /// The name.
    pub name: String,
    /// The state whose next value this is, if any.
    pub state: Option<String>,
    /// The dtype in the framework.
    pub dtype: DType,
    /// The dims as text.
    pub dims: Vec<String>,
}

#[pymethods]
impl Argument {
    fn __repr__(&self) -> String {
        let dims = self.dims.join(", ");
        format!("{}: {} {}[{dims}]", self.name, self.role, self.dtype.0.array_name())
    }
}
