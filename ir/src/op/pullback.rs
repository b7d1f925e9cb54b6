//! Gradients for which frameworks have dedicated operations: the definitions of these operations,
//! and the rules that use them.

use super::batch::Batch;
use super::layers::{
    ALPHA, AXIS, BETA, BIAS, EPSILON, SLOPE, WEIGHT, X, check_scales, log_softmax_gradient,
    normalised, softmax_gradient,
};
use super::{
    BASE, Class, Default, Infer, Kind, Meaning, OpDef, Operand, Pullback, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var, scale};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::Result;
use crate::shape::Shape;

const GRADIENT: Operand = operand("gradient", Class::Float);
const Y: Operand = operand("y", Class::Float);
const MEAN: Operand = operand("mean", Class::Float);
const RECIPROCAL: Operand = operand("reciprocal", Class::Float);
const NORM_NOTE: &str = "Frameworks may raise if the last axis has no elements. torch rounds \
                         means of f32 at each addition, and treats them as constants if it \
                         differentiates this operation itself.";

/// The gradient of an operation with one operand; `gradient` is the cotangent of its result.
const PULLBACK: OpDef = OpDef {
    noun: "gradient",
    kind: Kind::Composite,
    operands: &[GRADIENT, X],
    shape: ShapeRule::Rule(gradient_shape),
    ..BASE
};

/// The gradient of an operation along `axis`; `y` is the operation's result.
const PULLBACK_ALONG: OpDef = OpDef {
    operands: &[GRADIENT, Y],
    attrs: &[AXIS],
    shape: ShapeRule::Rule(|cx| {
        cx.shape(1).axis_from_back(cx.int("axis"))?;
        gradient_shape(cx)
    }),
    ..PULLBACK
};

/// A pullback by the operation `by`, which takes the cotangent and the result.
pub(super) const fn of_result(by: &'static str) -> Option<Pullback> {
    Some(Pullback { by, wrt: &[0], rule: |r| vec![Some(build_pullback(r, r.y()))] })
}

/// A pullback by the operation `by`, which takes the cotangent and the operand.
pub(super) const fn of_operand(by: &'static str) -> Option<Pullback> {
    Some(Pullback { by, wrt: &[0], rule: |r| vec![Some(build_pullback(r, r.arg(0)))] })
}

fn build_pullback<'a>(r: &Rule<'a>, of: Var<'a>) -> Var<'a> {
    let by = r.op.pullback.expect("only operations with a pullback use this rule").by;
    let attrs: Vec<(&str, Attr)> =
        r.op.attrs.iter().map(|def| (def.name, r.attr(def.name).clone())).collect();
    r.build(by, &[r.g(), of], &attrs)
}

/// Multiplies the cotangent by the partial derivative of the operation `of`.
fn partial<'a>(r: &Rule<'a>, of: &str) -> Var<'a> {
    let partials = super::partials(super::get(of)).expect("the operation is elementwise");
    let gradient = scale(r.arg(0), &partials[0], &[r.arg(1), r.arg(1)], &r.attrs);
    gradient.expect("the operation is not constant")
}

pub(super) const LAYER_NORM: Pullback =
    Pullback { by: "layer_norm_gradient", wrt: &[0, 1, 2], rule: layer_norm_gradients };

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "relu_gradient",
        doc: "The gradient of `relu`, whose result is `y`.",
        operands: &[GRADIENT, Y],
        meaning: Meaning::Decompose(|r| partial(r, "relu")),
        ..PULLBACK
    },
    OpDef {
        name: "sigmoid_gradient",
        doc: "The gradient of `sigmoid`, whose result is `y`.",
        operands: &[GRADIENT, Y],
        meaning: Meaning::Decompose(|r| partial(r, "sigmoid")),
        ..PULLBACK
    },
    OpDef {
        name: "tanh_gradient",
        doc: "The gradient of `tanh`, whose result is `y`.",
        operands: &[GRADIENT, Y],
        meaning: Meaning::Decompose(|r| r.arg(0) * (r.arg(1).scalar(1.0) - r.arg(1) * r.arg(1))),
        ..PULLBACK
    },
    OpDef {
        name: "gelu_gradient",
        doc: "The gradient of `gelu`.",
        meaning: Meaning::Decompose(|r| partial(r, "gelu")),
        ..PULLBACK
    },
    OpDef {
        name: "gelu_tanh_gradient",
        batch: Batch::Leading,
        doc: "The gradient of `gelu_tanh`.",
        kind: Kind::Elementwise,
        meaning: Meaning::Scalar(
            "gradient * (s + x * s * (1 - s) * (1.5957691216057308 + 0.21406444881780076 * x * x)) \
             where y = x * (1.5957691216057308 + 0.07135481627260025 * x * x); s = 1 / (1 + exp(-y))",
        ),
        ..PULLBACK
    },
    OpDef {
        name: "silu_gradient",
        doc: "The gradient of `silu`.",
        meaning: Meaning::Decompose(|r| {
            let (gradient, x) = (r.arg(0), r.arg(1));
            let share = x.unary("sigmoid", &[]);
            gradient * (share * (x * (share.scalar(1.0) - share) + 1.0))
        }),
        note: "torch cannot differentiate it.",
        ..PULLBACK
    },
    OpDef {
        name: "softplus_gradient",
        doc: "The gradient of `softplus`.",
        attrs: &[BETA],
        meaning: Meaning::Decompose(|r| {
            r.arg(0) * (r.arg(1) * r.float("beta").unwrap_or(1.0)).unary("sigmoid", &[])
        }),
        ..PULLBACK
    },
    OpDef {
        name: "leaky_relu_gradient",
        doc: "The gradient of `leaky_relu`.",
        attrs: &[SLOPE],
        meaning: Meaning::Decompose(|r| partial(r, "leaky_relu")),
        ..PULLBACK
    },
    OpDef {
        name: "elu_gradient",
        doc: "The gradient of `elu`.",
        attrs: &[ALPHA],
        meaning: Meaning::Decompose(|r| partial(r, "elu")),
        note: "torch gives the slope 1 at NaN. MLX has the derivative of the left side at 0.",
        ..PULLBACK
    },
    OpDef {
        name: "selu_gradient",
        doc: "The gradient of `selu`.",
        meaning: Meaning::Decompose(|r| partial(r, "selu")),
        note: "torch gives the slope of the positive side at NaN. MLX has the derivative of the left \
               side at 0.",
        ..PULLBACK
    },
    OpDef {
        name: "mish_gradient",
        doc: "The gradient of `mish`.",
        meaning: Meaning::Decompose(|r| {
            let (gradient, x) = (r.arg(0), r.arg(1));
            let tanh = x.unary("softplus", &[]).unary("tanh", &[]);
            let slope = (tanh.scalar(1.0) - tanh * tanh) * x.unary("sigmoid", &[]);
            gradient * (tanh + x * slope)
        }),
        note: "torch cannot differentiate it.",
        ..PULLBACK
    },
    OpDef {
        name: "hardswish_gradient",
        doc: "The gradient of `hardswish`.",
        meaning: Meaning::Decompose(|r| partial(r, "hardswish")),
        note: "torch takes the outer slopes at -3 and 3, and 1 at NaN.",
        ..PULLBACK
    },
    OpDef {
        name: "softmax_gradient",
        doc: "The gradient of `softmax` along `axis`, whose result is `y`.",
        meaning: Meaning::Decompose(|r| softmax_gradient(r.arg(0), r.arg(1), r.int("axis"))),
        ..PULLBACK_ALONG
    },
    OpDef {
        name: "log_softmax_gradient",
        doc: "The gradient of `log_softmax` along `axis`, whose result is `y`.",
        meaning: Meaning::Decompose(|r| log_softmax_gradient(r.arg(0), r.arg(1), r.int("axis"))),
        ..PULLBACK_ALONG
    },
    OpDef {
        name: "layer_norm_mean",
        noun: "mean",
        doc: "The mean over the last axis, which is kept with size 1; the gradient of \
              `layer_norm` of the same operands needs it.",
        kind: Kind::Composite,
        operands: &[X, WEIGHT, BIAS],
        attrs: &[EPSILON],
        shape: ShapeRule::Rule(row_shape),
        meaning: Meaning::Decompose(|r| r.arg(0).reduce("mean", Some(&[-1]), true)),
        note: NORM_NOTE,
        ..BASE
    },
    OpDef {
        name: "layer_norm_reciprocal",
        noun: "reciprocal",
        doc: "`1 / sqrt(variance + epsilon)` over the last axis, which is kept with size 1; the \
              gradient of `layer_norm` of the same operands needs it.",
        kind: Kind::Composite,
        operands: &[X, WEIGHT, BIAS],
        attrs: &[EPSILON],
        shape: ShapeRule::Rule(row_shape),
        meaning: Meaning::Decompose(|r| {
            let deviation = r.arg(0) - r.arg(0).reduce("mean", Some(&[-1]), true);
            let variance = (deviation * deviation).reduce("mean", Some(&[-1]), true);
            let root = (variance.named("variance") + r.float("epsilon").unwrap_or(0.0)).sqrt();
            root.scalar(1.0) / root
        }),
        note: NORM_NOTE,
        ..BASE
    },
    OpDef {
        name: "layer_norm_gradient",
        doc: "The gradient of `layer_norm` with respect to operand number `of`; `gradient` is \
              that of its result, and `mean` and `reciprocal` are `layer_norm_mean` and \
              `layer_norm_reciprocal` of the same operands.",
        operands: &[GRADIENT, X, MEAN, RECIPROCAL, WEIGHT, BIAS],
        attrs: &[attr("of", AttrKind::Int, Default::Required)],
        shape: ShapeRule::Rule(norm_gradient),
        meaning: Meaning::Decompose(layer_norm_gradient),
        note: NORM_NOTE,
        ..PULLBACK
    },
];

/// The shape of a gradient, which must equal that of the value it belongs to.
fn gradient_shape(cx: &mut Infer) -> Result<Shape> {
    let (gradient, shape) = (cx.shape(0).clone(), cx.shape(1).clone());
    cx.same(&gradient, &shape, "a gradient and its value")?;
    Ok(shape)
}

/// The shape with one element for each row of the first operand.
fn row_shape(cx: &mut Infer) -> Result<Shape> {
    normalised(cx).map(with_last_dim_one)
}

fn with_last_dim_one(mut rows: Shape) -> Shape {
    if let Some(last) = rows.dims.last_mut() {
        *last = 1.into();
    }
    rows
}

fn norm_gradient(cx: &mut Infer) -> Result<Shape> {
    let x = gradient_shape(cx)?;
    check_scales(cx, &x, 4)?;
    let row_shape = with_last_dim_one(x.clone());
    for i in [2, 3] {
        let own = cx.shape(i).clone();
        cx.same(&row_shape, &own, "statistics of rows and an operand")?;
    }
    match (cx.int("of"), cx.operands.len()) {
        (0, _) => Ok(x),
        (of @ 1..=2, count) if of as usize + 4 <= count => Ok(cx.shape(of as usize + 3).clone()),
        (of, _) => cx.mismatch(format!("this use of `layer_norm` has no operand {of}")),
    }
}

/// Computes f16 and bf16 in f32, as their means are.
fn layer_norm_gradients<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let operands: Vec<Var<'a>> = r.operands.iter().map(|v| v.widened()).collect();
    let epsilon = [("epsilon", r.attr("epsilon").clone())];
    let mean = r.build("layer_norm_mean", &operands, &epsilon);
    let reciprocal = r.build("layer_norm_reciprocal", &operands, &epsilon);
    let mut all = vec![r.g().widened(), operands[0], mean, reciprocal];
    all.extend(&operands[1..]);
    let gradient = |of: usize| {
        let gradient = r.build("layer_norm_gradient", &all, &[("of", (of as i64).into())]);
        Some(gradient.cast(r.ty.dtype))
    };
    (0..operands.len()).map(gradient).collect()
}

fn layer_norm_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let (gradient, reciprocal) = (r.arg(0), r.arg(3));
    let normalised = (r.arg(1) - r.arg(2)) * reciprocal;
    match r.int("of") {
        0 => {
            let inner = r.optional(4).map_or(gradient, |weight| gradient * weight);
            let average = inner.reduce("mean", Some(&[-1]), true);
            let common = (inner * normalised).reduce("mean", Some(&[-1]), true);
            (inner - average - normalised * common) * reciprocal
        }
        1 => (gradient * normalised).sum_to(r.arg(4).shape()),
        _ => gradient.sum_to(r.arg(5).shape()),
    }
}
