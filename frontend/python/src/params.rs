//! Saves, loads and renames params, for Python.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mithril_driver::params;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dtype::DType as Element;
use mithril_ir::tensor::Tensor;
use mithril_model::naming;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

use super::check::renamed_params;
use super::dtype::{self, DType};
use super::error::{Answer, guarded};
use super::value::tensor;

/// Writes arrays of any framework to a file, as safetensors.
///
/// Errors: a value that is not an array; a file that cannot be written.
#[pyfunction]
#[pyo3(signature = (path: "str", arrays: "dict[str, object]"))]
pub fn save_params(py: Python<'_>, path: PathBuf, arrays: &Bound<'_, PyDict>) -> Answer<()> {
    guarded(|| {
        let mut all: Vec<(String, Tensor)> = Vec::with_capacity(arrays.len());
        for (name, value) in arrays {
            check_array(&name, &value)?;
            all.push((name.extract()?, tensor(&value)?));
        }
        let all: Vec<(&str, &Tensor)> =
            all.iter().map(|(name, own)| (name.as_str(), own)).collect();
        Ok(py.detach(|| params::save(&path, &all))?)
    })
}

fn check_array(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Answer<()> {
    if value.hasattr("dtype")? && value.hasattr("shape")? {
        return Ok(());
    }
    let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
    let what = format!("Unexpected argument: `{name}` of `params` is not an array");
    Err(Diagnostic::of(ErrorKind::Argument, what).got(class).into())
}

/// Makes a temporary file with room for these arrays. `end_params` then gives it its name. Returns
/// the name of the temporary file, and the offset of each array in bytes.
///
/// Errors: a value that is not an array; a file that cannot be written.
#[pyfunction]
#[pyo3(signature = (path: "str", arrays: "dict[str, object]") -> "tuple[str, list[int]]")]
pub fn begin_params(path: PathBuf, arrays: &Bound<'_, PyDict>) -> Answer<(PathBuf, Vec<usize>)> {
    guarded(|| {
        let mut described: Vec<(String, Element, Vec<usize>)> = Vec::with_capacity(arrays.len());
        for (name, value) in arrays {
            check_array(&name, &value)?;
            let dtype = dtype::of(&value.getattr("dtype")?)?;
            let shape = value.getattr("shape")?.extract()?;
            described.push((name.extract()?, dtype, shape));
        }
        let own: Vec<params::Described<'_>> =
            described.iter().map(|(n, dtype, shape)| (&**n, *dtype, &**shape)).collect();
        let (temporary, places) = params::reserve(&own, &path)?;
        Ok((temporary, places.into_iter().map(|place| place.offset).collect()))
    })
}

/// Gives a file of `begin_params` its name, or removes it.
///
/// Errors: those of the system.
#[pyfunction]
#[pyo3(signature = (temporary: "str", path: "str", *, keep: "bool"))]
pub fn end_params(temporary: PathBuf, path: PathBuf, keep: bool) -> Answer<()> {
    guarded(|| Ok(params::end(&temporary, &path, keep)?))
}

/// A param: its name, dtype, shape and offset.
type Placed = (String, DType, Vec<usize>, usize);

/// The arrays of a safetensors file, each with its offset in bytes. Only the header is read.
///
/// Errors: those of `load_params`.
#[pyfunction]
#[pyo3(signature = (path: "str") -> "list[tuple[str, DType, list[int], int]]")]
pub fn params_layout(path: PathBuf) -> Answer<Vec<Placed>> {
    guarded(|| {
        let all = params::entries(&path)?.into_iter();
        let plain =
            |own: params::Entry| (own.place.name, DType(own.dtype), own.shape, own.place.offset);
        Ok(all.map(plain).collect())
    })
}

/// A param: its name, dtype, shape and elements.
type Read<'py> = (String, DType, Vec<usize>, Bound<'py, PyByteArray>);

/// Reads the params of a safetensors file.
///
/// Errors: a file that cannot be read, or that is not a safetensors file.
#[pyfunction]
#[pyo3(signature = (path: "str") -> "list[tuple[str, DType, list[int], bytearray]]")]
pub fn load_params(py: Python<'_>, path: PathBuf) -> Answer<Vec<Read<'_>>> {
    guarded(|| {
        let all = py.detach(|| params::load(&path))?;
        let read = all.into_iter().map(|(name, own)| {
            let bytes = PyByteArray::new(py, &own.bytes());
            (name, DType(own.dtype()), own.shape().to_vec(), bytes)
        });
        Ok(read.collect())
    })
}

/// Maps old names of params to new ones, for params that were saved before blocks were added to or
/// removed from the model. `given` are the saved names, `own` the names of the model.
#[pyfunction]
pub fn renamed(given: Vec<String>, own: Vec<String>) -> BTreeMap<String, String> {
    let (given, own) = (texts(&given), texts(&own));
    let pairs = naming::renamed(&given, &own).into_iter();
    pairs.map(|(old, new)| (old.to_string(), new.to_string())).collect()
}

/// Raises an error if params have names from an earlier version of the model.
#[pyfunction]
pub fn refuse_renamed(given: Vec<String>, own: Vec<String>) -> Answer<()> {
    match renamed_params(&texts(&given), &texts(&own)) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
