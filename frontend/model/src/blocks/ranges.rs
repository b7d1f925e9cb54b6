//! Axes that are divided into ranges, each of which is pooled to one element.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::windows::after_channels;
use super::{Value, windows};
use crate::lower::Cx;
use crate::setting::Setting;

/// Pools one axis of a value to this number of ranges.
pub(super) type Pool = for<'a> fn(&Cx<'a>, Var<'a>, axis: usize, size: &Dim) -> Result<Var<'a>>;

pub(super) fn adaptive(cx: &Cx, pool: Pool) -> Result<Vec<Value>> {
    let mut x = cx.var("input");
    for (axis, size) in adaptive_axes(cx)? {
        if let Some(size) = size {
            x = pool(cx, x, axis, &size)?;
        }
    }
    done(x)
}

/// The pooled axes, each with its size in the output; `None` leaves an axis as it is. Errors, at
/// compile time or at run time: an axis is empty.
fn adaptive_axes(cx: &Cx) -> Result<Vec<(usize, Option<Dim>)>> {
    let given = cx.settings.get("output_size");
    let sizes: Vec<Option<i64>> = match given.as_list() {
        None => vec![given.as_int(); after_channels(cx)?],
        Some(items) => {
            windows::listed(cx, "output_size", items.len())?;
            items.iter().map(Setting::as_int).collect()
        }
    };
    let axes = sizes.len();
    let shape = cx.var("input").shape();
    shape.need_trailing(axes)?;
    let rank = shape.need_rank()?;
    for (axis, _) in (rank - axes..rank).zip(&sizes).filter(|(_, size)| size.is_some()) {
        cx.need(&shape.dims[axis], 1, || {
            Diagnostic::of(ErrorKind::Shapes, format!("axis {axis} of `input` is empty"))
                .got(&shape)
                .expected("at least one element along each pooled axis")
        })?;
    }
    Ok((rank - axes..rank).zip(sizes.into_iter().map(|size| size.map(Dim::Const))).collect())
}

/// The positions of the maxima of ranges in the flattened axes. The last axis is pooled first, so
/// that of equal maxima the first one counts.
pub(super) fn adaptive_places<'a>(cx: &Cx<'a>) -> Result<Var<'a>> {
    let mut x = cx.var("input");
    let shape = x.shape();
    let axes = adaptive_axes(cx)?;
    let count: Dim = axes.iter().map(|(axis, _)| shape.dims[*axis].clone()).product();
    let first = axes[0].0;
    let flat = cx.iota(Shape::new([count]), 0, DType::I64);
    let mut place = flat.reshape(Shape::new(shape.dims[first..].to_vec())).broadcast_to(shape);
    for (axis, size) in axes.into_iter().rev() {
        let Some(size) = size else { continue };
        let (values, index) = elements_of_ranges(cx, x, axis, &size)?;
        let along = [("axis", (axis as i64 + 1).into())];
        let tap = values.unary("argmax", &along).expand_dims(&[axis as i64 + 1]);
        let pick = |from: Var<'a>| {
            cx.op("take_along", &[from, tap], &along).reduce("max", Some(&[axis as i64 + 1]), false)
        };
        let places = cx.op("take", &[place, index], &[("axis", (axis as i64).into())]);
        (x, place) = (pick(values), pick(places));
    }
    Ok(place.cast(cx.index))
}

/// The first index of each range of an axis, and the index after its last, as columns.
fn ranges<'a>(cx: &Cx<'a>, x: Var<'a>, axis: usize, size: &Dim) -> [Var<'a>; 2] {
    let index = cx.iota(Shape::new([size.clone(), Dim::Const(1)]), 0, DType::I64);
    let (count, by) = (x.dim(axis as i64), index.dim(0));
    let first = (index * count).binary("floor_div", by);
    let end = ((index + 1.0) * count + (by - 1.0)).binary("floor_div", by);
    [first, end]
}

/// The means of the ranges of an axis.
pub(super) fn means_of_ranges<'a>(
    cx: &Cx<'a>,
    x: Var<'a>,
    axis: usize,
    size: &Dim,
) -> Result<Var<'a>> {
    let dim = x.shape().dims[axis].clone();
    if let (Some(count), Some(number)) = (dim.as_const(), size.as_const())
        && count % number == 0
    {
        let mut shape = x.shape();
        shape.dims[axis] = size.clone();
        shape.dims.insert(axis + 1, Dim::Const(count / number));
        return Ok(x.reshape(shape).reduce("mean", Some(&[axis as i64 + 1]), false));
    }
    let [first, end] = ranges(cx, x, axis, size);
    let index = cx.iota(Shape::new([Dim::Const(1), dim]), 1, DType::I64);
    let inside = index.binary("ge", first).binary("and", index.binary("lt", end));
    let wide = x.dtype().widened();
    let weights = inside.cast(wide) / (end - first).cast(wide);
    Ok(weighted(cx, weights, x.cast(wide), axis).cast(x.dtype()))
}

/// Sums along an axis with the weights in each row of a matrix.
pub(super) fn weighted<'a>(cx: &Cx<'a>, rows: Var<'a>, x: Var<'a>, axis: usize) -> Var<'a> {
    let attrs = [("x_contract", Attr::ints([1])), ("y_contract", Attr::ints([axis as i64]))];
    cx.op("dot_general", &[rows, x], &attrs).transpose(&from_front(axis, x.rank()))
}

/// The permutation that moves the first axis to `axis`.
fn from_front(axis: usize, rank: usize) -> Vec<i64> {
    let (axis, rank) = (axis as i64, rank as i64);
    (1..=axis).chain([0]).chain(axis + 1..rank).collect()
}

/// The maxima over the elements of each range.
pub(super) fn maxima_of_ranges<'a>(
    cx: &Cx<'a>,
    x: Var<'a>,
    axis: usize,
    size: &Dim,
) -> Result<Var<'a>> {
    let (values, _) = elements_of_ranges(cx, x, axis, size)?;
    Ok(values.reduce("max", Some(&[axis as i64 + 1]), false))
}

/// The elements of each range, with -inf after the last of short ones, and their indices.
fn elements_of_ranges<'a>(
    cx: &Cx<'a>,
    x: Var<'a>,
    axis: usize,
    size: &Dim,
) -> Result<(Var<'a>, Var<'a>)> {
    let dim = x.shape().dims[axis].clone();
    let longest = match (dim.as_const(), size.as_const()) {
        (Some(count), Some(number)) if count % number == 0 => Dim::Const(count / number),
        _ => (&dim + &(&(size * &Dim::Const(2)) + -2)).floor_div(size),
    };
    let [first, end] = ranges(cx, x, axis, size);
    let tap = cx.iota(Shape::new([Dim::Const(1), longest]), 1, DType::I64);
    let index = first + tap;
    let later: Vec<i64> = (2..(x.rank() - axis + 1) as i64).collect();
    let inside = index.binary("lt", end);
    let inside = if later.is_empty() { inside } else { inside.expand_dims(&later) };
    let index = index.binary("minimum", end - 1.0);
    let taken = cx.op("take", &[x, index], &[("axis", (axis as i64).into())]);
    Ok((inside.select(taken, x.scalar(f64::NEG_INFINITY)), index))
}
