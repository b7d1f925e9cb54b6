//! Blocks that fold axes away, or run along one.

use mithril_ir::op::Class;

use super::elementwise::{INPUT, NUMBER, done, one};
use super::parameter::{required, with};
use super::{Default, Entry, Group, Input, Kind, Meaning, Parameter, data};

const AXES: Parameter = with("axis", Kind::Ints, Default::None);
const AXIS: Parameter = with("axis", Kind::Int, Default::None);
const KEEPDIM: Parameter = with("keepdim", Kind::Bool, Default::Bool(false));
const BOOL: &[Input] = &[data("input", Class::Bool)];

const fn over(name: &'static str, op: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { group: Group::Reduce, parameters: &[AXES, KEEPDIM], ..one(name, op, inputs) }
}

const fn find(name: &'static str, op: &'static str) -> Entry {
    Entry { parameters: &[AXIS, KEEPDIM], ..over(name, op, NUMBER) }
}

pub(super) const BLOCKS: &[Entry] = &[
    over("Sum", "sum", NUMBER),
    over("Mean", "mean", INPUT),
    over("Max", "max", NUMBER),
    over("Min", "min", NUMBER),
    over("Prod", "prod", NUMBER),
    Entry {
        parameters: &[AXES, KEEPDIM, with("correction", Kind::Float, Default::Float(0.0))],
        ..over("Variance", "variance", INPUT)
    },
    Entry {
        doc: "The square root of the variance over `axis`, divided by the count less `correction`.",
        parameters: &[AXES, KEEPDIM, with("correction", Kind::Float, Default::Float(0.0))],
        meaning: Meaning::Lower(|cx| {
            let axes = cx.settings.ints("axis");
            let attrs = [
                ("axes", axes.as_deref().into()),
                ("keepdim", cx.flag("keepdim").into()),
                ("correction", cx.float("correction").into()),
            ];
            done(cx.var("input").unary("variance", &attrs).sqrt())
        }),
        keeps: true,
        ..over("Std", "variance", INPUT)
    },
    Entry {
        doc: "`sum(|input|^p)^(1/p)` over `axis`.",
        parameters: &[with("p", Kind::Float, Default::Float(2.0)), AXES, KEEPDIM],
        meaning: Meaning::Lower(|cx| {
            let (x, p) = (cx.var("input"), cx.float("p"));
            let axes = cx.settings.ints("axis");
            let (axes, keepdim) = (axes.as_deref(), cx.flag("keepdim"));
            let size = x.unary("abs", &[]);
            done(if p == 1.0 {
                size.sum(axes, keepdim)
            } else if p == 2.0 {
                (x * x).sum(axes, keepdim).sqrt()
            } else if p == f64::INFINITY {
                size.reduce("max", axes, keepdim)
            } else {
                let sum = size.binary("pow", x.scalar(p)).sum(axes, keepdim);
                sum.binary("pow", x.scalar(1.0 / p))
            })
        }),
        keeps: true,
        ..over("Norm", "sum", INPUT)
    },
    over("LogSumExp", "logsumexp", INPUT),
    find("ArgMax", "argmax"),
    find("ArgMin", "argmin"),
    over("Any", "any", BOOL),
    over("All", "all", BOOL),
    Entry { parameters: &[required("axis", Kind::Int)], ..over("Cumsum", "cumsum", NUMBER) },
];
