//! Sorting along an axis.

use super::array::Array;
use super::check_axes;
use super::cumulate::lines;
use crate::dtype::DType;
use crate::scalar::{Scalar, round};
use std::cmp::Ordering;

/// Sorts `x` along `axis`. The sort is stable (-0 and +0 are equal), also when descending. NaN
/// counts as the largest: last when ascending, first when descending.
///
/// # Errors
/// For an axis out of range.
pub fn sort(x: &Array, axis: usize, descending: bool) -> Result<Array, String> {
    let mut from: Vec<usize> = (0..x.len()).collect();
    for_each_sorted(x, axis, descending, |offset, source, _| from[offset] = source)?;
    Ok(Array { dtype: x.dtype, shape: x.shape.clone(), data: x.data.pick(from.into_iter()) })
}

/// The indices along `axis`, as i64, that sort `x` in the order of [`sort`].
///
/// # Errors
/// For an axis out of range.
pub fn argsort(x: &Array, axis: usize, descending: bool) -> Result<Array, String> {
    let mut out = vec![Scalar::I(0); x.len()];
    for_each_sorted(x, axis, descending, |offset, _, k| out[offset] = Scalar::I(k as i64))?;
    Ok(Array::collect(DType::I64, x.shape.clone(), out.into_iter()))
}

/// Calls `put` with each offset, the offset of the element that belongs there, and its index along
/// the axis.
fn for_each_sorted(
    x: &Array,
    axis: usize,
    descending: bool,
    mut put: impl FnMut(usize, usize, usize),
) -> Result<(), String> {
    check_axes(&[axis], x.shape.len())?;
    for line in lines(x, axis) {
        let mut order: Vec<usize> = (0..line.len).collect();
        order.sort_by(|&a, &b| {
            let ascending = compare(x.dtype, x.get(line.offset(a)), x.get(line.offset(b)));
            if descending { ascending.reverse() } else { ascending }
        });
        for (k, &source) in order.iter().enumerate() {
            put(line.offset(k), line.offset(source), source);
        }
    }
    Ok(())
}

fn compare(dtype: DType, a: Scalar, b: Scalar) -> Ordering {
    match (a, b) {
        (Scalar::F(a), Scalar::F(b)) => {
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        (a, b) => round::wide(dtype, a.int()).cmp(&round::wide(dtype, b.int())),
    }
}
