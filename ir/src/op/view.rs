//! Views: operations whose result consists of elements of their operand at other indices.

use std::ops::Range;

use smallvec::SmallVec;

use super::Op;
use super::infer::{as_ints, find_attr};
use crate::attr::Attr;
use crate::dim::Dim;
use crate::shape::Shape;

/// A view. [`View::map`] gives the index that it reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    Identity,
    Broadcast,
    Reshape,
    Transpose,
    Slice,
    Reverse,
    /// The positions of windows, followed by axes for their taps.
    Windows,
    /// Axes whose index shifts with the index along other axes.
    Skew,
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
    fn first() -> AxisMap {
        AxisMap { offset: Dim::Const(0), terms: SmallVec::new() }
    }

    /// The index along one axis of the result.
    fn axis(axis: usize) -> AxisMap {
        AxisMap { offset: Dim::Const(0), terms: [(axis, 1)].into_iter().collect() }
    }
}

impl View {
    /// The index map of a view with these attributes. `from` is the shape of its operand, `to` the
    /// shape of its result. Both ranks must be known.
    pub fn map(self, op: Op, attrs: &[Attr], from: &Shape, to: &Shape) -> IndexMap {
        let (from, to) = (&from.dims[..], &to.dims[..]);
        let ints = |name: &str| as_ints(find_attr(op, attrs, name));
        let mut axes: Vec<AxisMap> = (0..from.len()).map(AxisMap::axis).collect();
        match self {
            View::Identity => {}
            View::Reshape => return IndexMap::Reshape(runs(to, from)),
            View::Broadcast => {
                let result_axes: Vec<usize> = match ints("axes") {
                    Some(axes) => {
                        axes.iter().map(|axis| axis_from_front(*axis, to.len())).collect()
                    }
                    None => (to.len() - from.len()..to.len()).collect(),
                };
                let map = |(dim, axis): (&Dim, usize)| match dim.as_const() {
                    Some(1) => AxisMap::first(),
                    _ => AxisMap::axis(axis),
                };
                axes = from.iter().zip(result_axes).map(map).collect();
            }
            View::Transpose => {
                let permutation = ints("permutation").unwrap_or(&[]);
                for (to, axis) in permutation.iter().enumerate() {
                    axes[axis_from_front(*axis, from.len())] = AxisMap::axis(to);
                }
            }
            View::Slice => {
                for (axis, start, step) in slice_starts(op, attrs, from) {
                    axes[axis] =
                        AxisMap { offset: start, terms: [(axis, step)].into_iter().collect() };
                }
            }
            View::Reverse => {
                let reversed = match ints("axes") {
                    Some(axes) => {
                        axes.iter().map(|axis| axis_from_front(*axis, from.len())).collect()
                    }
                    None => (0..from.len()).collect::<Vec<usize>>(),
                };
                for axis in reversed {
                    axes[axis].offset = &from[axis] - &Dim::Const(1);
                    axes[axis].terms = [(axis, -1)].into_iter().collect();
                }
            }
            View::Windows => set_window_maps(&mut axes, &ints),
            View::Skew => set_skew_maps(&mut axes, &ints, from),
        }
        IndexMap::Affine(axes)
    }
}

/// Sets the maps of windowed axes: position · stride + tap · dilation.
fn set_window_maps<'a>(axes: &mut [AxisMap], ints: &dyn Fn(&str) -> Option<&'a [i64]>) {
    let rank = axes.len();
    let named = ints("axes").unwrap_or(&[]).iter().map(|a| axis_from_front(*a, rank));
    let own = windows(named, ints("sizes").unwrap_or(&[]), ints("strides"), ints("dilations"));
    for (i, window) in own.into_iter().enumerate() {
        let terms = [(window.axis, window.stride), (rank + i, window.dilation)];
        axes[window.axis].terms = terms.into_iter().collect();
    }
}

/// Sets the maps of skewed axes. The offset keeps index 0 inside the operand for every tap.
fn set_skew_maps<'a>(axes: &mut [AxisMap], ints: &dyn Fn(&str) -> Option<&'a [i64]>, from: &[Dim]) {
    let list = |name| ints(name).unwrap_or(&[]);
    for one in skewed(list("axes"), list("taps"), list("shifts"), from.len()) {
        axes[one.axis].terms = [(one.axis, 1), (one.tap, one.shift)].into_iter().collect();
        if one.shift < 0 {
            axes[one.axis].offset = (&from[one.tap] + -1) * Dim::Const(-one.shift);
        }
    }
}

/// A window along one axis of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    /// The axis, counted from the front.
    pub axis: usize,
    pub size: i64,
    pub stride: i64,
    pub dilation: i64,
}

impl Window {
    /// The distance from its first to its last element, both included.
    pub fn span(self) -> i64 {
        self.dilation.saturating_mul(self.size - 1).saturating_add(1)
    }

    /// The number of positions of the window along an axis.
    pub fn positions(self, dim: &Dim) -> Dim {
        (dim + -self.span()).floor_div(&Dim::Const(self.stride)) + 1
    }
}

/// The windows that the attributes describe. The shape rule has checked that the lists have equal
/// lengths.
pub(super) fn windows(
    axes: impl IntoIterator<Item = usize>,
    sizes: &[i64],
    strides: Option<&[i64]>,
    dilations: Option<&[i64]>,
) -> Vec<Window> {
    let at = |list: Option<&[i64]>, i: usize| list.map_or(1, |list| list[i]);
    let window = |(i, axis): (usize, usize)| Window {
        axis,
        size: sizes[i],
        stride: at(strides, i),
        dilation: at(dilations, i),
    };
    axes.into_iter().enumerate().map(window).collect()
}

/// One skewed axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Skewed {
    pub axis: usize,
    pub tap: usize,
    pub shift: i64,
}

/// The skewed axes that the attributes describe, for an operand of this rank.
pub(super) fn skewed(axes: &[i64], taps: &[i64], shifts: &[i64], rank: usize) -> Vec<Skewed> {
    let axis_from_front = |axis: i64| axis.rem_euclid(rank.max(1) as i64) as usize;
    let one = |((&axis, &tap), &shift): ((&i64, &i64), &i64)| Skewed {
        axis: axis_from_front(axis),
        tap: axis_from_front(tap),
        shift,
    };
    axes.iter().zip(taps).zip(shifts).map(one).collect()
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
fn axis_from_front(axis: i64, rank: usize) -> usize {
    axis.rem_euclid(rank.max(1) as i64) as usize
}

/// Pairs of the shortest ranges of dims in both shapes that have equal products, in order.
fn runs(a: &[Dim], b: &[Dim]) -> Vec<(Range<usize>, Range<usize>)> {
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
