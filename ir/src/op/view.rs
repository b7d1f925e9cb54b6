//! Views: operations whose result has elements of their operand, at other positions.

use std::ops::Range;

use smallvec::SmallVec;

use super::Op;
use super::infer::{as_ints, find_attr};
use crate::attr::Attr;
use crate::dim::Dim;
use crate::shape::Shape;

/// A view. [`View::map`] says where it reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum View {
    Identity,
    Broadcast,
    Reshape,
    Transpose,
    Slice,
    Reverse,
    /// Positions of windows, and behind them their taps.
    Windows,
    /// Axes whose places move with the index along others.
    Skew,
}

/// The position in the operand from which a view reads an element of its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexMap {
    /// One map for each axis of the operand.
    Affine(Vec<AxisMap>),
    /// Pairs of runs of axes, of the result and of the operand. Both runs of a pair have as many
    /// elements, which are in the same row-major order.
    Reshape(Vec<(Range<usize>, Range<usize>)>),
}

/// The position along one axis of the operand: `offset + Σ coefficient · index[axis]`, where `index`
/// is the position in the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisMap {
    pub offset: Dim,
    /// Axes of the result, with their coefficients.
    pub terms: SmallVec<[(usize, i64); 2]>,
}

impl AxisMap {
    /// The first position, whatever the index is.
    fn first() -> AxisMap {
        AxisMap { offset: Dim::Const(0), terms: SmallVec::new() }
    }

    /// The index along an axis of the result.
    fn axis(axis: usize) -> AxisMap {
        AxisMap { offset: Dim::Const(0), terms: [(axis, 1)].into_iter().collect() }
    }
}

impl View {
    /// The index map of a view with these attributes. `from` is the shape of its operand, `to` that
    /// of its result. Both ranks are known.
    pub fn map(self, op: Op, attrs: &[Attr], from: &Shape, to: &Shape) -> IndexMap {
        let (from, to) = (&from.dims[..], &to.dims[..]);
        let ints = |name: &str| as_ints(find_attr(op, attrs, name));
        let mut axes: Vec<AxisMap> = (0..from.len()).map(AxisMap::axis).collect();
        match self {
            View::Identity => {}
            View::Reshape => return IndexMap::Reshape(runs(to, from)),
            View::Broadcast => {
                let places: Vec<usize> = match ints("axes") {
                    Some(axes) => axes.iter().map(|axis| front(*axis, to.len())).collect(),
                    None => (to.len() - from.len()..to.len()).collect(),
                };
                let map = |(dim, place): (&Dim, usize)| match dim.as_const() {
                    Some(1) => AxisMap::first(),
                    _ => AxisMap::axis(place),
                };
                axes = from.iter().zip(places).map(map).collect();
            }
            View::Transpose => {
                let permutation = ints("permutation").unwrap_or(&[]);
                for (to, axis) in permutation.iter().enumerate() {
                    axes[front(*axis, from.len())] = AxisMap::axis(to);
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
                    Some(axes) => axes.iter().map(|axis| front(*axis, from.len())).collect(),
                    None => (0..from.len()).collect::<Vec<usize>>(),
                };
                for axis in reversed {
                    axes[axis].offset = &from[axis] - &Dim::Const(1);
                    axes[axis].terms = [(axis, -1)].into_iter().collect();
                }
            }
            View::Windows => see(&mut axes, &ints),
            View::Skew => shift(&mut axes, &ints, from),
        }
        IndexMap::Affine(axes)
    }
}

/// The maps of windows: places that positions and taps add up to.
fn see<'a>(axes: &mut [AxisMap], ints: &dyn Fn(&str) -> Option<&'a [i64]>) {
    let rank = axes.len();
    let named = ints("axes").unwrap_or(&[]).iter().map(|a| front(*a, rank));
    let own = windows(named, ints("sizes").unwrap_or(&[]), ints("strides"), ints("dilations"));
    for (i, window) in own.into_iter().enumerate() {
        let terms = [(window.axis, window.stride), (rank + i, window.dilation)];
        axes[window.axis].terms = terms.into_iter().collect();
    }
}

/// The maps of skewed axes. The first place is inside for every tap.
fn shift<'a>(axes: &mut [AxisMap], ints: &dyn Fn(&str) -> Option<&'a [i64]>, from: &[Dim]) {
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
    /// Counted from the front.
    pub axis: usize,
    pub size: i64,
    pub stride: i64,
    pub dilation: i64,
}

impl Window {
    /// From the first element that it sees to the last, both included.
    pub fn span(self) -> i64 {
        self.dilation.saturating_mul(self.size - 1).saturating_add(1)
    }

    /// The number of its positions along an axis.
    pub fn positions(self, dim: &Dim) -> Dim {
        (dim + -self.span()).floor_div(&Dim::Const(self.stride)) + 1
    }
}

/// The windows that attributes name. They are as many of each, and were checked.
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

/// The skewed axes that attributes name, of an operand of this rank.
pub(super) fn skewed(axes: &[i64], taps: &[i64], shifts: &[i64], rank: usize) -> Vec<Skewed> {
    let front = |axis: i64| axis.rem_euclid(rank.max(1) as i64) as usize;
    let one = |((&axis, &tap), &shift): ((&i64, &i64), &i64)| Skewed {
        axis: front(axis),
        tap: front(tap),
        shift,
    };
    axes.iter().zip(taps).zip(shifts).map(one).collect()
}

/// Start and limit of a slice within `0..=dim`: negative numbers count from the end, `?` is the
/// end; symbolic ones count from the front.
pub fn slice_bounds(start: &Dim, limit: &Dim, dim: &Dim) -> (Dim, Dim) {
    let place = |bound: &Dim| match bound.as_const() {
        Some(b) if b < 0 => dim - &(-bound).min(dim),
        _ => bound.max(&Dim::Const(0)).min(dim),
    };
    (place(start), if limit.is_unknown() { dim.clone() } else { place(limit) })
}

/// The sliced axes of an operand with these dims: each with its first position and its step.
pub fn slice_starts(op: Op, attrs: &[Attr], dims: &[Dim]) -> Vec<(usize, Dim, i64)> {
    let attr = |name: &str| find_attr(op, attrs, name);
    let (Attr::Shape(starts), steps) = (attr("starts"), as_ints(attr("steps"))) else {
        return Vec::new();
    };
    let axes = match as_ints(attr("axes")) {
        Some(axes) => axes.iter().map(|axis| front(*axis, dims.len())).collect(),
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

/// An axis counted from the front.
fn front(axis: i64, rank: usize) -> usize {
    axis.rem_euclid(rank.max(1) as i64) as usize
}

/// The shortest runs of dims of both shapes that have equal products, in order.
fn runs(a: &[Dim], b: &[Dim]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let (start_a, start_b) = (i, j);
        let (mut x, mut y) = (Dim::Const(1), Dim::Const(1));
        loop {
            // The side that lags takes a dim; where it cannot be told, the rest is one run.
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
                (_, true, true) if lags(&x, &y) => {
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

/// Whether `x` is to grow before `y`: it divides it, or they are equal.
fn lags(x: &Dim, y: &Dim) -> bool {
    match (x.as_const(), y.as_const()) {
        (Some(x), Some(y)) => x <= y,
        _ => y.exact_div(x).is_some(),
    }
}
