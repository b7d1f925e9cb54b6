//! Special functions of mathematics, element by element.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;
use mithril_ir::op::Class;

use super::elementwise::{INPUT, done};
use super::parameter::{Range, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Value, data, gives};
use crate::lower::Cx;

const SPECIAL: Entry = Entry { inputs: INPUT, same_dtype: true, ..BASE };

const PAIR: &[Input] = &[data("left", Class::Float), data("right", Class::Float)];

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "gammaln(input)",
        example: gives(&["[0.5, 3, 5]"], "[0.5724 0.6931 3.1781]"),
        ..SPECIAL.row(
            "Lgamma",
            "The logarithm of the magnitude of the gamma function. Its gradient is `Digamma`.",
            |cx| wide(cx, "lgamma"),
        )
    },
    Entry {
        formula: "digamma(input)",
        example: gives(&["[0.5, 1, 5]"], "[-1.9635 -0.5772  1.5061]"),
        ..SPECIAL.row(
            "Digamma",
            "The derivative of `Lgamma`: infinite at 0, and NaN at negative integers.",
            |cx| wide(cx, "digamma"),
        )
    },
    Entry {
        formula: "erfinv(input)",
        example: gives(&["[-0.5, 0, 0.9]"], "[-0.4769  0.      1.1631]"),
        ..SPECIAL.row(
            "Erfinv",
            "The inverse of the error function: infinite at -1 and 1, and NaN beyond.",
            |cx| wide(cx, "erfinv"),
        )
    },
    Entry {
        formula: "i0(input)",
        example: gives(&["[-1, 0, 2]"], "[1.2661 1.     2.2796]"),
        ..SPECIAL.row("I0", "The modified Bessel function of the first kind of order 0.", |cx| {
            wide(cx, "i0")
        })
    },
    Entry {
        formula: "sinc(input)",
        example: gives(&["[0, 0.5, 1.5]"], "[ 1.      0.6366 -0.2122]"),
        ..SPECIAL.row("Sinc", "`sin(pi input) / (pi input)`, and 1 at 0.", |cx| wide(cx, "sinc"))
    },
    Entry {
        formula: "logit(input)",
        example: gives(&["[0.1, 0.5, 0.9]"], "[-2.1972  0.      2.1972]"),
        parameters: &[with("eps", Kind::Float(Range::Unit), Default::None).doc(
            "if given, `input` is limited to the range from `eps` to `1 - eps`, and its gradient \
             is 0 outside",
        )],
        ..SPECIAL.row(
            "Logit",
            "`log(input / (1 - input))`, the inverse of `Sigmoid`: infinite at 0 and 1, and NaN \
             beyond.",
            logit,
        )
    },
    Entry {
        formula: "xlogy(left, right)",
        example: gives(&["[0, 1, 2]", "[0, 2, 2]"], "[0.     0.6931 1.3863]"),
        group: Group::Binary,
        inputs: PAIR,
        ..SPECIAL.row(
            "Xlogy",
            "`left * log(right)`, and 0 where `left` is 0, unless `right` is NaN. There the \
             gradient of `right` is 0.",
            |cx| {
                let (x, y) = (cx.var("left"), cx.var("right"));
                let value = x.widened().binary("xlogy", y.widened());
                done(value.cast(x.dtype()))
            },
        )
    },
];

/// An operation in single precision or more: the coefficients of its series are beyond halves.
fn wide(cx: &Cx, op: &str) -> Result<Vec<Value>> {
    let x = cx.var("input");
    done(x.widened().unary(op, &[]).cast(x.dtype()))
}

fn logit(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let wide = x.widened();
    let within = match cx.settings.float("eps") {
        Some(eps) => limited(wide, eps, 1.0 - eps),
        None => wide,
    };
    done(within.unary("logit", &[]).cast(x.dtype()))
}

/// `x` limited to a range, with a gradient at its ends and none outside.
fn limited(x: Var<'_>, low: f64, high: f64) -> Var<'_> {
    let (low, high) = (x.scalar(low), x.scalar(high));
    let above = x.binary("gt", high).select(high, x);
    x.binary("lt", low).select(low, above)
}
