//! Reads and scatters at computed indices.
//!
//! Every index is valid: a negative one counts from the end (once), and one still out of range is
//! clamped to the nearest element. Reads and scatters share that rule, so that each scatter is the
//! transpose of its read. Only slices do not count from the end: their start is clamped so that the
//! slice fits.

use super::array::{Array, Walk, strides};
use super::check_axes;
use crate::dtype::DType;
use crate::scalar::{Prim, Scalar, apply, round};

/// The element that index `i` refers to on an axis of size `n`; `None` where the axis is empty.
fn resolve(indices: &Array, i: usize, n: usize) -> Option<usize> {
    let index = round::wide(indices.dtype, indices.get(i).int());
    let n = n as i128;
    let index = if index < 0 { index + n } else { index };
    (n > 0).then(|| index.clamp(0, n - 1) as usize)
}

/// The block of `sizes` at `starts`, which are clamped so that the block lies within `x`.
///
/// # Errors
/// If the lists are not as long as the rank, or sizes exceed those of `x`.
pub fn dynamic_slice(x: &Array, starts: &[i64], sizes: &[usize]) -> Result<Array, String> {
    Ok(x.view(sizes.to_vec(), &strides(&x.shape), block(x, starts, sizes)?))
}

/// `x` with the block at `starts`, clamped in the same way, replaced by `update`.
///
/// # Errors
/// As [`dynamic_slice`], and if the dtypes differ.
pub fn dynamic_update_slice(x: &Array, update: &Array, starts: &[i64]) -> Result<Array, String> {
    let first = block(x, starts, &update.shape)?;
    same_dtype(x, update)?;
    let mut out: Vec<Scalar> = x.elements().collect();
    for (i, offset) in Walk::new(&update.shape, &strides(&x.shape), first).enumerate() {
        out[offset] = update.get(i);
    }
    Ok(Array::collect(x.dtype, x.shape.clone(), out.into_iter()))
}

/// The offset of the first element of a block.
fn block(x: &Array, starts: &[i64], sizes: &[usize]) -> Result<isize, String> {
    let rank = x.shape.len();
    if starts.len() != rank || sizes.len() != rank {
        return Err(format!("a block of rank {rank} takes {rank} starts and sizes"));
    }
    let mut first = 0;
    for (d, step) in strides(&x.shape).into_iter().enumerate() {
        let Some(room) = x.shape[d].checked_sub(sizes[d]) else {
            return Err(format!("a block of {sizes:?} does not fit into {:?}", x.shape));
        };
        first += step * starts[d].clamp(0, room as i64) as isize;
    }
    Ok(first)
}

/// The elements of `x` at `indices` along `axis`; the shape of `indices` replaces that dim. Where
/// `x` is empty along the axis the elements are 0.
///
/// # Errors
/// For an axis out of range, or indices that are not integers.
pub fn take(x: &Array, indices: &Array, axis: usize) -> Result<Array, String> {
    let offsets = take_offsets(x, indices, axis)?;
    let shape = [&x.shape[..axis], &indices.shape, &x.shape[axis + 1..]].concat();
    Ok(gather(x, shape, &offsets))
}

/// Adds each element of `updates` to the element of `x` that [`take`] would read for it. `updates`
/// has the shape of take's result. Accumulates in f64 and rounds once.
///
/// # Errors
/// As [`take`], and if `updates` has the wrong shape or dtype.
pub fn scatter_add(
    x: &Array,
    indices: &Array,
    updates: &Array,
    axis: usize,
) -> Result<Array, String> {
    let offsets = take_offsets(x, indices, axis)?;
    combine_at(Prim::Add, x, updates, &offsets)
}

/// For each index, the element of `x` at that index along `axis` and at the same indices along the
/// other axes. `indices` has the shape of `x` except along `axis`, and gives the result's shape.
///
/// # Errors
/// For an axis out of range, shapes that differ, or indices that are not integers.
pub fn take_along_axis(x: &Array, indices: &Array, axis: usize) -> Result<Array, String> {
    let offsets = along_offsets(x, indices, axis)?;
    Ok(gather(x, indices.shape.clone(), &offsets))
}

/// Combines each element of `updates` with the element of `x` that [`take_along_axis`] would read
/// for it, by addition, multiplication, maximum or minimum. `updates` has the shape of `indices`.
/// Accumulates in f64 and rounds once.
///
/// # Errors
/// As [`take_along_axis`], and if `updates` has the wrong shape or dtype.
pub fn scatter_along(
    prim: Prim,
    x: &Array,
    indices: &Array,
    updates: &Array,
    axis: usize,
) -> Result<Array, String> {
    let offsets = along_offsets(x, indices, axis)?;
    combine_at(prim, x, updates, &offsets)
}

/// The offset in `x` of every element of the result of [`take`].
fn take_offsets(x: &Array, indices: &Array, axis: usize) -> Result<Vec<Option<usize>>, String> {
    check_indices(x, indices, axis)?;
    let n = x.shape[axis];
    let outer: usize = x.shape[..axis].iter().product();
    let inner: usize = x.shape[axis + 1..].iter().product();
    let mut offsets = Vec::with_capacity(outer * indices.len() * inner);
    for row in 0..outer {
        for i in 0..indices.len() {
            let base = resolve(indices, i, n).map(|k| (row * n + k) * inner);
            offsets.extend((0..inner).map(|column| base.map(|b| b + column)));
        }
    }
    Ok(offsets)
}

/// The offset in `x` of every element of the result of [`take_along_axis`].
fn along_offsets(x: &Array, indices: &Array, axis: usize) -> Result<Vec<Option<usize>>, String> {
    check_indices(x, indices, axis)?;
    let (rank, n) = (x.shape.len(), x.shape[axis]);
    let fits = |d: usize| d == axis || x.shape[d] == indices.shape[d];
    if indices.shape.len() != rank || !(0..rank).all(fits) {
        let got = &indices.shape;
        return Err(format!("indices of {got:?} do not match {:?} along axis {axis}", x.shape));
    }
    let mut steps = strides(&x.shape);
    let step = std::mem::replace(&mut steps[axis], 0) as usize;
    let bases = Walk::new(&indices.shape, &steps, 0).enumerate();
    Ok(bases.map(|(i, base)| resolve(indices, i, n).map(|k| base + k * step)).collect())
}

fn check_indices(x: &Array, indices: &Array, axis: usize) -> Result<(), String> {
    check_axes(&[axis], x.shape.len())?;
    match indices.dtype.is_int() {
        true => Ok(()),
        false => Err(format!("indices must be integers, got {}", indices.dtype)),
    }
}

fn same_dtype(x: &Array, updates: &Array) -> Result<(), String> {
    match x.dtype == updates.dtype {
        true => Ok(()),
        false => Err(format!("{} cannot be added to {}", updates.dtype, x.dtype)),
    }
}

fn gather(x: &Array, shape: Vec<usize>, offsets: &[Option<usize>]) -> Array {
    let zero = Scalar::number(x.dtype, 0.0);
    let elements = offsets.iter().map(|offset| offset.map_or(zero, |i| x.get(i)));
    Array::collect(x.dtype, shape, elements)
}

fn combine_at(
    prim: Prim,
    x: &Array,
    updates: &Array,
    offsets: &[Option<usize>],
) -> Result<Array, String> {
    same_dtype(x, updates)?;
    if updates.len() != offsets.len() {
        let got = &updates.shape;
        return Err(format!("updates of {got:?} do not match the indices into {:?}", x.shape));
    }
    let wide = if x.dtype.is_float() { DType::F64 } else { DType::I64 };
    let mut sums: Vec<Scalar> = x.elements().collect();
    for (i, offset) in offsets.iter().enumerate() {
        if let Some(offset) = *offset {
            let both = [sums[offset], updates.get(i)];
            sums[offset] = apply(prim, wide, &both, None);
        }
    }
    let rounded = sums.into_iter().map(|v| v.cast(wide, x.dtype));
    Ok(Array::collect(x.dtype, x.shape.clone(), rounded))
}
