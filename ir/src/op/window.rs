//! Windows over axes: a view with the elements of each position of a window, and the skewed view
//! over which its gradient sums.

use super::access::Access;
use super::batch::Batch;
use super::view::{AxisMap, IndexMap, View, axis_from_front};
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::message;
use crate::shape::Shape;

const VIEW: OpDef = OpDef {
    kind: Kind::Layout,
    operands: &[operand("x", Class::Any)],
    batch: Batch::Leading,
    ..BASE
};
const AXES: super::AttrDef = attr("axes", AttrKind::Ints, Default::Required).axes();
pub(super) const STRIDES: super::AttrDef = attr("strides", AttrKind::Ints, Default::None);
pub(super) const DILATIONS: super::AttrDef = attr("dilations", AttrKind::Ints, Default::None);

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "windows",
        access: Access::View(windows_map),
        doc: "The sliding windows over `axes`. Each of these axes becomes the positions of its \
              window, `strides` apart, and its taps are added as a last axis: `sizes` of them, \
              `dilations` apart. Windows lie inside `x`.",
        attrs: &[AXES, attr("sizes", AttrKind::Ints, Default::Required), STRIDES, DILATIONS],
        shape: ShapeRule::Rule(windows_shape),
        meaning: Meaning::Decompose(windows_by_take),
        gradient: Gradient::Rule(|r| vec![Some(overlapping_sum(r))]),
        ..VIEW
    },
    OpDef {
        name: "skew",
        access: Access::View(skew_map),
        doc: "`x` with each of `axes` shifted in proportion to the index along one of `taps`: \
              element `i` of tap `t` is the one at `i + shift * t`, counted from the first \
              position that is in range for every tap. The axis keeps only positions that are in \
              range for every tap.",
        attrs: &[
            AXES,
            attr("taps", AttrKind::Ints, Default::Required).axes(),
            attr("shifts", AttrKind::Ints, Default::Required),
        ],
        shape: ShapeRule::Rule(skew_shape),
        meaning: Meaning::Decompose(skew_by_take),
        gradient: Gradient::Rule(|r| vec![Some(skew_gradient(r))]),
        ..VIEW
    },
];

/// Along a windowed axis: position · stride + tap · dilation.
fn windows_map(view: &View) -> IndexMap {
    let rank = view.from.len();
    let named = view.axes("axes", view.from).unwrap_or_default();
    let sizes = view.ints("sizes").unwrap_or(&[]);
    let mut axes: Vec<AxisMap> = (0..rank).map(AxisMap::axis).collect();
    let own = windows(named, sizes, view.ints("strides"), view.ints("dilations"));
    for (i, window) in own.into_iter().enumerate() {
        let terms = [(window.axis, window.stride), (rank + i, window.dilation)];
        axes[window.axis].terms = terms.into_iter().collect();
    }
    IndexMap::Affine(axes)
}

/// Along a skewed axis: position + tap · shift. The offset keeps index 0 inside the operand for
/// every tap.
fn skew_map(view: &View) -> IndexMap {
    let list = |name| view.ints(name).unwrap_or(&[]);
    let mut axes: Vec<AxisMap> = (0..view.from.len()).map(AxisMap::axis).collect();
    for one in skewed(list("axes"), list("taps"), list("shifts"), view.from.len()) {
        axes[one.axis].terms = [(one.axis, 1), (one.tap, one.shift)].into_iter().collect();
        if one.shift < 0 {
            axes[one.axis].offset = (&view.from[one.tap] + -1) * Dim::Const(-one.shift);
        }
    }
    IndexMap::Affine(axes)
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
    let one = |((&axis, &tap), &shift): ((&i64, &i64), &i64)| Skewed {
        axis: axis_from_front(axis, rank),
        tap: axis_from_front(tap, rank),
        shift,
    };
    axes.iter().zip(taps).zip(shifts).map(one).collect()
}

/// The padding from a composite's attributes `low` and `high` and from the list `between` of
/// interior padding. The lists describe the last axes of an operand of this rank.
pub(super) fn padding_of(r: &Rule, rank: usize, between: Option<&[i64]>) -> Padding {
    let mut padding = Padding::none(rank);
    let mut put = |list: Option<&[i64]>, pick: fn(&mut Padding) -> &mut Vec<i64>| {
        for (at, n) in list.unwrap_or(&[]).iter().rev().enumerate() {
            pick(&mut padding)[rank - 1 - at] = *n;
        }
    };
    put(r.ints("low"), |p| &mut p.low);
    put(r.ints("high"), |p| &mut p.high);
    put(between, |p| &mut p.interior);
    padding
}

impl Infer<'_> {
    /// Checks that each list has `count` numbers of at least 1.
    /// Errors: a list of another length; a smaller number.
    pub(super) fn count_windows(&self, count: usize, lists: &[&'static str]) -> Result<()> {
        for name in lists {
            let Some(list) = self.ints(name) else { continue };
            if list.len() != count {
                return Diagnostic::new(message![
                    self.name(),
                    format!(" has {count} windows but {} `{name}`", list.len()),
                ])
                .got(format!("{list:?}"))
                .expected(format!("one number for each of {count} axes"))
                .err();
            }
            if let Some(least) = list.iter().find(|n| **n < 1) {
                return Diagnostic::new(format!("the {name} of windows must be at least 1"))
                    .got(least)
                    .expected("numbers of at least 1")
                    .err();
            }
        }
        Ok(())
    }

    /// The last `count` dims of a shape, padded by the attributes `low` and `high`, and by
    /// `between` between any two elements.
    /// Errors: a list of another length; a dim that is not known; more is cropped than there is.
    pub(super) fn padded(
        &self,
        shape: &Shape,
        count: usize,
        between: Option<&[i64]>,
    ) -> Result<Vec<Dim>> {
        let list = |name| self.ints(name).map_or_else(|| vec![0; count], <[i64]>::to_vec);
        let (low, high) = (list("low"), list("high"));
        if low.len() != count || high.len() != count {
            return self
                .shape_error(format!("`low` and `high` must have {count} numbers each"))
                .got(format!("{} and {} numbers", low.len(), high.len()))
                .expected(format!("{count} numbers, one for each axis"))
                .err();
        }
        let dims = shape.need_trailing(count)?.iter().enumerate();
        let padded = |(i, dim): (usize, &Dim)| {
            let spread = match between.map_or(0, |between| between[i]) {
                0 => dim.clone(),
                n => dim + &(&(dim + -1).max(&Dim::Const(0)) * &Dim::Const(n)),
            };
            spread + low[i] + high[i]
        };
        Ok(dims.map(padded).collect())
    }

    /// The number of positions of a window along an axis of this length.
    /// Errors: the window is longer.
    pub(super) fn positions(&mut self, window: Window, dim: &Dim) -> Result<Dim> {
        self.at_least(dim, window.span(), || {
            let taps = match window.dilation {
                1 => format!("a window of {}", window.size),
                by => format!("a window of {} with dilation {by}", window.size),
            };
            format!("{taps} is longer than axis {}", window.axis)
        })?;
        Ok(window.positions(dim))
    }
}

fn windows_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    let axes = cx.ints("axes").unwrap_or(&[]).to_vec();
    super::reduce::without_axes(&shape, Some(&axes), true)?;
    cx.count_windows(axes.len(), &["sizes", "strides", "dilations"])?;
    let count = shape.dims.len();
    let places: Vec<usize> =
        axes.iter().map(|a| Ok(count - shape.axis_from_back(*a)?)).collect::<Result<_>>()?;
    let sizes = cx.ints("sizes").unwrap_or(&[]).to_vec();
    for window in windows(places, &sizes, cx.ints("strides"), cx.ints("dilations")) {
        shape.dims[window.axis] = cx.positions(window, &shape.dims[window.axis].clone())?;
    }
    shape.dims.extend(sizes.into_iter().map(Dim::Const));
    Ok(shape)
}

/// The windows that the operation's attributes describe.
fn windows_of_op(r: &Rule) -> Vec<Window> {
    let rank = r.arg(0).rank();
    let axes = r.ints("axes").unwrap_or(&[]).iter().map(|a| a.rem_euclid(rank.max(1) as i64));
    let sizes = r.ints("sizes").unwrap_or(&[]);
    windows(axes.map(|a| a as usize), sizes, r.ints("strides"), r.ints("dilations"))
}

/// A ramp 0, 1, 2, … along an axis of a shape, multiplied by `times`.
fn ramp<'a>(r: &Rule<'a>, shape: &Shape, axis: usize, times: i64) -> Var<'a> {
    let attrs = [
        ("shape", shape.clone().into()),
        ("axis", (axis as i64).into()),
        ("dtype", DType::I32.into()),
    ];
    let ramp = r.build("iota", &[], &attrs);
    if times == 1 { ramp } else { ramp * times as f64 }
}

/// Decomposes windows into one `take` per axis, at the indices of their elements.
fn windows_by_take<'a>(r: &Rule<'a>) -> Var<'a> {
    let mut x = r.arg(0);
    for window in windows_of_op(r) {
        let positions = window.positions(&x.shape().dims[window.axis]);
        let shape = Shape::new([positions, Dim::Const(window.size)]);
        let places = ramp(r, &shape, 0, window.stride) + ramp(r, &shape, 1, window.dilation);
        x = r.build("take", &[x, places], &[("axis", (window.axis as i64).into())]);
        // Moves the axis of the taps to the end.
        let last = x.rank() as i64 - 1;
        let taps = window.axis as i64 + 1;
        let order: Vec<i64> = (0..taps).chain(taps + 1..=last).chain([taps]).collect();
        if taps < last {
            x = x.transpose(&order);
        }
    }
    x
}

fn overlapping_sum<'a>(r: &Rule<'a>) -> Var<'a> {
    let x = r.arg(0);
    windows_gradient(r, r.g(), &windows_of_op(r), &x.shape(), &Padding::none(x.rank()))
}

/// The gradient of windows over an operand of this shape, padded by `operand_padding`: for each
/// element, the sum of the cotangents of the taps that read it. Dilates the cotangents by the
/// strides, pads them with zeros, skews each tap so that it is aligned with the elements it reads,
/// and sums over the taps.
pub(super) fn windows_gradient<'a>(
    r: &Rule<'a>,
    g: Var<'a>,
    windows: &[Window],
    shape: &Shape,
    operand_padding: &Padding,
) -> Var<'a> {
    let rank = shape.dims.len();
    let mut padding = Padding::none(g.rank());
    for window in windows {
        let (axis, reach) = (window.axis, window.span() - 1);
        let (low, high) = (operand_padding.low[axis], operand_padding.high[axis]);
        // The rest of the axis after the last window is only known if its size is a number.
        let rest = match shape.dims[axis].as_const() {
            Some(dim) => (dim + low + high - window.span()).rem_euclid(window.stride),
            None => window.stride - 1,
        };
        padding.low[axis] = reach - low;
        padding.high[axis] = reach - high + rest;
        padding.interior[axis] = window.stride - 1;
    }
    let taps: Vec<i64> = (rank as i64..g.rank() as i64).collect();
    let skewed = padding.of(r, g).unary(
        "skew",
        &[
            ("axes", Attr::ints(windows.iter().map(|w| w.axis as i64))),
            ("taps", taps[..].into()),
            ("shifts", Attr::ints(windows.iter().map(|w| -w.dilation))),
        ],
    );
    cropped(skewed, shape, windows.iter().map(|w| w.axis)).sum(Some(&taps), false)
}

/// Crops these axes to the sizes that they have in `shape`.
pub(super) fn cropped<'a>(
    x: Var<'a>,
    shape: &Shape,
    axes: impl IntoIterator<Item = usize>,
) -> Var<'a> {
    let own = x.shape();
    let axes: Vec<usize> = axes.into_iter().filter(|&a| own.dims[a] != shape.dims[a]).collect();
    if axes.is_empty() {
        return x;
    }
    let limits = axes.iter().map(|&a| shape.dims[a].clone());
    let attrs = [
        ("axes", Attr::ints(axes.iter().map(|&a| a as i64))),
        ("starts", Shape::fixed(&vec![0; axes.len()]).into()),
        ("limits", Shape::new(limits).into()),
    ];
    // The sizes are equal, but inference cannot prove it for all symbolic dims.
    x.unary("slice", &attrs).reshape(resized(own, shape, &axes))
}

/// The shape `own` with the dims of `shape` along these axes.
fn resized(mut own: Shape, shape: &Shape, axes: &[usize]) -> Shape {
    axes.iter().for_each(|&axis| own.dims[axis] = shape.dims[axis].clone());
    own
}

/// The numbers of zeros before, after and between the elements of each axis.
pub(super) struct Padding {
    pub low: Vec<i64>,
    pub high: Vec<i64>,
    pub interior: Vec<i64>,
}

impl Padding {
    pub fn none(rank: usize) -> Padding {
        Padding { low: vec![0; rank], high: vec![0; rank], interior: vec![0; rank] }
    }

    /// The padding of an operand with `count` axes more at its front.
    pub fn after(&self, count: usize) -> Padding {
        let more = |list: &Vec<i64>| [&vec![0; count], &list[..]].concat();
        Padding { low: more(&self.low), high: more(&self.high), interior: more(&self.interior) }
    }

    /// Pads the value with zeros.
    pub fn of<'a>(&self, r: &Rule<'a>, x: Var<'a>) -> Var<'a> {
        self.with(r, x, 0.0)
    }

    pub fn with<'a>(&self, r: &Rule<'a>, x: Var<'a>, value: f64) -> Var<'a> {
        if [&self.low, &self.high, &self.interior].iter().all(|list| list.iter().all(|n| *n == 0)) {
            return x;
        }
        let ints = |list: &Vec<i64>| Attr::ints(list.iter().copied());
        let mut attrs = vec![("low", ints(&self.low)), ("high", ints(&self.high))];
        if self.interior.iter().any(|n| *n != 0) {
            attrs.push(("interior", ints(&self.interior)));
        }
        r.build("pad", &[x, x.scalar(value)], &attrs)
    }
}

fn skew_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    let rank = shape.need_rank()?;
    let list = |name| cx.ints(name).unwrap_or(&[]).to_vec();
    let (axes, taps, shifts) = (list("axes"), list("taps"), list("shifts"));
    let all: Vec<i64> = axes.iter().chain(&taps).copied().collect();
    super::reduce::without_axes(&shape, Some(&all), true)?;
    if axes.len() != taps.len() || axes.len() != shifts.len() {
        return cx.mismatch("`axes`, `taps` and `shifts` must have the same length");
    }
    for one in skewed(&axes, &taps, &shifts, rank) {
        let Some(count) = shape.dims[one.tap].as_const() else {
            return cx
                .shape_error(format!("the number of taps along axis {} must be known", one.tap))
                .got(&shape)
                .expected("a number")
                .err();
        };
        let max_shift = one.shift.saturating_abs().saturating_mul((count - 1).max(0));
        cx.at_least(&shape.dims[one.axis].clone(), max_shift, || {
            format!("shifts by up to {max_shift} exceed axis {}", one.axis)
        })?;
        shape.dims[one.axis] = &shape.dims[one.axis] + -max_shift;
    }
    Ok(shape)
}

fn skewed_of_op(r: &Rule) -> Vec<Skewed> {
    let list = |name| r.ints(name).unwrap_or(&[]);
    skewed(list("axes"), list("taps"), list("shifts"), r.arg(0).rank())
}

/// The largest distance that a tap shifts a skewed axis.
fn max_shift(one: Skewed, shape: &Shape) -> i64 {
    one.shift.abs() * (shape.dims[one.tap].as_const().unwrap_or(1) - 1).max(0)
}

/// Decomposes a skew into one `take_along` per axis, at the indices of the elements read.
fn skew_by_take<'a>(r: &Rule<'a>) -> Var<'a> {
    skewed_of_op(r).into_iter().fold(r.arg(0), |x, one| {
        let mut shape = x.shape();
        let max_shift = max_shift(one, &shape);
        shape.dims[one.axis] = &shape.dims[one.axis] + -max_shift;
        let mut places = ramp(r, &shape, one.axis, 1) + ramp(r, &shape, one.tap, one.shift);
        if one.shift < 0 {
            places = places + max_shift as f64;
        }
        r.build("take_along", &[x, places], &[("axis", (one.axis as i64).into())])
    })
}

/// The gradient of a skew: the cotangents padded with zeros and skewed the other way.
fn skew_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let shape = r.arg(0).shape();
    let mut padding = Padding::none(shape.dims.len());
    for one in skewed_of_op(r) {
        padding.low[one.axis] = max_shift(one, &shape);
        padding.high[one.axis] = max_shift(one, &shape);
    }
    let shifts = r.ints("shifts").unwrap_or(&[]).iter().map(|n| -n);
    padding.of(r, r.g()).unary(
        "skew",
        &[
            ("axes", r.attr("axes").clone()),
            ("taps", r.attr("taps").clone()),
            ("shifts", Attr::ints(shifts)),
        ],
    )
}
