//! Blocks with two operands (arithmetic, comparison, logic, bits), and selection.

use mithril_ir::op::Class;

use super::elementwise::{ROBUST, done, one};
use super::{Entry, Group, Input, Meaning, data, gives};

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
    Entry {
        formula: "left + right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[5.  4.  3.5]"),
        ..pair("Add", "add")
    },
    Entry {
        formula: "left - right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[-3.   0.   2.5]"),
        ..pair("Subtract", "sub")
    },
    Entry {
        formula: "left * right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[4.  4.  1.5]"),
        ..pair("Multiply", "mul")
    },
    Entry {
        formula: "numerator / denominator",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[0.25 1.   6.  ]"),
        ..of("Divide", "div", QUOTIENT)
    },
    Entry {
        formula: "numerator // denominator",
        example: gives(&["[7, -7, 2.5]", "[2, 2, 2]"], "[ 3. -4.  1.]"),
        ..of("FloorDivide", "floor_div", FRACTION)
    },
    Entry {
        formula: "numerator % denominator",
        example: gives(&["[7, -7, 2.5]", "[2, 2, 2]"], "[1.  1.  0.5]"),
        ..of("Modulo", "mod", FRACTION)
    },
    Entry {
        doc: "`base` to the power `exponent`. `robust` uses the magnitude of the base, and \
              continues powers of floats by a line near 0.",
        formula: "base**exponent",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[1.     4.     1.7321]"),
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
    Entry {
        formula: "arctan2(left, right)",
        example: gives(&["[0, 1, -1]", "[1, 0, -1]"], "[ 0.      1.5708 -2.3562]"),
        ..of("Atan2", "atan2", FLOATS)
    },
    Entry {
        formula: "minimum(left, right)",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[1.  2.  0.5]"),
        ..pair("Minimum", "minimum")
    },
    Entry {
        formula: "maximum(left, right)",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[4. 2. 3.]"),
        ..pair("Maximum", "maximum")
    },
    Entry {
        formula: "left @ right",
        example: gives(&["[[1, 2]]", "[[3, 4], [5, 6]]"], "[[13. 16.]]"),
        ..pair("MatrixMultiply", "matmul")
    },
    Entry {
        formula: "left == right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[False  True False]"),
        ..of("Equal", "eq", PAIR)
    },
    Entry {
        formula: "left != right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[ True False  True]"),
        ..of("NotEqual", "ne", PAIR)
    },
    Entry {
        formula: "left > right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[False False  True]"),
        ..pair("Greater", "gt")
    },
    Entry {
        formula: "left >= right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[False  True  True]"),
        ..pair("GreaterEqual", "ge")
    },
    Entry {
        formula: "left < right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[ True False False]"),
        ..pair("Less", "lt")
    },
    Entry {
        formula: "left <= right",
        example: gives(&["[1, 2, 3]", "[4, 2, 0.5]"], "[ True  True False]"),
        ..pair("LessEqual", "le")
    },
    Entry {
        formula: "logical_and(left, right)",
        example: gives(&["[True, True, False]", "[True, False, False]"], "[ True False False]"),
        ..of("LogicalAnd", "and", BOOLS)
    },
    Entry {
        formula: "logical_or(left, right)",
        example: gives(&["[True, True, False]", "[True, False, False]"], "[ True  True False]"),
        ..of("LogicalOr", "or", BOOLS)
    },
    Entry {
        formula: "logical_xor(left, right)",
        example: gives(&["[True, True, False]", "[True, False, False]"], "[False  True False]"),
        ..of("LogicalXor", "xor", BOOLS)
    },
    Entry {
        formula: "left & right",
        example: gives(&["[6, 3, -1]", "[3, 1, 2]"], "[2 1 2]"),
        ..of("BitwiseAnd", "and", INTS)
    },
    Entry {
        formula: "left | right",
        example: gives(&["[6, 3, -1]", "[3, 1, 2]"], "[ 7  3 -1]"),
        ..of("BitwiseOr", "or", INTS)
    },
    Entry {
        formula: "left ^ right",
        example: gives(&["[6, 3, -1]", "[3, 1, 2]"], "[ 5  2 -3]"),
        ..of("BitwiseXor", "xor", INTS)
    },
    Entry {
        formula: "left << right",
        example: gives(&["[6, 3, -1]", "[3, 1, 2]"], "[48  6 -4]"),
        ..of("ShiftLeft", "shift_left", INTS)
    },
    Entry {
        formula: "left >> right",
        example: gives(&["[6, 3, -1]", "[3, 1, 2]"], "[ 0  1 -1]"),
        ..of("ShiftRight", "shift_right", INTS)
    },
    Entry {
        formula: "where(cond, input1, input2)",
        example: gives(&["[True, False]", "[1, 2]", "[10, 20]"], "[ 1. 20.]"),
        ..of(
            "Where",
            "select",
            &[
                data("cond", Class::Bool).own_dtype(),
                data("input1", Class::Any),
                data("input2", Class::Any),
            ],
        )
    },
];
