//! Immutable dense arrays: constants, weights, and what goes in and out of the evaluator.

use crate::dtype::DType;
use crate::scalar::round;
use bytes::Bytes;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use storage::Storage;

mod storage;

pub use storage::Layout;

/// A dense row-major array, little endian, 4-bit elements one to a byte. Equality and hash are of
/// the bits: -0 differs from 0, and a NaN equals one of the same bits.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    storage: Storage,
}

impl Tensor {
    /// From memory. Bool and 4-bit elements are brought to their one form (0 or 1, sign-extended).
    ///
    /// # Errors
    /// When `bytes` is not as long as dtype and shape say.
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

    /// The same tensor, whose elements may later lie in another layout alone: see
    /// [`Tensor::replace`].
    pub fn replaceable(self) -> Tensor {
        Tensor { storage: Storage::replaceable(self.storage.bytes()), ..self }
    }

    /// From values, cast to `dtype` as [`crate::scalar::Prim::Cast`] does.
    ///
    /// # Panics
    /// When the number of values is not that of the shape.
    pub fn from_f64s(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Tensor {
        Tensor::encode(dtype, shape, values, |v| match dtype.is_float() {
            true => round::encode(dtype, v),
            false => round::saturate(dtype, v) as u64,
        })
    }

    /// From integers in their held form (u64 as the i64 of the same bits); other integers wrap, and
    /// floats round once.
    ///
    /// # Panics
    /// When the number of values is not that of the shape.
    pub fn from_i64s(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Tensor {
        Tensor::encode(dtype, shape, values, |v| match dtype.is_float() {
            true => round::encode(dtype, round::from_int(dtype, v.into())),
            false => round::wrap(dtype, v) as u64,
        })
    }

    /// One value of rank 0.
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

    /// The elements in memory order: in the memory that clones share, or, where a layout took its
    /// place, restored in memory of their own.
    pub fn bytes(&self) -> Bytes {
        self.storage.bytes()
    }

    /// The elements in memory order, which clones share and no layout replaces from now on.
    pub fn keep(&self) -> Bytes {
        self.storage.keep()
    }

    /// Lets the memory of the elements go, for all clones: the layout has them, and restores them
    /// for those who read them later. It does nothing for a tensor that is not replaceable, is kept,
    /// or was replaced before.
    pub fn replace(&self, layout: Arc<dyn Layout>) {
        self.storage.replace(layout, self.dtype.bytes());
    }

    /// The layout that has the elements, if it is of this kind.
    pub fn layout<L: Layout>(&self) -> Option<Arc<L>> {
        self.storage.layout()
    }

    /// The same elements, in memory order for as long as this lives.
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

    /// Whether all elements have the same bits, if there are any.
    pub fn is_uniform(&self) -> bool {
        self.storage.is_uniform(self.dtype.bytes())
    }

    /// The element that all of them are, of rank 0; none where they differ, or there are none.
    pub fn repeated(&self) -> Option<Tensor> {
        if self.is_empty() || !self.is_uniform() {
            return None;
        }
        let one = self.storage.read(|bytes| Bytes::copy_from_slice(&bytes[..self.dtype.bytes()]));
        Some(Tensor { dtype: self.dtype, shape: vec![], storage: Storage::Fixed(one) })
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// When the number of elements differs.
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

    /// Element `i` of a float tensor exactly, of an integer one rounded to f64.
    pub fn element_f64(&self, i: usize) -> f64 {
        match self.dtype.is_float() {
            true => round::decode(self.dtype, self.element_bits(i)),
            false => round::wide(self.dtype, self.element_i64(i)) as f64,
        }
    }

    /// Element `i` of an integer tensor (u64 as the i64 of the same bits); a float is cast to i64.
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

    /// One element of rank 0 from its text.
    ///
    /// # Errors
    /// When `text` is not a value of `dtype`, see [`parse_element`].
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
    /// Of some of the elements: weights would take long.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.dtype, &self.shape, &self.storage).hash(state);
    }
}

impl fmt::Debug for Tensor {
    /// Dtype, shape and the first elements: weights would fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let plain = self.plain();
        let shown: Vec<String> = (0..self.len().min(16)).map(|i| plain.element_text(i)).collect();
        let rest = if self.len() > shown.len() { ", …" } else { "" };
        write!(f, "{}{:?}[{}{rest}]", self.dtype, self.shape, shown.join(", "))
    }
}

/// Errors: another number of bytes than a tensor of this shape has.
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

/// The shortest text of a value of a float dtype; always with one of `.`, `e`, `nan`, `inf`.
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

/// The bits (low ones) of one element from text: decimal numbers, `nan`, `inf`, `-inf`, `true`,
/// `false`. A float of 16 bits or fewer is read as f64 first.
///
/// # Errors
/// When `text` is not a number of that kind, or a finite one out of range.
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
        // Rust's own parser takes other spellings of infinity and NaN too.
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
