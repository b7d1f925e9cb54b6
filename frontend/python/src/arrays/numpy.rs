//! Reads NumPy arrays, whose layout NumPy's ABI defines.

use std::ffi::{c_char, c_int};

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{Classes, Elements, Samples, attributes};

/// The first fields of the array object.
#[repr(C)]
struct Array {
    _head: [usize; 2],
    data: *mut c_char,
    ndim: c_int,
    sizes: *const isize,
    strides: *const isize,
    _base: *mut ffi::PyObject,
    dtype: *mut ffi::PyObject,
    flags: c_int,
}

/// The flags of arrays with row-major contiguous and aligned elements.
const PLAIN: c_int = 0x0101;
/// The flag of writeable arrays.
const WRITEABLE: c_int = 0x0400;

/// The elements of an array of integers. An array in another byte order is copied first.
pub fn elements(mut value: Bound<'_, PyAny>) -> Option<Elements<'_>> {
    let py = value.py();
    let class = py.import(intern!(py, "numpy")).ok()?.getattr(intern!(py, "ndarray")).ok()?;
    if !value.get_type().is(&class) {
        return None;
    }
    let mut sizes = Sizes::new();
    let dtype = attributes(&value, &mut sizes)?;
    let object = value.getattr(intern!(py, "dtype")).ok()?;
    if !object.getattr(intern!(py, "isnative")).ok()?.is_truthy().ok()? {
        let native = object.call_method1(intern!(py, "newbyteorder"), ("=",)).ok()?;
        value = value.call_method1(intern!(py, "astype"), (native,)).ok()?;
    }
    Some(of(&value, dtype))
}

fn of<'py>(value: &Bound<'py, PyAny>, dtype: DType) -> Elements<'py> {
    // SAFETY: it is a NumPy array, so it begins with these fields, and has a size and a stride for
    // each axis.
    let array = unsafe { &*value.as_ptr().cast::<Array>() };
    let pair = |axis| unsafe { (*array.sizes.add(axis) as i64, *array.strides.add(axis) as i64) };
    let (sizes, strides) = (0..array.ndim as usize).map(pair).unzip();
    let data = array.data.cast_const().cast();
    // SAFETY: the array keeps its elements alive, and they are at these addresses.
    unsafe { Elements::new(data, dtype, sizes, strides, value.clone()) }
}

pub struct Numpy {
    classes: Classes,
    /// The dtype objects in this machine's byte order, kept alive.
    dtypes: Vec<(Py<PyAny>, DType)>,
}

impl Numpy {
    pub fn new(class: Py<PyType>, samples: Samples<'_, '_>) -> PyResult<Numpy> {
        let dtype = |(dtype, sample): &(DType, Bound<'_, PyAny>)| {
            Ok((sample.getattr("dtype")?.unbind(), *dtype))
        };
        let dtypes = samples.iter().map(dtype).collect::<PyResult<_>>()?;
        Ok(Numpy { dtypes, classes: Classes(vec![class]) })
    }

    pub fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        if !self.classes.is_exactly(value) {
            // Subclasses may define operators differently, as `numpy.matrix` does.
            if self.classes.is_instance_of_any(value) {
                return None;
            }
            // NumPy scalars, such as sums over all axes.
            return match value.hasattr("__array_struct__").ok()? && !value.hasattr("at").ok()? {
                true => attributes(value, sizes),
                false => None,
            };
        }
        // SAFETY: it is a NumPy array, so it begins with these fields, and has a size for each
        // axis; with no axes the pointer, which may be null, is not read.
        let array = unsafe { &*value.as_ptr().cast::<Array>() };
        for axis in 0..usize::try_from(array.ndim).ok()? {
            sizes.push(unsafe { *array.sizes.add(axis) } as i64);
        }
        let own = self.dtypes.iter().find(|(object, _)| object.as_ptr() == array.dtype);
        match own {
            Some((_, dtype)) => Some(*dtype),
            None => attributes(value, sizes),
        }
    }

    /// The elements of an array of integers, if its class and byte order allow to read them in
    /// place.
    pub fn elements<'py>(&self, value: &Bound<'py, PyAny>) -> Option<Elements<'py>> {
        if !self.classes.is_exactly(value) {
            return None;
        }
        // SAFETY: it is a NumPy array, so it begins with these fields.
        let array = unsafe { &*value.as_ptr().cast::<Array>() };
        let own = self.dtypes.iter().find(|(object, _)| object.as_ptr() == array.dtype)?;
        Some(of(value, own.1))
    }

    /// The address of the elements, if they are contiguous, aligned and in this machine's byte
    /// order.
    pub fn data(&self, value: &Bound<'_, PyAny>) -> Option<*const u8> {
        if !self.classes.is_exactly(value) {
            return None;
        }
        // SAFETY: it is a NumPy array, so it begins with these fields.
        let array = unsafe { &*value.as_ptr().cast::<Array>() };
        let native = self.dtypes.iter().any(|(object, _)| object.as_ptr() == array.dtype);
        (native && array.flags & PLAIN == PLAIN).then_some(array.data.cast_const().cast())
    }

    /// Like [`Numpy::data`], if the elements are also writeable.
    pub fn data_to_write(&self, value: &Bound<'_, PyAny>) -> Option<*mut u8> {
        let data = self.data(value)?;
        // SAFETY: it is a NumPy array, so it begins with these fields.
        let array = unsafe { &*value.as_ptr().cast::<Array>() };
        (array.flags & WRITEABLE != 0).then_some(data.cast_mut())
    }

    /// NumPy's object for a dtype.
    pub fn dtype(&self, dtype: DType) -> Option<&Py<PyAny>> {
        self.dtypes.iter().find(|(_, own)| *own == dtype).map(|(object, _)| object)
    }
}
