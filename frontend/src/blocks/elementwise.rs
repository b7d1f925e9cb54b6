//! Blocks of one elementwise operation: activations and functions of one number.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;

use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Input, KEY, Kind, Meaning, Parameter, Value, data};
use crate::lower::Cx;

pub(super) const INPUT: &[Input] = &[data("input", Class::Float)];
pub(super) const NUMBER: &[Input] = &[data("input", Class::Number)];
pub(super) const ANY: &[Input] = &[data("input", Class::Any)];
pub(super) const ROBUST: Parameter = with("robust", Kind::Bool, Default::Bool(false));

/// A block that is one operation of the op table.
pub(super) const fn one(name: &'static str, op: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { name, inputs, meaning: Meaning::Op(op), ..BASE }
}

const fn unary(name: &'static str, op: &'static str) -> Entry {
    one(name, op, INPUT)
}

const fn number(name: &'static str, op: &'static str) -> Entry {
    one(name, op, NUMBER)
}

/// A block of one float that is written in the algebra.
const FLOAT: Entry = Entry { inputs: INPUT, keeps: true, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    unary("Relu", "relu"),
    Entry {
        parameters: &[with("slope", Kind::Float(Range::Finite), Default::Float(0.01))],
        ..unary("LeakyRelu", "leaky_relu")
    },
    Entry {
        parameters: &[with("alpha", Kind::Float(Range::Finite), Default::Float(1.0))],
        ..unary("Elu", "elu")
    },
    unary("Selu", "selu"),
    Entry {
        parameters: &[with("approximate", Kind::Bool, Default::Bool(false))],
        ..FLOAT.row(
            "Gelu",
            "`input * P(X <= input)` for a standard normal X (Hendrycks & Gimpel 2016), by its \
             tanh approximation with `approximate`.",
            |cx| either(cx, "approximate", "gelu_tanh", "gelu"),
        )
    },
    unary("Silu", "silu"),
    unary("Mish", "mish"),
    unary("Hardswish", "hardswish"),
    unary("Sigmoid", "sigmoid"),
    unary("HardSigmoid", "hard_sigmoid"),
    Entry {
        parameters: &[with("beta", Kind::Float(Range::Positive), Default::Float(1.0))],
        ..unary("Softplus", "softplus")
    },
    unary("Softsign", "softsign"),
    unary("Tanh", "tanh"),
    number("Sign", "sign"),
    number("Square", "square"),
    Entry {
        parameters: &[ROBUST],
        ..FLOAT.row(
            "Sqrt",
            "The square root; with `robust` of the magnitude, with a gradient that stays finite.",
            |cx| either(cx, "robust", "robust_sqrt", "sqrt"),
        )
    },
    unary("Exponential", "exp"),
    Entry {
        parameters: &[ROBUST],
        ..FLOAT.row(
            "Log",
            "The natural logarithm; with `robust` of the magnitude, staying finite at 0.",
            |cx| either(cx, "robust", "robust_log", "log"),
        )
    },
    unary("Log1p", "log1p"),
    unary("Expm1", "expm1"),
    number("Absolute", "abs"),
    number("Negate", "neg"),
    unary("Reciprocal", "reciprocal"),
    Entry {
        doc: "`1 / input`, continued by a line near 0, so that it stays finite.",
        meaning: Meaning::Lower(|cx| done(robust(cx.var("input"), "stable_reciprocal"))),
        ..unary("StableReciprocal", "stable_reciprocal")
    },
    Entry { inputs: ANY, ..FLOAT.row("Buffer", "`input` itself.", |cx| done(cx.var("input"))) },
    unary("Sine", "sin"),
    unary("Cosine", "cos"),
    unary("Tan", "tan"),
    unary("Asin", "asin"),
    unary("Acos", "acos"),
    unary("Atan", "atan"),
    unary("Sinh", "sinh"),
    unary("Cosh", "cosh"),
    unary("Erf", "erf"),
    unary("Floor", "floor"),
    unary("Ceil", "ceil"),
    unary("Round", "round"),
    unary("IsNan", "is_nan"),
    unary("IsInf", "is_inf"),
    FLOAT.row(
        "NanToNum",
        "`input` with NaN replaced by 0, and infinities by the ends of the dtype.",
        |cx| {
            let x = cx.var("input");
            let high = largest(x.dtype());
            done(x.unary("nan_to_num", &[("low", (-high).into()), ("high", high.into())]))
        },
    ),
    one("LogicalNot", "not", &[data("input", Class::Bool)]),
    one("BitwiseNot", "not", &[data("input", Class::Int)]),
    Entry { parameters: &[required("dtype", Kind::DType)], ..one("Cast", "cast", ANY) },
    Entry {
        parameters: &[
            with("min", Kind::Float(Range::Ordered), Default::None),
            with("max", Kind::Float(Range::Ordered), Default::None).at_least("min"),
        ],
        ..FLOAT.row("Clamp", "`input` held between `min` and `max`.", |cx| {
            let bound = |name: &str, open: f64| cx.settings.float(name).unwrap_or(open);
            let attrs = [
                ("min", bound("min", f64::NEG_INFINITY).into()),
                ("max", bound("max", f64::INFINITY).into()),
            ];
            done(cx.var("input").unary("clamp", &attrs))
        })
    },
    one("StopGradient", "stop_gradient", ANY),
    Entry {
        parameters: &[with("rate", Kind::Float(Range::Unit), Default::Float(0.5))],
        inputs: &[data("input", Class::Float), KEY.in_training()],
        ..FLOAT.row(
            "Dropout",
            "`input / (1 - rate)` where a draw says so, 0 with probability `rate`; `input` itself \
             in inference (Srivastava et al. 2014).",
            dropout,
        )
    },
];

pub(super) fn done(value: Var) -> Result<Vec<Value>> {
    Ok(vec![value.value])
}

/// The first operation where the flag is set, else the second.
fn either(cx: &Cx, flag: &str, yes: &str, no: &str) -> Result<Vec<Value>> {
    let x = cx.var("input");
    done(match (cx.flag(flag), flag) {
        (true, "robust") => robust(x, yes),
        (true, _) => x.unary(yes, &[]),
        (false, _) => x.unary(no, &[]),
    })
}

/// An operation that is continued below a cutoff: f16's least normal number, where what others have
/// is 0.
pub(super) fn robust<'a>(x: Var<'a>, op: &str) -> Var<'a> {
    match x.dtype() {
        DType::F16 => x.unary(op, &[("cutoff", 6.103515625e-5.into())]),
        _ => x.unary(op, &[]),
    }
}

/// The largest finite number.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        DType::F32 => f32::MAX.into(),
        _ => f64::MAX,
    }
}

fn dropout(cx: &Cx) -> Result<Vec<Value>> {
    let (x, rate) = (cx.var("input"), cx.float("rate"));
    let Some(key) = cx.optional("key").filter(|_| cx.training() && rate > 0.0) else {
        return done(x);
    };
    let attrs = [("shape", x.shape().into()), ("dtype", DType::F32.into())];
    let draw = key.unary("uniform", &attrs);
    let kept = draw.binary("ge", draw.scalar(rate));
    let zero = x.scalar(0.0);
    done(kept.select(if rate < 1.0 { x / (1.0 - rate) } else { zero }, zero))
}
