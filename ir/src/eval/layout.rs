//! Moves elements without reading their values.

use super::array::{Array, Walk, strides};
use super::{at, check_axes};
use crate::dtype::DType;
use crate::scalar::Scalar;

/// 0, 1, 2, … along `axis`, cast to `dtype` (integers wrap).
///
/// # Errors
/// For an axis out of range.
pub fn iota(shape: &[usize], axis: usize, dtype: DType) -> Result<Array, String> {
    check_axes(&[axis], shape.len())?;
    let mut steps = vec![0; shape.len()];
    steps[axis] = 1;
    let count = Walk::new(shape, &steps, 0);
    let elements = count.map(|i| Scalar::I(i as i64).cast(DType::I64, dtype));
    Ok(Array::collect(dtype, shape.to_vec(), elements))
}

/// The same elements in row-major order under another shape.
///
/// # Errors
/// When the number of elements differs.
pub fn reshape(x: &Array, shape: &[usize]) -> Result<Array, String> {
    let size = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if size != Some(x.len()) {
        return Err(format!("{:?} does not reshape to {shape:?}", x.shape));
    }
    Ok(Array { shape: shape.to_vec(), ..x.clone() })
}

/// Dim `i` of the result is dim `order[i]` of `x`.
///
/// # Errors
/// If `order` is not a permutation of the axes.
pub fn transpose(x: &Array, order: &[usize]) -> Result<Array, String> {
    check_axes(order, x.shape.len())?;
    if order.len() != x.shape.len() {
        return Err(format!("{order:?} does not order the dims of {:?}", x.shape));
    }
    Ok(x.view(at(&x.shape, order), &at(&strides(&x.shape), order), 0))
}

/// Dim `i` of `x` becomes dim `dims[i]` of the result, and is repeated where it is 1; `x` is
/// repeated along all other dims.
///
/// # Errors
/// For invalid axes, and for sizes that are neither equal nor 1.
pub fn broadcast_in_dim(x: &Array, shape: &[usize], dims: &[usize]) -> Result<Array, String> {
    check_axes(dims, shape.len())?;
    let fits = |(&from, &d): (&usize, &usize)| from == 1 || from == shape[d];
    if dims.len() != x.shape.len() || !x.shape.iter().zip(dims).all(fits) {
        return Err(format!("{:?} does not broadcast to {shape:?} along {dims:?}", x.shape));
    }
    let mut steps = vec![0; shape.len()];
    for (i, step) in strides(&x.shape).into_iter().enumerate() {
        steps[dims[i]] = if x.shape[i] == 1 { 0 } else { step };
    }
    Ok(x.view(shape.to_vec(), &steps, 0))
}

/// In each dim, the elements at `start`, `start + stride`, … before `limit`. A negative stride goes
/// down and stops before reaching `limit`, so a `limit` of -1 includes the first element.
///
/// # Errors
/// If the lists are not as long as the rank, a stride is 0, or bounds are outside of `x`.
pub fn slice(x: &Array, start: &[i64], limit: &[i64], stride: &[i64]) -> Result<Array, String> {
    let (shape, steps, first) = strided(x, start, limit, stride)?;
    Ok(x.view(shape, &steps, first))
}

/// `x` with `update` written to the elements that [`slice`] would read.
///
/// # Errors
/// As [`slice`], and if `update` differs from that slice in dtype or shape.
pub fn slice_update(
    x: &Array,
    update: &Array,
    start: &[i64],
    limit: &[i64],
    stride: &[i64],
) -> Result<Array, String> {
    let (shape, steps, first) = strided(x, start, limit, stride)?;
    if shape != update.shape || x.dtype != update.dtype {
        return Err(format!("an update of {:?} does not fit a slice of {shape:?}", update.shape));
    }
    let mut out: Vec<Scalar> = x.elements().collect();
    for (i, offset) in Walk::new(&shape, &steps, first).enumerate() {
        out[offset] = update.get(i);
    }
    Ok(Array::collect(x.dtype, x.shape.clone(), out.into_iter()))
}

/// `x` with the elements of each of `axes` in reverse order.
///
/// # Errors
/// For an axis out of range or repeated.
pub fn reverse(x: &Array, axes: &[usize]) -> Result<Array, String> {
    super::check_axes(axes, x.shape.len())?;
    let (mut steps, mut first) = (strides(&x.shape), 0);
    for &axis in axes {
        first += steps[axis] * (x.shape[axis].max(1) as isize - 1);
        steps[axis] = -steps[axis];
    }
    Ok(x.view(x.shape.clone(), &steps, first))
}

/// Shape, strides and offset of a slice.
type Strided = (Vec<usize>, Vec<isize>, isize);

fn strided(x: &Array, start: &[i64], limit: &[i64], stride: &[i64]) -> Result<Strided, String> {
    let rank = x.shape.len();
    if [start, limit, stride].iter().any(|list| list.len() != rank) {
        return Err(format!("a slice of rank {rank} takes {rank} starts, limits and strides"));
    }
    let own = strides(&x.shape);
    let (mut shape, mut steps, mut first) = (vec![], vec![], 0);
    for d in 0..rank {
        let (from, to, by, size) = (start[d], limit[d], stride[d], x.shape[d] as i64);
        if by == 0 {
            return Err(format!("the stride of dim {d} is 0"));
        }
        // Rounds up: a last, partial stride still takes an element.
        let span = if by > 0 { to.saturating_sub(from) } else { from.saturating_sub(to) };
        let count = if span <= 0 { 0 } else { (span - 1) / by.saturating_abs() + 1 };
        let inside = |i: i64| (0..size).contains(&i);
        if count > 0 && !(inside(from) && inside(from + (count - 1) * by)) {
            return Err(format!("{from}:{to}:{by} is outside of dim {d} of size {size}"));
        }
        shape.push(count as usize);
        // Without a second element the stride has no effect, and could be huge.
        steps.push(if count > 1 { own[d] * by as isize } else { 0 });
        first += if count > 0 { own[d] * from as isize } else { 0 };
    }
    Ok((shape, steps, first))
}

/// Concatenates the arrays along `axis`.
///
/// # Errors
/// If there are no arrays, the axis is out of range, dtypes differ, or shapes differ in another
/// dim.
pub fn concat(arrays: &[&Array], axis: usize) -> Result<Array, String> {
    let Some(first) = arrays.first() else {
        return Err("nothing to concatenate".into());
    };
    check_axes(&[axis], first.shape.len())?;
    let mut shape = first.shape.clone();
    shape[axis] = 0;
    for x in arrays {
        let mut rest = x.shape.clone();
        let size = rest.get(axis).copied().unwrap_or(0);
        if let Some(d) = rest.get_mut(axis) {
            *d = first.shape[axis];
        }
        if rest != first.shape || x.dtype != first.dtype {
            return Err(format!("{:?} and {:?} do not concatenate", first.shape, x.shape));
        }
        shape[axis] += size;
    }
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    let rows = (0..outer).flat_map(|row| arrays.iter().map(move |x| (row, x)));
    let elements = rows.flat_map(|(row, x)| {
        let len = x.shape[axis] * inner;
        (row * len..(row + 1) * len).map(|i| x.get(i))
    });
    Ok(Array::collect(first.dtype, shape, elements))
}

/// Adds elements at either end of each dim (a negative number removes some), and `interior` of them
/// between any two. The new ones are `value`, of rank 0.
///
/// # Errors
/// If the lists are not as long as the rank, `interior` is negative, `value` has the wrong dtype,
/// or more elements are cropped than there are.
pub fn pad(
    x: &Array,
    value: &Array,
    low: &[i64],
    high: &[i64],
    interior: &[i64],
) -> Result<Array, String> {
    let rank = x.shape.len();
    if [low, high, interior].iter().any(|list| list.len() != rank) {
        return Err(format!("padding of rank {rank} takes {rank} lows, highs and interiors"));
    }
    if value.dtype != x.dtype || value.len() != 1 || interior.iter().any(|&i| i < 0) {
        return Err("padding takes one value of the array's dtype, and no negative interior".into());
    }
    let size = |d: usize| {
        let n = x.shape[d] as i64;
        let size = low[d] + high[d] + n + (n - 1).max(0) * interior[d];
        usize::try_from(size).map_err(|_| format!("dim {d} of size {n} is cropped to {size}"))
    };
    let shape = (0..rank).map(size).collect::<Result<Vec<usize>, String>>()?;
    let source = |index: &[usize]| {
        let mut at = 0;
        for d in 0..rank {
            let (i, step) = (index[d] as i64 - low[d], interior[d] + 1);
            if i < 0 || i % step != 0 || i / step >= x.shape[d] as i64 {
                return None;
            }
            at = at * x.shape[d] + (i / step) as usize;
        }
        Some(at)
    };
    let steps = strides(&shape);
    let elements = Walk::new(&shape, &steps, 0).map(|offset| {
        let index = (0..rank).map(|d| offset / steps[d] as usize % shape[d]);
        source(&index.collect::<Vec<_>>()).map_or(value.get(0), |i| x.get(i))
    });
    Ok(Array::collect(x.dtype, shape.clone(), elements))
}
