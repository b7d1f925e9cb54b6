//! Reads torch tensors through the C functions that torch keeps stable for compiled models.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::{Classes, Elements, Samples, attributes, offset};

/// The address of the C++ tensor inside its Python object.
type Handle = *const c_void;

pub struct Torch {
    classes: Classes,
    /// DTensor, if the process has loaded it. It and its subclasses have sizes and a dtype as other
    /// tensors do, but no elements.
    divided: Option<Py<PyType>>,
    functions: Functions,
    /// The offset in bytes of the C++ tensor in the Python object.
    offset: usize,
    /// PyTorch's numbers for dtypes.
    dtypes: Vec<(i32, DType)>,
}

/// Writes a property of a tensor and returns 0 on success.
type Getter<T> = unsafe extern "C" fn(Handle, *mut T) -> c_int;

struct Functions {
    dim: Getter<i64>,
    sizes: Getter<*const i64>,
    strides: Getter<*const i64>,
    dtype: Getter<i32>,
    device: Getter<i32>,
    data: Getter<*const c_void>,
    /// The device type of the CPU.
    cpu: i32,
}

impl Torch {
    /// `None` if this version of torch lacks the functions or has another object layout.
    pub fn new(class: Py<PyType>, samples: Samples<'_, '_>) -> PyResult<Option<Torch>> {
        let Some((_, sample)) = samples.first() else {
            return Ok(None);
        };
        let py = sample.py();
        // The C++ tensor is one pointer, which `_cdata` returns too.
        let pointer = |sample: &Bound<'_, PyAny>| sample.getattr("_cdata")?.extract();
        let (Some(functions), Some(offset)) = (Functions::load(py)?, offset(samples, pointer)?)
        else {
            return Ok(None);
        };
        let parameter = py.import("torch.nn")?.getattr("Parameter")?.cast_into::<PyType>()?;
        let mut torch = Torch {
            classes: Classes(vec![class, parameter.unbind()]),
            divided: divided(py)?,
            functions,
            offset,
            dtypes: Vec::new(),
        };
        for (dtype, sample) in samples {
            let number = torch.parts(sample, &mut Sizes::new());
            torch.dtypes.extend(number.map(|number| (number, *dtype)));
        }
        Ok(Some(torch))
    }

    pub fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        // SAFETY: both are classes.
        let is_subclass = |own: &Py<PyType>| unsafe {
            ffi::PyType_IsSubtype(value.get_type_ptr(), own.as_ptr().cast()) != 0
        };
        let is_divided = self.divided.as_ref().is_some_and(is_subclass);
        // Other subclasses may override `shape` and `dtype`, so they are read as attributes.
        if is_divided || self.classes.is_exactly(value) {
            if let Some(number) = self.parts(value, sizes) {
                let own = self.dtypes.iter().find(|(own, _)| *own == number);
                return own.map(|(_, dtype)| *dtype).or_else(|| attributes(value, sizes));
            }
        }
        match self.classes.is_instance_of_any(value) {
            true => attributes(value, sizes),
            false => None,
        }
    }

    /// The elements of a tensor of integers. `None` if they are on a device or unknown.
    pub fn elements<'py>(&self, value: &Bound<'py, PyAny>) -> Option<Elements<'py>> {
        let mut sizes = Sizes::new();
        if !self.classes.is_exactly(value) {
            return None;
        }
        let number = self.parts(value, &mut sizes)?;
        let (_, dtype) = *self.dtypes.iter().find(|(own, _)| *own == number)?;
        let (mut device, mut first, mut data) = (0, std::ptr::null(), std::ptr::null());
        let mut strides = Sizes::new();
        // SAFETY: as in `parts`; there are as many strides as sizes.
        unsafe {
            let handle: Handle = value.as_ptr().byte_add(self.offset).cast();
            let known = (self.functions.device)(handle, &mut device) == 0
                && device == self.functions.cpu
                && (self.functions.strides)(handle, &mut first) == 0
                && (self.functions.data)(handle, &mut data) == 0;
            if !known || (data.is_null() && sizes.iter().all(|size| *size > 0)) {
                return None;
            }
            let bytes = dtype.bytes() as i64;
            (0..sizes.len()).for_each(|axis| strides.push(*first.add(axis) * bytes));
        }
        // SAFETY: the tensor keeps its elements alive, and they are at these addresses.
        Some(unsafe { Elements::new(data.cast(), dtype, sizes, strides, value.clone()) })
    }

    /// Returns the number of a tensor's dtype and writes its sizes to `sizes`. `None` if PyTorch
    /// fails.
    fn parts(&self, tensor: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<i32> {
        let (mut dim, mut dtype, mut first) = (0, 0, std::ptr::null());
        // SAFETY: the value is a tensor of torch, which has its C++ tensor at this offset. The GIL
        // is held, so nothing changes the sizes before they are copied.
        unsafe {
            let handle: Handle = tensor.as_ptr().byte_add(self.offset).cast();
            let right = (self.functions.dim)(handle, &mut dim) == 0
                && (self.functions.sizes)(handle, &mut first) == 0
                && (self.functions.dtype)(handle, &mut dtype) == 0;
            if !right {
                return None;
            }
            (0..dim as usize).for_each(|axis| sizes.push(*first.add(axis)));
        }
        Some(dtype)
    }
}

/// The class DTensor, if the process has loaded it.
fn divided(py: Python<'_>) -> PyResult<Option<Py<PyType>>> {
    let modules = py.import("sys")?.getattr("modules")?;
    let class = modules.get_item("torch.distributed.tensor").and_then(|own| own.getattr("DTensor"));
    Ok(class.ok().and_then(|own| own.cast_into::<PyType>().ok()).map(Bound::unbind))
}

impl Functions {
    fn load(py: Python<'_>) -> PyResult<Option<Functions>> {
        let ctypes = py.import("ctypes")?;
        let file = py.import("torch")?.getattr("_C")?.getattr("__file__")?;
        let Ok(library) = ctypes.getattr("CDLL")?.call1((file,)) else {
            return Ok(None);
        };
        let address = |name: &str| -> PyResult<Option<usize>> {
            let Ok(function) = library.getattr(name) else {
                return Ok(None);
            };
            let pointer = ctypes.getattr("cast")?.call1((function, ctypes.getattr("c_void_p")?))?;
            pointer.getattr("value")?.extract()
        };
        let (Some(dim), Some(sizes), Some(strides), Some(dtype)) = (
            address("aoti_torch_get_dim")?,
            address("aoti_torch_get_sizes")?,
            address("aoti_torch_get_strides")?,
            address("aoti_torch_get_dtype")?,
        ) else {
            return Ok(None);
        };
        let (Some(device), Some(data), Some(cpu)) = (
            address("aoti_torch_get_device_type")?,
            address("aoti_torch_get_data_ptr")?,
            address("aoti_torch_device_type_cpu")?,
        ) else {
            return Ok(None);
        };
        // SAFETY: torch declares the functions of these names with these types, in its `shim.h`,
        // and stays loaded until the process ends.
        Ok(Some(unsafe {
            Functions {
                dim: transmute::<usize, Getter<i64>>(dim),
                sizes: transmute::<usize, Getter<*const i64>>(sizes),
                strides: transmute::<usize, Getter<*const i64>>(strides),
                dtype: transmute::<usize, Getter<i32>>(dtype),
                device: transmute::<usize, Getter<i32>>(device),
                data: transmute::<usize, Getter<*const c_void>>(data),
                cpu: transmute::<usize, extern "C" fn() -> i32>(cpu)(),
            }
        }))
    }
}
