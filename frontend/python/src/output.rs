//! Makes NumPy arrays in the runtime's memory, which returns to its pool when the last reference is
//! dropped.

use std::ffi::{c_int, c_void};

use mithril_ir::dtype::DType;
use mithril_runtime::memory::Block;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use smallvec::SmallVec;

use super::arrays::Numpy;

/// Owns the elements of an array.
#[pyclass(frozen, module = "mithril._core")]
struct Memory {
    _block: Block,
}

type NewFromDescr = unsafe extern "C" fn(
    class: *mut ffi::PyTypeObject,
    dtype: *mut ffi::PyObject,
    rank: c_int,
    sizes: *const isize,
    strides: *const isize,
    data: *mut c_void,
    flags: c_int,
    like: *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type SetBaseObject = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

/// The flags of arrays with row-major, aligned and writeable elements.
const FLAGS: c_int = 0x0001 | 0x0100 | 0x0400;

/// Makes arrays with functions from the table of NumPy's C API.
pub struct Maker {
    class: Py<PyType>,
    new_from_descr: NewFromDescr,
    set_base_object: SetBaseObject,
}

impl Maker {
    pub fn new(py: Python<'_>) -> PyResult<Maker> {
        let numpy = py.import("numpy")?;
        let class = numpy.getattr("ndarray")?.cast_into::<PyType>().map_err(PyErr::from)?.unbind();
        // NumPy 1 has another name for the module.
        let module = py.import("numpy._core._multiarray_umath");
        let module = module.or_else(|_| py.import("numpy.core._multiarray_umath"))?;
        let table = module.getattr("_ARRAY_API")?.cast_into::<PyCapsule>().map_err(PyErr::from)?;
        let table = table.pointer_checked(None)?.cast::<*const c_void>().as_ptr();
        // SAFETY: the table of NumPy's C API, in versions 1 and 2, has these functions at these
        // indices.
        unsafe {
            Ok(Maker {
                class,
                new_from_descr: std::mem::transmute::<*const c_void, NewFromDescr>(*table.add(94)),
                set_base_object: std::mem::transmute::<*const c_void, SetBaseObject>(
                    *table.add(282),
                ),
            })
        }
    }

    /// Makes an array of these sizes from a block of matching length.
    pub fn array<'py>(
        &self,
        py: Python<'py>,
        reader: &Numpy,
        dtype: DType,
        sizes: &[i64],
        block: Block,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(dtype) = reader.dtype(dtype) else {
            let message = format!("NumPy has no dtype {}", dtype.array_name());
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        };
        let sizes: SmallVec<[isize; 6]> = sizes.iter().map(|&size| size as isize).collect();
        let data = block.as_ptr();
        let memory = Bound::new(py, Memory { _block: block })?;
        // SAFETY: the class is NumPy's. The call takes over the references to the dtype and to the
        // memory, which lives as long as the array and has as many elements.
        unsafe {
            let array = (self.new_from_descr)(
                self.class.as_ptr().cast(),
                dtype.clone_ref(py).into_ptr(),
                sizes.len() as c_int,
                sizes.as_ptr(),
                std::ptr::null(),
                data.cast(),
                FLAGS,
                std::ptr::null_mut(),
            );
            let array = Bound::from_owned_ptr_or_err(py, array)?;
            match (self.set_base_object)(array.as_ptr(), memory.into_ptr()) {
                0 => Ok(array),
                _ => Err(PyErr::fetch(py)),
            }
        }
    }
}
