//! Reading and adding at computed places.
//!
//! Every index counts: a negative one is from the end, once, and what is then out of range is
//! clamped to the nearest element. Reading and scattering share that rule, so that each scatter is
//! the transpose of its read. Slices alone do not count from the end: their start is clamped so
//! that the slice fits.

use super::array::{Array, Walk, strides};
use super::check_axes;
use crate::dtype::DType;
use crate::scalar::{Prim, Scalar, apply, round};

/// The element that index `i` of an axis of size `n` means; none where the axis is empty.
fn resolve(indices: &Array, i: usize, n: usize) -> Option<usize> {
    let index = round::wide(indices.dtype, indices.get(i).int());
    let n = n as i128;
    let index = if index < 0 { index + n } else { index };
    (n > 0).then(|| index.clamp(0, n - 1) as usize)
}

/// The block of `sizes` at `starts`, each moved so that the block lies within `x`.
///
/// # Errors
/// For lists of another length than the rank, and sizes greater than those of `x`.
pub fn dynamic_slice(x: &Array, starts: &[i64], sizes: &[usize]) -> Result<Array, String> {
    Ok(x.view(sizes.to_vec(), &strides(&x.shape), block(x, starts, sizes)?))
}

/// `x` with the block at `starts`, moved likewise, replaced by `update`.
///
/// # Errors
/// As [`dynamic_slice`], and for another dtype.
pub fn dynamic_update_slice(x: &Array, update: &Array, starts: &[i64]) -> Result<Array, String> {
    let first = block(x, starts, &update.shape)?;
    same_dtype(x, update)?;
    let mut out: Vec<Scalar> = x.elements().collect();
    for (i, place) in Walk::new(&update.shape, &strides(&x.shape), first).enumerate() {
        out[place] = update.get(i);
    }
    Ok(Array::collect(x.dtype, x.shape.clone(), out.into_iter()))
}

/// The place of the first element of a block.
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

/// The elements of `x` at `indices` along `axis`; that dim is replaced by the shape of `indices`.
/// Where `x` is empty along the axis the elements are 0.
///
/// # Errors
/// For a bad axis, or indices that are not integers.
pub fn take(x: &Array, indices: &Array, axis: usize) -> Result<Array, String> {
    let places = take_places(x, indices, axis)?;
    let shape = [&x.shape[..axis], &indices.shape, &x.shape[axis + 1..]].concat();
    Ok(gather(x, shape, &places))
}

/// `x` with each element of `updates`, which has the shape that [`take`] would give, added where
/// take would read it. Sums are accumulated in f64 and rounded once.
///
/// # Errors
/// As [`take`], and for another shape or dtype of `updates`.
pub fn scatter_add(
    x: &Array,
    indices: &Array,
    updates: &Array,
    axis: usize,
) -> Result<Array, String> {
    let places = take_places(x, indices, axis)?;
    add_at(x, updates, &places)
}

/// For each index the element of `x` there along `axis`, the other indices being the same;
/// `indices` has the shape of `x` but for that axis, and gives the result's shape.
///
/// # Errors
/// For a bad axis, other shapes, or indices that are not integers.
pub fn take_along_axis(x: &Array, indices: &Array, axis: usize) -> Result<Array, String> {
    let places = along_places(x, indices, axis)?;
    Ok(gather(x, indices.shape.clone(), &places))
}

/// `x` with each element of `updates`, which has the shape of `indices`, added where
/// [`take_along_axis`] would read it. Sums are accumulated in f64 and rounded once.
///
/// # Errors
/// As [`take_along_axis`], and for another shape or dtype of `updates`.
pub fn scatter_add_along(
    x: &Array,
    indices: &Array,
    updates: &Array,
    axis: usize,
) -> Result<Array, String> {
    let places = along_places(x, indices, axis)?;
    add_at(x, updates, &places)
}

/// The place in `x` of every element of a take's result.
fn take_places(x: &Array, indices: &Array, axis: usize) -> Result<Vec<Option<usize>>, String> {
    check_indices(x, indices, axis)?;
    let n = x.shape[axis];
    let outer: usize = x.shape[..axis].iter().product();
    let inner: usize = x.shape[axis + 1..].iter().product();
    let mut places = Vec::with_capacity(outer * indices.len() * inner);
    for row in 0..outer {
        for i in 0..indices.len() {
            let base = resolve(indices, i, n).map(|k| (row * n + k) * inner);
            places.extend((0..inner).map(|column| base.map(|b| b + column)));
        }
    }
    Ok(places)
}

/// The place in `x` of every element of a take-along-axis' result.
fn along_places(x: &Array, indices: &Array, axis: usize) -> Result<Vec<Option<usize>>, String> {
    check_indices(x, indices, axis)?;
    let (rank, n) = (x.shape.len(), x.shape[axis]);
    let fits = |d: usize| d == axis || x.shape[d] == indices.shape[d];
    if indices.shape.len() != rank || !(0..rank).all(fits) {
        let got = &indices.shape;
        return Err(format!("indices of {got:?} do not go along axis {axis} of {:?}", x.shape));
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
        false => Err(format!("indices have to be integers, got {}", indices.dtype)),
    }
}

fn same_dtype(x: &Array, updates: &Array) -> Result<(), String> {
    match x.dtype == updates.dtype {
        true => Ok(()),
        false => Err(format!("{} does not go into {}", updates.dtype, x.dtype)),
    }
}

fn gather(x: &Array, shape: Vec<usize>, places: &[Option<usize>]) -> Array {
    let zero = Scalar::number(x.dtype, 0.0);
    let elements = places.iter().map(|place| place.map_or(zero, |i| x.get(i)));
    Array::collect(x.dtype, shape, elements)
}

fn add_at(x: &Array, updates: &Array, places: &[Option<usize>]) -> Result<Array, String> {
    same_dtype(x, updates)?;
    if updates.len() != places.len() {
        let got = &updates.shape;
        return Err(format!("updates of {got:?} are not one for each index into {:?}", x.shape));
    }
    let wide = if x.dtype.is_float() { DType::F64 } else { DType::I64 };
    let mut sums: Vec<Scalar> = x.elements().collect();
    for (i, place) in places.iter().enumerate() {
        if let Some(place) = *place {
            let both = [sums[place], updates.get(i)];
            sums[place] = apply(Prim::Add, wide, &both, None);
        }
    }
    let rounded = sums.into_iter().map(|v| v.cast(wide, x.dtype));
    Ok(Array::collect(x.dtype, x.shape.clone(), rounded))
}
