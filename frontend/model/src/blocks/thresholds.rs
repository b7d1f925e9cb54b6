//! Activations with thresholds, learned or random slopes, and gates.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::channels::channels;
use super::elementwise::{INPUT, done};
use super::layers::INIT;
use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Group, KEY, Kind, Parameter, Value, data, gives, param};
use crate::init::Init;
use crate::lower::Cx;

/// An activation that is written with `Var` arithmetic.
const ACTIVATION: Entry = Entry { inputs: INPUT, same_dtype: true, ..BASE };
/// An activation that mixes elements, draws or learns.
const ACTIVATION_LAYER: Entry = Entry { group: Group::Layer, ..ACTIVATION };

const fn finite(name: &'static str, default: f64) -> Parameter {
    with(name, Kind::Float(Range::Finite), Default::Float(default))
}

const THRESHOLD: Parameter = with("lambd", Kind::Float(Range::NotNegative), Default::Float(0.5))
    .doc("the magnitude up to which numbers become 0");
const AXIS: Parameter = with("axis", Kind::Int, Default::Int(-1));

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "clip(input, 0, 6)",
        source: "Howard et al. 2017",
        example: gives(&["[-1, 3, 7]"], "[0. 3. 6.]"),
        ..ACTIVATION
            .row("Relu6", "`Relu`, but at most 6.", |cx| done(between(cx.var("input"), 0.0, 6.0)))
    },
    Entry {
        formula: "clip(input, min, max)",
        example: gives(&["[-2, 0.5, 3]"], "[-1.   0.5  1. ]"),
        parameters: &[
            finite("min", -1.0).doc("the lower bound"),
            finite("max", 1.0).doc("the upper bound"),
        ],
        ..ACTIVATION.row(
            "Hardtanh",
            "`input` between `min` and `max`. The gradient at the bounds is 0; that of `Clamp` is \
             1.",
            |cx| done(between(cx.var("input"), cx.float("min"), cx.float("max"))),
        )
    },
    Entry {
        formula: "where(input > 0, input, alpha * expm1(input / alpha))",
        source: "Barron 2017",
        example: gives(&["[-1, 0, 2]"], "[-0.7869  0.      2.    ]").with_settings("alpha=2.0"),
        parameters: &[with("alpha", Kind::Float(Range::Positive), Default::Float(1.0))
            .doc("the negated limit at minus infinity")],
        ..ACTIVATION.row(
            "Celu",
            "`input` above 0, `alpha (exp(input / alpha) - 1)` below: an `Elu` whose slope at 0 is \
             1 for each `alpha`.",
            |cx| {
                let alpha = cx.float("alpha");
                done((cx.var("input") / alpha).unary("elu", &[]) * alpha)
            },
        )
    },
    Entry {
        formula: "where(abs(input) > lambd, input, 0)",
        example: gives(&["[-1, 0.25, 2]"], "[-1.  0.  2.]"),
        parameters: &[THRESHOLD],
        ..ACTIVATION.row(
            "Hardshrink",
            "0 where the magnitude is at most `lambd`, else `input`.",
            |cx| {
                let (x, lambd) = (cx.var("input"), cx.float("lambd"));
                let low = x.binary("ge", x.scalar(-lambd));
                let high = x.binary("le", x.scalar(lambd));
                done(low.binary("and", high).select(x.scalar(0.0), x))
            },
        )
    },
    Entry {
        formula: "where(abs(input) > lambd, input - sign(input) * lambd, 0)",
        example: gives(&["[-1, 0.25, 2]"], "[-0.5  0.   1.5]"),
        parameters: &[THRESHOLD],
        ..ACTIVATION.row(
            "Softshrink",
            "`input`, moved towards 0 by `lambd`; 0 where the magnitude is less.",
            |cx| {
                let (x, lambd) = (cx.var("input"), cx.float("lambd"));
                let zero = x.unary("is_nan", &[]).select(x, x.scalar(0.0));
                let below = x.binary("lt", x.scalar(-lambd)).select(x + lambd, zero);
                done(x.binary("gt", x.scalar(lambd)).select(x - lambd, below))
            },
        )
    },
    Entry {
        formula: "input - tanh(input)",
        example: gives(&["[-1, 0, 2]"], "[-0.2384  0.      1.036 ]"),
        ..ACTIVATION.row("Tanhshrink", "`input - tanh(input)`.", |cx| {
            let x = cx.var("input");
            done(x - x.unary("tanh", &[]))
        })
    },
    Entry {
        formula: "where(input > threshold, input, value)",
        example: gives(&["[-1, 0.5, 2]"], "[7. 7. 2.]").with_settings("threshold=1.0, value=7.0"),
        parameters: &[
            required("threshold", Kind::Float(Range::Finite))
                .doc("the number up to which numbers are replaced"),
            required("value", Kind::Float(Range::Finite)).doc("what replaces them"),
        ],
        ..ACTIVATION.row("Threshold", "`input` above `threshold`, else `value`.", |cx| {
            let x = cx.var("input");
            let replaced = x.binary("le", x.scalar(cx.float("threshold")));
            done(replaced.select(x.scalar(cx.float("value")), x))
        })
    },
    Entry {
        formula: "-log1p(exp(-input))",
        example: gives(&["[-1, 0, 2]"], "[-1.3133 -0.6931 -0.1269]"),
        ..ACTIVATION.row(
            "LogSigmoid",
            "The logarithm of `Sigmoid`, computed so that it does not overflow.",
            |cx| done(-(-cx.var("input")).unary("softplus", &[])),
        )
    },
    Entry {
        formula: "exp(-input) / sum(exp(-input), axis, keepdims=True)",
        example: gives(&["[[0, 0], [0, 3]]"], "[[0.5    0.5   ]\n [0.9526 0.0474]]"),
        parameters: &[AXIS.doc("the axis that sums to 1")],
        ..ACTIVATION_LAYER.row("Softmin", "The `Softmax` of the negated input.", |cx| {
            done((-cx.var("input")).unary("softmax", &[("axis", cx.int("axis").into())]))
        })
    },
    Entry {
        formula: "split(input, 2, axis)[0] / (1 + exp(-split(input, 2, axis)[1]))",
        source: "Dauphin et al. 2017",
        example: gives(&["[1, 2, 0, 3]"], "[0.5    1.9051]"),
        parameters: &[AXIS.doc("the axis that is cut into halves")],
        ..ACTIVATION_LAYER.row(
            "Glu",
            "The first half of `input` along `axis`, times the `Sigmoid` of the second half.",
            |cx| {
                let [x, gate] = halves(cx)?;
                done(x * gate.unary("sigmoid", &[]))
            },
        )
    },
    Entry {
        formula: "where(input > 0, input, a * input)",
        source: "He et al. 2015",
        example: gives(&["[[-1, 2]]"], "[[-0.25  2.  ]]").with_params(&["[0.25]"]),
        parameters: &[
            with("per_channel", Kind::Bool, Default::Bool(false))
                .doc("learn a slope for each index of axis 1"),
            INIT.doc("the initial values of the slopes"),
        ],
        inputs: &[
            data("input", Class::Float),
            param("a", Init::Constant(0.25f64.to_bits()), slopes)
                .takes_init()
                .doc("(1), or (channels) with `per_channel`"),
        ],
        ..ACTIVATION_LAYER.row(
            "PRelu",
            "`input` above 0, `a * input` below, with a learned slope `a` that starts at 0.25, or as \
             given by `init`.",
            |cx| {
                let (x, mut a) = (cx.var("input"), cx.var("a"));
                if let (true, Some(rank)) = (cx.flag("per_channel"), x.shape().rank()) {
                    let axes: Vec<i64> = (1..rank.saturating_sub(1) as i64).collect();
                    a = if rank > 2 { a.expand_dims(&axes) } else { a };
                }
                done(x.binary("gt", x.scalar(0.0)).select(x, a * x))
            },
        )
    },
    Entry {
        source: "Xu et al. 2015",
        example: gives(&["[-8, 0, 2]", "[0, 7]"], "(3,)"),
        parameters: &[
            with("lower", Kind::Float(Range::Finite), Default::Float(1.0 / 8.0))
                .doc("the least slope"),
            with("upper", Kind::Float(Range::Finite), Default::Float(1.0 / 3.0))
                .at_least("lower")
                .doc("the bound of slopes"),
        ],
        inputs: &[data("input", Class::Float), KEY.in_training()],
        ..ACTIVATION_LAYER.row(
            "RRelu",
            "`input` above 0; below it is multiplied by a slope that is drawn for each element, \
             uniform between `lower` and `upper`. In inference, the slope is their mean.",
            |cx| {
                let (x, lower, upper) = (cx.var("input"), cx.float("lower"), cx.float("upper"));
                let positive = x.binary("gt", x.scalar(0.0));
                let Some(key) = cx.optional("key").filter(|_| cx.training()) else {
                    return done(positive.select(x, x * (0.5 * (lower + upper))));
                };
                let draw = uniform(key, x.shape()).cast(x.dtype().widened());
                let slope = draw * (upper - lower) + lower;
                done(positive.select(x, x * slope.cast(x.dtype())))
            },
        )
    },
    Entry {
        source: "Jang et al. 2017",
        example: gives(&["[[0, 1, 2]]", "[0, 7]"], "(1, 3)"),
        parameters: &[
            with("tau", Kind::Float(Range::Positive), Default::Float(1.0))
                .doc("the temperature: near 0, results are nearly one-hot"),
            with("hard", Kind::Bool, Default::Bool(false)).doc(
                "return one-hot vectors, with the gradient of the soft ones (straight-through)",
            ),
            AXIS.doc("the axis of categories"),
        ],
        inputs: &[data("input", Class::Float).doc("logits of categories"), KEY],
        ..ACTIVATION_LAYER.row(
            "GumbelSoftmax",
            "A draw of a category, as a vector that sums to 1 and is differentiable: \
             `softmax((input + g) / tau)` for Gumbel noise g.",
            gumbel,
        )
    },
];

/// The input between two bounds; the gradient is 0 at the bounds and outside.
fn between(x: Var, min: f64, max: f64) -> Var {
    let (low, high) = (x.scalar(min), x.scalar(max));
    let capped = x.binary("ge", high).select(high, x);
    x.binary("le", low).select(low, capped)
}

/// The halves of the input along the axis. Errors: an odd size.
fn halves<'a>(cx: &Cx<'a>) -> Result<[Var<'a>; 2]> {
    let (x, axis) = (cx.var("input"), cx.int("axis"));
    let shape = x.shape();
    let at = shape.need_rank()? - shape.axis_from_back(axis)?;
    let dim = shape.dims[at].clone();
    let half = cx.divide(&dim, 2, || {
        Diagnostic::of(ErrorKind::Shapes, format!("axis {axis} does not have two halves"))
            .got(&shape)
            .expected("an even size")
    })?;
    let part = |start: Dim, limit: Dim| {
        let [starts, limits] = [start, limit].map(|dim| Shape::new([dim]));
        let axes: &[i64] = &[at as i64];
        x.unary(
            "slice",
            &[("axes", axes.into()), ("starts", starts.into()), ("limits", limits.into())],
        )
    };
    Ok([part(Dim::Const(0), half.clone()), part(half, dim)])
}

/// One slope, or one for each index of axis 1. Errors: there is no axis 1.
fn slopes(cx: &Cx) -> Result<Shape> {
    if !cx.flag("per_channel") {
        return Ok(Shape::fixed(&[1]));
    }
    channels(cx)
}

/// Single-precision numbers from 0 to 1.
fn uniform(key: Var, shape: Shape) -> Var {
    key.unary("uniform", &[("shape", shape.into()), ("dtype", DType::F32.into())])
}

fn gumbel(cx: &Cx) -> Result<Vec<Value>> {
    let (x, axis) = (cx.var("input"), cx.int("axis"));
    // The draws are multiples of 2^-24 below 1. Half a step instead of 0 keeps logarithms finite.
    let draw = uniform(cx.var("key"), x.shape()).cast(x.dtype().widened());
    let draw = draw.binary("maximum", draw.scalar(2f64.powi(-25)));
    let noise = -(-draw.log()).log();
    let soft =
        ((x + noise.cast(x.dtype())) / cx.float("tau")).unary("softmax", &[("axis", axis.into())]);
    if !cx.flag("hard") {
        return done(soft);
    }
    let first = soft.unary("argmax", &[("axis", axis.into()), ("keepdim", true.into())]);
    let size = x.shape();
    let at = size.need_rank()? - size.axis_from_back(axis)?;
    let places = cx.iota(size, at as i64, first.dtype());
    let zero = soft.scalar(0.0);
    let hard = places.binary("eq", first).select(soft.scalar(1.0), zero);
    done(hard + (soft - soft.stop_gradient()))
}
