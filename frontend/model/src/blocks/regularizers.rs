//! Regularizers: scalars that measure the size of a param and are added to the cost.

use mithril_ir::op::Class;

use super::elementwise::{INPUT, done};
use super::{BASE, Entry, Group, data, gives};

const REGULARIZER: Entry =
    Entry { group: Group::Regularizer, inputs: INPUT, same_dtype: true, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "sum(abs(input))",
        example: gives(&["[1, -2, 3]"], "6.0"),
        ..REGULARIZER.row("L1", "`sum(|input|)` (Tibshirani 1996).", |cx| {
            done(cx.var("input").unary("abs", &[]).sum(None, false))
        })
    },
    Entry {
        formula: "sum(input**2) / 2",
        example: gives(&["[1, -2, 3]"], "7.0"),
        ..REGULARIZER.row(
            "L2",
            "`sum(input^2) / 2` (Hoerl & Kennard 1970): its gradient is `input`.",
            |cx| {
                let x = cx.var("input");
                done((x * x).sum(None, false) * 0.5)
            },
        )
    },
    Entry {
        formula: "sum((input @ kernel) * input) / 2",
        example: gives(&["[[1, 2]]", "[[1, 0], [0, 2]]"], "4.5"),
        inputs: &[data("input", Class::Float), data("kernel", Class::Float)],
        ..REGULARIZER.row(
            "QuadraticForm",
            "`x kernel xᵀ / 2`, summed over the vectors x along the last axis of `input`.",
            |cx| {
                let x = cx.var("input");
                done((x.matmul(cx.var("kernel")) * x).sum(None, false) * 0.5)
            },
        )
    },
];
