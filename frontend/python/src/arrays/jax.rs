//! Reads JAX arrays. Arrays share abstract values, and the abstract value of an array never
//! changes.

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use super::{Samples, attributes, offset};

pub struct Jax {
    class: Py<PyType>,
    /// The offset in bytes of the pointer to the abstract value in an array. It is only compared.
    offset: Option<usize>,
}

/// The contents of abstract values by address. They are kept alive, so that no address is reused.
#[derive(Default)]
pub struct Seen(FxHashMap<usize, (Py<PyAny>, Sizes, DType)>);

impl Seen {
    /// A training step gives each param its own abstract value, so this is the number of params of
    /// a large model.
    const MAX_ENTRIES: usize = 4096;

    fn get(&self, address: usize, sizes: &mut Sizes) -> Option<DType> {
        let (_, own, dtype) = self.0.get(&address)?;
        sizes.extend_from_slice(own);
        Some(*dtype)
    }

    fn insert(&mut self, aval: Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        let dtype = attributes(&aval, sizes)?;
        if self.0.len() == Seen::MAX_ENTRIES {
            self.0.clear();
        }
        self.0.insert(aval.as_ptr() as usize, (aval.unbind(), sizes.clone(), dtype));
        Some(dtype)
    }
}

impl Jax {
    pub fn new(class: Py<PyType>, samples: Samples<'_, '_>) -> PyResult<Jax> {
        let aval = |sample: &Bound<'_, PyAny>| Ok(sample.getattr("aval")?.as_ptr() as usize);
        let offset = offset(samples, aval)?;
        Ok(Jax { class, offset })
    }

    /// Whether the value is an array in host memory, not a tracer and not on a device.
    pub fn is_on_host(&self, value: &Bound<'_, PyAny>) -> bool {
        let own = value.get_type_ptr().cast() == self.class.as_ptr();
        let platform = || value.call_method0(intern!(value.py(), "platform")).ok();
        own && platform().is_some_and(|name| name.eq("cpu").unwrap_or(false))
    }

    pub fn read(
        &self,
        value: &Bound<'_, PyAny>,
        sizes: &mut Sizes,
        seen: &mut Seen,
    ) -> Option<DType> {
        let own = value.get_type_ptr().cast() == self.class.as_ptr();
        if let Some(offset) = self.offset.filter(|_| own) {
            // SAFETY: all objects of the class are as long as the samples, which have a word at
            // this offset.
            let address = unsafe { *value.as_ptr().byte_add(offset).cast::<usize>() };
            if let Some(dtype) = seen.get(address, sizes) {
                return Some(dtype);
            }
        }
        let py = value.py();
        // Tracers are instances of `jax.Array` too.
        let array = || py.import("jax").ok()?.getattr("Array").ok();
        if !own && !value.is_instance(&array()?).ok()? {
            return None;
        }
        let aval = value.getattr(intern!(py, "aval")).ok()?;
        match seen.get(aval.as_ptr() as usize, sizes) {
            Some(dtype) => Some(dtype),
            None => seen.insert(aval, sizes),
        }
    }
}
