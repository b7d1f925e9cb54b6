//! Immutable dense arrays: constants, weights, and the evaluator's inputs and outputs.

use crate::dtype::DType;
use crate::scalar::round;
use bytes::Bytes;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use storage::Storage;

mod storage;

pub use storage::Layout;

/// A dense row-major array, little endian, with 4-bit elements in one byte each. Equality and hash
/// compare bits: -0 differs from 0, and NaNs with the same bits are equal.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    storage: Storage,
}

impl Tensor {
    /// Creates a tensor from bytes. Normalizes bools (0 or 1) and 4-bit elements (sign-extended).
    ///
    /// # Errors
    /// If the length of `bytes` does not match dtype and shape.
    pub fn from_bytes(
        dtype: DType,
        shape: Vec<usize>,
        bytes: impl Into<Bytes>,
    ) -> Result<Tensor, String> {
        let mut bytes = bytes.into();
        fits(dtype, &shape, bytes.len())?;
        if matches!(dtype, DType::Bool | DType::I4 | DType::U4) {
            bytes = bytes.iter().map(|&b| round::wrap(dtype, b.into()) as u8).collect();
        }
        Ok(Tensor { dtype, shape, storage: Storage::Fixed(bytes) })
    }

    /// The same tensor, but with memory that another layout may replace later: see
    /// [`Tensor::replace`].
    pub fn replaceable(self) -> Tensor {
        Tensor { storage: Storage::replaceable(self.storage.bytes()), ..self }
    }

    /// Casts values to `dtype` as [`crate::scalar::Prim::Cast`] does.
    ///
    /// # Panics
    /// If the number of values does not match the shape.
    pub fn from_f64s(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Tensor {
        Tensor::encode(dtype, shape, values, |v| match dtype.is_float() {
            true => round::encode(dtype, v),
            false => round::saturate(dtype, v) as u64,
        })
    }

    /// From integers in stored form (u64 as the i64 with the same bits). Wraps to narrower
    /// integers, and rounds once to floats.
    ///
    /// # Panics
    /// If the number of values does not match the shape.
    pub fn from_i64s(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Tensor {
        Tensor::encode(dtype, shape, values, |v| match dtype.is_float() {
            true => round::encode(dtype, round::from_int(dtype, v.into())),
            false => round::wrap(dtype, v) as u64,
        })
    }

    /// A tensor of rank 0.
    pub fn scalar(dtype: DType, value: f64) -> Tensor {
        Tensor::from_f64s(dtype, vec![], &[value])
    }

    fn encode<T: Copy>(
        dtype: DType,
        shape: Vec<usize>,
        values: &[T],
        bits: impl Fn(T) -> u64,
    ) -> Tensor {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "values for shape {shape:?}");
        let width = dtype.bytes();
        let mut bytes = Vec::with_capacity(values.len() * width);
        for &v in values {
            bytes.extend_from_slice(&bits(v).to_le_bytes()[..width]);
        }
        Tensor { dtype, shape, storage: Storage::Fixed(bytes.into()) }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in row-major order. Clones share that memory; if a layout replaced it, the
    /// elements are restored to new memory.
    pub fn bytes(&self) -> Bytes {
        self.storage.bytes()
    }

    /// The elements in row-major order, in memory that clones share and that no layout may replace
    /// any more.
    pub fn keep(&self) -> Bytes {
        self.storage.keep()
    }

    /// Frees the memory of the elements for all clones: the layout holds them now, and restores
    /// them for later readers. Does nothing if the tensor is not replaceable, was kept with
    /// [`Tensor::keep`], or was replaced before.
    pub fn replace(&self, layout: Arc<dyn Layout>) {
        self.storage.replace(layout, self.dtype.bytes());
    }

    /// The layout that holds the elements, if it is of type `L`.
    pub fn layout<L: Layout>(&self) -> Option<Arc<L>> {
        self.storage.layout()
    }

    /// The same tensor, with its elements in row-major order for as long as the result lives.
    fn plain(&self) -> Tensor {
        let (shape, storage) = (self.shape.clone(), Storage::Fixed(self.bytes()));
        Tensor { dtype: self.dtype, shape, storage }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all elements have the same bits; true if there are none.
    pub fn is_uniform(&self) -> bool {
        self.storage.is_uniform(self.dtype.bytes())
    }

    /// The common value of all elements, of rank 0; `None` if they differ or there are none.
    pub fn repeated(&self) -> Option<Tensor> {
        if self.is_empty() || !self.is_uniform() {
            return None;
        }
        let one = self.storage.read(|bytes| Bytes::copy_from_slice(&bytes[..self.dtype.bytes()]));
        Some(Tensor { dtype: self.dtype, shape: vec![], storage: Storage::Fixed(one) })
    }

    /// The same elements with another shape.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshape(&self, shape: Vec<usize>) -> Result<Tensor, String> {
        fits(self.dtype, &shape, self.storage.len())?;
        Ok(Tensor { dtype: self.dtype, shape, storage: self.storage.clone() })
    }

    /// The bits of element `i`, zero-extended.
    pub fn element_bits(&self, i: usize) -> u64 {
        let width = self.dtype.bytes();
        let mut word = [0; 8];
        self.storage.read(|bytes| word[..width].copy_from_slice(&bytes[i * width..][..width]));
        u64::from_le_bytes(word)
    }

    /// Element `i`: exact for a float tensor, rounded to f64 for an integer one.
    pub fn element_f64(&self, i: usize) -> f64 {
        match self.dtype.is_float() {
            true => round::decode(self.dtype, self.element_bits(i)),
            false => round::wide(self.dtype, self.element_i64(i)) as f64,
        }
    }

    /// Element `i` of an integer tensor (u64 as the i64 with the same bits); floats are cast to
    /// i64.
    pub fn element_i64(&self, i: usize) -> i64 {
        match self.dtype.is_float() {
            true => round::saturate(DType::I64, self.element_f64(i)),
            false => round::wrap(self.dtype, self.element_bits(i) as i64),
        }
    }

    pub fn to_f64s(&self) -> Vec<f64> {
        let plain = self.plain();
        (0..self.len()).map(|i| plain.element_f64(i)).collect()
    }

    pub fn to_i64s(&self) -> Vec<i64> {
        let plain = self.plain();
        (0..self.len()).map(|i| plain.element_i64(i)).collect()
    }

    /// Element `i` as the shortest text that [`parse_element`] reads back to the same value.
    pub fn element_text(&self, i: usize) -> String {
        match self.dtype {
            DType::Bool => (self.element_i64(i) != 0).to_string(),
            d if d.is_float() => float_text(d, self.element_f64(i)),
            d => round::wide(d, self.element_i64(i)).to_string(),
        }
    }

    /// Parses a tensor of rank 0 from the text of its element.
    ///
    /// # Errors
    /// If `text` is not a value of `dtype`; see [`parse_element`].
    pub fn parse_scalar(dtype: DType, text: &str) -> Result<Tensor, String> {
        let bits = parse_element(dtype, text)?;
        Tensor::from_bytes(dtype, vec![], bits.to_le_bytes()[..dtype.bytes()].to_vec())
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.storage == other.storage
    }
}

impl Eq for Tensor {}

impl Hash for Tensor {
    /// Hashes only a sample of the elements, as hashing all weights would take long.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.dtype, &self.shape, &self.storage).hash(state);
    }
}

impl fmt::Debug for Tensor {
    /// Shows dtype, shape and the first elements, as all weights would fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let plain = self.plain();
        let shown: Vec<String> = (0..self.len().min(16)).map(|i| plain.element_text(i)).collect();
        let rest = if self.len() > shown.len() { ", …" } else { "" };
        write!(f, "{}{:?}[{}{rest}]", self.dtype, self.shape, shown.join(", "))
    }
}

/// Errors: the number of bytes does not match the shape.
fn fits(dtype: DType, shape: &[usize], got: usize) -> Result<(), String> {
    let want = shape
        .iter()
        .try_fold(dtype.bytes(), |n, &d| n.checked_mul(d))
        .ok_or_else(|| format!("shape {shape:?} is too large"))?;
    match got == want {
        true => Ok(()),
        false => Err(format!("{dtype} of shape {shape:?} takes {want} bytes, got {got}")),
    }
}

/// The shortest text that represents a float of this dtype; contains one of `.`, `e`, `nan`, `inf`.
pub fn float_text(dtype: DType, x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() || dtype == DType::F64 {
        return format!("{x:?}");
    }
    if dtype == DType::F32 {
        return format!("{:?}", x as f32);
    }
    let same = |short: &f64| round::round(dtype, *short) == x;
    let short = (0..17).filter_map(|p| format!("{x:.p$e}").parse().ok()).find(same);
    format!("{:?}", short.unwrap_or(x))
}

/// Parses one element into its bits (the low ones): decimal numbers, `nan`, `inf`, `-inf`, `true`,
/// `false`. A float of 16 bits or fewer is read as f64 first.
///
/// # Errors
/// If `text` is not a number of that kind, or is finite but out of range.
pub fn parse_element(dtype: DType, text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a value of {dtype}");
    let far = || format!("{text} is out of range for {dtype}");
    if dtype == DType::Bool {
        return text.parse::<bool>().map(u64::from).map_err(|_| bad());
    }
    if !dtype.is_float() {
        let v: i128 = text.parse().map_err(|_| bad())?;
        let (low, high) = round::int_range(dtype);
        let fits = low <= v && v <= high;
        return if fits { Ok(v as u64 & low_bytes(dtype)) } else { Err(far()) };
    }
    let x: f64 = match text {
        "nan" => f64::NAN,
        "inf" => f64::INFINITY,
        "-inf" => f64::NEG_INFINITY,
        // Rust's parser also accepts other spellings of infinity and NaN.
        _ if text.contains(['n', 'N', 'i', 'I']) => return Err(bad()),
        _ if dtype == DType::F32 => text.parse::<f32>().map_err(|_| bad())?.into(),
        _ => text.parse().map_err(|_| bad())?,
    };
    let literal = !matches!(text, "nan" | "inf" | "-inf");
    if literal && !round::round(dtype, x).is_finite() {
        return Err(far());
    }
    Ok(round::encode(dtype, x))
}

fn low_bytes(dtype: DType) -> u64 {
    u64::MAX >> (64 - 8 * dtype.bytes())
}
