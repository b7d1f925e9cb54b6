//! Named `ndarray` arrays of any dtype: the arguments and the results of calls.

use std::collections::BTreeMap;
use std::slice;

use bytes::Bytes;
use half::{bf16, f16};
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_model::block::quoted;
use mithril_runtime::memory::{Block, OutOfMemory};
use ndarray::{ArrayD, CowArray, Dimension, IxDyn, ShapeError};
use smallvec::SmallVec;

use crate::call::elements::Elements;
use crate::call::interface::{self, out_of_memory};
use crate::call::signature::Sizes;

/// The element type of an array.
pub trait Element: Copy + Default + Send + Sync + 'static {
    const DTYPE: DType;

    /// Wraps an array of this element type as an [`Array`].
    fn wrap(array: ArrayD<Self>) -> Array;

    /// The array, if it has this dtype.
    fn of(array: &Array) -> Option<&ArrayD<Self>>;

    /// The array for mutation, if it has this dtype.
    fn of_mut(array: &mut Array) -> Option<&mut ArrayD<Self>>;
}

macro_rules! elements {
    ($($variant:ident $element:ty)*) => {
        /// An array of any of the dtypes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array {
            $($variant(ArrayD<$element>),)*
        }

        $(impl Element for $element {
            const DTYPE: DType = DType::$variant;

            fn wrap(array: ArrayD<$element>) -> Array {
                Array::$variant(array)
            }

            fn of(array: &Array) -> Option<&ArrayD<$element>> {
                if let Array::$variant(own) = array { Some(own) } else { None }
            }

            fn of_mut(array: &mut Array) -> Option<&mut ArrayD<$element>> {
                if let Array::$variant(own) = array { Some(own) } else { None }
            }
        })*

        impl Array {
            pub fn dtype(&self) -> DType {
                match self {
                    $(Array::$variant(_) => DType::$variant,)*
                }
            }

            pub fn shape(&self) -> &[usize] {
                match self {
                    $(Array::$variant(own) => own.shape(),)*
                }
            }

            /// The array with its elements contiguous, in row-major order. Copies them only if they
            /// are not.
            pub(crate) fn contiguous(&self) -> Contiguous<'_> {
                match self {
                    $(Array::$variant(own) => Contiguous::$variant(own.as_standard_layout()),)*
                }
            }

            /// Copies these bytes into an array of this dtype and shape.
            ///
            /// Errors: a dtype without an element type in Rust; out of memory.
            pub(crate) fn of_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Array> {
                match dtype {
                    $(DType::$variant => array_of_bytes(shape, bytes).map(Array::$variant),)*
                    DType::I4 | DType::U4 | DType::F8E4M3 | DType::F8E5M2 => Err(no_element_type(dtype)),
                }
            }
        }

        /// An array whose elements are contiguous.
        pub(crate) enum Contiguous<'a> {
            $($variant(CowArray<'a, $element, IxDyn>),)*
        }

        impl Contiguous<'_> {
            /// The address of the elements. For an empty array this is the address of a readable
            /// block, because kernels may read one element.
            pub(crate) fn as_ptr(&self) -> *const u8 {
                match self {
                    $(Contiguous::$variant(own) if own.is_empty() => Block::empty().as_ptr(),)*
                    $(Contiguous::$variant(own) => own.as_ptr().cast(),)*
                }
            }

            fn dtype(&self) -> DType {
                match self {
                    $(Contiguous::$variant(_) => DType::$variant,)*
                }
            }

            fn shape(&self) -> &[usize] {
                match self {
                    $(Contiguous::$variant(own) => own.shape(),)*
                }
            }
        }

        impl From<Array> for Contiguous<'_> {
            fn from(array: Array) -> Self {
                match array {
                    $(Array::$variant(own) => Contiguous::$variant(match own.is_standard_layout() {
                        true => own.into(),
                        false => own.as_standard_layout().into_owned().into(),
                    }),)*
                }
            }
        }
    };
}

elements! {
    F64 f64
    F32 f32
    F16 f16
    BF16 bf16
    I64 i64
    I32 i32
    I16 i16
    I8 i8
    U64 u64
    U32 u32
    U16 u16
    U8 u8
    Bool bool
}

/// Copies these bytes into an array.
///
/// Errors: out of memory; a number of bytes that does not match the shape.
fn array_of_bytes<T: Element>(shape: &[usize], bytes: &[u8]) -> Result<ArrayD<T>> {
    let count = bytes.len() / size_of::<T>();
    let mut values: Vec<T> = Vec::new();
    let room = values.try_reserve_exact(count);
    room.map_err(|_| out_of_memory(OutOfMemory { bytes: bytes.len() }))?;
    // SAFETY: `values` has the capacity, and the bytes are valid elements: a computed bool is 0 or
    // 1, and every bit pattern is a number.
    unsafe {
        bytes.as_ptr().copy_to_nonoverlapping(values.as_mut_ptr().cast(), bytes.len());
        values.set_len(count);
    }
    ArrayD::from_shape_vec(shape, values).map_err(wrong_count)
}

fn wrong_count(error: ShapeError) -> Box<Diagnostic> {
    Box::new(Diagnostic::new("the number of elements does not match the shape").got(error))
}

fn no_element_type(dtype: DType) -> Box<Diagnostic> {
    Box::new(Diagnostic::new("Rust has no type for these elements").got(dtype.array_name()))
}

impl Contiguous<'_> {
    /// The elements of the array, for the check of indices.
    pub(crate) fn elements(&self) -> Elements<&Self> {
        let sizes: Sizes = self.shape().iter().map(|size| *size as i64).collect();
        let mut stride = self.dtype().bytes() as i64;
        let mut strides: Sizes = SmallVec::from_elem(0, sizes.len());
        for (own, size) in strides.iter_mut().zip(&sizes).rev() {
            *own = stride;
            stride *= size;
        }
        // SAFETY: the elements are contiguous and live as long as the array.
        unsafe { Elements::new(self.as_ptr(), self.dtype(), sizes, strides, self) }
    }
}

impl Array {
    /// Copies the array into a tensor of the IR.
    ///
    /// Errors: out of memory.
    pub(crate) fn tensor(&self) -> Result<Tensor> {
        let plain = self.contiguous();
        let bytes = interface::bytes(plain.elements().sizes(), self.dtype())?;
        // SAFETY: the elements are contiguous, and all of their bytes are initialised.
        let bytes = unsafe { slice::from_raw_parts(plain.as_ptr(), bytes) };
        let copy = Block::copy_of(bytes).map_err(out_of_memory)?;
        Tensor::from_bytes(self.dtype(), self.shape().to_vec(), Bytes::from_owner(copy))
            .map_err(|why| Box::new(Diagnostic::new(why)))
    }

    /// The array, if its elements have type `T`.
    ///
    /// Errors: the array has the wrong dtype.
    pub fn get<T: Element>(&self) -> Result<&ArrayD<T>> {
        T::of(self).ok_or_else(|| wrong_dtype::<T>(self.dtype()))
    }

    /// The array for mutation, typed by its elements.
    ///
    /// Errors: the array has the wrong dtype.
    pub fn get_mut<T: Element>(&mut self) -> Result<&mut ArrayD<T>> {
        let own = self.dtype();
        T::of_mut(self).ok_or_else(|| wrong_dtype::<T>(own))
    }

    /// Makes an array of these numbers, rounded to the dtype.
    ///
    /// Errors: a bool, or an integer that no initial value has; a number of values that does not match the shape.
    pub fn of_floats(dtype: DType, shape: &[usize], values: Vec<f64>) -> Result<Array> {
        let array = ArrayD::from_shape_vec(shape, values).map_err(wrong_count)?;
        match dtype {
            DType::F64 => Ok(Array::F64(array)),
            DType::F32 => Ok(Array::F32(array.mapv(|value| value as f32))),
            DType::F16 => Ok(Array::F16(array.mapv(f16::from_f64))),
            DType::BF16 => Ok(Array::BF16(array.mapv(bf16::from_f64))),
            DType::I64 => Ok(Array::I64(array.mapv(|value| value as i64))),
            DType::I32 => Ok(Array::I32(array.mapv(|value| value as i32))),
            other => Err(no_element_type(other)),
        }
    }

    /// Converts integers to another dtype. `None` if the elements are not integers, or if one does
    /// not fit.
    pub(crate) fn with_integers(&self, dtype: DType) -> Option<Array> {
        let wide = match self {
            Array::I64(own) => own.clone(),
            Array::I32(own) => own.mapv(i64::from),
            Array::I16(own) => own.mapv(i64::from),
            Array::I8(own) => own.mapv(i64::from),
            Array::U64(own) => converted_integers(own)?,
            Array::U32(own) => own.mapv(i64::from),
            Array::U16(own) => own.mapv(i64::from),
            Array::U8(own) => own.mapv(i64::from),
            Array::F64(_) | Array::F32(_) | Array::F16(_) | Array::BF16(_) | Array::Bool(_) => {
                return None;
            }
        };
        match dtype {
            DType::I64 => Some(Array::I64(wide)),
            DType::I32 => converted_integers(&wide).map(Array::I32),
            DType::I16 => converted_integers(&wide).map(Array::I16),
            DType::I8 => converted_integers(&wide).map(Array::I8),
            DType::U64 => converted_integers(&wide).map(Array::U64),
            DType::U32 => converted_integers(&wide).map(Array::U32),
            DType::U16 => converted_integers(&wide).map(Array::U16),
            DType::U8 => converted_integers(&wide).map(Array::U8),
            DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::Bool
            | DType::I4
            | DType::U4
            | DType::F8E4M3
            | DType::F8E5M2 => None,
        }
    }
}

fn converted_integers<T: Element, U: Element + TryFrom<T>>(array: &ArrayD<T>) -> Option<ArrayD<U>> {
    let values: Option<Vec<U>> = array.iter().map(|value| U::try_from(*value).ok()).collect();
    ArrayD::from_shape_vec(array.raw_dim(), values?).ok()
}

fn wrong_dtype<T: Element>(own: DType) -> Box<Diagnostic> {
    let error =
        Diagnostic::of(ErrorKind::DType, "the array has the wrong dtype").got(own.array_name());
    Box::new(error.expected(T::DTYPE.array_name()))
}

impl<T: Element, D: Dimension> From<ndarray::Array<T, D>> for Array {
    fn from(array: ndarray::Array<T, D>) -> Array {
        T::wrap(array.into_dyn())
    }
}

/// Arrays by name: the params, the inputs or the outputs of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrays(BTreeMap<String, Array>);

impl Arrays {
    pub fn new() -> Arrays {
        Arrays::default()
    }

    /// Adds an array, or replaces the one of this name.
    pub fn with(mut self, name: &str, array: impl Into<Array>) -> Arrays {
        self.insert(name, array);
        self
    }

    pub fn insert(&mut self, name: &str, array: impl Into<Array>) {
        self.0.insert(name.to_string(), array.into());
    }

    /// The array of this name, if its elements have type `T`.
    ///
    /// Errors: there is no such array, or it has the wrong dtype.
    pub fn get<T: Element>(&self, name: &str) -> Result<&ArrayD<T>> {
        let array = self.find(name).ok_or_else(|| self.missing_array(name))?;
        array.get().map_err(|error| Box::new(error.at(format!("`{name}`"))))
    }

    /// The array of this name for mutation.
    ///
    /// Errors: there is no such array, or it has the wrong dtype.
    pub fn get_mut<T: Element>(&mut self, name: &str) -> Result<&mut ArrayD<T>> {
        if !self.0.contains_key(name) {
            return Err(self.missing_array(name));
        }
        let array = self.0.get_mut(name).expect("it is there");
        array.get_mut().map_err(|error| Box::new(error.at(format!("`{name}`"))))
    }

    /// The array of this name, if there is one.
    pub fn find(&self, name: &str) -> Option<&Array> {
        self.0.get(name)
    }

    /// The arrays, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.0.iter().map(|(name, array)| (name.as_str(), array))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn missing_array(&self, name: &str) -> Box<Diagnostic> {
        let names: Vec<&str> = self.names().collect();
        let mut error = Diagnostic::new(format!("there is no array `{name}`"))
            .expected(if names.is_empty() { "none".into() } else { quoted(&names) });
        error.hint = did_you_mean(name, names.iter().copied());
        Box::new(error)
    }
}

impl<A: Into<Array>, const N: usize> From<[(&str, A); N]> for Arrays {
    fn from(arrays: [(&str, A); N]) -> Arrays {
        Arrays(arrays.into_iter().map(|(name, own)| (name.to_string(), own.into())).collect())
    }
}
