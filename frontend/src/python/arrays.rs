//! The shape and the dtype of an array, read as cheaply as its framework allows.
//!
//! A call of a compiled model checks every array. Reading `shape` and `dtype` as Python attributes
//! would take longer than the rest of the call, so NumPy's are read off the object, torch's through
//! the function that DLPack defines for this, and JAX's off the abstract value that arrays of one
//! type share.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;

use mithril_ir::dtype::DType;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use smallvec::SmallVec;

use super::dtype::named;

pub type Sizes = SmallVec<[i64; 6]>;

/// A framework's way to tell what an array is.
pub enum Reader {
    Numpy(Numpy),
    Torch(Torch),
    Jax(Jax),
    /// By attributes, as every array has them.
    Attributes(Classes),
}

/// Classes whose instances are arrays of the framework.
pub struct Classes(Vec<Py<PyType>>);

impl Classes {
    fn hold(&self, value: &Bound<'_, PyAny>) -> bool {
        let class = value.get_type();
        self.0.iter().any(|own| own.as_ptr() == class.as_ptr())
            || self.0.iter().any(|own| value.is_instance(own.bind(value.py())).unwrap_or(false))
    }
}

impl Reader {
    /// The reader for a framework's module. `samples` are 2 x 3 arrays of every dtype it has.
    pub fn new(kind: &str, samples: &[(DType, Bound<'_, PyAny>)]) -> PyResult<Reader> {
        let Some((_, sample)) = samples.first() else {
            return Ok(Reader::Attributes(Classes(Vec::new())));
        };
        let classes = Classes(vec![sample.get_type().unbind()]);
        let reader = match kind {
            "numpy" => Reader::Numpy(Numpy::new(classes, samples)),
            "torch" => match Torch::new(sample)? {
                Some(exchange) => Reader::Torch(exchange),
                None => Reader::Attributes(classes),
            },
            "jax" => {
                let array = sample.py().import("jax")?.getattr("Array")?.cast_into::<PyType>()?;
                Reader::Jax(Jax {
                    classes: Classes(vec![sample.get_type().unbind(), array.unbind()]),
                    seen: Mutex::default(),
                })
            }
            _ => Reader::Attributes(classes),
        };
        // What is read behind a framework's back is trusted only where it gives the truth here.
        let right = samples.iter().all(|(dtype, sample)| {
            let mut sizes = Sizes::new();
            reader.read(sample, &mut sizes) == Some(*dtype) && sizes[..] == [2, 3]
        });
        Ok(match right {
            true => reader,
            false => Reader::Attributes(Classes(vec![sample.get_type().unbind()])),
        })
    }

    /// Whether reading an array costs more than finding that it was read before.
    pub fn is_dear(&self) -> bool {
        match self {
            Reader::Torch(_) | Reader::Jax(_) | Reader::Attributes(_) => true,
            Reader::Numpy(_) => false,
        }
    }

    /// The dtype, and the sizes into `sizes`. `None`: no array of the framework.
    pub fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        sizes.clear();
        match self {
            Reader::Numpy(reader) => reader.read(value, sizes),
            Reader::Torch(reader) => reader.read(value, sizes),
            Reader::Jax(reader) => reader.read(value, sizes),
            Reader::Attributes(classes) => match classes.hold(value) {
                true => attributes(value, sizes),
                false => None,
            },
        }
    }
}

/// Shape and dtype of anything that has these attributes.
pub fn attributes(value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
    let py = value.py();
    sizes.clear();
    for size in value.getattr(intern!(py, "shape")).ok()?.try_iter().ok()? {
        sizes.push(size.ok()?.extract().ok()?);
    }
    let dtype = value.getattr(intern!(py, "dtype")).ok()?;
    let text = match dtype.getattr(intern!(py, "name")) {
        Ok(name) => name.extract::<String>().ok()?,
        Err(_) => dtype.str().ok()?.to_string(),
    };
    named(&text)
}

/// The beginning of NumPy's array object, which its binary interface fixes.
#[repr(C)]
struct NumpyArray {
    _head: [usize; 2],
    _data: *mut c_char,
    ndim: c_int,
    sizes: *const isize,
    _strides: *const isize,
    _base: *mut ffi::PyObject,
    dtype: *mut ffi::PyObject,
}

pub struct Numpy {
    classes: Classes,
    /// The objects that stand for dtypes in this machine's byte order, kept alive.
    dtypes: Vec<(Py<PyAny>, DType)>,
}

impl Numpy {
    fn new(classes: Classes, samples: &[(DType, Bound<'_, PyAny>)]) -> Numpy {
        let dtypes = samples
            .iter()
            .filter_map(|(dtype, sample)| Some((sample.getattr("dtype").ok()?.unbind(), *dtype)));
        Numpy { dtypes: dtypes.collect(), classes }
    }

    fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        if !self.classes.hold(value) {
            // Scalars, such as sums over all axes are.
            return match value.hasattr("__array_struct__").ok()? && !value.hasattr("at").ok()? {
                true => attributes(value, sizes),
                false => None,
            };
        }
        // SAFETY: it is an instance of NumPy's array, and so begins with these fields.
        let array = unsafe { &*value.as_ptr().cast::<NumpyArray>() };
        for axis in 0..usize::try_from(array.ndim).ok()? {
            // SAFETY: there are as many sizes as axes.
            sizes.push(unsafe { *array.sizes.add(axis) } as i64);
        }
        let own = self.dtypes.iter().find(|(object, _)| object.as_ptr() == array.dtype);
        match own {
            Some((_, dtype)) => Some(*dtype),
            None => attributes(value, sizes),
        }
    }
}

/// `DLTensor` of DLPack 1.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLPackExchangeAPI` of DLPack 1.3.
#[repr(C)]
struct Exchange {
    major: u32,
    minor: u32,
    previous: *const Exchange,
    allocate: *const c_void,
    from_object: *const c_void,
    to_object: *const c_void,
    view: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut DlTensor) -> c_int>,
    stream: *const c_void,
}

pub struct Torch {
    classes: Classes,
    view: unsafe extern "C" fn(*mut ffi::PyObject, *mut DlTensor) -> c_int,
}

impl Torch {
    /// `None`: this torch has no such function yet.
    fn new(sample: &Bound<'_, PyAny>) -> PyResult<Option<Torch>> {
        let class = sample.get_type();
        let Ok(capsule) = class.getattr("__dlpack_c_exchange_api__") else {
            return Ok(None);
        };
        let Ok(capsule) = capsule.cast_into::<PyCapsule>() else {
            return Ok(None);
        };
        let Ok(pointer) = capsule.pointer_checked(Some(c"dlpack_exchange_api")) else {
            return Ok(None);
        };
        // SAFETY: DLPack says that the capsule of this name holds this, for the process's life.
        let exchange = unsafe { pointer.cast::<Exchange>().as_ref() };
        let parameter = sample.py().import("torch.nn")?.getattr("Parameter")?;
        let classes = vec![class.unbind(), parameter.cast_into::<PyType>()?.unbind()];
        Ok(exchange
            .view
            .filter(|_| exchange.major == 1)
            .map(|view| Torch { classes: Classes(classes), view }))
    }

    fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        if !self.classes.hold(value) {
            return None;
        }
        let mut tensor = std::mem::MaybeUninit::<DlTensor>::zeroed();
        // SAFETY: the value is a tensor of torch. What is written is read before anything else
        // can change the tensor: the interpreter's lock is held.
        let tensor = unsafe {
            if (self.view)(value.as_ptr(), tensor.as_mut_ptr()) != 0 {
                ffi::PyErr_Clear();
                return attributes(value, sizes);
            }
            tensor.assume_init()
        };
        for axis in 0..usize::try_from(tensor.ndim).ok()? {
            // SAFETY: there are as many sizes as axes.
            sizes.push(unsafe { *tensor.shape.add(axis) });
        }
        dlpack_dtype(tensor.code, tensor.bits).or_else(|| attributes(value, sizes))
    }
}

/// The dtypes that DLPack numbers without ambiguity.
fn dlpack_dtype(code: u8, bits: u8) -> Option<DType> {
    Some(match (code, bits) {
        (0, 8) => DType::I8,
        (0, 16) => DType::I16,
        (0, 32) => DType::I32,
        (0, 64) => DType::I64,
        (1, 8) => DType::U8,
        (1, 16) => DType::U16,
        (1, 32) => DType::U32,
        (1, 64) => DType::U64,
        (2, 16) => DType::F16,
        (2, 32) => DType::F32,
        (2, 64) => DType::F64,
        (4, 16) => DType::BF16,
        (6, 8) => DType::Bool,
        _ => return None,
    })
}

/// JAX's arrays of one type share an abstract value, which never changes.
pub struct Jax {
    classes: Classes,
    seen: Mutex<Vec<(Py<PyAny>, Sizes, DType)>>,
}

impl Jax {
    /// More types than a model has would only make the search long.
    const KEPT: usize = 64;

    fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        if !self.classes.hold(value) {
            return None;
        }
        let aval = value.getattr(intern!(value.py(), "aval")).ok()?;
        if let Some((_, own, dtype)) = self.lock().iter().find(|(a, ..)| a.is(&aval)) {
            sizes.extend_from_slice(own);
            return Some(*dtype);
        }
        // Python may run here, and with it another thread: the list is not locked meanwhile.
        let dtype = attributes(&aval, sizes)?;
        let mut seen = self.lock();
        let old = match seen.len() {
            Jax::KEPT => std::mem::take(&mut *seen),
            _ => Vec::new(),
        };
        seen.push((aval.unbind(), sizes.clone(), dtype));
        drop(seen);
        drop(old);
        Some(dtype)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Py<PyAny>, Sizes, DType)>> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
