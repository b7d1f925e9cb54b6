//! Blocks of one elementwise operation: activations and unary functions.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Input, KEY, Kind, Meaning, Parameter, Value, data, gives};
use crate::lower::Cx;

pub(super) const INPUT: &[Input] = &[data("input", Class::Float)];
pub(super) const NUMBER: &[Input] = &[data("input", Class::Number)];
pub(super) const ANY: &[Input] = &[data("input", Class::Any)];
pub(super) const ROBUST: Parameter = with("robust", Kind::Bool, Default::Bool(false))
    .doc("keep values and gradients finite where those of the function are not");

/// A block that is a single operation of the op table.
pub(super) const fn one(name: &'static str, op: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { name, inputs, meaning: Meaning::Op(op), ..BASE }
}

const fn unary(name: &'static str, op: &'static str) -> Entry {
    one(name, op, INPUT)
}

const fn number(name: &'static str, op: &'static str) -> Entry {
    one(name, op, NUMBER)
}

/// A block with one float input whose lowering is written with `Var` arithmetic.
const FLOAT: Entry = Entry { inputs: INPUT, same_dtype: true, ..BASE };

pub(super) const ACTIVATIONS: &[Entry] = &[
    Entry {
        formula: "maximum(input, 0)",
        source: "Nair & Hinton 2010",
        example: gives(&["[-1, 0, 2]"], "[0. 0. 2.]"),
        ..unary("Relu", "relu")
    },
    Entry {
        formula: "where(input > 0, input, slope * input)",
        source: "Maas et al. 2013",
        example: gives(&["[-1, 0, 2]"], "[-0.01  0.    2.  ]"),
        parameters: &[with("slope", Kind::Float(Range::Finite), Default::Float(0.01))
            .doc("the slope below 0")],
        ..unary("LeakyRelu", "leaky_relu")
    },
    Entry {
        formula: "where(input > 0, input, alpha * expm1(input))",
        source: "Clevert et al. 2016",
        example: gives(&["[-1, 0, 2]"], "[-0.6321  0.      2.    ]"),
        parameters: &[with("alpha", Kind::Float(Range::Finite), Default::Float(1.0))
            .doc("the negated limit at minus infinity")],
        ..unary("Elu", "elu")
    },
    Entry {
        formula: "1.0507009873554805 * where(input > 0, input, 1.6732632423543772 * \
                  expm1(input))",
        example: gives(&["[-1, 0, 2]"], "[-1.1113  0.      2.1014]"),
        ..unary("Selu", "selu")
    },
    Entry {
        formula: "input * (1 + erf(input / sqrt(2))) / 2",
        example: gives(&["[-1, 0, 2]"], "[-0.1587  0.      1.9545]"),
        parameters: &[
            with("approximate", Kind::Bool, Default::Bool(false)).doc("use the tanh approximation")
        ],
        ..FLOAT.row(
            "Gelu",
            "`input * P(X <= input)` for a standard normal X (Hendrycks & Gimpel 2016); \
             `approximate` uses its tanh approximation.",
            |cx| either(cx, "approximate", "gelu_tanh", "gelu"),
        )
    },
    Entry {
        formula: "input / (1 + exp(-input))",
        source: "Elfwing et al. 2018",
        example: gives(&["[-1, 0, 2]"], "[-0.2689  0.      1.7616]"),
        ..unary("Silu", "silu")
    },
    Entry {
        formula: "input * tanh(log1p(exp(input)))",
        example: gives(&["[-1, 0, 2]"], "[-0.3034  0.      1.944 ]"),
        ..unary("Mish", "mish")
    },
    Entry {
        formula: "input * clip(input + 3, 0, 6) / 6",
        example: gives(&["[-1, 0, 2]"], "[-0.3333  0.      1.6667]"),
        ..unary("Hardswish", "hardswish")
    },
    Entry {
        formula: "1 / (1 + exp(-input))",
        example: gives(&["[-1, 0, 2]"], "[0.2689 0.5    0.8808]"),
        ..unary("Sigmoid", "sigmoid")
    },
    Entry {
        formula: "clip(input + 3, 0, 6) / 6",
        source: "Howard et al. 2019",
        example: gives(&["[-1, 0, 2]"], "[0.3333 0.5    0.8333]"),
        ..unary("HardSigmoid", "hard_sigmoid")
    },
    Entry {
        formula: "log1p(exp(beta * input)) / beta",
        source: "Dugas et al. 2001",
        example: gives(&["[-1, 0, 2]"], "[0.3133 0.6931 2.1269]"),
        parameters: &[with("beta", Kind::Float(Range::Positive), Default::Float(1.0))
            .doc("the sharpness of the bend")],
        ..unary("Softplus", "softplus")
    },
    Entry {
        formula: "input / (1 + abs(input))",
        source: "Bergstra et al. 2009",
        example: gives(&["[-1, 0, 2]"], "[-0.5     0.      0.6667]"),
        ..unary("Softsign", "softsign")
    },
    Entry {
        formula: "tanh(input)",
        example: gives(&["[-1, 0, 2]"], "[-0.7616  0.      0.964 ]"),
        ..unary("Tanh", "tanh")
    },
];

/// Unary functions, and blocks that pass their input through.
pub(super) const FUNCTIONS: &[Entry] = &[
    Entry {
        formula: "sign(input)",
        example: gives(&["[-1, 0, 2]"], "[-1.  0.  1.]"),
        ..number("Sign", "sign")
    },
    Entry {
        formula: "input**2",
        example: gives(&["[-1, 0, 2]"], "[1. 0. 4.]"),
        ..number("Square", "square")
    },
    Entry {
        formula: "sqrt(input)",
        example: gives(&["[0, 1, 4]"], "[0. 1. 2.]"),
        parameters: &[ROBUST],
        ..FLOAT.row(
            "Sqrt",
            "The square root. `robust` uses the magnitude and keeps the gradient finite.",
            |cx| either(cx, "robust", "robust_sqrt", "sqrt"),
        )
    },
    Entry {
        formula: "exp(input)",
        example: gives(&["[-1, 0, 2]"], "[0.3679 1.     7.3891]"),
        ..unary("Exponential", "exp")
    },
    Entry {
        formula: "log(input)",
        example: gives(&["[1, 2, 10]"], "[0.     0.6931 2.3026]"),
        parameters: &[ROBUST],
        ..FLOAT.row(
            "Log",
            "The natural logarithm. `robust` uses the magnitude and stays finite at 0.",
            |cx| either(cx, "robust", "robust_log", "log"),
        )
    },
    Entry {
        formula: "log1p(input)",
        example: gives(&["[0, 1, 2]"], "[0.     0.6931 1.0986]"),
        ..unary("Log1p", "log1p")
    },
    Entry {
        formula: "expm1(input)",
        example: gives(&["[-1, 0, 2]"], "[-0.6321  0.      6.3891]"),
        ..unary("Expm1", "expm1")
    },
    Entry {
        formula: "abs(input)",
        example: gives(&["[-1, 0, 2]"], "[1. 0. 2.]"),
        ..number("Absolute", "abs")
    },
    Entry {
        formula: "-input",
        example: gives(&["[-1, 0, 2]"], "[ 1. -0. -2.]"),
        ..number("Negate", "neg")
    },
    Entry {
        formula: "1 / input",
        example: gives(&["[-1, 1, 4]"], "[-1.    1.    0.25]"),
        ..unary("Reciprocal", "reciprocal")
    },
    Entry {
        doc: "`1 / input`, continued by a line near 0, so that it stays finite.",
        example: gives(&["[-1, 0, 4]"], "[-1.0e+00  2.0e+30  2.5e-01]"),
        meaning: Meaning::Lower(|cx| done(robust(cx.var("input"), "stable_reciprocal"))),
        ..unary("StableReciprocal", "stable_reciprocal")
    },
    Entry {
        formula: "input",
        example: gives(&["[-1, 0, 2]"], "[-1.  0.  2.]"),
        inputs: ANY,
        ..FLOAT.row("Buffer", "`input` itself.", |cx| done(cx.var("input")))
    },
    Entry {
        formula: "sin(input)",
        example: gives(&["[-1, 0, 2]"], "[-0.8415  0.      0.9093]"),
        ..unary("Sine", "sin")
    },
    Entry {
        formula: "cos(input)",
        example: gives(&["[-1, 0, 2]"], "[ 0.5403  1.     -0.4161]"),
        ..unary("Cosine", "cos")
    },
    Entry {
        formula: "tan(input)",
        example: gives(&["[-1, 0, 2]"], "[-1.5574  0.     -2.185 ]"),
        ..unary("Tan", "tan")
    },
    Entry {
        formula: "arcsin(input)",
        example: gives(&["[0, 0.5, 1]"], "[0.     0.5236 1.5708]"),
        ..unary("Asin", "asin")
    },
    Entry {
        formula: "arccos(input)",
        example: gives(&["[0, 0.5, 1]"], "[1.5708 1.0472 0.    ]"),
        ..unary("Acos", "acos")
    },
    Entry {
        formula: "arctan(input)",
        example: gives(&["[-1, 0, 2]"], "[-0.7854  0.      1.1071]"),
        ..unary("Atan", "atan")
    },
    Entry {
        formula: "sinh(input)",
        example: gives(&["[-1, 0, 2]"], "[-1.1752  0.      3.6269]"),
        ..unary("Sinh", "sinh")
    },
    Entry {
        formula: "cosh(input)",
        example: gives(&["[-1, 0, 2]"], "[1.5431 1.     3.7622]"),
        ..unary("Cosh", "cosh")
    },
    Entry {
        formula: "erf(input)",
        example: gives(&["[-1, 0, 2]"], "[-0.8427  0.      0.9953]"),
        ..unary("Erf", "erf")
    },
    Entry {
        formula: "floor(input)",
        example: gives(&["[-1.5, 0.5, 2.7]"], "[-2.  0.  2.]"),
        ..unary("Floor", "floor")
    },
    Entry {
        formula: "ceil(input)",
        example: gives(&["[-1.5, 0.5, 2.7]"], "[-1.  1.  3.]"),
        ..unary("Ceil", "ceil")
    },
    Entry {
        formula: "round(input)",
        example: gives(&["[-1.5, 0.5, 2.7]"], "[-2.  0.  3.]"),
        ..unary("Round", "round")
    },
    Entry {
        formula: "isnan(input)",
        example: gives(&["[0, np.nan, np.inf]"], "[False  True False]"),
        ..unary("IsNan", "is_nan")
    },
    Entry {
        formula: "isinf(input)",
        example: gives(&["[0, np.nan, np.inf]"], "[False False  True]"),
        ..unary("IsInf", "is_inf")
    },
    Entry {
        formula: "nan_to_num(input)",
        example: gives(&["[0, np.nan, -np.inf]"], "[ 0.0000e+00  0.0000e+00 -3.4028e+38]"),
        parameters: &[
            with("nan", Kind::Float(Range::Ordered), Default::Float(0.0))
                .doc("the number that replaces NaN"),
            with("posinf", Kind::Float(Range::Ordered), Default::None)
                .doc("the number that replaces infinity; the largest of the dtype if omitted"),
            with("neginf", Kind::Float(Range::Ordered), Default::None)
                .doc("the number that replaces -infinity; the smallest of the dtype if omitted"),
        ],
        ..FLOAT.row("NanToNum", "`input` with numbers in place of NaN and infinities.", |cx| {
            let x = cx.var("input");
            let most = largest(x.dtype());
            let number = |name: &str, own: f64| cx.settings.float(name).unwrap_or(own);
            let attrs =
                [("low", number("neginf", -most).into()), ("high", number("posinf", most).into())];
            let y = x.unary("nan_to_num", &attrs);
            let nan = cx.float("nan");
            done(if nan == 0.0 { y } else { x.unary("is_nan", &[]).select(y.scalar(nan), y) })
        })
    },
    Entry {
        formula: "logical_not(input)",
        example: gives(&["[True, False]"], "[False  True]"),
        ..one("LogicalNot", "not", &[data("input", Class::Bool)])
    },
    Entry {
        formula: "invert(input)",
        example: gives(&["[0, 1, -3]"], "[-1 -2  2]"),
        ..one("BitwiseNot", "not", &[data("input", Class::Int)])
    },
    Entry {
        formula: "input.astype(dtype)",
        example: gives(&["[-1.5, 0.5, 2.7]"], "[-1  0  2]").with_settings("ml.int32"),
        parameters: &[required("dtype", Kind::DType).doc("the dtype of the result")],
        ..one("Cast", "cast", ANY)
    },
    Entry {
        formula: "clip(input, min, max)",
        example: gives(&["[-1.5, 0.5, 2.7]"], "[-1.   0.5  1. ]").with_settings("min=-1, max=1"),
        parameters: &[
            with("min", Kind::Float(Range::Ordered), Default::None)
                .doc("the lower bound; none if omitted"),
            with("max", Kind::Float(Range::Ordered), Default::None)
                .doc("the upper bound; none if omitted")
                .at_least("min"),
        ],
        ..FLOAT.row("Clamp", "`input` limited to the range from `min` to `max`.", |cx| {
            let bound = |name: &str, open: f64| cx.settings.float(name).unwrap_or(open);
            let attrs = [
                ("min", bound("min", f64::NEG_INFINITY).into()),
                ("max", bound("max", f64::INFINITY).into()),
            ];
            done(cx.var("input").unary("clamp", &attrs))
        })
    },
    Entry {
        formula: "input",
        example: gives(&["[-1, 0, 2]"], "[-1.  0.  2.]"),
        ..one("StopGradient", "stop_gradient", ANY)
    },
    Entry {
        formula: "input",
        example: gives(&["[[1, 2], [3, 4]]"], "[[1. 2.]\n [3. 4.]]")
            .with_settings("tensor_split={\"data\": 0}"),
        inputs: ANY,
        parameters: &[required("tensor_split", Kind::Split).doc(
            "for each axis of the mesh, the axis of `input` that it divides, or None: a list in the \
             order of the mesh axes, or a dict by their names; mesh axes without an entry divide \
             nothing",
        )],
        ..BASE.row(
            "Shard",
            "`input` itself, divided over the backend's device mesh. Without a mesh it has no \
             effect.",
            |cx| {
                let split = cx.settings.split("tensor_split");
                let (by, axes): (Vec<String>, Vec<i64>) = split.into_iter().unzip();
                let attrs = [("axes", Attr::ints(axes)), ("by", Attr::Str(by.join(",").into()))];
                done(cx.var("input").unary("constrain", &attrs))
            },
        )
    },
];

pub(super) const DROPOUT: &[Entry] = &[Entry {
    example: gives(&["[[1, 2, 3]]", "[0, 7]"], "(1, 3)").with_settings("rate=0.5"),
    parameters: &[
        with("rate", Kind::Float(Range::Unit), Default::Float(0.5)).doc("the probability of 0")
    ],
    inputs: &[data("input", Class::Float), KEY.in_training()],
    ..FLOAT.row(
        "Dropout",
        "Each element is 0 with probability `rate`, else `input / (1 - rate)`; in inference, \
         `input` itself (Srivastava et al. 2014).",
        dropout,
    )
}];

pub(super) fn done(value: Var) -> Result<Vec<Value>> {
    Ok(vec![value.value])
}

/// The operation `yes` if the flag is set, otherwise `no`.
fn either(cx: &Cx, flag: &str, yes: &str, no: &str) -> Result<Vec<Value>> {
    let x = cx.var("input");
    done(match (cx.flag(flag), flag) {
        (true, "robust") => robust(x, yes),
        (true, _) => x.unary(yes, &[]),
        (false, _) => x.unary(no, &[]),
    })
}

/// A robust operation, which is continued smoothly below a cutoff. For f16 the cutoff is the
/// smallest normal number, because the default cutoff would round to 0.
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
    dropped(cx, cx.var("input").shape())
}

/// Drops elements of the input in training; a draw of this shape, which broadcasts, decides which.
pub(super) fn dropped(cx: &Cx, shape: Shape) -> Result<Vec<Value>> {
    let (x, rate) = (cx.var("input"), cx.float("rate"));
    let Some(key) = cx.optional("key").filter(|_| cx.training() && rate > 0.0) else {
        return done(x);
    };
    let attrs = [("shape", shape.into()), ("dtype", DType::F32.into())];
    let draw = key.unary("uniform", &attrs);
    let kept = draw.binary("ge", draw.scalar(rate));
    let zero = x.scalar(0.0);
    done(kept.select(if rate < 1.0 { x / (1.0 - rate) } else { zero }, zero))
}
