//! Blocks of two operands: arithmetic, comparison, logic, bits; and choice.

use mithril_ir::op::Class;

use super::elementwise::{ROBUST, done, one};
use super::{Entry, Group, Input, Meaning, data};

const PAIR: &[Input] = &[data("left", Class::Number), data("right", Class::Number)];
const FRACTION: &[Input] = &[data("numerator", Class::Number), data("denominator", Class::Number)];
const QUOTIENT: &[Input] = &[data("numerator", Class::Float), data("denominator", Class::Float)];
const BOOLS: &[Input] = &[data("left", Class::Bool), data("right", Class::Bool)];
const INTS: &[Input] = &[data("left", Class::Int), data("right", Class::Int)];
const FLOATS: &[Input] = &[data("left", Class::Float), data("right", Class::Float)];
const POWER: &[Input] = &[data("base", Class::Number), data("exponent", Class::Number)];

const fn of(name: &'static str, op: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { group: Group::Binary, ..one(name, op, inputs) }
}

const fn pair(name: &'static str, op: &'static str) -> Entry {
    of(name, op, PAIR)
}

pub(super) const BLOCKS: &[Entry] = &[
    pair("Add", "add"),
    pair("Subtract", "sub"),
    pair("Multiply", "mul"),
    of("Divide", "div", QUOTIENT),
    of("FloorDivide", "floor_div", FRACTION),
    of("Modulo", "mod", FRACTION),
    Entry {
        doc: "`base` to the power `exponent`; with `robust` of the magnitude of the base, of floats \
              continued by a line near 0.",
        parameters: &[ROBUST],
        meaning: Meaning::Lower(|cx| {
            let (base, exponent) = (cx.var("base"), cx.var("exponent"));
            if !cx.flag("robust") {
                return done(base.binary("pow", exponent));
            }
            let size = base.unary("abs", &[]);
            if !base.dtype().is_float() {
                return done(size.binary("pow", exponent));
            }
            let least = base.scalar(1e-15);
            let away = size.binary("maximum", least);
            let slope = least.binary("pow", exponent - 1.0);
            let near = size.binary("lt", least);
            done(near.select(size * slope, away.binary("pow", exponent)))
        }),
        ..of("Power", "pow", POWER)
    },
    of("Atan2", "atan2", FLOATS),
    pair("Minimum", "minimum"),
    pair("Maximum", "maximum"),
    pair("MatrixMultiply", "matmul"),
    of("Equal", "eq", PAIR),
    of("NotEqual", "ne", PAIR),
    pair("Greater", "gt"),
    pair("GreaterEqual", "ge"),
    pair("Less", "lt"),
    pair("LessEqual", "le"),
    of("LogicalAnd", "and", BOOLS),
    of("LogicalOr", "or", BOOLS),
    of("LogicalXor", "xor", BOOLS),
    of("BitwiseAnd", "and", INTS),
    of("BitwiseOr", "or", INTS),
    of("BitwiseXor", "xor", INTS),
    of("ShiftLeft", "shift_left", INTS),
    of("ShiftRight", "shift_right", INTS),
    of(
        "Where",
        "select",
        &[
            data("cond", Class::Bool).apart(),
            data("input1", Class::Any),
            data("input2", Class::Any),
        ],
    ),
];
