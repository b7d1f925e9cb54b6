//! Reads tinygrad's tensors. Its dtypes are objects that exist once.

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::{Classes, Samples};

pub struct Tinygrad {
    classes: Classes,
    /// The dtype objects, kept alive.
    dtypes: Vec<(Py<PyAny>, DType)>,
}

impl Tinygrad {
    pub fn new(class: Py<PyType>, samples: Samples<'_, '_>) -> PyResult<Tinygrad> {
        let dtype = |(dtype, sample): &(DType, Bound<'_, PyAny>)| {
            Ok((sample.getattr("dtype")?.unbind(), *dtype))
        };
        let dtypes = samples.iter().map(dtype).collect::<PyResult<_>>()?;
        Ok(Tinygrad { classes: Classes(vec![class]), dtypes })
    }

    /// Returns the dtype and writes the sizes to `sizes`. `None` for other values, for dtypes that
    /// Mithril lacks, and for sizes that are variables.
    pub fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        if !self.classes.is_instance_of_any(value) {
            return None;
        }
        let py = value.py();
        // `Tensor.shape` and `Tensor.dtype` are properties that read those of this node. Its
        // property `shape` keeps its value in the node after the first read.
        let node = value.getattr(intern!(py, "uop")).ok()?;
        let held = node.getattr(intern!(py, "__dict__")).ok()?;
        let held =
            held.cast::<PyDict>().ok()?.get_item(intern!(py, "_RECURSIVE_PROPERTY__shape")).ok()?;
        let shape = held.or_else(|| node.getattr(intern!(py, "shape")).ok())?;
        for size in shape.cast::<PyTuple>().ok()? {
            sizes.push(size.extract().ok()?);
        }
        let dtype = node.getattr(intern!(py, "dtype")).ok()?;
        self.dtypes.iter().find(|(own, _)| own.as_ptr() == dtype.as_ptr()).map(|(_, own)| *own)
    }
}
