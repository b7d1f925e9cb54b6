//! Blocks that fold axes away, or run along one.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::op::Class;

use super::elementwise::{INPUT, NUMBER, done, one};
use super::parameter::{Range, required, with};
use super::{Default, Entry, Group, Input, Kind, Meaning, Parameter, data};
use crate::lower::Cx;

const AXES: Parameter = with("axis", Kind::Ints, Default::None);
const AXIS: Parameter = with("axis", Kind::Int, Default::None);
const KEEPDIM: Parameter = with("keepdim", Kind::Bool, Default::Bool(false));
const BOOL: &[Input] = &[data("input", Class::Bool)];

const fn over(name: &'static str, op: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { group: Group::Reduce, parameters: &[AXES, KEEPDIM], ..one(name, op, inputs) }
}

/// One of the elements, of which there has to be one.
const fn chosen(name: &'static str, op: &'static str) -> Entry {
    Entry { needs: need_elements, ..over(name, op, NUMBER) }
}

const fn find(name: &'static str, op: &'static str) -> Entry {
    Entry { parameters: &[AXIS, KEEPDIM], ..chosen(name, op) }
}

/// Errors, at compile or run time: an axis that is folded away has no elements.
fn need_elements(cx: &Cx) -> Result<()> {
    let shape = cx.var("input").shape();
    let axes = match cx.settings.ints("axis") {
        Some(axes) => axes.iter().map(|a| shape.axis_from_back(*a)).collect::<Result<Vec<_>>>()?,
        None => (1..=shape.dims.len()).collect(),
    };
    for back in axes {
        let dim = &shape.dims[shape.dims.len() - back];
        cx.need(dim, 1, || {
            Diagnostic::new("Incompatible shapes during compilation: there is no element to choose")
                .got(format!("input: {shape}"))
                .expected("one element or more along the axes")
        })?;
    }
    Ok(())
}

pub(super) const BLOCKS: &[Entry] = &[
    over("Sum", "sum", NUMBER),
    over("Mean", "mean", INPUT),
    chosen("Max", "max"),
    chosen("Min", "min"),
    over("Prod", "prod", NUMBER),
    Entry {
        parameters: &[
            AXES,
            KEEPDIM,
            with("correction", Kind::Float(Range::Finite), Default::Float(0.0)),
        ],
        ..over("Variance", "variance", INPUT)
    },
    Entry {
        doc: "The square root of the variance over `axis`, divided by the count less `correction`. The \
              gradient where elements are equal is 0.",
        parameters: &[
            AXES,
            KEEPDIM,
            with("correction", Kind::Float(Range::Finite), Default::Float(0.0)),
        ],
        meaning: Meaning::Lower(|cx| {
            let axes = cx.settings.ints("axis");
            let attrs = [
                ("axes", axes.as_deref().into()),
                ("keepdim", cx.flag("keepdim").into()),
                ("correction", cx.float("correction").into()),
            ];
            done(above_zero(cx.var("input").unary("variance", &attrs), |v| v.sqrt()))
        }),
        keeps: true,
        ..over("Std", "variance", INPUT)
    },
    Entry {
        doc: "`sum(|input|^p)^(1/p)` over `axis`; with `p=0` the number of elements that are not 0.",
        parameters: &[with("p", Kind::Float(Range::Ordered), Default::Float(2.0)), AXES, KEEPDIM],
        meaning: Meaning::Lower(|cx| {
            let (x, p) = (cx.var("input"), cx.float("p"));
            let axes = cx.settings.ints("axis");
            let (axes, keepdim) = (axes.as_deref(), cx.flag("keepdim"));
            let size = x.unary("abs", &[]);
            done(if p == 0.0 {
                let some = x.binary("ne", x.scalar(0.0));
                some.cast(x.dtype()).sum(axes, keepdim)
            } else if p == 1.0 {
                size.sum(axes, keepdim)
            } else if p == 2.0 {
                above_zero((x * x).sum(axes, keepdim), |v| v.sqrt())
            } else if p == f64::INFINITY {
                size.reduce("max", axes, keepdim)
            } else if p == f64::NEG_INFINITY {
                size.reduce("min", axes, keepdim)
            } else {
                let sum = size.binary("pow", x.scalar(p)).sum(axes, keepdim);
                above_zero(sum, |v| v.binary("pow", v.scalar(1.0 / p)))
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
    Entry { parameters: &[required("axis", Kind::Int)], ..over("Cumprod", "cumprod", NUMBER) },
];

/// A root of a sum, with the gradient 0 where the sum is 0 and the root is not smooth.
fn above_zero<'a>(sum: Var<'a>, root: impl Fn(Var<'a>) -> Var<'a>) -> Var<'a> {
    let none = sum.binary("eq", sum.scalar(0.0));
    let root = root(none.select(sum.scalar(1.0), sum));
    none.select(root.scalar(0.0), root)
}
