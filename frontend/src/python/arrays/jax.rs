//! JAX's arrays, which share abstract values: an array's never changes.

use mithril_ir::dtype::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use super::{Classes, Sizes, attributes};

pub struct Jax {
    classes: Classes,
}

/// What abstract values say, by their addresses. They are kept alive, so an address stays one's own.
#[derive(Default)]
pub struct Seen(FxHashMap<usize, (Py<PyAny>, Sizes, DType)>);

impl Seen {
    /// A step of training gives each param an abstract value, so this is the size of a large model.
    const KEPT: usize = 4096;
}

impl Jax {
    pub fn new(class: Py<PyType>, sample: &Bound<'_, PyAny>) -> PyResult<Jax> {
        let array = sample.py().import("jax")?.getattr("Array")?.cast_into::<PyType>()?;
        Ok(Jax { classes: Classes(vec![class, array.unbind()]) })
    }

    pub fn read(
        &self,
        value: &Bound<'_, PyAny>,
        sizes: &mut Sizes,
        seen: &mut Seen,
    ) -> Option<DType> {
        if !self.classes.hold(value) {
            return None;
        }
        let aval = value.getattr(intern!(value.py(), "aval")).ok()?;
        let address = aval.as_ptr() as usize;
        if let Some((_, own, dtype)) = seen.0.get(&address) {
            sizes.extend_from_slice(own);
            return Some(*dtype);
        }
        let dtype = attributes(&aval, sizes)?;
        if seen.0.len() == Seen::KEPT {
            seen.0.clear();
        }
        seen.0.insert(address, (aval.unbind(), sizes.clone(), dtype));
        Some(dtype)
    }
}
