//! Reductions over axes, and cumulative operations along one axis.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::{INPUT, NUMBER, done, one};
use super::parameter::{Range, required, with};
use super::{Default, Entry, Group, Input, Kind, Meaning, Parameter, Value, data, gives, out};
use crate::lower::Cx;

const AXES: Parameter = with("axis", Kind::INTS, Default::None)
    .doc("the axis or axes that are reduced; all if omitted");
const AXIS: Parameter =
    with("axis", Kind::Int, Default::None).doc("the axis; the flattened array if omitted");
const KEEPDIM: Parameter =
    with("keepdim", Kind::Bool, Default::Bool(false)).doc("keep reduced axes with size 1");
const BOOL: &[Input] = &[data("input", Class::Bool)];

const fn over(name: &'static str, op: &'static str, inputs: &'static [Input]) -> Entry {
    Entry { group: Group::Reduce, parameters: &[AXES, KEEPDIM], ..one(name, op, inputs) }
}

/// A reduction that selects an element, so there must be at least one.
const fn extremum(name: &'static str, op: &'static str) -> Entry {
    Entry { needs: need_elements, ..over(name, op, NUMBER) }
}

const fn find(name: &'static str, op: &'static str) -> Entry {
    Entry { parameters: &[AXIS, KEEPDIM], ..extremum(name, op) }
}

/// Checks the reduced axes. Errors, at compile time or at run time: one has no elements.
fn need_elements(cx: &Cx) -> Result<()> {
    let shape = cx.var("input").shape();
    let axes = match cx.settings.ints("axis") {
        Some(axes) => axes.iter().map(|a| shape.axis_from_back(*a)).collect::<Result<Vec<_>>>()?,
        None => (1..=shape.dims.len()).collect(),
    };
    for back in axes {
        let dim = &shape.dims[shape.dims.len() - back];
        cx.need(dim, 1, || {
            Diagnostic::of(ErrorKind::Shapes, "the maximum or minimum of no elements")
                .expected("at least one element along the axes")
        })?;
    }
    Ok(())
}

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "sum(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[3. 8.]").with_settings("axis=-1"),
        ..over("Sum", "sum", NUMBER)
    },
    Entry {
        formula: "mean(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[1.5 4. ]").with_settings("axis=-1"),
        ..over("Mean", "mean", INPUT)
    },
    Entry {
        formula: "max(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[2. 5.]").with_settings("axis=-1"),
        ..extremum("Max", "max")
    },
    Entry {
        formula: "min(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[1. 3.]").with_settings("axis=-1"),
        ..extremum("Min", "min")
    },
    Entry {
        formula: "prod(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[ 2. 15.]").with_settings("axis=-1"),
        ..over("Prod", "prod", NUMBER)
    },
    Entry {
        formula: "var(input, axis, ddof=correction)",
        example: gives(&["[1, 2, 3, 6]"], "3.5"),
        parameters: &[
            AXES,
            KEEPDIM,
            with("correction", Kind::Float(Range::Finite), Default::Float(0.0))
                .doc("the number subtracted from the count: 0 divides by n, 1 by n - 1"),
        ],
        ..over("Variance", "variance", INPUT)
    },
    Entry {
        doc: "The square root of the variance over `axis`, with the count minus `correction` as \
              divisor. The gradient is 0 if all elements are equal.",
        formula: "std(input, axis, ddof=correction)",
        example: gives(&["[1, 2, 3, 6]"], "1.8708287"),
        parameters: &[
            AXES,
            KEEPDIM,
            with("correction", Kind::Float(Range::Finite), Default::Float(0.0))
                .doc("the number subtracted from the count: 0 divides by n, 1 by n - 1"),
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
        same_dtype: true,
        ..over("Std", "variance", INPUT)
    },
    Entry {
        doc: "`sum(|input|^p)^(1/p)` over `axis`; for `p=0` the number of elements that are not 0.",
        formula: "sum(abs(input) ** p, axis) ** (1 / p)",
        example: gives(&["[[3, 4], [6, 8]]"], "[ 5. 10.]").with_settings("axis=-1"),
        parameters: &[
            with("p", Kind::Float(Range::Ordered), Default::Float(2.0))
                .doc("the power; for infinity, the norm is the largest magnitude"),
            AXES,
            KEEPDIM,
        ],
        meaning: Meaning::Lower(|cx| {
            let axes = cx.settings.ints("axis");
            done(norm(cx.var("input"), cx.float("p"), axes.as_deref(), cx.flag("keepdim")))
        }),
        same_dtype: true,
        ..over("Norm", "sum", INPUT)
    },
    Entry {
        formula: "logsumexp(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[2.3133 5.1269]").with_settings("axis=-1"),
        ..over("LogSumExp", "logsumexp", INPUT)
    },
    Entry {
        formula: "argmax(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[1 1]").with_settings("axis=-1"),
        ..find("ArgMax", "argmax")
    },
    Entry {
        formula: "argmin(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[0 0]").with_settings("axis=-1"),
        ..find("ArgMin", "argmin")
    },
    Entry {
        formula: "any(input, axis)",
        example: gives(&["[[True, False], [True, True]]"], "[ True  True]")
            .with_settings("axis=-1"),
        ..over("Any", "any", BOOL)
    },
    Entry {
        formula: "all(input, axis)",
        example: gives(&["[[True, False], [True, True]]"], "[False  True]")
            .with_settings("axis=-1"),
        ..over("All", "all", BOOL)
    },
    Entry {
        formula: "cumsum(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[[1. 3.]\n [3. 8.]]").with_settings("axis=-1"),
        parameters: &[required("axis", Kind::Int).doc("the axis")],
        ..over("Cumsum", "cumsum", NUMBER)
    },
    Entry {
        formula: "cumprod(input, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[[ 1.  2.]\n [ 3. 15.]]").with_settings("axis=-1"),
        parameters: &[required("axis", Kind::Int).doc("the axis")],
        ..over("Cumprod", "cumprod", NUMBER)
    },
    Entry {
        formula: "sum(input, axis) / sum(weights, axis)",
        example: gives(&["[2, 0, 4]", "[1, 0, 2]"], "2.0 1.0"),
        doc: "The weighted mean of a loss: `sum(input) / sum(weights)` over `axis`, where `input` \
              holds the losses times their weights; `CrossEntropy` returns both. If all weights \
              are 0, the mean and its gradients are 0. The output `weight` is 1 where any weight \
              is not 0, for taking the mean of such means.",
        inputs: &[
            data("input", Class::Float).doc("losses times their weights"),
            data("weights", Class::Float)
                .following(input_shape)
                .doc("the weight of each loss, of the shape of `input`"),
        ],
        outputs: &[out("output"), out("weight")],
        meaning: Meaning::Lower(loss_mean),
        same_dtype: true,
        ..over("LossMean", "mean", INPUT)
    },
];

/// The shape of `input`.
fn input_shape(cx: &Cx) -> Result<Shape> {
    Ok(cx.var("input").shape())
}

fn loss_mean(cx: &Cx) -> Result<Vec<Value>> {
    let (x, weights) = (cx.var("input"), cx.var("weights"));
    if let (Some(own), Some(given)) = (x.shape().rank(), weights.shape().rank())
        && own != given
    {
        return Diagnostic::of(
            ErrorKind::Shapes,
            "the shapes of `weights` and `input` of \
             `LossMean` differ",
        )
        .expected(format!("weights: {}", x.shape()))
        .err();
    }
    let axes = cx.settings.ints("axis");
    // f16 would overflow, and cannot count beyond 2048.
    let total = |v: Var<'_>| v.widened().sum(axes.as_deref(), cx.flag("keepdim")).value;
    let total = |v: Var| cx.builder.var(total(v));
    // The addition creates a guard for dims that are not known to be equal.
    let counted = total(weights + x.full_like(0.0));
    let none = counted.binary("eq", counted.scalar(0.0));
    let mean = total(x) / none.select(counted.scalar(1.0), counted);
    let some = counted.binary("ne", counted.scalar(0.0));
    Ok(vec![mean.cast(x.dtype()).value, some.cast(x.dtype()).value])
}

/// The norm of order `p`, with gradient 0 where it is not differentiable, as in PyTorch.
pub(super) fn norm<'a>(x: Var<'a>, p: f64, axes: Option<&[i64]>, keepdim: bool) -> Var<'a> {
    let size = x.unary("abs", &[]);
    if p == 0.0 {
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
        let power = |v: Var<'a>| v.binary("pow", x.scalar(p));
        // Below an order of 1 the slope of the power at 0 is infinite.
        let powers = if (0.0..1.0).contains(&p) { above_zero(size, power) } else { power(size) };
        above_zero(powers.sum(axes, keepdim), |v| v.binary("pow", v.scalar(1.0 / p)))
    }
}

/// A root of a sum, with gradient 0 where the sum is 0 and the root is not differentiable.
pub(super) fn above_zero<'a>(sum: Var<'a>, root: impl Fn(Var<'a>) -> Var<'a>) -> Var<'a> {
    let none = sum.binary("eq", sum.scalar(0.0));
    let root = root(none.select(sum.scalar(1.0), sum));
    none.select(root.scalar(0.0), root)
}
