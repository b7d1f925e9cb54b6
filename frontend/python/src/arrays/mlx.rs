//! Reads MLX's arrays. Reading `shape` and `dtype` as attributes makes new objects, so the sizes
//! and the dtype's number are read from memory, where samples show their places.

use mithril_driver::call::signature::Sizes;
use mithril_ir::dtype::DType;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::{Classes, Samples};

pub struct Mlx {
    classes: Classes,
    /// The numbers of dtypes, which are their hashes in Python.
    dtypes: Vec<(isize, DType)>,
    /// `None` if this version of MLX has another layout.
    layout: Option<Layout>,
}

impl Mlx {
    pub fn new(class: Py<PyType>, samples: Samples<'_, '_>) -> PyResult<Mlx> {
        let dtype = |(dtype, sample): &(DType, Bound<'_, PyAny>)| {
            Ok((sample.getattr("dtype")?.hash()?, *dtype))
        };
        let dtypes = samples.iter().map(dtype).collect::<PyResult<Vec<_>>>()?;
        let layout = Layout::find(samples, &dtypes)?;
        Ok(Mlx { classes: Classes(vec![class]), dtypes, layout })
    }

    /// Returns the dtype and writes the sizes to `sizes`. `None` for other values, and for dtypes
    /// that Mithril lacks.
    pub fn read(&self, value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<DType> {
        let fast = self.layout.as_ref().filter(|_| self.classes.is_exactly(value));
        let number = match fast.and_then(|layout| layout.read(value, sizes)) {
            Some(number) => number,
            None if self.classes.is_instance_of_any(value) => attributes(value, sizes)?,
            None => return None,
        };
        self.dtypes.iter().find(|(own, _)| *own == number).map(|(_, own)| *own)
    }
}

/// Returns the number of the dtype and writes the sizes to `sizes`.
fn attributes(value: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<isize> {
    let py = value.py();
    let shape = value.getattr(intern!(py, "shape")).ok()?;
    for size in shape.cast::<PyTuple>().ok()? {
        sizes.push(size.extract().ok()?);
    }
    value.getattr(intern!(py, "dtype")).ok()?.hash().ok()
}

/// The places of an array's sizes and dtype, in bytes. An object of nanobind has after its head the
/// offset of its C++ value and flags, in one word. The value of an array is a pointer to a
/// description, which has the begin and the end of the sizes, and the number of the dtype.
struct Layout {
    /// The word of arrays that hold their value themselves. Others are read as attributes.
    word: u64,
    value: usize,
    sizes: usize,
    dtype: usize,
}

impl Layout {
    const HEAD: usize = size_of::<ffi::PyObject>();
    const WORD: usize = size_of::<u64>();
    /// The part of a description that is searched, in bytes.
    const SEARCHED: usize = 256;

    fn find(samples: Samples<'_, '_>, numbers: &[(isize, DType)]) -> PyResult<Option<Layout>> {
        let Some((_, first)) = samples.first() else {
            return Ok(None);
        };
        let class = first.get_type();
        let size: usize = class.getattr("__basicsize__")?.extract()?;
        if class.get_type().name()? != "nb_type" || size < Layout::HEAD + 2 * Layout::WORD {
            return Ok(None);
        }
        // SAFETY: the object is longer than its head and one word.
        let word = |sample: &Bound<'_, PyAny>| unsafe {
            *sample.as_ptr().byte_add(Layout::HEAD).cast::<u64>()
        };
        let common = word(first);
        let value = (common & u64::from(u32::MAX)) as usize;
        let is_inside = (Layout::HEAD + Layout::WORD..=size - Layout::WORD).contains(&value);
        if !is_inside
            || !value.is_multiple_of(Layout::WORD)
            || samples.iter().any(|s| word(&s.1) != common)
        {
            return Ok(None);
        }
        let at = |sizes, dtype| Layout { word: common, value, sizes, dtype };
        let has_sizes = |own: &usize| samples.iter().all(|(_, s)| at(*own, 0).has_sizes(s));
        let mut words = (0..Layout::SEARCHED - Layout::WORD).step_by(Layout::WORD);
        let Some(sizes) = words.find(has_sizes) else {
            return Ok(None);
        };
        let has_dtype = |dtype: &usize| {
            let read = |sample| at(sizes, *dtype).read(sample, &mut Sizes::new());
            samples.iter().zip(numbers).all(|((_, s), (number, _))| read(s) == Some(*number))
        };
        let dtype = (0..Layout::SEARCHED).step_by(size_of::<i32>()).find(has_dtype);
        Ok(dtype.map(|dtype| at(sizes, dtype)))
    }

    /// The address of the description.
    ///
    /// # Safety
    /// The value is an array whose word is that of the layout.
    unsafe fn description(&self, array: &Bound<'_, PyAny>) -> *const u8 {
        unsafe { *array.as_ptr().byte_add(self.value).cast::<*const u8>() }
    }

    /// Whether the sizes 2 and 3 are where the layout says, inside the description.
    fn has_sizes(&self, sample: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the value points to a description, which is longer than what is searched. Only
        // addresses in it are read.
        unsafe {
            let description = self.description(sample);
            let [begin, end] = *description.add(self.sizes).cast::<[usize; 2]>();
            let own = description as usize;
            let inside = own..own + Layout::SEARCHED - 2 * size_of::<i32>();
            inside.contains(&begin)
                && begin.is_multiple_of(size_of::<i32>())
                && end.wrapping_sub(begin) == 2 * size_of::<i32>()
                && *(begin as *const [i32; 2]) == [2, 3]
        }
    }

    /// Returns the number of the dtype and writes the sizes to `sizes`. `None` if the object does
    /// not hold its value itself.
    fn read(&self, array: &Bound<'_, PyAny>, sizes: &mut Sizes) -> Option<isize> {
        // SAFETY: the class is that of the samples, and the word says that the value is where
        // theirs is. The GIL is held, so nothing changes it before it is copied.
        unsafe {
            if *array.as_ptr().byte_add(Layout::HEAD).cast::<u64>() != self.word {
                return None;
            }
            let description = self.description(array);
            let [begin, end] = *description.add(self.sizes).cast::<[*const i32; 2]>();
            let rank = (end as usize - begin as usize) / size_of::<i32>();
            sizes.extend((0..rank).map(|axis| i64::from(*begin.add(axis))));
            Some(*description.add(self.dtype).cast::<i32>() as isize)
        }
    }
}
