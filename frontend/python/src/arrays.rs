//! Reads the shape and the dtype of an array as cheaply as its framework allows.
//!
//! A call of a compiled model checks every array. Reading `shape` and `dtype` as Python attributes
//! would take longer than the rest of the call, so each framework has its own reader.

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::dtype;
use jax::Jax;
pub use jax::Seen;
use mlx::Mlx;
pub use numpy::Numpy;
use tinygrad::Tinygrad;
use torch::Torch;

mod jax;
mod mlx;
mod numpy;
mod tinygrad;
mod torch;

/// The integers of an array. They keep the array alive.
type Elements<'py> = mithril_driver::call::elements::Elements<Bound<'py, PyAny>>;

/// Reads the shape and the dtype of a framework's arrays.
pub enum Reader {
    Numpy(Numpy),
    Torch(Torch),
    Jax(Jax),
    Mlx(Mlx),
    Tinygrad(Tinygrad),
    /// Reads Python attributes, which every array has.
    Attributes(Classes),
}

/// The classes whose instances are arrays of the framework.
pub struct Classes(Vec<Py<PyType>>);

impl Classes {
    /// Whether the value's class is exactly one of these, not a subclass.
    fn is_exactly(&self, value: &Bound<'_, PyAny>) -> bool {
        let class = value.get_type_ptr();
        self.0.iter().any(|own| own.as_ptr() == class.cast())
    }

    fn is_instance_of_any(&self, value: &Bound<'_, PyAny>) -> bool {
        let instance = |own: &Py<PyType>| value.is_instance(own.bind(value.py())).unwrap_or(false);
        self.is_exactly(value) || self.0.iter().any(instance)
    }
}

/// Sample arrays with their dtypes.
type Samples<'a, 'py> = &'a [(DType, Bound<'py, PyAny>)];

impl Reader {
    /// The reader for a framework. `samples` are 2 x 3 arrays of every dtype that it has.
    pub fn new(kind: &str, samples: Samples<'_, '_>) -> PyResult<Reader> {
        let Some((_, sample)) = samples.first() else {
            return Ok(Reader::Attributes(Classes(Vec::new())));
        };
        let class = sample.get_type().unbind();
        let own = match kind {
            "numpy" => Some(Reader::Numpy(Numpy::new(class, samples)?)),
            "torch" => Torch::new(class, samples)?.map(Reader::Torch),
            "jax" => Some(Reader::Jax(Jax::new(class, samples)?)),
            "mlx" => Some(Reader::Mlx(Mlx::new(class, samples)?)),
            "tinygrad" => Some(Reader::Tinygrad(Tinygrad::new(class, samples)?)),
            _ => None,
        };
        // A reader of a framework's internals is used only if it reads all samples correctly.
        let right = |reader: &Reader| {
            samples.iter().all(|(dtype, sample)| {
                let mut sizes = Sizes::new();
                let read = reader.read(sample, &mut sizes, &mut Seen::default());
                read == Some(*dtype) && sizes[..] == [2, 3]
            })
        };
        let plain = || Reader::Attributes(Classes(vec![sample.get_type().unbind()]));
        Ok(own.filter(right).unwrap_or_else(plain))
    }

    /// Returns the dtype and writes the sizes to `sizes`. `None` if the value is not an array of
    /// the framework.
    pub fn read(
        &self,
        value: &Bound<'_, PyAny>,
        sizes: &mut Sizes,
        seen: &mut Seen,
    ) -> Option<DType> {
        sizes.clear();
        match self {
            Reader::Numpy(reader) => reader.read(value, sizes),
            Reader::Torch(reader) => reader.read(value, sizes),
            Reader::Jax(reader) => reader.read(value, sizes, seen),
            Reader::Mlx(reader) => reader.read(value, sizes),
            Reader::Tinygrad(reader) => reader.read(value, sizes),
            Reader::Attributes(classes) => match classes.is_instance_of_any(value) {
                true => attributes(value, sizes),
                false => None,
            },
        }
    }
}

impl Reader {
    /// The elements of an array of integers. `None` if they are not known (in a traced call) or on
    /// a device. With `everywhere`, elements on a device are copied to the host.
    pub fn elements<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        everywhere: bool,
    ) -> Option<Elements<'py>> {
        let py = value.py();
        let fetched = |value: &Bound<'py, PyAny>| {
            let asarray = py.import(intern!(py, "numpy")).ok()?.getattr(intern!(py, "asarray"));
            numpy::elements(asarray.ok()?.call1((value,)).ok()?)
        };
        match self {
            Reader::Numpy(reader) => reader.elements(value).or_else(|| fetched(value)),
            Reader::Torch(reader) => match reader.elements(value) {
                Some(elements) => Some(elements),
                None if everywhere => fetched(&value.call_method0(intern!(py, "cpu")).ok()?),
                None => None,
            },
            Reader::Jax(reader) => match everywhere || reader.is_on_host(value) {
                true => fetched(value),
                false => None,
            },
            // An error says that a jit traces the call.
            Reader::Tinygrad(_) => numpy::elements(value.call_method0(intern!(py, "numpy")).ok()?),
            // NumPy converts arrays in host memory and rejects others.
            Reader::Mlx(_) | Reader::Attributes(_) => fetched(value),
        }
    }
}

/// Finds the offset in bytes at which each sample object stores the word that `word` computes for
/// it.
fn offset(
    samples: Samples<'_, '_>,
    word: impl Fn(&Bound<'_, PyAny>) -> PyResult<usize>,
) -> PyResult<Option<usize>> {
    let Some((_, first)) = samples.first() else {
        return Ok(None);
    };
    let words = samples.iter().map(|(_, sample)| word(sample)).collect::<PyResult<Vec<usize>>>()?;
    let size: usize = first.get_type().getattr("__basicsize__")?.extract()?;
    let mut offsets = (size_of::<ffi::PyObject>()..size).step_by(size_of::<usize>());
    Ok(offsets.find(|offset| {
        // SAFETY: the objects all have this class and are longer than the offset.
        let at = |sample: &Bound<'_, PyAny>| unsafe {
            *sample.as_ptr().byte_add(*offset).cast::<usize>()
        };
        samples.iter().zip(&words).all(|((_, sample), word)| at(sample) == *word)
    }))
}

/// Reads the shape and the dtype of a value from its Python attributes.
pub fn attributes(value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
    let py = value.py();
    sizes.clear();
    for size in value.getattr(intern!(py, "shape")).ok()?.try_iter().ok()? {
        sizes.push(size.ok()?.extract().ok()?);
    }
    let dtype = value.getattr(intern!(py, "dtype")).ok()?;
    dtype::of(&dtype).ok()
}
