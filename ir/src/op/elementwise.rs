//! Elementwise operations that are scalar primitives: arithmetic, comparison, logic, choice.

use super::{
    BASE, Class, DTypeRule, Default, Gradient, Kind, Meaning, OpDef, Operand, ShapeRule, attr,
    operand,
};
use crate::attr::AttrKind;
use crate::dtype::DType;

/// The common fields of the families below.
pub(super) const ELEMENTWISE: OpDef =
    OpDef { kind: Kind::Elementwise, shape: ShapeRule::Broadcast, ..BASE };

pub(super) const FLOAT: &[Operand] = &[operand("x", Class::Float)];
const NUMBER: &[Operand] = &[operand("x", Class::Number)];
const BITS: &[Operand] = &[operand("x", Class::Bits)];
const NUMBER_PAIR: &[Operand] = &[operand("x", Class::Number), operand("y", Class::Number)];
const FLOAT_PAIR: &[Operand] = &[operand("x", Class::Float), operand("y", Class::Float)];
const INT_PAIR: &[Operand] = &[operand("x", Class::Int), operand("y", Class::Int)];
const BITS_PAIR: &[Operand] = &[operand("x", Class::Bits), operand("y", Class::Bits)];
const ANY_PAIR: &[Operand] = &[operand("x", Class::Any), operand("y", Class::Any)];

const COMPARISON: OpDef = OpDef {
    noun: "mask",
    operands: NUMBER_PAIR,
    dtype: DTypeRule::Fixed(DType::Bool),
    gradient: Gradient::Zero,
    ..ELEMENTWISE
};
const LOGIC: OpDef =
    OpDef { noun: "mask", operands: BITS_PAIR, gradient: Gradient::Zero, ..ELEMENTWISE };
const UNARY: OpDef = OpDef { operands: FLOAT, ..ELEMENTWISE };
const BINARY: OpDef = OpDef { operands: NUMBER_PAIR, ..ELEMENTWISE };

const TIES_NOTE: &str = "The operands share the gradient where they are equal. MLX gives all of it \
                         to `y`.";

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "add",
        noun: "total",
        doc: "The sum `x + y`.",
        meaning: Meaning::Scalar("x + y"),
        ..BINARY
    },
    OpDef {
        name: "sub",
        noun: "difference",
        doc: "The difference `x - y`.",
        meaning: Meaning::Scalar("x - y"),
        ..BINARY
    },
    OpDef {
        name: "mul",
        noun: "product",
        doc: "The product `x * y`.",
        meaning: Meaning::Scalar("x * y"),
        ..BINARY
    },
    OpDef {
        name: "div",
        noun: "ratio",
        doc: "The quotient `x / y` of floats.",
        operands: FLOAT_PAIR,
        meaning: Meaning::Scalar("x / y"),
        ..ELEMENTWISE
    },
    OpDef {
        name: "floor_div",
        noun: "quotient",
        doc: "The quotient rounded towards minus infinity.",
        meaning: Meaning::Scalar("x // y"),
        note: "An integer divided by zero gives -1 (all bits set) on the evaluator and native \
               targets; NumPy gives 0 with a warning, torch raises, JAX and MLX give other \
               numbers. tinygrad may be off by 1 where the quotient of floats is nearly whole.",
        ..BINARY
    },
    OpDef {
        name: "mod",
        noun: "remainder",
        doc: "The remainder of `floor_div`, with the sign of `y`.",
        meaning: Meaning::Scalar("x % y"),
        note: "The remainder of an integer by zero is `x` on the evaluator and native targets; \
               NumPy gives 0 with a warning, torch raises, JAX and MLX give other numbers. torch \
               gives NaN where the quotient of floats overflows. tinygrad loses the digits of \
               the quotient.",
        ..BINARY
    },
    OpDef {
        name: "pow",
        noun: "power",
        doc: "`x` to the power `y`.",
        meaning: Meaning::Scalar("x ** y"),
        note: "A negative integer exponent gives 0 unless the base is 1 or -1; NumPy raises, \
               torch raises if the exponent is a Python number, JAX and MLX give other numbers. `0 ** 0` \
               is 1, and both of its gradients are 0; JAX and MLX give NaN for that of the base, and MLX \
               -inf for that of the exponent. JAX gives NaN for that of the exponent of `0 ** -1`.",
        ..BINARY
    },
    OpDef {
        name: "atan2",
        noun: "angle",
        doc: "The angle of the point (`y`, `x`), in radians from -pi to pi.",
        operands: &[operand("x", Class::Float), operand("y", Class::Float)],
        meaning: Meaning::Scalar("atan2(x, y)"),
        note: "Both gradients are 0 where both numbers are 0, as in torch; in JAX and MLX they are \
               NaN there.",
        ..ELEMENTWISE
    },
    OpDef {
        name: "minimum",
        noun: "minimum",
        doc: "The smaller of two numbers; NaN if either is NaN.",
        meaning: Meaning::Scalar("min(x, y)"),
        note: TIES_NOTE,
        ..BINARY
    },
    OpDef {
        name: "maximum",
        noun: "maximum",
        doc: "The larger of two numbers; NaN if either is NaN.",
        meaning: Meaning::Scalar("max(x, y)"),
        note: TIES_NOTE,
        ..BINARY
    },
    OpDef {
        name: "eq",
        doc: "Whether `x` equals `y`.",
        operands: ANY_PAIR,
        meaning: Meaning::Scalar("x == y"),
        ..COMPARISON
    },
    OpDef {
        name: "ne",
        doc: "Whether `x` differs from `y`; true if either is NaN.",
        operands: ANY_PAIR,
        meaning: Meaning::Scalar("x != y"),
        ..COMPARISON
    },
    OpDef {
        name: "lt",
        doc: "Whether `x` is less than `y`.",
        meaning: Meaning::Scalar("x < y"),
        ..COMPARISON
    },
    OpDef {
        name: "le",
        doc: "Whether `x` is at most `y`.",
        meaning: Meaning::Scalar("x <= y"),
        ..COMPARISON
    },
    OpDef {
        name: "gt",
        doc: "Whether `x` is greater than `y`.",
        meaning: Meaning::Scalar("x > y"),
        ..COMPARISON
    },
    OpDef {
        name: "ge",
        doc: "Whether `x` is at least `y`.",
        meaning: Meaning::Scalar("x >= y"),
        ..COMPARISON
    },
    OpDef {
        name: "and",
        doc: "Logical and of bools, bitwise and of integers.",
        meaning: Meaning::Scalar("x & y"),
        ..LOGIC
    },
    OpDef {
        name: "or",
        doc: "Logical or of bools, bitwise or of integers.",
        meaning: Meaning::Scalar("x | y"),
        ..LOGIC
    },
    OpDef {
        name: "xor",
        doc: "Logical exclusive or of bools, bitwise exclusive or of integers.",
        meaning: Meaning::Scalar("x ^ y"),
        ..LOGIC
    },
    OpDef {
        name: "not",
        doc: "Logical not of bools, bitwise not of integers.",
        operands: BITS,
        meaning: Meaning::Scalar("~x"),
        ..LOGIC
    },
    OpDef {
        name: "shift_left",
        doc: "`x` shifted left by `y` bits; zeros are shifted in.",
        operands: INT_PAIR,
        meaning: Meaning::Scalar("x << y"),
        note: "A shift by the width or more gives 0 on the evaluator and native targets; MLX \
               gives other numbers.",
        ..LOGIC
    },
    OpDef {
        name: "shift_right",
        doc: "`x` shifted right by `y` bits; copies of the sign bit are shifted in (zeros if \
              unsigned).",
        operands: INT_PAIR,
        meaning: Meaning::Scalar("x >> y"),
        note: "A shift by the width or more gives 0, or -1 if `x` is negative, on the evaluator \
               and native targets; MLX gives other numbers.",
        ..LOGIC
    },
    OpDef {
        name: "select",
        noun: "selected",
        doc: "`yes` where `condition` holds, `no` elsewhere.",
        operands: &[
            operand("condition", Class::Bool).own_dtype(),
            operand("yes", Class::Any),
            operand("no", Class::Any),
        ],
        meaning: Meaning::Scalar("select(condition, yes, no)"),
        gradient: Gradient::Rule(|r| {
            let zero = r.g().scalar(0.0);
            vec![
                None,
                Some(r.arg(0).select(r.g(), zero).sum_to(r.arg(1).shape())),
                Some(r.arg(0).select(zero, r.g()).sum_to(r.arg(2).shape())),
            ]
        }),
        ..ELEMENTWISE
    },
    OpDef {
        name: "cast",
        noun: "converted",
        doc: "The input converted to another dtype.",
        operands: &[operand("x", Class::Any)],
        attrs: &[attr("dtype", AttrKind::DType, Default::Required)],
        dtype: DTypeRule::Attr("dtype"),
        meaning: Meaning::Scalar("cast(x)"),
        gradient: Gradient::Rule(|r| {
            let dtype = r.arg(0).dtype();
            vec![dtype.is_float().then(|| r.g().cast(dtype))]
        }),
        note: "A conversion of a float to an integer saturates and turns NaN into 0 on the \
               evaluator and native targets; frameworks leave these cases undefined.",
        ..ELEMENTWISE
    },
    OpDef {
        name: "neg",
        noun: "negative",
        doc: "`-x`.",
        operands: NUMBER,
        meaning: Meaning::Scalar("-x"),
        ..ELEMENTWISE
    },
    OpDef {
        name: "abs",
        noun: "size",
        doc: "The absolute value.",
        operands: NUMBER,
        meaning: Meaning::Scalar("abs(x)"),
        note: "The gradient at 0 is 0; in JAX it is 1.",
        ..ELEMENTWISE
    },
    OpDef {
        name: "sign",
        doc: "-1, 0 or 1, as `x` is negative, 0 or positive; NaN if `x` is NaN.",
        operands: NUMBER,
        meaning: Meaning::Scalar("sign(x)"),
        gradient: Gradient::Zero,
        ..ELEMENTWISE
    },
    OpDef {
        name: "floor",
        doc: "The largest integer that is at most `x`.",
        meaning: Meaning::Scalar("floor(x)"),
        gradient: Gradient::Zero,
        ..UNARY
    },
    OpDef {
        name: "ceil",
        doc: "The smallest integer that is at least `x`.",
        meaning: Meaning::Scalar("ceil(x)"),
        gradient: Gradient::Zero,
        ..UNARY
    },
    OpDef {
        name: "round",
        doc: "The nearest integer; halves round to even.",
        meaning: Meaning::Scalar("round(x)"),
        gradient: Gradient::Zero,
        ..UNARY
    },
    OpDef {
        name: "is_nan",
        doc: "Whether `x` is NaN.",
        operands: FLOAT,
        meaning: Meaning::Scalar("is_nan(x)"),
        ..COMPARISON
    },
    OpDef {
        name: "is_inf",
        doc: "Whether `x` is infinite.",
        operands: FLOAT,
        meaning: Meaning::Scalar("is_inf(x)"),
        ..COMPARISON
    },
];
