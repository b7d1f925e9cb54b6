//! Reductions over axes. With `keepdim` a reduced dim stays with size 1. An empty list of axes
//! reduces nothing, so a reduction to a scalar lists all axes.

use super::array::{Array, Walk, strides};
use super::{at, check_axes, others};
use crate::dtype::DType;
use crate::scalar::{Prim, Scalar, apply};

/// The default dtype in which sums are accumulated: f32 for f16 and bf16, otherwise the widest of
/// the same kind.
pub fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        _ => widest(dtype),
    }
}

fn widest(dtype: DType) -> DType {
    if dtype.is_float() { DType::F64 } else { DType::I64 }
}

/// The sum in row-major order. Each step rounds to `acc` (integers: modulo 2ⁿ), the result to
/// `out`. The sum of no elements, or of only -0, is +0.
///
/// # Errors
/// For an axis out of range or repeated, or where some of the dtypes are floats and some are not.
pub fn sum(
    x: &Array,
    axes: &[usize],
    keepdim: bool,
    acc: DType,
    out: DType,
) -> Result<Array, String> {
    accumulate(x, axes, keepdim, (acc, out), Prim::Add)
}

/// The product in the same order, accumulated in f64 (integers: modulo 2⁶⁴); of no elements 1.
///
/// # Errors
/// As [`sum`].
pub fn prod(x: &Array, axes: &[usize], keepdim: bool, out: DType) -> Result<Array, String> {
    accumulate(x, axes, keepdim, (widest(out), out), Prim::Mul)
}

fn accumulate(
    x: &Array,
    axes: &[usize],
    keepdim: bool,
    (acc, out): (DType, DType),
    prim: Prim,
) -> Result<Array, String> {
    if x.dtype.is_float() != out.is_float() || acc.is_float() != out.is_float() {
        return Err(format!("{} does not accumulate in {acc} into {out}", x.dtype));
    }
    if axes.is_empty() && x.dtype == out {
        // Returns `x` unchanged: adding +0 to -0 would lose the sign.
        return Ok(x.clone());
    }
    let first = match prim {
        // Without axes the result equals the operand: starting at +0 would turn -0 into +0.
        Prim::Add if axes.is_empty() => -0.0,
        Prim::Add => 0.0,
        _ => 1.0,
    };
    let first = Scalar::number(acc, first);
    reduce(x, axes, keepdim, out, |offsets| {
        let total = offsets
            .fold(first, |total, i| apply(prim, acc, &[total, x.get(i).cast(x.dtype, acc)], None));
        total.cast(acc, out)
    })
}

/// The largest element; NaN if there is a NaN; of no elements -inf, or the dtype's smallest
/// integer.
///
/// # Errors
/// For an axis out of range or repeated.
pub fn max(x: &Array, axes: &[usize], keepdim: bool) -> Result<Array, String> {
    let least = match x.dtype {
        DType::Bool => Scalar::bool(false),
        d => Scalar::number(d, f64::NEG_INFINITY),
    };
    fold(x, axes, keepdim, Prim::Max, least)
}

/// The smallest element; NaN if there is a NaN; of no elements inf, or the dtype's largest integer.
///
/// # Errors
/// For an axis out of range or repeated.
pub fn min(x: &Array, axes: &[usize], keepdim: bool) -> Result<Array, String> {
    let identity = match x.dtype {
        DType::Bool => Scalar::bool(true),
        d => Scalar::number(d, f64::INFINITY),
    };
    fold(x, axes, keepdim, Prim::Min, identity)
}

/// Whether any element is not 0 (NaN counts as not 0); of no elements false.
///
/// # Errors
/// For an axis out of range or repeated.
pub fn any(x: &Array, axes: &[usize], keepdim: bool) -> Result<Array, String> {
    let truth = |mut offsets: Walk| Scalar::bool(offsets.any(|i| x.get(i).truth()));
    reduce(x, axes, keepdim, DType::Bool, truth)
}

/// Whether all elements are not 0; of no elements true.
///
/// # Errors
/// For an axis out of range or repeated.
pub fn all(x: &Array, axes: &[usize], keepdim: bool) -> Result<Array, String> {
    let truth = |mut offsets: Walk| Scalar::bool(offsets.all(|i| x.get(i).truth()));
    reduce(x, axes, keepdim, DType::Bool, truth)
}

fn fold(
    x: &Array,
    axes: &[usize],
    keepdim: bool,
    prim: Prim,
    of_none: Scalar,
) -> Result<Array, String> {
    reduce(x, axes, keepdim, x.dtype, |offsets| {
        offsets.fold(of_none, |a, i| apply(prim, x.dtype, &[a, x.get(i)], None))
    })
}

/// The index along `axis` of the largest element, as i64; without an axis, its row-major index
/// (`keepdim` then keeps every dim). Of equal elements the first one, of NaNs the first NaN; of no
/// elements 0.
///
/// # Errors
/// For an axis out of range.
pub fn argmax(x: &Array, axis: Option<usize>, keepdim: bool) -> Result<Array, String> {
    arg(x, axis, keepdim, Prim::Gt)
}

/// The index of the smallest element, as [`argmax`] in all else.
///
/// # Errors
/// For an axis out of range.
pub fn argmin(x: &Array, axis: Option<usize>, keepdim: bool) -> Result<Array, String> {
    arg(x, axis, keepdim, Prim::Lt)
}

fn arg(x: &Array, axis: Option<usize>, keepdim: bool, is_better: Prim) -> Result<Array, String> {
    let axes = axis.map_or_else(|| (0..x.shape.len()).collect(), |a| vec![a]);
    let is_nan = |v: Scalar| matches!(v, Scalar::F(f) if f.is_nan());
    reduce(x, &axes, keepdim, DType::I64, |offsets| {
        let mut best: Option<(usize, Scalar)> = None;
        for (n, i) in offsets.enumerate() {
            let v = x.get(i);
            let wins = best.is_none_or(|(_, b)| {
                !is_nan(b) && (is_nan(v) || apply(is_better, x.dtype, &[v, b], None).truth())
            });
            if wins {
                best = Some((n, v));
            }
        }
        Scalar::I(best.map_or(0, |(n, _)| n as i64))
    })
}

/// The transpose of broadcasting, and so the gradient of a broadcast operand: sums `x` to `shape`,
/// over the leading dims that `shape` lacks and those where it has 1.
///
/// # Errors
/// When `shape` does not broadcast to that of `x`.
pub fn sum_to(x: &Array, shape: &[usize]) -> Result<Array, String> {
    let bad = || format!("{shape:?} does not broadcast to {:?}", x.shape);
    let lead = x.shape.len().checked_sub(shape.len()).ok_or_else(bad)?;
    let fits = |(&from, &to): (&usize, &usize)| from == to || to == 1;
    if !x.shape[lead..].iter().zip(shape).all(fits) {
        return Err(bad());
    }
    let lost = |&d: &usize| d < lead || (shape[d - lead] == 1 && x.shape[d] != 1);
    let axes: Vec<usize> = (0..x.shape.len()).filter(lost).collect();
    let mut out = sum(x, &axes, true, accumulator(x.dtype), x.dtype)?;
    out.shape = shape.to_vec();
    Ok(out)
}

/// Computes one `result` per element of the kept dims, from the offsets of the elements to reduce.
fn reduce(
    x: &Array,
    axes: &[usize],
    keepdim: bool,
    out: DType,
    result: impl Fn(Walk) -> Scalar,
) -> Result<Array, String> {
    let rank = x.shape.len();
    check_axes(axes, rank)?;
    // In the order of the dims, not that of `axes`: the order decides ties and rounding.
    let kept = others(axes, rank);
    let folded = others(&kept, rank);
    let steps = strides(&x.shape);
    let (sizes, inner) = (at(&x.shape, &folded), at(&steps, &folded));
    let outer = Walk::new(&at(&x.shape, &kept), &at(&steps, &kept), 0);
    let elements = outer.map(|start| result(Walk::new(&sizes, &inner, start as isize)));
    let size = |d: usize| if folded.contains(&d) { 1 } else { x.shape[d] };
    let shape = if keepdim { (0..rank).map(size).collect() } else { at(&x.shape, &kept) };
    Ok(Array::collect(out, shape, elements))
}
