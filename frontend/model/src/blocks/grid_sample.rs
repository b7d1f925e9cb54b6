//! Images and volumes read at given positions, and grids of such positions.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::layers::LAYER;
use super::parameter::{required, with};
use super::resize::{ALIGN, cubic_weights};
use super::{Default, Entry, Kind, Value, data, gives};
use crate::lower::Cx;

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        source: "Jaderberg et al. 2015, eq. 3",
        example: gives(&["[[[[1, 3]]]]", "[[[[0, 0], [1, 0]]]]"], "[[[[2.  1.5]]]]"),
        parameters: &[
            with("mode", Kind::OneOf(&["bilinear", "nearest", "bicubic"]), Default::Str("bilinear"))
                .doc("the interpolation; \"bicubic\" is for images"),
            with(
                "padding_mode",
                Kind::OneOf(&["zeros", "border", "reflection"]),
                Default::Str("zeros"),
            )
            .doc(
                "the elements outside the images: 0, the nearest ones inside, or those inside, \
                 reflected at the edges",
            ),
            ALIGN,
        ],
        inputs: &[
            data("input", Class::Float),
            data("grid", Class::Float).doc(
                "(batch, height, width, 2): x and y from -1 to 1; for volumes (batch, depth, \
                 height, width, 3): x, y and z",
            ),
        ],
        ..LAYER.row(
            "GridSample",
            "Images, (batch, channels, height, width), or volumes, (batch, channels, depth, \
             height, width), read at the positions `grid`: x and y go from -1 at the left and top \
             edge to 1 at the right and bottom edge, as in `torch.nn.functional.grid_sample`. \
             \"bicubic\" is cubic convolution (Keys 1981, eq. 4) with a = -0.75.",
            grid_sample,
        )
    },
    Entry {
        source: "Jaderberg et al. 2015, eq. 1",
        example: gives(&["[[[1, 0, 0.5], [0, 2, 0]]]"], "[[[[0. 0.]\n   [1. 0.]]]]")
            .with_settings("size=(1, 2)"),
        parameters: &[
            required("size", Kind::COUNTS)
                .doc("height and width of the images, or depth, height and width of the volumes"),
            ALIGN,
        ],
        inputs: &[data("input", Class::Float)
            .doc("(batch, 2, 3): a matrix for (x, y, 1) of each image; (batch, 3, 4) for volumes")],
        valid: |settings| {
            let axes = settings.list("size").len();
            if axes == 2 || axes == 3 {
                return Ok(());
            }
            Diagnostic::of(ErrorKind::Setting, "`size` of `AffineGrid` has the wrong length")
                .got(settings.get("size").text())
                .expected("height and width, or depth, height and width")
                .err()
        },
        ..LAYER.row(
            "AffineGrid",
            "The positions that `GridSample` reads to transform images by an affine map: the \
             product of each matrix with (x, y, 1), or (x, y, z, 1), of each element of an image of \
             this size, as in `torch.nn.functional.affine_grid`.",
            affine_grid,
        )
    },
];

/// How places outside an axis are read.
#[derive(Clone, Copy)]
struct Outside<'a> {
    mode: &'a str,
    align: bool,
}

impl Outside<'_> {
    /// A place, in steps of elements, moved into an axis of this size. A place that is not between
    /// the first and the last element then has no gradient, as in PyTorch.
    fn moved<'a>(self, place: Var<'a>, size: Var<'a>) -> Var<'a> {
        match self.mode {
            "border" => held(place, size),
            "reflection" => held(self.reflected(place, size), size),
            _ => place,
        }
    }

    /// A place reflected at the centers of the first and the last element, or at the outer edges.
    fn reflected<'a>(self, place: Var<'a>, size: Var<'a>) -> Var<'a> {
        let (low, span) = match self.align {
            true => (0.0, (size - 1.0).binary("maximum", size.scalar(1.0))),
            false => (-0.5, size),
        };
        let from = place - low;
        let far = from.binary("lt", from.scalar(0.0)).select(-from, from);
        let rest = far.binary("mod", span * 2.0);
        rest.binary("ge", span).select(span * 2.0 - rest, rest) + low
    }
}

/// A place between 0 and the last element; at both of them it has no gradient.
fn held<'a>(place: Var<'a>, size: Var<'a>) -> Var<'a> {
    let (first, last) = (place.scalar(0.0), size - 1.0);
    let capped = place.binary("ge", last).select(last, place);
    place.binary("le", first).select(first, capped)
}

/// Errors: other ranks, or another number of coordinates; another batch; images without elements.
fn check(cx: &Cx, shape: &Shape, at: &Shape) -> Result<usize> {
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`GridSample` takes images and their positions")
            .got(format!("{shape} and {at}"))
            .expected(
                "(batch, channels, height, width) and (batch, height, width, 2), or (batch, \
                 channels, depth, height, width) and (batch, depth, height, width, 3)",
            )
    };
    let rank = shape.need_rank()?;
    if !(4..=5).contains(&rank) || at.need_rank()? != rank {
        return wrong().err();
    }
    cx.need_equal(&at.dims[rank - 1], rank as i64 - 2, wrong)?;
    cx.need_same(&shape.dims[0], &at.dims[0], wrong)?;
    if rank == 5 && cx.text("mode") == "bicubic" {
        return Diagnostic::of(ErrorKind::Shapes, "`mode=\"bicubic\"` is for images")
            .got(shape)
            .expected("(batch, channels, height, width), or `mode=\"bilinear\"`")
            .err();
    }
    for axis in 2..rank {
        cx.need(&shape.dims[axis], 1, || {
            Diagnostic::of(ErrorKind::Shapes, format!("axis {axis} of `input` is empty"))
                .got(shape)
                .expected("images of at least one pixel")
        })?;
    }
    Ok(rank)
}

/// The numbers of one coordinate of the grid.
fn coordinate<'a>(grid: Var<'a>, at: i64) -> Var<'a> {
    let axis = grid.rank() as i64 - 1;
    let bound = |i: i64| Shape::new([Dim::Const(i)]).into();
    let attrs = [("axes", Attr::ints([axis])), ("starts", bound(at)), ("limits", bound(at + 1))];
    grid.unary("slice", &attrs).squeeze(&[axis])
}

fn grid_sample(cx: &Cx) -> Result<Vec<Value>> {
    let (own, grid) = (cx.var("input"), cx.var("grid"));
    let rank = check(cx, &own.shape(), &grid.shape())?;
    let (x, grid) = (own.widened(), grid.widened());
    let align = cx.flag("align_corners");
    let outside = Outside { mode: cx.text("padding_mode"), align };
    let mode = cx.text("mode");
    let taps = (2..rank).map(|axis| {
        let from = coordinate(grid, (rank - 1 - axis) as i64);
        let size = x.dim(axis as i64).cast(x.dtype());
        let place = match align {
            true => (from + 1.0) * ((size - 1.0) * 0.5),
            false => ((from + 1.0) * size - 1.0) * 0.5,
        };
        match mode {
            "nearest" => vec![Tap { index: nearest(outside, place, size), weight: None }],
            "bicubic" => cubic(outside, place, size),
            _ => linear(outside, place, size),
        }
    });
    let taps: Vec<Vec<Tap>> = taps.collect();
    done(sampled(cx, x, &taps).cast(own.dtype()))
}

/// An element along one axis that counts for a position.
#[derive(Clone, Copy)]
struct Tap<'a> {
    index: Var<'a>,
    /// `None`: 1.
    weight: Option<Var<'a>>,
}

/// Places far outside read the same as those just outside, and fit into an index.
fn limited<'a>(place: Var<'a>, size: Var<'a>) -> Var<'a> {
    place.binary("maximum", place.scalar(-3.0)).binary("minimum", size + 2.0)
}

fn nearest<'a>(outside: Outside, place: Var<'a>, size: Var<'a>) -> Var<'a> {
    limited(outside.moved(place, size), size).unary("round", &[]).cast(DType::I64)
}

fn linear<'a>(outside: Outside, place: Var<'a>, size: Var<'a>) -> Vec<Tap<'a>> {
    let place = limited(outside.moved(place, size), size);
    let first = place.unary("floor", &[]);
    let (index, weight) = (first.cast(DType::I64), place - first);
    vec![
        Tap { index, weight: Some(weight.scalar(1.0) - weight) },
        Tap { index: index + 1.0, weight: Some(weight) },
    ]
}

/// The elements are moved into the axis, not the place.
fn cubic<'a>(outside: Outside, place: Var<'a>, size: Var<'a>) -> Vec<Tap<'a>> {
    let place = if outside.mode == "reflection" { place } else { limited(place, size) };
    let first = place.unary("floor", &[]);
    let taps = cubic_weights(place - first).into_iter().zip([-1.0, 0.0, 1.0, 2.0]);
    let taps = taps.map(|(weight, offset)| {
        let at = limited(outside.moved((first + offset).stop_gradient(), size), size);
        Tap { index: at.cast(DType::I64), weight: Some(weight) }
    });
    taps.collect()
}

/// The weighted sum over all combinations of the taps of each axis.
fn sampled<'a>(cx: &Cx<'a>, x: Var<'a>, taps: &[Vec<Tap<'a>>]) -> Var<'a> {
    let mut combined: Vec<Vec<Tap>> = vec![Vec::new()];
    for axis in taps {
        let longer = |front: Vec<Tap<'a>>| {
            axis.iter().map(move |tap| front.iter().copied().chain([*tap]).collect::<Vec<Tap>>())
        };
        combined = combined.into_iter().flat_map(longer).collect();
    }
    let terms = combined.into_iter().map(|taps| {
        let weight = taps.iter().filter_map(|tap| tap.weight).reduce(|a, b| a * b);
        let indices: Vec<Var> = taps.iter().map(|tap| tap.index).collect();
        let read = read(cx, x, &indices);
        weight.map_or(read, |weight| read * weight.expand_dims(&[1]))
    });
    terms.reduce(|a, b| a + b).unwrap_or(x)
}

/// The elements at these indices along each axis, of every channel; 0 outside.
fn read<'a>(cx: &Cx<'a>, x: Var<'a>, indices: &[Var<'a>]) -> Var<'a> {
    let shape = x.shape();
    let (batch, channels) = (shape.dims[0].clone(), shape.dims[1].clone());
    let mut place: Option<Var> = None;
    let mut inside: Option<Var> = None;
    for (axis, index) in (2..).zip(indices) {
        let size = x.dim(axis);
        let first = index.scalar(0.0);
        let within = index.binary("ge", first).binary("and", index.binary("lt", size));
        let clamped = index.binary("maximum", first).binary("minimum", size - 1.0);
        inside = Some(inside.map_or(within, |all| all.binary("and", within)));
        place = Some(place.map_or(clamped, |place| place * size + clamped));
    }
    let (Some(place), Some(inside)) = (place, inside) else { return x };
    let at = place.shape();
    let count: Dim = at.dims[1..].iter().cloned().product();
    let places = place.reshape(Shape::new([batch.clone(), Dim::Const(1), count.clone()]));
    let places = places.broadcast_to(Shape::new([batch.clone(), channels.clone(), count]));
    let pixels: Dim = shape.dims[2..].iter().cloned().product();
    let pixels = x.reshape(Shape::new([batch.clone(), channels.clone(), pixels]));
    let read = cx.op("take_along", &[pixels, places], &[("axis", 2.into())]);
    let image = [batch, channels].into_iter().chain(at.dims[1..].iter().cloned());
    let image = Shape::new(image.collect::<Vec<_>>());
    inside.expand_dims(&[1]).select(read.reshape(image), x.scalar(0.0))
}

/// The coordinates of the elements along an axis of this size, from -1 to 1.
fn ramp<'a>(cx: &Cx<'a>, size: i64, dtype: DType) -> Var<'a> {
    let index = cx.iota(Shape::new([Dim::Const(size)]), 0, dtype);
    match cx.flag("align_corners") {
        true if size == 1 => index,
        true => index * (2.0 / (size - 1) as f64) - 1.0,
        false => (index * 2.0 + 1.0) / size as f64 - 1.0,
    }
}

fn affine_grid(cx: &Cx) -> Result<Vec<Value>> {
    let own = cx.var("input");
    let sizes = cx.settings.ints("size").unwrap_or_default();
    let (axes, shape) = (sizes.len(), own.shape());
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`AffineGrid` takes a matrix for each image")
            .got(&shape)
            .expected(format!("(batch, {axes}, {})", axes + 1))
            .hint("`size` says of how many axes the images are")
    };
    cx.need_rank(own, 3, wrong)?;
    for (axis, size) in [(1, axes), (2, axes + 1)] {
        cx.need_equal(&shape.dims[axis], size as i64, wrong)?;
    }
    let x = own.widened();
    let whole = Shape::new(sizes.iter().map(|size| Dim::Const(*size)).chain([Dim::Const(1)]));
    // x lies along the last axis.
    let mut columns: Vec<Var> = Vec::new();
    for axis in (0..axes).rev() {
        let mut own = vec![Dim::Const(1); axes + 1];
        own[axis] = Dim::Const(sizes[axis]);
        let ramp = ramp(cx, sizes[axis], x.dtype()).reshape(Shape::new(own));
        columns.push(ramp.broadcast_to(whole.clone()));
    }
    columns.push(x.scalar(1.0).broadcast_to(whole));
    let points = cx.op("concat", &columns, &[("axis", (-1).into())]);
    let count: i64 = sizes.iter().product();
    let points = points.reshape(Shape::new([Dim::Const(count), Dim::Const(axes as i64 + 1)]));
    let mapped = points.matmul(x.swap_last());
    let dims = [shape.dims[0].clone()].into_iter();
    let dims = dims.chain(sizes.iter().map(|size| Dim::Const(*size)));
    let dims = dims.chain([Dim::Const(axes as i64)]).collect::<Vec<_>>();
    done(mapped.reshape(Shape::new(dims)).cast(own.dtype()))
}
