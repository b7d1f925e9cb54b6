//! Images of other sizes, by interpolation.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::layers::LAYER;
use super::parameter::{Range, with};
use super::ranges::{means_of_ranges, weighted};
use super::{Default, Entry, Kind, Parameter, Settings, Value, gives};
use crate::lower::Cx;

pub(super) const ALIGN: Parameter = with("align_corners", Kind::Bool, Default::Bool(false)).doc(
    "the centers of the first and last elements stay where they are; without it, the outer edges do",
);

pub(super) const BLOCKS: &[Entry] = &[Entry {
    example: gives(&["[[[[1, 3]]]]"], "[[[[1.  1.5 2.5 3. ]]]]")
        .with_settings("size=(1, 4), mode=\"linear\""),
    parameters: &[
        with("size", Kind::COUNTS, Default::None)
            .doc("the size of all axes after the first two, or of each of the last axes"),
        with("scale", Kind::OneOrList(&Kind::Float(Range::Positive)), Default::None).doc(
            "the factor between the sizes of output and input, of all axes or of each of the last \
             axes, instead of `size`",
        ),
        with(
            "mode",
            Kind::OneOf(&[
                "nearest",
                "nearest-exact",
                "linear",
                "bilinear",
                "trilinear",
                "bicubic",
                "area",
            ]),
            Default::Str("nearest"),
        )
        .doc(
            "the interpolation; \"linear\" goes for any number of axes; \"nearest-exact\" takes \
             the element at the center, \"nearest\" that at the front edge; \"area\" is \
             `AdaptiveAvgPool`",
        ),
        ALIGN,
        with("antialias", Kind::Bool, Default::Bool(false)).doc(
            "of an output that is smaller, each element is a mean over all elements that it stands \
             for; for linear and cubic interpolation",
        ),
    ],
    valid: |settings| {
        check_mode(settings)?;
        for name in ["size", "scale"] {
            if settings.get(name).as_list().is_some_and(<[_]>::is_empty) {
                return Diagnostic::new(format!("`{name}` of `Upsample` is an empty list"))
                    .expected("one number, or one for each of the last axes")
                    .err();
            }
        }
        if settings.get("size").is_none() != settings.get("scale").is_none() {
            return Ok(());
        }
        Diagnostic::new("`Upsample` needs either `size` or `scale`")
            .got(if settings.get("size").is_none() { "neither" } else { "both" })
            .expected("one of them")
            .err()
    },
    ..LAYER.row(
        "Upsample",
        "`input`, (batch, channels, …), interpolated to another size, as by \
             `torch.nn.functional.interpolate`. \"bicubic\" is cubic convolution (Keys 1981, eq. \
             4) with a = -0.75, or with -0.5 under `antialias`, whose filters are as wide as an \
             element of the output.",
        upsample,
    )
}];

/// A number of elements in proportion to those of an axis.
#[derive(Clone, Copy)]
pub(super) struct Ratio {
    by: i64,
    over: i64,
}

impl Ratio {
    /// The fraction with the smallest denominator that is this number. Errors: there is none with a
    /// denominator of up to 4096.
    pub(super) fn of(scale: f64) -> Result<Ratio> {
        let close = |over: &i64| {
            let by = scale * *over as f64;
            (by - by.round()).abs() <= 1e-9 * by && by.round() >= 1.0
        };
        match (1..=4096).find(close) {
            Some(over) => Ok(Ratio { by: (scale * over as f64).round() as i64, over }),
            None => Diagnostic::new("`scale` is not a fraction of small integers")
                .got(scale)
                .expected("a fraction with a denominator of at most 4096")
                .hint("give the `size` of the output")
                .err(),
        }
    }

    /// The part of a dim, rounded down.
    pub(super) fn of_dim(self, dim: &Dim) -> Dim {
        (dim * &Dim::Const(self.by)).floor_div(&Dim::Const(self.over))
    }
}

/// One axis that is interpolated.
struct Resized<'a> {
    /// The number of elements before.
    before: Var<'a>,
    /// The number of elements after.
    size: Dim,
    /// The factor between the two: after over before.
    ratio: [Var<'a>; 2],
}

/// Places in an axis as fractions of integers, which are exact for any size.
struct Places<'a> {
    numerator: Var<'a>,
    denominator: Var<'a>,
}

impl<'a> Places<'a> {
    /// The elements at or before the places, and the distances from them.
    fn split(&self, dtype: DType) -> (Var<'a>, Var<'a>) {
        let first = self.numerator.binary("floor_div", self.denominator);
        let rest = self.numerator - first * self.denominator;
        (first, rest.cast(dtype) / self.denominator.cast(dtype))
    }
}

impl<'a> Resized<'a> {
    /// The index of each new element.
    fn index(&self, cx: &Cx<'a>) -> Var<'a> {
        cx.iota(Shape::new([self.size.clone()]), 0, DType::I64)
    }

    /// The place of each new element in the old axis, in steps of elements.
    fn places(&self, cx: &Cx<'a>) -> Places<'a> {
        let index = self.index(cx);
        if cx.flag("align_corners") {
            let steps = index.dim(0) - 1.0;
            return Places {
                numerator: index * (self.before - 1.0),
                denominator: steps.binary("maximum", steps.scalar(1.0)),
            };
        }
        let [after, before] = self.ratio;
        Places { numerator: (index * 2.0 + 1.0) * before - after, denominator: after * 2.0 }
    }

    /// For each new element as a column, the place of its center, and the number of elements that
    /// it stands for.
    fn spans(&self, cx: &Cx<'a>, dtype: DType) -> [Var<'a>; 2] {
        let index = cx.iota(Shape::new([self.size.clone(), Dim::Const(1)]), 0, dtype);
        let [after, before] = match cx.flag("align_corners") {
            true => [self.index(cx).dim(0), self.before].map(|count| count - 1.0),
            false => self.ratio,
        };
        let least = after.binary("maximum", after.scalar(1.0));
        // A single element between corners is at the first of them.
        let some = after.binary("minimum", after.scalar(1.0));
        let step = (before * some).cast(dtype) / least.cast(dtype);
        [(index + 0.5) * step, step.binary("maximum", step.scalar(1.0))]
    }

    /// The old index at the center of each new element.
    fn exact(&self, cx: &Cx<'a>) -> Var<'a> {
        let [after, before] = self.ratio;
        let center = (self.index(cx) * 2.0 + 1.0) * before;
        center.binary("floor_div", after * 2.0).binary("minimum", self.before - 1.0)
    }

    /// The old index that is nearest to each new element, rounded down as PyTorch does.
    fn nearest(&self, cx: &Cx<'a>) -> Var<'a> {
        let [after, before] = self.ratio;
        let at = (self.index(cx) * before).binary("floor_div", after);
        at.binary("minimum", self.before - 1.0)
    }
}

fn upsample(cx: &Cx) -> Result<Vec<Value>> {
    let settings = cx.settings;
    let own = cx.var("input");
    let shape = own.shape();
    let rank = shape.need_rank()?;
    let axes = match settings.list("size").len().max(settings.list("scale").len()) {
        0 => rank.saturating_sub(2),
        listed => listed,
    };
    check_axes(settings, &shape, axes)?;
    let ratios = settings.floats("scale").into_iter().map(Ratio::of).collect::<Result<Vec<_>>>()?;
    let mode = settings.text("mode");
    let mut x = if mode.starts_with("nearest") { own } else { own.widened() };
    for (i, axis) in (rank - axes..rank).enumerate() {
        let dim = shape.dims[axis].clone();
        cx.need(&dim, 1, || {
            Diagnostic::of(ErrorKind::Shapes, format!("axis {axis} of `input` is empty"))
                .got(&shape)
                .expected("at least one element along each interpolated axis")
        })?;
        let ratio = ratios.get(i).or(ratios.first()).copied();
        let size = match (settings.ints("size"), ratio) {
            (Some(sizes), _) => Dim::Const(if sizes.len() == 1 { sizes[0] } else { sizes[i] }),
            (None, Some(ratio)) => ratio.of_dim(&dim),
            (None, None) => dim.clone(),
        };
        let before = own.dim(axis as i64);
        let number = |n: i64| before.scalar(n as f64);
        let ratio = match ratio {
            Some(ratio) => [number(ratio.by), number(ratio.over)],
            None => [number(size.as_const().unwrap_or(1)), before],
        };
        let one = Resized { before, size, ratio };
        x = match mode {
            "nearest" => take(cx, x, one.nearest(cx), axis),
            "nearest-exact" => take(cx, x, one.exact(cx), axis),
            "area" => means_of_ranges(cx, x, axis, &one.size)?,
            _ if cx.flag("antialias") => antialiased(cx, x, &one, axis),
            "bicubic" => cubic(cx, x, &one, axis),
            _ => linear(cx, x, &one, axis),
        };
    }
    done(x.cast(own.dtype()))
}

/// Errors: `antialias` of a mode without weights.
fn check_mode(settings: &Settings) -> Result<()> {
    let mode = settings.text("mode");
    if settings.flag("antialias") && (mode == "area" || mode.starts_with("nearest")) {
        return Diagnostic::new(format!("`antialias` has no meaning with `mode=\"{mode}\"`"))
            .got(format!("antialias=True, mode=\"{mode}\""))
            .expected("\"linear\", \"bilinear\", \"trilinear\" or \"bicubic\"")
            .hint("\"area\" is a mean over all elements that a new one stands for")
            .err();
    }
    Ok(())
}

/// Errors: no axes to interpolate; more than there are; a mode for another number of axes.
fn check_axes(settings: &Settings, shape: &Shape, axes: usize) -> Result<()> {
    if axes == 0 || axes > shape.dims.len() {
        return Diagnostic::of(ErrorKind::Shapes, "`input` has too few axes to interpolate")
            .got(shape)
            .expected("(batch, channels, …)")
            .err();
    }
    let mode = settings.text("mode");
    let takes = match mode {
        "bilinear" | "bicubic" => 2,
        "trilinear" => 3,
        _ => axes,
    };
    if takes != axes {
        return Diagnostic::of(
            ErrorKind::Shapes,
            format!("`mode=\"{mode}\"` is for {takes} axes after the channels"),
        )
        .got(shape)
        .expected(format!("{} axes, or `mode=\"linear\"`", takes + 2))
        .err();
    }
    Ok(())
}

fn take<'a>(cx: &Cx<'a>, x: Var<'a>, index: Var<'a>, axis: usize) -> Var<'a> {
    cx.op("take", &[x, index], &[("axis", (axis as i64).into())])
}

/// Shapes a value per index of an axis to broadcast along it.
fn along(v: Var<'_>, axis: usize, rank: usize) -> Var<'_> {
    let later: Vec<i64> = (1..(rank - axis) as i64).collect();
    if later.is_empty() { v } else { v.expand_dims(&later) }
}

/// The elements at `first + offset`, at the edge if that is outside.
fn neighbour<'a>(
    cx: &Cx<'a>,
    x: Var<'a>,
    first: Var<'a>,
    offset: f64,
    one: &Resized<'a>,
    axis: usize,
) -> Var<'a> {
    let index = (first + offset).binary("maximum", first.scalar(0.0));
    take(cx, x, index.binary("minimum", one.before - 1.0), axis)
}

fn linear<'a>(cx: &Cx<'a>, x: Var<'a>, one: &Resized<'a>, axis: usize) -> Var<'a> {
    let mut places = one.places(cx);
    let zero = places.numerator.scalar(0.0);
    places.numerator = places.numerator.binary("maximum", zero);
    let (first, weight) = places.split(x.dtype());
    let weight = along(weight, axis, x.rank());
    let [low, high] = [0.0, 1.0].map(|offset| neighbour(cx, x, first, offset, one, axis));
    low * (weight.scalar(1.0) - weight) + high * weight
}

/// Interpolates with a filter that is as wide as a new element.
fn antialiased<'a>(cx: &Cx<'a>, x: Var<'a>, one: &Resized<'a>, axis: usize) -> Var<'a> {
    let [center, width] = one.spans(cx, x.dtype());
    let shape = Shape::new([Dim::Const(1), x.shape().dims[axis].clone()]);
    let place = cx.iota(shape, 1, x.dtype()) + 0.5;
    let distance = ((place - center) / width).unary("abs", &[]);
    let zero = distance.scalar(0.0);
    let weights = match cx.text("mode") {
        "bicubic" => {
            let far = distance.binary("lt", distance.scalar(2.0));
            let far = far.select(far_weight(distance, -0.5), zero);
            let near = distance.binary("lt", distance.scalar(1.0));
            near.select(near_weight(distance, -0.5), far)
        }
        _ => (-distance + 1.0).binary("maximum", zero),
    };
    weighted(cx, weights / weights.sum(Some(&[1]), true), x, axis)
}

fn cubic<'a>(cx: &Cx<'a>, x: Var<'a>, one: &Resized<'a>, axis: usize) -> Var<'a> {
    let (first, t) = one.places(cx).split(x.dtype());
    let taps = cubic_weights(t).into_iter().zip([-1.0, 0.0, 1.0, 2.0]).map(|(weight, offset)| {
        neighbour(cx, x, first, offset, one, axis) * along(weight, axis, x.rank())
    });
    taps.reduce(|a, b| a + b).unwrap_or(x)
}

/// The weights of the four elements around a place at `t` after the second one: cubic convolution
/// (Keys 1981, eq. 4) with a = -0.75.
pub(super) fn cubic_weights(t: Var<'_>) -> [Var<'_>; 4] {
    const A: f64 = -0.75;
    let back = t.scalar(1.0) - t;
    [far_weight(t + 1.0, A), near_weight(t, A), near_weight(back, A), far_weight(back + 1.0, A)]
}

/// The weight of an element at a distance of up to 1.
fn near_weight(t: Var<'_>, a: f64) -> Var<'_> {
    ((t * (a + 2.0) - (a + 3.0)) * t) * t + 1.0
}

/// The weight of an element at a distance from 1 to 2.
fn far_weight(t: Var<'_>, a: f64) -> Var<'_> {
    ((t * a - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
}
