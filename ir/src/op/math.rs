//! Elementwise operations of one float: elementary functions, and activations built from them.

use super::elementwise::{ELEMENTWISE, FLOAT};
use super::layers::{ALPHA, BETA, SLOPE};
use super::{Class, Default, Gradient, Meaning, OpDef, Operand, attr, operand, pullback};
use crate::attr::AttrKind;

const UNARY: OpDef = OpDef { operands: FLOAT, ..ELEMENTWISE };
const NUMBER: &[Operand] = &[operand("x", Class::Number)];

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "exp",
        noun: "powers",
        doc: "e to the power `x`.",
        meaning: Meaning::Scalar("exp(x)"),
        ..UNARY
    },
    OpDef {
        name: "expm1",
        doc: "`exp(x) - 1`, precise near 0.",
        meaning: Meaning::Scalar("expm1(x)"),
        ..UNARY
    },
    OpDef {
        name: "log",
        noun: "logs",
        doc: "The natural logarithm.",
        meaning: Meaning::Scalar("log(x)"),
        ..UNARY
    },
    OpDef {
        name: "log1p",
        doc: "`log(1 + x)`, precise near 0.",
        meaning: Meaning::Scalar("log1p(x)"),
        ..UNARY
    },
    OpDef {
        name: "sqrt",
        noun: "root",
        doc: "The square root.",
        meaning: Meaning::Scalar("sqrt(x)"),
        ..UNARY
    },
    OpDef {
        name: "sin",
        doc: "The sine of an angle in radians.",
        meaning: Meaning::Scalar("sin(x)"),
        note: "tinygrad loses digits near multiples of π.",
        ..UNARY
    },
    OpDef {
        name: "cos",
        doc: "The cosine of an angle in radians.",
        meaning: Meaning::Scalar("cos(x)"),
        note: "tinygrad loses digits near its zeros.",
        ..UNARY
    },
    OpDef {
        name: "tan",
        doc: "The tangent of an angle in radians.",
        meaning: Meaning::Scalar("tan(x)"),
        note: "tinygrad loses digits near its zeros and poles.",
        ..UNARY
    },
    OpDef {
        name: "asin",
        doc: "The angle from -pi/2 to pi/2 whose sine is `x`.",
        meaning: Meaning::Scalar("asin(x)"),
        ..UNARY
    },
    OpDef {
        name: "acos",
        doc: "The angle from 0 to pi whose cosine is `x`.",
        meaning: Meaning::Scalar("acos(x)"),
        ..UNARY
    },
    OpDef {
        name: "atan",
        doc: "The angle from -pi/2 to pi/2 whose tangent is `x`.",
        meaning: Meaning::Scalar("atan(x)"),
        ..UNARY
    },
    OpDef {
        name: "sinh",
        doc: "The hyperbolic sine.",
        meaning: Meaning::Scalar("sinh(x)"),
        ..UNARY
    },
    OpDef {
        name: "cosh",
        doc: "The hyperbolic cosine.",
        meaning: Meaning::Scalar("cosh(x)"),
        ..UNARY
    },
    OpDef {
        name: "tanh",
        doc: "The hyperbolic tangent.",
        meaning: Meaning::Scalar("tanh(x)"),
        pullback: pullback::of_result("tanh_gradient"),
        ..UNARY
    },
    OpDef {
        name: "erf",
        doc: "The error function.",
        meaning: Meaning::Scalar("erf(x)"),
        note: "MLX loses digits near 0 in single precision.",
        ..UNARY
    },
    OpDef {
        name: "square",
        doc: "`x * x`.",
        operands: NUMBER,
        meaning: Meaning::Scalar("x * x"),
        ..ELEMENTWISE
    },
    OpDef {
        name: "reciprocal",
        noun: "inverse",
        doc: "`1 / x`.",
        meaning: Meaning::Scalar("1 / x"),
        gradient: Gradient::Partials(&["-r * r"]),
        ..UNARY
    },
    OpDef {
        name: "sigmoid",
        doc: "The logistic function `1 / (1 + exp(-x))`.",
        meaning: Meaning::Scalar("select(x >= 0, 1 / (1 + t), t / (1 + t)) where t = exp(-abs(x))"),
        gradient: Gradient::Partials(&["r * (1 - r)"]),
        pullback: pullback::of_result("sigmoid_gradient"),
        ..UNARY
    },
    OpDef {
        name: "softplus",
        doc: "`log(1 + exp(beta * x)) / beta`.",
        attrs: &[BETA],
        meaning: Meaning::Scalar("(max(t, 0) + log1p(exp(-abs(t)))) / beta where t = beta * x"),
        gradient: Gradient::Partials(&[
            "select(x * beta >= 0, 1 / (1 + t), t / (1 + t)) where t = exp(-abs(beta * x))",
        ]),
        // Its expression contains a maximum, whose kink at 0 frameworks would differentiate.
        pullback: pullback::of_operand("softplus_gradient"),
        ..UNARY
    },
    OpDef {
        name: "softsign",
        doc: "`x / (1 + |x|)`.",
        meaning: Meaning::Scalar("x / (1 + abs(x))"),
        gradient: Gradient::Partials(&["1 / ((1 + abs(x)) * (1 + abs(x)))"]),
        ..UNARY
    },
    OpDef {
        name: "relu",
        doc: "The positive part, `max(x, 0)`.",
        operands: NUMBER,
        meaning: Meaning::Scalar("max(x, 0)"),
        gradient: Gradient::Partials(&["select(x > 0, 1, 0)"]),
        pullback: pullback::of_result("relu_gradient"),
        note: "The gradient at 0 is 0, as in torch and JAX.",
        ..ELEMENTWISE
    },
    OpDef {
        name: "leaky_relu",
        doc: "`x` where positive, `slope * x` elsewhere.",
        attrs: &[SLOPE],
        meaning: Meaning::Scalar("select(x > 0, x, slope * x)"),
        gradient: Gradient::Partials(&["select(x > 0, 1, slope)"]),
        pullback: pullback::of_operand("leaky_relu_gradient"),
        note: "The gradient at 0 is `slope`; in JAX and tinygrad it is 1.",
        ..UNARY
    },
    OpDef {
        name: "elu",
        doc: "`x` where positive, `alpha * (exp(x) - 1)` elsewhere.",
        attrs: &[ALPHA],
        meaning: Meaning::Scalar("select(x > 0, x, alpha * expm1(min(x, 0)))"),
        gradient: Gradient::Partials(&["select(x > 0, 1, alpha * exp(min(x, 0)))"]),
        pullback: pullback::of_operand("elu_gradient"),
        ..UNARY
    },
    OpDef {
        name: "selu",
        doc: "The self-normalizing `elu` (Klambauer et al. 2017, eq. 2).",
        meaning: Meaning::Scalar(
            "1.0507009873554805 * select(x > 0, x, 1.6732632423543772 * expm1(min(x, 0)))",
        ),
        gradient: Gradient::Partials(&[
            "1.0507009873554805 * select(x > 0, 1, 1.6732632423543772 * exp(min(x, 0)))",
        ]),
        pullback: pullback::of_operand("selu_gradient"),
        ..UNARY
    },
    OpDef {
        name: "gelu",
        doc: "`x * P(X <= x)` for a standard normal X (Hendrycks & Gimpel 2016).",
        meaning: Meaning::Scalar("0.5 * x * (1 + erf(x * 0.7071067811865476))"),
        gradient: Gradient::Partials(&[
            "0.5 * (1 + erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * exp(-0.5 * x * x)",
        ]),
        pullback: pullback::of_operand("gelu_gradient"),
        ..UNARY
    },
    OpDef {
        name: "gelu_tanh",
        doc: "`gelu` by its tanh approximation (Hendrycks & Gimpel 2016).",
        meaning: Meaning::Scalar(
            "0.5 * x * (1 + tanh(x * (0.7978845608028654 + 0.035677408136300125 * x * x)))",
        ),
        gradient: Gradient::Partials(&[
            "0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (0.7978845608028654 + 0.10703222440890038 * x * x) \
             where t = tanh(x * (0.7978845608028654 + 0.035677408136300125 * x * x))",
        ]),
        pullback: pullback::of_operand("gelu_tanh_gradient"),
        ..UNARY
    },
    OpDef {
        name: "silu",
        doc: "`x * sigmoid(x)`.",
        meaning: Meaning::Scalar(
            "x * select(x >= 0, 1 / (1 + t), t / (1 + t)) where t = exp(-abs(x))",
        ),
        gradient: Gradient::Partials(&["s * (1 + x * (1 - s)) \
             where t = exp(-abs(x)); s = select(x >= 0, 1 / (1 + t), t / (1 + t))"]),
        pullback: pullback::of_operand("silu_gradient"),
        ..UNARY
    },
    OpDef {
        name: "mish",
        doc: "`x * tanh(softplus(x))` (Misra 2019).",
        meaning: Meaning::Scalar("x * tanh(max(x, 0) + log1p(exp(-abs(x))))"),
        gradient: Gradient::Partials(&[
            "u + x * (1 - u * u) * select(x >= 0, 1 / (1 + t), t / (1 + t)) \
             where t = exp(-abs(x)); u = tanh(max(x, 0) + log1p(t))",
        ]),
        pullback: pullback::of_operand("mish_gradient"),
        ..UNARY
    },
    OpDef {
        name: "hardswish",
        doc: "`x * min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).",
        meaning: Meaning::Scalar("x * min(max(x + 3, 0), 6) / 6"),
        gradient: Gradient::Partials(&["select(x < -3, 0, select(x > 3, 1, (2 * x + 3) / 6))"]),
        pullback: pullback::of_operand("hardswish_gradient"),
        note: "At -3 and 3 frameworks differ in which side's slope they use.",
        ..UNARY
    },
    OpDef {
        name: "hard_sigmoid",
        doc: "`min(max(x + 3, 0), 6) / 6`.",
        meaning: Meaning::Scalar("min(max(x + 3, 0), 6) / 6"),
        gradient: Gradient::Partials(&["select((x > -3) & (x < 3), 0.16666666666666666, 0)"]),
        note: "At -3 and 3 frameworks differ in which side's slope they use; torch computes the \
               1/6 of its gradient in single precision.",
        ..UNARY
    },
    OpDef {
        name: "clamp",
        noun: "clamped",
        doc: "`x` limited to the range from `min` to `max`.",
        attrs: &[
            attr("min", AttrKind::Float, Default::Float(f64::NEG_INFINITY)),
            attr("max", AttrKind::Float, Default::Float(f64::INFINITY)),
        ],
        meaning: Meaning::Scalar("min(max(x, min), max)"),
        gradient: Gradient::Partials(&["select((x >= min) & (x <= max), 1, 0)"]),
        note: "The gradient where `x` equals `min` or `max` is 1 on the evaluator, NumPy and \
               native targets, 0 on torch and MLX, 1/2 on JAX.",
        ..UNARY
    },
    OpDef {
        name: "nan_to_num",
        doc: "`x` with NaN replaced by 0, -inf by `low` and inf by `high`.",
        attrs: &[
            attr("low", AttrKind::Float, Default::Required),
            attr("high", AttrKind::Float, Default::Required),
        ],
        meaning: Meaning::Scalar(
            "select(is_nan(x), 0, select(is_inf(x), select(x > 0, high, low), x))",
        ),
        gradient: Gradient::Partials(&["select(is_nan(x) | is_inf(x), 0, 1)"]),
        ..UNARY
    },
    OpDef {
        name: "robust_sqrt",
        doc: "`sqrt(|x|)`, continued by the chord below `cutoff`, so that its gradient stays finite.",
        attrs: &[attr("cutoff", AttrKind::Float, Default::Float(1e-30))],
        meaning: Meaning::Scalar(
            "select(a < cutoff, a / sqrt(cutoff), sqrt(max(a, cutoff))) where a = abs(x)",
        ),
        gradient: Gradient::Partials(&[
            "sign(x) * select(a < cutoff, 1 / sqrt(cutoff), 0.5 / sqrt(max(a, cutoff))) \
             where a = abs(x)",
        ]),
        note: "At 0 JAX uses the slope of the positive side.",
        ..UNARY
    },
    OpDef {
        name: "robust_log",
        doc: "`log(|x|)`, continued by its tangent below `cutoff`, so that it stays finite.",
        attrs: &[attr("cutoff", AttrKind::Float, Default::Float(1e-30))],
        meaning: Meaning::Scalar(
            "select(a < cutoff, log(cutoff) + (a - cutoff) / cutoff, log(max(a, cutoff))) \
             where a = abs(x)",
        ),
        gradient: Gradient::Partials(&["sign(x) / max(abs(x), cutoff)"]),
        note: "At 0 JAX uses the slope of the positive side.",
        ..UNARY
    },
    OpDef {
        name: "stable_reciprocal",
        doc: "`1 / x`, continued by a line below `cutoff` in magnitude, so that it stays finite.",
        attrs: &[attr("cutoff", AttrKind::Float, Default::Float(1e-30))],
        meaning: Meaning::Scalar(
            "select(a < cutoff, s * (2 - min(a, cutoff) / cutoff) / cutoff, s / max(a, cutoff)) \
             where s = select(x < 0, -1, 1); a = s * x",
        ),
        gradient: Gradient::Partials(&["-1 / (t * t) where t = max(abs(x), cutoff)"]),
        ..UNARY
    },
];
