//! Convolutions: contractions of weights with a view of the windows.

use super::batch;
use super::window::{DILATIONS, Padding, STRIDES, Window, cropped, padding_of, windows};
use super::{
    AttrDef, BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::Name::Operand;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::message;
use crate::shape::Shape;

/// The attributes of convolutions.
const CONV: &[AttrDef] = &[
    STRIDES,
    DILATIONS,
    attr("low", AttrKind::Ints, Default::None),
    attr("high", AttrKind::Ints, Default::None),
    attr("interior", AttrKind::Ints, Default::None),
    attr("acc", AttrKind::DType, Default::None),
    attr("groups", AttrKind::Int, Default::Int(1)),
];
/// Those of transposed convolutions.
const TRANSPOSED: &[AttrDef] = &[
    STRIDES,
    DILATIONS,
    attr("low", AttrKind::Ints, Default::None),
    attr("high", AttrKind::Ints, Default::None),
    attr("acc", AttrKind::DType, Default::None),
    attr("groups", AttrKind::Int, Default::Int(1)),
];
const NO_CHANNELS_NOTE: &str = "Without input channels, torch returns no filters and may refuse gradients. tinygrad may refuse \
     gradients of an operand that no window reads.";
const BIAS: super::Operand = operand("bias", Class::Float);

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "conv",
        batch: batch::CONV,
        noun: "features",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Float), operand("weights", Class::Float)],
        doc: "The cross-correlation of `x`, (batch, channels, spatial axes …), with `weights`, \
          (filters, channels / groups, kernel …): for each filter and each position of the \
          window, the sum of products with the elements in the window. Channels and filters are \
          split into `groups`; a filter reads the channels of its own group. Positions are \
          `strides` apart and taps `dilations` apart; `low`, `high` and `interior` zeros are added \
          before, after and between the elements of each spatial axis. Sums are accumulated as in \
          `dot_general`.",
        note: NO_CHANNELS_NOTE,
        attrs: CONV,
        shape: ShapeRule::Rule(conv_shape),
        meaning: Meaning::Decompose(contraction),
        gradient: Gradient::Rule(|r| vec![Some(operand_gradient(r)), Some(weights_gradient(r))]),
        ..BASE
    },
    OpDef {
        name: "conv_transpose",
        batch: batch::CONV,
        noun: "features",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Float), operand("weights", Class::Float)],
        doc: "The transpose of `conv`, as a function of its operand: each element of `x`, (batch, \
          channels, spatial axes …), adds its multiple of a kernel of `weights`, (channels, \
          filters / groups, kernel …), to the result. Kernels start `strides` apart and their taps \
          are `dilations` apart; `low` and `high` elements are cut off each end of a spatial axis.",
        attrs: TRANSPOSED,
        shape: ShapeRule::Rule(transpose_shape),
        meaning: Meaning::Decompose(dilated_conv),
        gradient: Gradient::Rule(transpose_gradients),
        ..BASE
    },
    OpDef {
        name: "biased_conv",
        noun: "features",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Float), operand("weights", Class::Float), BIAS],
        doc: "`conv`, plus a bias for each filter.",
        note: NO_CHANNELS_NOTE,
        attrs: CONV,
        shape: ShapeRule::Rule(|cx| with_bias(cx, conv_shape)),
        meaning: Meaning::Decompose(|r| biased(r, "conv")),
        ..BASE
    },
    OpDef {
        name: "biased_conv_transpose",
        noun: "features",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Float), operand("weights", Class::Float), BIAS],
        doc: "`conv_transpose`, plus a bias for each filter.",
        note: NO_CHANNELS_NOTE,
        attrs: TRANSPOSED,
        shape: ShapeRule::Rule(|cx| with_bias(cx, transpose_shape)),
        meaning: Meaning::Decompose(|r| biased(r, "conv_transpose")),
        ..BASE
    },
];

/// The shape of a convolution. Checks the bias, which has one element for each filter.
fn with_bias(cx: &mut Infer, shape: fn(&mut Infer) -> Result<Shape>) -> Result<Shape> {
    let shape = shape(cx)?;
    let (filters, bias) = (Shape::new([shape.dims[1].clone()]), cx.shape(2).clone());
    cx.same(&filters, &bias, "the filters and the bias")?;
    Ok(shape)
}

/// The convolution `name` of the first two operands, plus the third.
fn biased<'a>(r: &Rule<'a>, name: &str) -> Var<'a> {
    let attrs: Vec<(&str, Attr)> =
        r.op.attrs.iter().map(|def| (def.name, r.attr(def.name).clone())).collect();
    let features = r.build(name, &[r.arg(0), r.arg(1)], &attrs);
    let later: Vec<i64> = (1..features.rank() as i64 - 1).collect();
    let bias = if later.is_empty() { r.arg(2) } else { r.arg(2).expand_dims(&later) };
    features + bias
}

/// Contracts the weights with the windows over the operand, batched over the samples and over the
/// groups.
fn contraction<'a>(r: &Rule<'a>) -> Var<'a> {
    let own = Spatial::of(r);
    let windows = own.windows_of(r, split(r.arg(0), 1, own.groups));
    // The weights are the same for the whole batch.
    let weights = split(r.arg(1), 0, own.groups);
    let batch = [r.arg(0).shape().dims[0].clone()];
    let shape = Shape::new(batch.into_iter().chain(weights.shape().dims));
    let weights = weights.broadcast_to(shape);
    let lead = own.lead();
    let (channels, taps) = (lead + 1, lead + 2..lead + 2 + own.count());
    let windowed = taps.clone().map(|axis| axis - 1 + own.count());
    let batches = || Attr::ints(0..lead);
    let attrs = [
        ("x_batch", batches()),
        ("y_batch", batches()),
        ("x_contract", Attr::ints([channels].into_iter().chain(taps))),
        ("y_contract", Attr::ints([lead].into_iter().chain(windowed))),
        ("acc", r.attr("acc").clone()),
    ];
    joined(r.build("dot_general", &[weights, windows], &attrs), &r.ty.shape)
}

/// Splits an axis into groups and their elements; without groups it stays.
fn split(x: Var, axis: usize, groups: i64) -> Var {
    if groups == 1 {
        return x;
    }
    let mut shape = x.shape();
    let inner = shape.dims[axis].floor_div(&Dim::Const(groups));
    shape.dims[axis] = inner;
    shape.dims.insert(axis, Dim::Const(groups));
    x.reshape(shape)
}

/// A value of the rank of `shape` as it is; one with an axis of groups more, reshaped to `shape`.
fn joined<'a>(x: Var<'a>, shape: &Shape) -> Var<'a> {
    if x.rank() == shape.dims.len() { x } else { x.reshape(shape.clone()) }
}

fn conv_shape(cx: &mut Infer) -> Result<Shape> {
    cx.accumulates()?;
    let (x, weights) = (cx.shape(0).clone(), cx.shape(1).clone());
    let sizes = kernel(cx, &x, &weights)?;
    check_groups(cx, &x.dims[1], &weights)?;
    let between = cx.ints("interior").map(<[i64]>::to_vec);
    if between.as_ref().is_some_and(|list| list.len() != sizes.len() || list.iter().any(|n| *n < 0))
    {
        return cx.mismatch("`interior` must have a number of at least 0 for each spatial axis");
    }
    cx.count_windows(sizes.len(), &["strides", "dilations"])?;
    let padded = cx.padded(&x, sizes.len(), between.as_deref())?;
    let mut dims = vec![x.dims[0].clone(), weights.dims[0].clone()];
    let own = windows(2..x.dims.len(), &sizes, cx.ints("strides"), cx.ints("dilations"));
    for (window, dim) in own.into_iter().zip(padded) {
        dims.push(cx.positions(window, &dim)?);
    }
    Ok(Shape::new(dims))
}

/// The sizes of the kernel. Errors: operands of different rank; sizes that are not known, or 0.
fn kernel(cx: &Infer, x: &Shape, weights: &Shape) -> Result<Vec<i64>> {
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
    let sizes: Option<Vec<i64>> = weights.dims[2..].iter().map(Dim::as_const).collect();
    let Some(sizes) = sizes else {
        return cx
            .shape_error("the kernel of a convolution must have a known size")
            .got(weights)
            .expected("numbers for all dims after the first two")
            .err();
    };
    if let Some(axis) = sizes.iter().position(|size| *size < 1) {
        return cx
            .shape_error(format!("the kernel is empty along its spatial axis {axis}"))
            .got(weights)
            .expected("dims of at least 1")
            .err();
    }
    Ok(sizes)
}

fn transpose_shape(cx: &mut Infer) -> Result<Shape> {
    cx.accumulates()?;
    let (x, weights) = (cx.shape(0).clone(), cx.shape(1).clone());
    let sizes = kernel(cx, &x, &weights)?;
    let groups = counted_groups(cx)?;
    let what = message!["the channels of ", Operand("x"), " and of ", Operand("weights")];
    cx.unify(&x.dims[1], &weights.dims[0], what)?;
    divides(cx, groups, &weights.dims[0])?;
    cx.count_windows(sizes.len(), &["strides", "dilations"])?;
    let cut = cx.padded(&x, sizes.len(), None)?;
    let mut dims = vec![x.dims[0].clone(), &weights.dims[1] * &Dim::Const(groups)];
    let own = windows(2..x.dims.len(), &sizes, cx.ints("strides"), cx.ints("dilations"));
    for (window, padded) in own.into_iter().zip(cut) {
        let dim = &x.dims[window.axis];
        cx.at_least(dim, 1, || {
            format!("axis {} of a transposed convolution is empty", window.axis)
        })?;
        // `padded` is the dim with `low` and `high` added.
        let cut = &padded + &(dim * &Dim::Const(-1));
        let whole = &(dim + -1) * &Dim::Const(window.stride) + window.span();
        let rest = &whole + &(&cut * &Dim::Const(-1));
        cx.at_least(&rest, 1, || {
            format!("nothing is left of axis {} of a transposed convolution", window.axis)
        })?;
        dims.push(rest);
    }
    Ok(Shape::new(dims))
}

/// A transposed convolution as a convolution of the operand, dilated by the stride, with the
/// flipped weights.
fn dilated_conv<'a>(r: &Rule<'a>) -> Var<'a> {
    let own = Spatial::of(r);
    let flipped = flipped(r.arg(1), &r.ty.shape.dims[1], &own);
    let (low, high) = (&own.padding.low, &own.padding.high);
    let attrs = [
        ("dilations", own.list(|w| w.dilation)),
        ("low", own.list(|w| w.span() - 1 - low[w.axis])),
        ("high", own.list(|w| w.span() - 1 - high[w.axis])),
        ("interior", own.list(|w| w.stride - 1)),
        ("acc", r.attr("acc").clone()),
        ("groups", own.groups.into()),
    ];
    r.build("conv", &[r.arg(0), flipped], &attrs)
}

/// The gradients of a transposed convolution: the convolution of the cotangents, and the products
/// of the operand with the windows over the cotangents.
fn transpose_gradients<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let (x, weights, own) = (r.arg(0), r.arg(1), Spatial::of(r));
    let names = ["strides", "dilations", "low", "high", "acc", "groups"];
    let attrs = names.map(|name| (name, r.attr(name).clone()));
    let dx = r.build("conv", &[r.g(), weights], &attrs);
    let dw = own.products(r, x, r.g(), &weights.shape());
    vec![Some(cropped(dx, &x.shape(), 2..x.rank())), Some(dw)]
}

/// Checks that the operand has the channels of all groups, and that the groups divide the filters.
fn check_groups(cx: &mut Infer, channels: &Dim, weights: &Shape) -> Result<()> {
    let groups = counted_groups(cx)?;
    let each = &weights.dims[1] * &Dim::Const(groups);
    let of = if groups == 1 { " and of ".into() } else { format!(" and the {groups} groups of ") };
    cx.unify(channels, &each, message!["the channels of ", Operand("x"), of, Operand("weights")])?;
    divides(cx, groups, &weights.dims[0])
}

/// The number of groups. Errors: less than 1.
fn counted_groups(cx: &Infer) -> Result<i64> {
    match cx.int("groups") {
        groups @ 1.. => Ok(groups),
        groups => Diagnostic::new("the `groups` of a convolution must be at least 1")
            .got(groups)
            .expected("an integer of at least 1")
            .err(),
    }
}

/// Checks that the groups divide the first axis of the weights.
fn divides(cx: &mut Infer, groups: i64, dim: &Dim) -> Result<()> {
    let by = Dim::Const(groups);
    let what = message![format!("{groups} groups and the first axis of "), Operand("weights")];
    cx.unify(dim, &(&dim.floor_div(&by) * &by), what).map(drop)
}

/// The spatial parameters of a convolution.
struct Spatial {
    windows: Vec<Window>,
    padding: Padding,
    groups: i64,
}

impl Spatial {
    fn of(r: &Rule) -> Spatial {
        let (rank, shape) = (r.arg(1).rank(), r.arg(1).shape());
        // The shape rule has checked that they are numbers.
        let sizes = shape.dims.get(2..).unwrap_or(&[]).iter().map(|d| d.as_const().unwrap_or(1));
        let sizes: Vec<i64> = sizes.collect();
        let between = r.op.attr_index("interior").and_then(|_| r.ints("interior"));
        Spatial {
            windows: windows(2..rank, &sizes, r.ints("strides"), r.ints("dilations")),
            padding: padding_of(r, rank, between),
            groups: r.int("groups"),
        }
    }

    /// The number of axes before the channels of a group.
    fn lead(&self) -> i64 {
        if self.groups == 1 { 1 } else { 2 }
    }

    fn count(&self) -> i64 {
        self.windows.len() as i64
    }

    /// Contracts `features` with the windows over `x`, over batch and positions, to weights of this
    /// shape.
    fn products<'a>(&self, r: &Rule<'a>, features: Var<'a>, x: Var<'a>, shape: &Shape) -> Var<'a> {
        let lead = self.lead();
        let batch = || Attr::ints(1..lead);
        let contract = || Attr::ints([0].into_iter().chain(lead + 1..lead + 1 + self.count()));
        let attrs = [
            ("x_batch", batch()),
            ("y_batch", batch()),
            ("x_contract", contract()),
            ("y_contract", contract()),
            ("acc", r.attr("acc").clone()),
        ];
        let features = split(features, 1, self.groups);
        let windows = self.windows_of(r, split(x, 1, self.groups));
        joined(r.build("dot_general", &[features, windows], &attrs), shape)
    }

    fn list(&self, number: impl Fn(Window) -> i64) -> Attr {
        Attr::ints(self.windows.iter().map(|window| number(*window)))
    }

    /// The view of the windows over an operand, whose channels are split into groups.
    fn windows_of<'a>(&self, r: &Rule<'a>, x: Var<'a>) -> Var<'a> {
        let before = self.lead() - 1;
        let attrs = [
            ("axes", self.list(|w| w.axis as i64 + before)),
            ("sizes", self.list(|w| w.size)),
            ("strides", self.list(|w| w.stride)),
            ("dilations", self.list(|w| w.dilation)),
        ];
        self.padding.after(before as usize).of(r, x).unary("windows", &attrs)
    }
}

/// The gradient of the operand: a convolution of the cotangents, dilated by the stride, with the
/// weights flipped: taps reversed, filters and channels of each group swapped.
fn operand_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let (x, own) = (r.arg(0), Spatial::of(r));
    let shape = x.shape();
    let flipped = flipped(r.arg(1), &x.shape().dims[1], &own);
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
        ("groups", own.groups.into()),
    ];
    let dx = r.build("conv", &[r.g(), flipped], &attrs);
    cropped(dx, &shape, 2..x.rank())
}

/// The weights, (filters, channels of a group, kernel …), as (channels, filters of a group,
/// reversed kernel …).
fn flipped<'a>(weights: Var<'a>, channels: &Dim, own: &Spatial) -> Var<'a> {
    let (lead, count) = (own.lead() - 1, own.count());
    let groups = split(weights, 0, own.groups);
    let order: Vec<i64> =
        (0..lead).chain([lead + 1, lead]).chain(lead + 2..lead + 2 + count).collect();
    let swapped = groups.transpose(&order);
    let mut shape = swapped.shape();
    if lead == 1 {
        shape.dims.remove(0);
        shape.dims[0] = channels.clone();
    }
    let taps = ("axes", own.list(|w| w.axis as i64));
    joined(swapped, &shape).unary("reverse", &[taps])
}

/// The gradient of the weights: contracts the cotangents with the windows, over batch and
/// positions.
fn weights_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let own = Spatial::of(r);
    own.products(r, r.g(), r.arg(0), &r.arg(1).shape())
}
