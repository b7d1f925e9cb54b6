//! Images of other sizes: interpolation, and sampling at given positions.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::layers::LAYER;
use super::parameter::{Range, with};
use super::{Default, Entry, Kind, Parameter, Settings, Value, data, gives};
use crate::lower::Cx;

const ALIGN: Parameter = with("align_corners", Kind::Bool, Default::Bool(false)).doc(
    "the centers of the first and last elements stay where they are; without it, the outer edges do",
);

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        example: gives(&["[[[[1, 3]]]]"], "[[[[1.  1.5 2.5 3. ]]]]")
            .with_settings("size=(1, 4), mode=\"linear\""),
        parameters: &[
            with("size", Kind::Counts, Default::None)
                .doc("the size of all axes after the first two, or of each of the last axes"),
            with("scale", Kind::Float(Range::Positive), Default::None)
                .doc("the factor between the sizes of output and input, instead of `size`"),
            with(
                "mode",
                Kind::OneOf(&["nearest", "linear", "bilinear", "trilinear", "bicubic"]),
                Default::Str("nearest"),
            )
            .doc("the interpolation; \"linear\" goes for any number of axes"),
            ALIGN,
        ],
        valid: |settings| {
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
             4) with a = -0.75.",
            upsample,
        )
    },
    Entry {
        source: "Jaderberg et al. 2015, eq. 3",
        example: gives(&["[[[[1, 3]]]]", "[[[[0, 0], [1, 0]]]]"], "[[[[2.  1.5]]]]"),
        parameters: &[
            with("mode", Kind::OneOf(&["bilinear", "nearest"]), Default::Str("bilinear"))
                .doc("the interpolation"),
            with("padding_mode", Kind::OneOf(&["zeros", "border"]), Default::Str("zeros"))
                .doc("the elements outside the images: 0, or the nearest ones inside"),
            ALIGN,
        ],
        inputs: &[
            data("input", Class::Float),
            data("grid", Class::Float).doc("(batch, height, width, 2): x and y from -1 to 1"),
        ],
        ..LAYER.row(
            "GridSample",
            "Images, (batch, channels, height, width), read at the positions `grid`: x and y go \
             from -1 at the left and top edge to 1 at the right and bottom edge, as in \
             `torch.nn.functional.grid_sample`.",
            grid_sample,
        )
    },
];

/// A number of elements in proportion to those of an axis.
#[derive(Clone, Copy)]
struct Ratio {
    by: i64,
    over: i64,
}

impl Ratio {
    /// The fraction with the smallest denominator that is this number. Errors: there is none with a
    /// denominator of up to 4096.
    fn of(scale: f64) -> Result<Ratio> {
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
    let axes = match settings.list("size").len() {
        0 => rank.saturating_sub(2),
        listed => listed,
    };
    check_axes(settings, &shape, axes)?;
    let ratio = settings.float("scale").map(Ratio::of).transpose()?;
    let mode = settings.text("mode");
    let mut x = if mode == "nearest" { own } else { own.widened() };
    for (i, axis) in (rank - axes..rank).enumerate() {
        let dim = shape.dims[axis].clone();
        cx.need(&dim, 1, || {
            Diagnostic::of(ErrorKind::Shapes, format!("axis {axis} of `input` is empty"))
                .got(&shape)
                .expected("at least one element along each interpolated axis")
        })?;
        let size = match (settings.ints("size"), ratio) {
            (Some(sizes), _) => Dim::Const(if sizes.len() == 1 { sizes[0] } else { sizes[i] }),
            (None, Some(ratio)) => {
                (&dim * &Dim::Const(ratio.by)).floor_div(&Dim::Const(ratio.over))
            }
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
            "bicubic" => cubic(cx, x, &one, axis),
            _ => linear(cx, x, &one, axis),
        };
    }
    done(x.cast(own.dtype()))
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

/// Cubic convolution (Keys 1981, eq. 4) with a = -0.75.
fn cubic<'a>(cx: &Cx<'a>, x: Var<'a>, one: &Resized<'a>, axis: usize) -> Var<'a> {
    const A: f64 = -0.75;
    let (first, t) = one.places(cx).split(x.dtype());
    let near = |t: Var<'a>| ((t * (A + 2.0) - (A + 3.0)) * t) * t + 1.0;
    let far = |t: Var<'a>| ((t * A - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A;
    let back = t.scalar(1.0) - t;
    let weights = [far(t + 1.0), near(t), near(back), far(back + 1.0)];
    let taps = weights.into_iter().zip([-1.0, 0.0, 1.0, 2.0]).map(|(weight, offset)| {
        neighbour(cx, x, first, offset, one, axis) * along(weight, axis, x.rank())
    });
    taps.reduce(|a, b| a + b).unwrap_or(x)
}

fn grid_sample(cx: &Cx) -> Result<Vec<Value>> {
    let (own, grid) = (cx.var("input"), cx.var("grid"));
    let (shape, at) = (own.shape(), grid.shape());
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`GridSample` takes images and pairs of numbers")
            .got(format!("{shape} and {at}"))
            .expected("(batch, channels, height, width) and (batch, height, width, 2)")
    };
    if shape.need_rank()? != 4 || at.need_rank()? != 4 {
        return wrong().err();
    }
    cx.need_equal(&at.dims[3], 2, wrong)?;
    let (x, grid) = (own.widened(), grid.widened());
    for (axis, name) in [(2, "height"), (3, "width")] {
        cx.need(&shape.dims[axis], 1, || {
            Diagnostic::of(ErrorKind::Shapes, format!("the {name} of `input` is 0"))
                .got(&shape)
                .expected("images of at least one pixel")
        })?;
    }
    let pick = |i: i64| {
        let attrs = [
            ("axes", Attr::ints([3])),
            ("starts", Shape::fixed(&[i as usize]).into()),
            ("limits", Shape::fixed(&[i as usize + 1]).into()),
        ];
        grid.unary("slice", &attrs).squeeze(&[3])
    };
    let place = |i: i64, axis: i64| {
        let size = x.dim(axis).cast(x.dtype());
        let from = pick(i);
        let place = match cx.flag("align_corners") {
            true => (from + 1.0) * ((size - 1.0) * 0.5),
            false => ((from + 1.0) * size - 1.0) * 0.5,
        };
        match cx.text("padding_mode") {
            "border" => place
                .binary("maximum", place.scalar(0.0))
                .binary("minimum", (size - 1.0).binary("maximum", size.scalar(0.0))),
            _ => place,
        }
    };
    let (across, down) = (place(0, 3), place(1, 2));
    done(sampled(cx, x, across, down).cast(own.dtype()))
}

/// The images at these places, in pixels.
fn sampled<'a>(cx: &Cx<'a>, x: Var<'a>, across: Var<'a>, down: Var<'a>) -> Var<'a> {
    // Places far outside read zeros, as those just outside do, and fit into an index.
    let limited = |place: Var<'a>, axis: i64| {
        let most = x.dim(axis).cast(x.dtype()) + 1.0;
        place.binary("maximum", place.scalar(-2.0)).binary("minimum", most)
    };
    let (across, down) = (limited(across, 3), limited(down, 2));
    if cx.text("mode") == "nearest" {
        let [column, row] = [across, down].map(|place| place.unary("round", &[]).cast(DType::I64));
        return read(cx, x, column, row);
    }
    let [left, top] = [across, down].map(|place| place.unary("floor", &[]));
    let (right, bottom) = (across - left, down - top);
    let weights = [
        (0.0, 0.0, (right.scalar(1.0) - right) * (bottom.scalar(1.0) - bottom)),
        (1.0, 0.0, right * (bottom.scalar(1.0) - bottom)),
        (0.0, 1.0, (right.scalar(1.0) - right) * bottom),
        (1.0, 1.0, right * bottom),
    ];
    let (column, row) = (left.cast(DType::I64), top.cast(DType::I64));
    let corners = weights
        .into_iter()
        .map(|(i, j, weight)| read(cx, x, column + i, row + j) * weight.expand_dims(&[1]));
    corners.reduce(|a, b| a + b).unwrap_or(x)
}

/// The pixels in these columns and rows, (batch, height, width), of every channel; 0 outside.
fn read<'a>(cx: &Cx<'a>, x: Var<'a>, column: Var<'a>, row: Var<'a>) -> Var<'a> {
    let shape = x.shape();
    let [batch, channels, height, width] = [0, 1, 2, 3].map(|axis: usize| shape.dims[axis].clone());
    let (rows, columns) = (x.dim(2), x.dim(3));
    let within = |index: Var<'a>, size: Var<'a>| {
        index.binary("ge", index.scalar(0.0)).binary("and", index.binary("lt", size))
    };
    let inside = within(column, columns).binary("and", within(row, rows));
    let clamped = |index: Var<'a>, size: Var<'a>| {
        index.binary("maximum", index.scalar(0.0)).binary("minimum", size - 1.0)
    };
    let place = clamped(row, rows) * columns + clamped(column, columns);
    let at = place.shape();
    let count = &at.dims[1] * &at.dims[2];
    let places = place.reshape(Shape::new([batch.clone(), Dim::Const(1), count.clone()]));
    let places = places.broadcast_to(Shape::new([batch.clone(), channels.clone(), count]));
    let pixels = x.reshape(Shape::new([batch.clone(), channels.clone(), &height * &width]));
    let read = cx.op("take_along", &[pixels, places], &[("axis", 2.into())]);
    let image = Shape::new([batch, channels, at.dims[1].clone(), at.dims[2].clone()]);
    inside.expand_dims(&[1]).select(read.reshape(image), x.scalar(0.0))
}
