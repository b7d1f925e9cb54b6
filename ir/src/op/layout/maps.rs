//! Index maps of layout operations.

use super::super::view::{AxisMap, IndexMap, View, axis_from_front, runs};
use crate::dim::Dim;

/// A dim of 1 is read at index 0, the others at the index along their axis of the result.
pub(super) fn broadcast(view: &View) -> IndexMap {
    let last = view.to.len() - view.from.len()..view.to.len();
    let axes = view.axes("axes", view.to).unwrap_or_else(|| last.collect());
    let map = |(dim, axis): (&Dim, usize)| match dim.as_const() {
        Some(1) => AxisMap::first(),
        _ => AxisMap::axis(axis),
    };
    IndexMap::Affine(view.from.iter().zip(axes).map(map).collect())
}

pub(super) fn reshape(view: &View) -> IndexMap {
    IndexMap::Reshape(runs(view.to, view.from))
}

pub(super) fn transpose(view: &View) -> IndexMap {
    let mut axes = vec![AxisMap::first(); view.from.len()];
    for (to, axis) in view.ints("permutation").unwrap_or(&[]).iter().enumerate() {
        axes[axis_from_front(*axis, view.from.len())] = AxisMap::axis(to);
    }
    IndexMap::Affine(axes)
}

pub(super) fn slice(view: &View) -> IndexMap {
    let mut axes: Vec<AxisMap> = (0..view.from.len()).map(AxisMap::axis).collect();
    for (axis, start, step) in view.slice_starts() {
        axes[axis] = AxisMap::strided(start, axis, step);
    }
    IndexMap::Affine(axes)
}

pub(super) fn reverse(view: &View) -> IndexMap {
    let mut axes: Vec<AxisMap> = (0..view.from.len()).map(AxisMap::axis).collect();
    for axis in view.axes("axes", view.from).unwrap_or_default() {
        axes[axis] = AxisMap::strided(&view.from[axis] - &Dim::Const(1), axis, -1);
    }
    IndexMap::Affine(axes)
}
