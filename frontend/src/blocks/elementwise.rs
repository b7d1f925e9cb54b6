//! Blocks of one elementwise operation: activations, arithmetic, comparison, logic.

use mithril_ir::op::Class;

use super::parameter::{required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Meaning, data};

const INPUT: &[Input] = &[data("input", Class::Float)];
const NUMBER: &[Input] = &[data("input", Class::Number)];
const PAIR: &[Input] = &[data("left", Class::Number), data("right", Class::Number)];

/// A block that is one operation of the op table.
const fn one(name: &'static str, op: &'static str, inputs: &'static [Input]) -> Entry {
    Entry {
        name,
        inputs,
        meaning: Meaning::Op(op),
        ..BASE
    }
}

const fn unary(name: &'static str, op: &'static str) -> Entry {
    one(name, op, INPUT)
}

const fn number(name: &'static str, op: &'static str) -> Entry {
    one(name, op, NUMBER)
}

const fn binary(name: &'static str, op: &'static str) -> Entry {
    Entry {
        group: Group::Binary,
        ..one(name, op, PAIR)
    }
}

pub(super) const BLOCKS: &[Entry] = &[
    unary("Relu", "relu"),
    Entry {
        parameters: &[with("slope", Kind::Float, Default::Float(0.01))],
        ..unary("LeakyRelu", "leaky_relu")
    },
    unary("Sigmoid", "sigmoid"),
    unary("Tanh", "tanh"),
    number("Negate", "neg"),
    Entry {
        parameters: &[required("dtype", Kind::DType)],
        ..one("Cast", "cast", &[data("input", Class::Any)])
    },
    binary("Add", "add"),
    binary("Subtract", "sub"),
    binary("Multiply", "mul"),
    binary("MatrixMultiply", "matmul"),
];
