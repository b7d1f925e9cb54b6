//! Regularizers: one number that says how large a param is, to be added to the cost.

use mithril_ir::diagnostic::Result;
use mithril_ir::op::Class;

use super::elementwise::{INPUT, done};
use super::{BASE, Entry, Group, Meaning, Value, data};
use crate::lower::Cx;

const fn regularizer(
    name: &'static str,
    doc: &'static str,
    lower: fn(&Cx) -> Result<Vec<Value>>,
) -> Entry {
    Entry {
        name,
        doc,
        group: Group::Regularizer,
        inputs: INPUT,
        meaning: Meaning::Lower(lower),
        keeps: true,
        ..BASE
    }
}

pub(super) const BLOCKS: &[Entry] = &[
    regularizer("L1", "`sum(|input|)` (Tibshirani 1996).", |cx| {
        done(cx.var("input").unary("abs", &[]).sum(None, false))
    }),
    regularizer(
        "L2",
        "`sum(input^2) / 2` (Hoerl & Kennard 1970): its gradient is `input`.",
        |cx| {
            let x = cx.var("input");
            done((x * x).sum(None, false) * 0.5)
        },
    ),
    Entry {
        inputs: &[data("input", Class::Float), data("kernel", Class::Float)],
        ..regularizer(
            "QuadraticForm",
            "`x kernel xᵀ / 2`, added up over the vectors x along the last axis of `input`.",
            |cx| {
                let x = cx.var("input");
                done((x.matmul(cx.var("kernel")) * x).sum(None, false) * 0.5)
            },
        )
    },
];
