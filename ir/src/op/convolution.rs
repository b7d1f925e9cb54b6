//! Convolutions: contractions of weights with a view of the windows.

use super::window::{DILATIONS, Padding, STRIDES, Window, cropped, padding_of, windows};
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::Name::Operand;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::message;
use crate::shape::Shape;

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "conv",
    noun: "features",
    kind: Kind::Composite,
    operands: &[operand("x", Class::Float), operand("weights", Class::Float)],
    doc: "The cross-correlation of `x`, (batch, channels, spatial axes …), with `weights`, \
          (filters, channels, kernel …): for each filter and each position of the window, the sum \
          of products with the elements in the window. Positions are `strides` apart and taps \
          `dilations` apart; `low`, `high` and `interior` zeros are added before, after and \
          between the elements of each spatial axis. Sums are accumulated as in `dot_general`.",
    note: "Without input channels, torch returns no filters and may refuse gradients.",
    attrs: &[
        STRIDES,
        DILATIONS,
        attr("low", AttrKind::Ints, Default::None),
        attr("high", AttrKind::Ints, Default::None),
        attr("interior", AttrKind::Ints, Default::None),
        attr("acc", AttrKind::DType, Default::None),
    ],
    shape: ShapeRule::Rule(conv_shape),
    meaning: Meaning::Decompose(|r| {
        let (x, weights) = (r.arg(0), r.arg(1));
        let own = Spatial::of(r);
        let taps = 2..x.rank() as i64;
        // The weights are the same for the whole batch.
        let shape = [x.shape().dims[0].clone()].into_iter().chain(weights.shape().dims);
        let shape = Shape::new(shape.collect::<Vec<_>>());
        let attrs = [
            ("x_batch", Attr::ints([0])),
            ("y_batch", Attr::ints([0])),
            ("x_contract", Attr::ints([2].into_iter().chain(taps.clone().map(|a| a + 1)))),
            ("y_contract", Attr::ints([1].into_iter().chain(taps.map(|a| a + own.count())))),
            ("acc", r.attr("acc").clone()),
        ];
        r.build("dot_general", &[weights.broadcast_to(shape), own.windows_of(r, x)], &attrs)
    }),
    gradient: Gradient::Rule(|r| vec![Some(operand_gradient(r)), Some(weights_gradient(r))]),
    ..BASE
}];

fn conv_shape(cx: &mut Infer) -> Result<Shape> {
    cx.accumulates()?;
    let (x, weights) = (cx.shape(0).clone(), cx.shape(1).clone());
    let rank = weights.need_rank()?;
    if x.need_rank()? != rank || rank < 2 {
        return cx
            .shape_error(message![
                Operand("x"),
                " and ",
                Operand("weights"),
                " of a convolution must have the same number of dims",
            ])
            .got(format!("{} and {rank} dims", x.dims.len()))
            .expected("the same number of dims, at least two")
            .err();
    }
    cx.unify(
        &x.dims[1],
        &weights.dims[1],
        message!["the channels of ", Operand("x"), " and of ", Operand("weights")],
    )?;
    let sizes: Option<Vec<i64>> = weights.dims[2..].iter().map(Dim::as_const).collect();
    let Some(sizes) = sizes else {
        return cx
            .shape_error("the kernel of a convolution must have a known size")
            .got(&weights)
            .expected("numbers for all dims after the first two")
            .err();
    };
    let between = cx.ints("interior").map(<[i64]>::to_vec);
    if between.as_ref().is_some_and(|list| list.len() != sizes.len() || list.iter().any(|n| *n < 0))
    {
        return cx.mismatch("`interior` must have a number of at least 0 for each spatial axis");
    }
    cx.count_windows(sizes.len(), &["strides", "dilations"])?;
    if let Some(axis) = sizes.iter().position(|size| *size < 1) {
        return cx
            .shape_error(format!("the kernel is empty along its spatial axis {axis}"))
            .got(&weights)
            .expected("dims of at least 1")
            .err();
    }
    let padded = cx.padded(&x, sizes.len(), between.as_deref())?;
    let mut dims = vec![x.dims[0].clone(), weights.dims[0].clone()];
    let own = windows(2..rank, &sizes, cx.ints("strides"), cx.ints("dilations"));
    for (window, dim) in own.into_iter().zip(padded) {
        dims.push(cx.positions(window, &dim)?);
    }
    Ok(Shape::new(dims))
}

/// The spatial parameters of a convolution.
struct Spatial {
    windows: Vec<Window>,
    padding: Padding,
}

impl Spatial {
    fn of(r: &Rule) -> Spatial {
        let (rank, shape) = (r.arg(1).rank(), r.arg(1).shape());
        // The shape rule has checked that they are numbers.
        let sizes = shape.dims.get(2..).unwrap_or(&[]).iter().map(|d| d.as_const().unwrap_or(1));
        let sizes: Vec<i64> = sizes.collect();
        Spatial {
            windows: windows(2..rank, &sizes, r.ints("strides"), r.ints("dilations")),
            padding: padding_of(r, rank, r.ints("interior")),
        }
    }

    fn count(&self) -> i64 {
        self.windows.len() as i64
    }

    fn list(&self, number: impl Fn(Window) -> i64) -> Attr {
        Attr::ints(self.windows.iter().map(|window| number(*window)))
    }

    /// The view of the windows over an operand.
    fn windows_of<'a>(&self, r: &Rule<'a>, x: Var<'a>) -> Var<'a> {
        let attrs = [
            ("axes", self.list(|w| w.axis as i64)),
            ("sizes", self.list(|w| w.size)),
            ("strides", self.list(|w| w.stride)),
            ("dilations", self.list(|w| w.dilation)),
        ];
        self.padding.of(r, x).unary("windows", &attrs)
    }
}

/// The gradient of the operand: a convolution of the cotangents, dilated by the stride, with the
/// weights flipped: taps reversed, filters and channels swapped.
fn operand_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let (x, own) = (r.arg(0), Spatial::of(r));
    let shape = x.shape();
    let order: Vec<i64> = [1, 0].into_iter().chain(2..x.rank() as i64).collect();
    let taps = ("axes", own.list(|w| w.axis as i64));
    let flipped = r.arg(1).transpose(&order).unary("reverse", &[taps]);
    let (low, high, between) = (&own.padding.low, &own.padding.high, &own.padding.interior);
    let padded = |w: Window| {
        let dim = shape.dims[w.axis].as_const()?;
        Some(dim + (dim - 1).max(0) * between[w.axis] + low[w.axis] + high[w.axis])
    };
    // The rest of an axis after the last window is only known if its size is a number. For symbolic
    // sizes, and for axes without elements, the gradient gets too many positions and is cropped.
    let rest = |w: Window| match (padded(w), shape.dims[w.axis].as_const()) {
        (Some(_), Some(0)) => w.stride + between[w.axis],
        (Some(dim), _) => (dim - w.span()).rem_euclid(w.stride),
        (None, _) => w.stride - 1,
    };
    let attrs = [
        ("strides", own.list(|w| between[w.axis] + 1)),
        ("dilations", own.list(|w| w.dilation)),
        ("low", own.list(|w| w.span() - 1 - low[w.axis])),
        ("high", own.list(|w| w.span() - 1 - high[w.axis] + rest(w))),
        ("interior", own.list(|w| w.stride - 1)),
        ("acc", r.attr("acc").clone()),
    ];
    let dx = r.build("conv", &[r.g(), flipped], &attrs);
    cropped(dx, &shape, 2..x.rank())
}

/// The gradient of the weights: contracts the cotangents with the windows, over batch and
/// positions.
fn weights_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let own = Spatial::of(r);
    let positions = || Attr::ints([0].into_iter().chain(2..2 + own.count()));
    let attrs =
        [("x_contract", positions()), ("y_contract", positions()), ("acc", r.attr("acc").clone())];
    r.build("dot_general", &[r.g(), own.windows_of(r, r.arg(0))], &attrs)
}
