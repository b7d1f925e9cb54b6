//! Cumulative sums and products.

use super::array::{Array, Walk, strides};
use super::{at, check_axes, others};
use crate::dtype::DType;
use crate::scalar::{Prim, Scalar, apply};

/// Cumulative sums along `axis`: each element plus all before it (with `reverse`, all after it).
/// Accumulates in f64 (integers: modulo 2⁶⁴) starting at +0, and rounds each result once. Shape and
/// dtype stay.
///
/// # Errors
/// For an axis out of range.
pub fn cumsum(x: &Array, axis: usize, reverse: bool) -> Result<Array, String> {
    cumulate(x, axis, reverse, Prim::Add)
}

/// Cumulative products, as [`cumsum`] in all else.
///
/// # Errors
/// For an axis out of range.
pub fn cumprod(x: &Array, axis: usize, reverse: bool) -> Result<Array, String> {
    cumulate(x, axis, reverse, Prim::Mul)
}

fn cumulate(x: &Array, axis: usize, reverse: bool, prim: Prim) -> Result<Array, String> {
    check_axes(&[axis], x.shape.len())?;
    let wide = if x.dtype.is_float() { DType::F64 } else { DType::I64 };
    let first = Scalar::number(wide, if prim == Prim::Add { 0.0 } else { 1.0 });
    let mut out = vec![first; x.len()];
    for line in lines(x, axis) {
        let mut total = first;
        for k in 0..line.len {
            let i = line.offset(if reverse { line.len - 1 - k } else { k });
            total = apply(prim, wide, &[total, x.get(i)], None);
            out[i] = total.cast(wide, x.dtype);
        }
    }
    Ok(Array::collect(x.dtype, x.shape.clone(), out.into_iter()))
}

/// The elements along one axis, for fixed indices along the others.
pub(super) struct Line {
    start: usize,
    step: usize,
    pub len: usize,
}

impl Line {
    /// The offset of element `k`.
    pub fn offset(&self, k: usize) -> usize {
        self.start + k * self.step
    }
}

/// All lines of `x` along `axis`, which must be valid.
pub(super) fn lines(x: &Array, axis: usize) -> impl Iterator<Item = Line> + use<> {
    let steps = strides(&x.shape);
    let rest = others(&[axis], x.shape.len());
    let (step, len) = (steps[axis] as usize, x.shape[axis]);
    let starts = Walk::new(&at(&x.shape, &rest), &at(&steps, &rest), 0);
    starts.map(move |start| Line { start, step, len })
}
