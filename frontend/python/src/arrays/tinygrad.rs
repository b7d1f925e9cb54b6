//! Reads tinygrad's tensors. Their shape and dtype are those of a node, which a tensor refers to.
//! Both classes have `__slots__`, so the node and its dtype are read from memory.

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use pyo3::{ffi, intern};

use super::{Classes, Samples, offset};

pub struct Tinygrad {
    classes: Classes,
    /// The dtype objects, kept alive. Each exists once.
    dtypes: Vec<(Py<PyAny>, DType)>,
    node: Slot,
    dtype: Slot,
    /// The name under which a node keeps its shape once it was read: tinygrad's own object, which
    /// dicts find faster than an equal one.
    shape: Py<PyString>,
}

impl Tinygrad {
    pub fn new(class: Py<PyType>, samples: Samples<'_, '_>) -> PyResult<Tinygrad> {
        let py = samples[0].1.py();
        let nodes = samples.iter().map(|(dtype, sample)| Ok((*dtype, sample.getattr("uop")?)));
        let nodes = nodes.collect::<PyResult<Vec<_>>>()?;
        let dtypes = nodes.iter().map(|(own, node)| Ok((node.getattr("dtype")?.unbind(), *own)));
        Ok(Tinygrad {
            classes: Classes(vec![class]),
            dtypes: dtypes.collect::<PyResult<_>>()?,
            node: Slot::new(intern!(py, "uop"), samples)?,
            dtype: Slot::new(intern!(py, "dtype"), &nodes)?,
            shape: name_of_shape(&nodes[0].1)?.unbind(),
        })
    }

    /// Returns the dtype and writes the sizes to `sizes`. `None` for other values, for dtypes that
    /// Mithril lacks, and for sizes that are variables.
    pub fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        if !self.classes.is_instance_of_any(value) {
            return None;
        }
        let py = value.py();
        let node = self.node.read(value)?;
        let held = node.getattr(self.shape.bind(py));
        let shape = held.or_else(|_| node.getattr(intern!(py, "shape"))).ok()?;
        for size in shape.cast::<PyTuple>().ok()?.iter_borrowed() {
            sizes.push(size.extract().ok()?);
        }
        let dtype = self.dtype.read(&node)?;
        self.dtypes.iter().find(|(own, _)| own.as_ptr() == dtype.as_ptr()).map(|(_, own)| *own)
    }
}

/// The key of the shape in the attributes of a node.
fn name_of_shape<'py>(node: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let py = node.py();
    node.getattr(intern!(py, "shape"))?;
    let name = intern!(py, "_RECURSIVE_PROPERTY__shape");
    let mut held = node.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?.keys().into_iter();
    let own = held.find(|key| key.eq(name).unwrap_or(false));
    own.map_or(Ok(name.clone()), |key| Ok(key.cast_into()?))
}

/// An attribute of a class with `__slots__`.
struct Slot {
    name: Py<PyString>,
    class: Py<PyType>,
    /// Where objects of the class keep it, in bytes.
    offset: Option<usize>,
}

impl Slot {
    fn new(name: &Bound<'_, PyString>, samples: Samples<'_, '_>) -> PyResult<Slot> {
        let class = samples[0].1.get_type().unbind();
        let offset = offset(samples, |sample| Ok(sample.getattr(name)?.as_ptr() as usize))?;
        Ok(Slot { name: name.clone().unbind(), class, offset })
    }

    fn read<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let py = object.py();
        let own = object.get_type_ptr().cast() == self.class.as_ptr();
        let Some(offset) = self.offset.filter(|_| own) else {
            return object.getattr(self.name.bind(py)).ok();
        };
        // SAFETY: all objects of the class keep the attribute here. It is null if it was deleted.
        unsafe {
            let held = *object.as_ptr().byte_add(offset).cast::<*mut ffi::PyObject>();
            Bound::from_borrowed_ptr_or_opt(py, held)
        }
    }
}
