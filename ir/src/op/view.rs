//! Views: operations whose result consists of elements of their operand at other indices.

use std::ops::Range;

use smallvec::SmallVec;

use super::Op;
use super::infer::{as_ints, find_attr};
use crate::attr::Attr;
use crate::dim::Dim;
use crate::shape::Shape;

/// The index map of a view: the map of an op's table entry, given one operation.
pub type ViewMap = fn(&View) -> IndexMap;

/// A view operation, as its index map sees it. Axes are counted in `from` and `to`: without those
/// that a leading variable stands for.
#[derive(Clone, Copy)]
pub struct View<'a> {
    op: Op,
    attrs: &'a [Attr],
    /// The dims of the operand.
    pub from: &'a [Dim],
    /// The dims of the result.
    pub to: &'a [Dim],
}

/// Maps an index of a view's result to the index in the operand that it reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexMap {
    /// One map for each axis of the operand.
    Affine(Vec<AxisMap>),
    /// Pairs of ranges of axes, of the result and of the operand. Both ranges of a pair have the
    /// same number of elements, in the same row-major order.
    Reshape(Vec<(Range<usize>, Range<usize>)>),
}

/// The index along one axis of the operand: `offset + Σ coefficient · index[axis]`, where `index`
/// is the index in the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisMap {
    pub offset: Dim,
    /// Axes of the result, with their coefficients.
    pub terms: SmallVec<[(usize, i64); 2]>,
}

impl AxisMap {
    /// Always index 0.
    pub fn first() -> AxisMap {
        AxisMap { offset: Dim::Const(0), terms: SmallVec::new() }
    }

    /// The index along one axis of the result.
    pub fn axis(axis: usize) -> AxisMap {
        AxisMap::strided(Dim::Const(0), axis, 1)
    }

    /// `offset + step · index[axis]`.
    pub fn strided(offset: Dim, axis: usize, step: i64) -> AxisMap {
        AxisMap { offset, terms: [(axis, step)].into_iter().collect() }
    }

    /// The axis of the result whose index it is.
    pub fn same_axis(&self) -> Option<usize> {
        match (&self.terms[..], self.offset.as_const()) {
            (&[(axis, 1)], Some(0)) => Some(axis),
            _ => None,
        }
    }

    /// Whether it is always index 0.
    pub fn is_first(&self) -> bool {
        self.terms.is_empty() && self.offset.as_const() == Some(0)
    }
}

impl IndexMap {
    /// The same index in the operand as in the result, both of this rank.
    pub fn identity(rank: usize) -> IndexMap {
        IndexMap::Affine((0..rank).map(AxisMap::axis).collect())
    }

    /// The axes of the operand, if the map is affine.
    pub fn axes(&self) -> Option<&[AxisMap]> {
        match self {
            IndexMap::Affine(axes) => Some(axes),
            IndexMap::Reshape(_) => None,
        }
    }

    /// Whether the operand is read backwards along an axis.
    pub fn reverses(&self) -> bool {
        self.some_axis(|map| map.terms.iter().any(|&(_, coefficient)| coefficient < 0))
    }

    /// Whether several axes of the result move along one axis of the operand, so that an element
    /// is read at several positions, as in overlapping windows.
    pub fn overlaps(&self) -> bool {
        self.some_axis(|map| map.terms.len() > 1)
    }

    fn some_axis(&self, is: impl Fn(&AxisMap) -> bool) -> bool {
        self.axes().is_some_and(|axes| axes.iter().any(is))
    }

    /// For each axis of the operand, the axis of the result with the same index, if the view only
    /// permutes axes.
    pub fn permutation(&self) -> Option<Vec<usize>> {
        let axes: Vec<usize> =
            self.axes()?.iter().map(AxisMap::same_axis).collect::<Option<_>>()?;
        let distinct = (0..axes.len()).all(|axis| axes.contains(&axis));
        distinct.then_some(axes)
    }
}

impl<'a> View<'a> {
    /// An operation with these attributes, between these shapes.
    pub fn new(op: Op, attrs: &'a [Attr], from: &'a Shape, to: &'a Shape) -> View<'a> {
        View { op, attrs, from: &from.dims, to: &to.dims }
    }

    pub(super) fn ints(&self, name: &str) -> Option<&'a [i64]> {
        as_ints(find_attr(self.op, self.attrs, name))
    }

    /// The axes that an attribute lists, counted from the front of `dims`; `None` if it is omitted.
    pub(super) fn axes(&self, name: &str, dims: &[Dim]) -> Option<Vec<usize>> {
        let axes = self.ints(name)?.iter().map(|axis| axis_from_front(*axis, dims.len()));
        Some(axes.collect())
    }

    /// The operand's dims are those of the result.
    pub(super) fn identity(&self) -> IndexMap {
        IndexMap::identity(self.from.len())
    }

    /// See [`slice_starts`].
    pub(super) fn slice_starts(&self) -> Vec<(usize, Dim, i64)> {
        slice_starts(self.op, self.attrs, self.from)
    }
}

/// Start and limit of a slice, clamped to `0..=dim`. Negative numbers count from the end, and a `?`
/// as limit is the end; symbolic bounds count from the front.
pub fn slice_bounds(start: &Dim, limit: &Dim, dim: &Dim) -> (Dim, Dim) {
    let from_start = |bound: &Dim| match bound.as_const() {
        Some(b) if b < 0 => dim - &(-bound).min(dim),
        _ => bound.max(&Dim::Const(0)).min(dim),
    };
    (from_start(start), if limit.is_unknown() { dim.clone() } else { from_start(limit) })
}

/// The sliced axes of an operand with these dims, each with its first index and its step.
pub fn slice_starts(op: Op, attrs: &[Attr], dims: &[Dim]) -> Vec<(usize, Dim, i64)> {
    let attr = |name: &str| find_attr(op, attrs, name);
    let (Attr::Shape(starts), steps) = (attr("starts"), as_ints(attr("steps"))) else {
        return Vec::new();
    };
    let axes = match as_ints(attr("axes")) {
        Some(axes) => axes.iter().map(|axis| axis_from_front(*axis, dims.len())).collect(),
        None => (0..dims.len()).collect::<Vec<usize>>(),
    };
    let start = |(i, axis): (usize, usize)| {
        let start = match &starts.dims[i] {
            Dim::Unknown => dims[axis].clone(),
            start => slice_bounds(start, &Dim::Unknown, &dims[axis]).0,
        };
        (axis, start, steps.and_then(|steps| steps.get(i).copied()).unwrap_or(1))
    };
    axes.into_iter().enumerate().map(start).collect()
}

/// The axis, counted from the front.
pub(super) fn axis_from_front(axis: i64, rank: usize) -> usize {
    axis.rem_euclid(rank.max(1) as i64) as usize
}

/// Pairs of the shortest ranges of dims in both shapes that have equal products, in order.
pub(super) fn runs(a: &[Dim], b: &[Dim]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let (start_a, start_b) = (i, j);
        let (mut x, mut y) = (Dim::Const(1), Dim::Const(1));
        loop {
            // The side with the smaller product takes the next dim. If it is undecided which one is
            // smaller, all remaining dims are one range.
            match (x == y && (i > start_a || j > start_b), i < a.len(), j < b.len()) {
                (true, ..) => break,
                (_, false, false) => break,
                (_, true, false) => {
                    x = &x * &a[i];
                    i += 1;
                }
                (_, false, true) => {
                    y = &y * &b[j];
                    j += 1;
                }
                (_, true, true) if takes_next_dim(&x, &y) => {
                    x = &x * &a[i];
                    i += 1;
                }
                _ => {
                    y = &y * &b[j];
                    j += 1;
                }
            }
        }
        out.push((start_a..i, start_b..j));
    }
    out
}

/// Whether `x` must take the next dim: it divides `y`, or equals it.
fn takes_next_dim(x: &Dim, y: &Dim) -> bool {
    match (x.as_const(), y.as_const()) {
        (Some(x), Some(y)) => x <= y,
        _ => y.exact_div(x).is_some(),
    }
}
