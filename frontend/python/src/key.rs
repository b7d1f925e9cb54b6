//! Connections with known properties.

use mithril_model::place::Place;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::connection::Connection;
use super::dtype;
use super::error::Answer;
use super::value::{
    check_keywords, literal, optional_list, optional_text, optional_truth, shape, source, truth,
};

/// A connection with stated properties. `name` makes it a terminal of the model. `value` makes it a
/// constant. `shape` (numbers, names of dims, None for a dim that may vary) and `dtype` are checked
/// when the model is compiled. `differentiable` makes an input a param or data. `device` is the device
/// of the backend where a param lies, such as `"cpu"`; `devices=` of `compile` goes before it.
/// `expose` makes it an output even if a block inside reads it. `connections` are merged with it.
/// Operators on it create an expression.
#[pyclass(frozen, extends = Connection, module = "mithril._core")]
pub struct IOKey;

const KEYWORDS: &[&str] =
    &["name", "value", "shape", "dtype", "differentiable", "device", "expose", "connections"];

#[pymethods]
impl IOKey {
    #[new]
    #[pyo3(signature = (
        name: "str | None"=None, *, value=None, shape=None, dtype=None,
        differentiable: "bool | None"=None, device: "str | None"=None, expose: "bool"=false,
        connections: "list[object] | None"=None, **unknown: "object",
    ))]
    // Each argument is a keyword in Python.
    #[allow(clippy::too_many_arguments)]
    fn new(
        #[pyo3(from_py_with = optional_text)] name: Option<String>,
        value: Option<&Bound<'_, PyAny>>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_truth)] differentiable: Option<bool>,
        #[pyo3(from_py_with = optional_text)] device: Option<String>,
        #[pyo3(from_py_with = truth)] expose: bool,
        #[pyo3(from_py_with = optional_list)] connections: Option<Vec<Bound<'_, PyAny>>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> Answer<PyClassInitializer<IOKey>> {
        check_keywords("IOKey", unknown, KEYWORDS)?;
        let connections: Answer<Vec<_>> =
            connections.unwrap_or_default().iter().map(source).collect();
        Place::new(None, device.as_deref())?;
        let key = mithril_model::IoKey {
            name: name.map(Into::into),
            value: value.map(literal).transpose()?,
            shape: shape.map(self::shape).transpose()?.map(Into::into),
            dtype: dtype.map(dtype::of).transpose()?,
            differentiable,
            device: device.map(Into::into),
            expose,
            connections: connections?.into_iter().flatten().collect(),
        };
        Ok(PyClassInitializer::from(Connection(key.into())).add_subclass(IOKey))
    }
}
