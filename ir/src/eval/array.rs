//! Arrays as the evaluator computes on them: all elements widened to f64 or i64.

use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::tensor::Tensor;

/// A dense, row-major array; `data` has as many elements as `shape` says.
#[derive(Clone, PartialEq, Debug)]
pub struct Array {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Data,
}

/// The elements. Floats are already rounded to the dtype. Integers are stored as their value (u64
/// as the i64 with the same bits), bools as 0 or 1.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Data::Float(v) => v.len(),
            Data::Int(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements at the indices `offsets`, in that order.
    pub fn pick(&self, offsets: impl Iterator<Item = usize>) -> Data {
        match self {
            Data::Float(v) => Data::Float(offsets.map(|i| v[i]).collect()),
            Data::Int(v) => Data::Int(offsets.map(|i| v[i]).collect()),
        }
    }

    fn get(&self, i: usize) -> Scalar {
        match self {
            Data::Float(v) => Scalar::F(v[i]),
            Data::Int(v) => Scalar::I(v[i]),
        }
    }
}

impl Array {
    /// An array with all elements equal to `value`, which is of `dtype`.
    pub fn full(dtype: DType, shape: Vec<usize>, value: Scalar) -> Array {
        let n = shape.iter().product();
        Array::collect(dtype, shape, std::iter::repeat_n(value, n))
    }

    /// Collects elements in row-major order, each already a value of `dtype`.
    pub fn collect(
        dtype: DType,
        shape: Vec<usize>,
        elements: impl Iterator<Item = Scalar>,
    ) -> Array {
        let data = match dtype.is_float() {
            true => Data::Float(elements.map(Scalar::float).collect()),
            false => Data::Int(elements.map(Scalar::int).collect()),
        };
        Array { dtype, shape, data }
    }

    /// Casts numbers to `dtype`.
    ///
    /// # Panics
    /// If the number of values does not match the shape.
    pub fn from_f64s(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Array {
        Array::from(&Tensor::from_f64s(dtype, shape, values))
    }

    pub fn len(&self) -> usize {
        self.data.len()
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Element `i` in row-major order.
    pub fn get(&self, i: usize) -> Scalar {
        self.data.get(i)
    }

    /// Copies the strided view with this shape, these strides and the offset `start` to a new
    /// array.
    pub fn view(&self, shape: Vec<usize>, strides: &[isize], start: isize) -> Array {
        let data = self.data.pick(Walk::new(&shape, strides, start));
        Array { dtype: self.dtype, shape, data }
    }

    /// All elements in row-major order.
    pub fn elements(&self) -> impl Iterator<Item = Scalar> {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl From<&Tensor> for Array {
    fn from(t: &Tensor) -> Array {
        let data = match t.dtype().is_float() {
            true => Data::Float(t.to_f64s()),
            false => Data::Int(t.to_i64s()),
        };
        Array { dtype: t.dtype(), shape: t.shape().to_vec(), data }
    }
}

impl From<&Array> for Tensor {
    fn from(a: &Array) -> Tensor {
        match &a.data {
            Data::Float(v) => Tensor::from_f64s(a.dtype, a.shape.clone(), v),
            Data::Int(v) => Tensor::from_i64s(a.dtype, a.shape.clone(), v),
        }
    }
}

/// Row-major strides of `shape`, in elements.
pub fn strides(shape: &[usize]) -> Vec<isize> {
    let mut out = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        out[d - 1] = out[d] * shape[d] as isize;
    }
    out
}

/// Iterates over the element offsets of a strided view in row-major order. Transposes, broadcasts
/// (stride 0), slices and the elements of a reduction are all such views.
pub struct Walk {
    shape: Vec<usize>,
    strides: Vec<isize>,
    index: Vec<usize>,
    at: isize,
    left: usize,
}

impl Walk {
    /// A view with its first element at offset `start` and with these sizes and strides.
    pub fn new(shape: &[usize], strides: &[isize], start: isize) -> Walk {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        let left = shape.iter().product();
        Walk { index: vec![0; shape.len()], shape, strides, at: start, left }
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let here = self.at as usize;
        for d in (0..self.shape.len()).rev() {
            self.index[d] += 1;
            self.at += self.strides[d];
            if self.index[d] < self.shape[d] {
                break;
            }
            self.at -= self.strides[d] * self.shape[d] as isize;
            self.index[d] = 0;
        }
        Some(here)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
