//! Reads MLX's arrays. Each read of `dtype` makes a new object, whose hash is the dtype's number.

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::{Classes, Samples};

pub struct Mlx {
    classes: Classes,
    /// The hashes of dtypes.
    dtypes: Vec<(isize, DType)>,
}

impl Mlx {
    pub fn new(class: Py<PyType>, samples: Samples<'_, '_>) -> PyResult<Mlx> {
        let dtype = |(dtype, sample): &(DType, Bound<'_, PyAny>)| {
            Ok((sample.getattr("dtype")?.hash()?, *dtype))
        };
        let dtypes = samples.iter().map(dtype).collect::<PyResult<_>>()?;
        Ok(Mlx { classes: Classes(vec![class]), dtypes })
    }

    /// Returns the dtype and writes the sizes to `sizes`. `None` for other values, and for dtypes
    /// that Mithril lacks.
    pub fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        if !self.classes.is_instance_of_any(value) {
            return None;
        }
        let py = value.py();
        let shape = value.getattr(intern!(py, "shape")).ok()?;
        for size in shape.cast::<PyTuple>().ok()? {
            sizes.push(size.extract().ok()?);
        }
        let hash = value.getattr(intern!(py, "dtype")).ok()?.hash().ok()?;
        self.dtypes.iter().find(|(own, _)| *own == hash).map(|(_, own)| *own)
    }
}
