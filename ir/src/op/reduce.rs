//! Reductions and scans along axes.

use super::access::{Access, Fold, Library};
use super::batch::Batch;
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr,
    operand,
};
use crate::algebra::{Rule, Var, count_dims};
use crate::attr::AttrKind;
use crate::diagnostic::{ErrorKind, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::{cumulate, reduce, sort};
use crate::shape::Shape;

const AXES: super::AttrDef = attr("axes", AttrKind::Ints, Default::None).axes();
const KEEPDIM: super::AttrDef = attr("keepdim", AttrKind::Bool, Default::Bool(false));
const ACC: super::AttrDef = attr("acc", AttrKind::DType, Default::None);

const REDUCE: OpDef = OpDef {
    kind: Kind::Reduce,
    operands: &[operand("x", Class::Number)],
    attrs: &[AXES, KEEPDIM],
    shape: ShapeRule::Rule(over_axes),
    batch: Batch::Leading,
    ..BASE
};
const ACCUMULATE: OpDef = OpDef {
    attrs: &[AXES, KEEPDIM, ACC],
    shape: ShapeRule::Rule(|cx| {
        cx.accumulates()?;
        over_axes(cx)
    }),
    ..REDUCE
};
const BOOL_REDUCE: OpDef =
    OpDef { operands: &[operand("x", Class::Bool)], gradient: Gradient::Zero, ..REDUCE };
const ARG_EXTREMUM: OpDef = OpDef {
    attrs: &[attr("axis", AttrKind::Int, Default::None).axes(), KEEPDIM],
    shape: ShapeRule::Rule(over_axis),
    dtype: DTypeRule::Fixed(DType::I64),
    gradient: Gradient::Zero,
    ..REDUCE
};
pub(super) const SCAN: OpDef = OpDef {
    attrs: &[attr("axis", AttrKind::Int, Default::Required).axes()],
    shape: ShapeRule::Rule(along_axis),
    ..REDUCE
};
const FLOATS: OpDef = OpDef { operands: &[operand("x", Class::Float)], ..REDUCE };

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "sum",
        noun: "total",
        access: Access::Fold(Fold::Sum),
        doc: "The sum over `axes` (all if omitted). Each step rounds to `acc`, which is the dtype \
              of `x` or a wider one. By default it is f32 for f16 and bf16 and f64 for other \
              floats; targets may then choose another dtype. Targets may add in another order.",
        meaning: Meaning::Kernel(|i| {
            reduce::sum(i.arg(0), &i.axes(), i.bool("keepdim"), i.accumulator(), i.dtype())
        }),
        gradient: Gradient::Rule(|r| vec![Some(broadcast_to_operand(r, r.g()))]),
        ..ACCUMULATE
    },
    OpDef {
        name: "prod",
        noun: "product",
        access: Access::Fold(Fold::Product),
        doc: "The product over `axes` (all if omitted).",
        meaning: Meaning::Kernel(|i| {
            reduce::prod(i.arg(0), &i.axes(), i.bool("keepdim"), i.dtype())
        }),
        gradient: Gradient::Rule(|r| vec![Some(prod_gradient(r))]),
        ..REDUCE
    },
    OpDef {
        name: "max",
        noun: "highest",
        access: Access::Fold(Fold::Max),
        doc: "The maximum over `axes` (all if omitted); NaN if any element is NaN.",
        meaning: Meaning::Kernel(|i| reduce::max(i.arg(0), &i.axes(), i.bool("keepdim"))),
        gradient: Gradient::Rule(|r| vec![Some(extreme_gradient(r))]),
        note: "Ties share the gradient evenly. The maximum of no elements is -inf (the smallest \
               integer) on the evaluator and native targets; frameworks raise.",
        ..REDUCE
    },
    OpDef {
        name: "min",
        noun: "lowest",
        access: Access::Fold(Fold::Min),
        doc: "The minimum over `axes` (all if omitted); NaN if any element is NaN.",
        meaning: Meaning::Kernel(|i| reduce::min(i.arg(0), &i.axes(), i.bool("keepdim"))),
        gradient: Gradient::Rule(|r| vec![Some(extreme_gradient(r))]),
        note: "Ties share the gradient evenly. The minimum of no elements is inf (the largest \
               integer) on the evaluator and native targets; frameworks raise.",
        ..REDUCE
    },
    OpDef {
        name: "any",
        noun: "any_true",
        access: Access::Fold(Fold::Any),
        doc: "Whether any element over `axes` (all if omitted) is true.",
        meaning: Meaning::Kernel(|i| reduce::any(i.arg(0), &i.axes(), i.bool("keepdim"))),
        ..BOOL_REDUCE
    },
    OpDef {
        name: "all",
        noun: "all_true",
        access: Access::Fold(Fold::All),
        doc: "Whether every element over `axes` (all if omitted) is true.",
        meaning: Meaning::Kernel(|i| reduce::all(i.arg(0), &i.axes(), i.bool("keepdim"))),
        ..BOOL_REDUCE
    },
    OpDef {
        name: "argmax",
        access: Access::Library(Library::ArgExtremum { max: true }),
        doc: "The index of the first maximum along `axis` (in the flattened array if omitted).",
        meaning: Meaning::Kernel(|i| reduce::argmax(i.arg(0), i.axis(), i.bool("keepdim"))),
        note: "NaN counts as the maximum. The index for no elements is 0 on the evaluator and \
               native targets; frameworks raise.",
        ..ARG_EXTREMUM
    },
    OpDef {
        name: "argmin",
        access: Access::Library(Library::ArgExtremum { max: false }),
        doc: "The index of the first minimum along `axis` (in the flattened array if omitted).",
        meaning: Meaning::Kernel(|i| reduce::argmin(i.arg(0), i.axis(), i.bool("keepdim"))),
        note: "NaN counts as the minimum. The index for no elements is 0 on the evaluator and \
               native targets; frameworks raise.",
        ..ARG_EXTREMUM
    },
    OpDef {
        name: "cumsum",
        access: Access::Library(Library::Cumulative(Fold::Sum)),
        doc: "The running sum along `axis`.",
        meaning: Meaning::Kernel(|i| cumulate::cumsum(i.arg(0), i.required_axis(), false)),
        gradient: Gradient::Rule(|r| vec![Some(reverse_cumsum(r, r.g()))]),
        ..SCAN
    },
    OpDef {
        name: "cumprod",
        access: Access::Library(Library::Cumulative(Fold::Product)),
        doc: "The running product along `axis`.",
        meaning: Meaning::Kernel(|i| cumulate::cumprod(i.arg(0), i.required_axis(), false)),
        gradient: Gradient::Rule(|r| vec![Some(cumprod_gradient(r))]),
        ..SCAN
    },
    OpDef {
        name: "sort",
        noun: "ordered",
        access: Access::Library(Library::Sort { indices: false }),
        doc: "The elements sorted along `axis` in ascending (or `descending`) order; NaN sorts as \
              the largest.",
        kind: Kind::Order,
        attrs: &[
            attr("axis", AttrKind::Int, Default::Int(-1)).axes(),
            attr("descending", AttrKind::Bool, Default::Bool(false)),
        ],
        meaning: Meaning::Kernel(|i| sort::sort(i.arg(0), i.required_axis(), i.bool("descending"))),
        gradient: Gradient::Rule(|r| {
            let axis = r.int("axis");
            let attrs = [("axis", axis.into()), ("descending", r.bool("descending").into())];
            let places = r.arg(0).unary("argsort", &attrs);
            let zeros = r.arg(0).full_like(0.0);
            let attrs = [("axis", axis.into())];
            vec![Some(r.build("scatter_add_along", &[zeros, places, r.g()], &attrs))]
        }),
        note: "JAX gives the gradients of equal elements in another order when descending; \
               tinygrad shares them, and gives NaN none.",
        ..SCAN
    },
    OpDef {
        name: "argsort",
        noun: "order",
        access: Access::Library(Library::Sort { indices: true }),
        doc: "The indices that sort the elements along `axis`; equal elements keep their order.",
        kind: Kind::Order,
        attrs: &[
            attr("axis", AttrKind::Int, Default::Int(-1)).axes(),
            attr("descending", AttrKind::Bool, Default::Bool(false)),
        ],
        dtype: DTypeRule::Fixed(DType::I64),
        meaning: Meaning::Kernel(|i| {
            sort::argsort(i.arg(0), i.required_axis(), i.bool("descending"))
        }),
        gradient: Gradient::Zero,
        ..SCAN
    },
    OpDef {
        name: "mean",
        doc: "The mean over `axes` (all if omitted).",
        kind: Kind::Composite,
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0).widened();
            let axes = r.ints("axes");
            (x.sum(axes, r.bool("keepdim")) / x.count(axes)).cast(r.ty.dtype)
        }),
        ..FLOATS
    },
    OpDef {
        name: "variance",
        doc: "The sum of squared distances from the mean over `axes` (all if omitted), divided by \
              the count minus `correction`.",
        kind: Kind::Composite,
        attrs: &[AXES, KEEPDIM, attr("correction", AttrKind::Float, Default::Float(0.0))],
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0).widened();
            let axes = r.ints("axes");
            let deviation = (x - x.reduce("mean", axes, true)).named("deviation");
            let squares = (deviation * deviation).sum(axes, r.bool("keepdim"));
            let count = count_dims(&x.shape(), axes);
            let mean = match (r.float("correction"), count) {
                (None | Some(0.0), _) => squares / x.count(axes),
                // With fewer elements than the correction, the divisor is 0 rather than negative.
                (Some(c), Some(Dim::Const(n))) => squares / x.scalar((n as f64 - c).max(0.0)),
                (Some(c), _) => squares / (x.count(axes) - c).binary("maximum", x.scalar(0.0)),
            };
            mean.cast(r.ty.dtype)
        }),
        ..FLOATS
    },
    OpDef {
        name: "logsumexp",
        doc: "`log(sum(exp(x)))` over `axes` (all if omitted), without overflow.",
        kind: Kind::Composite,
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0);
            let axes = r.ints("axes");
            let shift = finite_max(x, axes);
            let total = (x - shift).exp().sum(axes, true).log() + shift;
            match axes {
                _ if r.bool("keepdim") => total,
                Some(axes) => total.squeeze(axes),
                None => total.reshape(Shape::scalar()),
            }
        }),
        gradient: Gradient::Rule(|r| {
            let weights = (r.arg(0) - broadcast_to_operand(r, r.y())).exp();
            vec![Some(broadcast_to_operand(r, r.g()) * weights)]
        }),
        note: "The result for no elements is -inf. Where the maximum is inf, MLX has a derivative of \
               NaN for every element.",
        ..FLOATS
    },
];

/// The maximum, or 0 where it is infinite, so that subtracting it keeps `exp` finite. It is 0 if it
/// is known that there are no elements: frameworks raise for the maximum of an empty array. If
/// there may be no elements, NumPy's `max` starts from -inf when `is_inf` reads it.
pub(super) fn finite_max<'a>(x: Var<'a>, axes: Option<&[i64]>) -> Var<'a> {
    if is_empty(x) {
        return x.scalar(0.0);
    }
    let top = x.reduce("max", axes, true).named("top");
    top.unary("is_inf", &[]).select(top.scalar(0.0), top).stop_gradient()
}

/// Whether it is known to have no elements.
pub(super) fn is_empty(x: Var) -> bool {
    x.shape().dims.iter().any(|dim| dim.as_const() == Some(0))
}

/// The shape without `axes`, or with 1 for each of them.
/// Errors: an axis that is out of range or repeated, or an unknown rank that matters.
pub fn without_axes(shape: &Shape, axes: Option<&[i64]>, keepdim: bool) -> Result<Shape> {
    let Some(axes) = axes else {
        return Ok(match keepdim {
            false => Shape::scalar(),
            true => Shape::new(std::iter::repeat_n(Dim::Const(1), shape.need_rank()?)),
        });
    };
    let count = shape.dims.len();
    let mut dropped = vec![false; count];
    for &axis in axes {
        let at = count - shape.axis_from_back(axis)?;
        if std::mem::replace(&mut dropped[at], true) {
            return crate::diagnostic::Diagnostic::of(
                ErrorKind::Shapes,
                format!("axis {axis} is named twice"),
            )
            .got(format!("axes {axes:?} of {shape}"))
            .expected("axes that differ")
            .err();
        }
    }
    let dims =
        shape.dims.iter().zip(&dropped).filter_map(|(dim, dropped)| match (dropped, keepdim) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(Dim::Const(1)),
            (true, false) => None,
        });
    Ok(Shape { lead: shape.lead.clone(), dims: dims.collect() })
}

fn over_axes(cx: &mut Infer) -> Result<Shape> {
    without_axes(cx.shape(0), cx.ints("axes"), cx.bool("keepdim"))
}

fn over_axis(cx: &mut Infer) -> Result<Shape> {
    let axis = match cx.attr("axis") {
        crate::attr::Attr::Int(axis) => Some(*axis),
        _ => None,
    };
    without_axes(cx.shape(0), axis.as_ref().map(std::slice::from_ref), cx.bool("keepdim"))
}

fn along_axis(cx: &mut Infer) -> Result<Shape> {
    cx.shape(0).axis_from_back(cx.int("axis"))?;
    Ok(cx.shape(0).clone())
}

/// Broadcasts a reduced value to the operand's shape.
fn broadcast_to_operand<'a>(r: &Rule<'a>, reduced: Var<'a>) -> Var<'a> {
    let shape = r.arg(0).shape();
    match r.ints("axes") {
        Some(axes) if !r.bool("keepdim") => reduced.expand_dims(axes).broadcast_to(shape),
        _ => reduced.broadcast_to(shape),
    }
}

fn extreme_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let x = r.arg(0);
    let ties = x.binary("eq", broadcast_to_operand(r, r.y())).cast(x.dtype());
    ties * broadcast_to_operand(r, r.g() / ties.sum(r.ints("axes"), r.bool("keepdim")))
}

/// Reverse cumulative sums: each element plus all elements after it along the axis.
fn reverse_cumsum<'a>(r: &Rule<'a>, x: Var<'a>) -> Var<'a> {
    let axis = r.int("axis");
    let flipped = x.unary("reverse", &[("axes", [axis][..].into())]);
    let sums = flipped.unary("cumsum", &[("axis", axis.into())]);
    sums.unary("reverse", &[("axes", [axis][..].into())])
}

/// The gradient of an element is the sum of cotangent times product over the products that contain
/// it, divided by the element. From the first 0 on every product is 0, so the gradient of that 0 is
/// computed from products without it.
fn cumprod_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let x = r.arg(0);
    let (zero, one) = (x.scalar(0.0), x.scalar(1.0));
    let along = [("axis", r.int("axis").into())];
    let is_zero = x.binary("eq", zero);
    let zeros = is_zero.cast(DType::I32).unary("cumsum", &along);
    let first = is_zero.binary("and", zeros.binary("eq", zeros.scalar(1.0)));
    let without = first.select(one, x).unary("cumprod", &along);
    let others = reverse_cumsum(r, r.g() * r.y()) / is_zero.select(one, x);
    first.select(reverse_cumsum(r, r.g() * without), others)
}

/// The product of the other elements: the whole product divided by the element. For an element that
/// is 0, it is the product of the nonzero elements, or 0 if there is another zero.
fn prod_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let x = r.arg(0);
    let axes = r.ints("axes");
    let zero = x.scalar(0.0);
    let is_zero = x.binary("eq", zero);
    let rest = is_zero.select(x.scalar(1.0), x).reduce("prod", axes, r.bool("keepdim"));
    let zeros = is_zero.cast(x.dtype()).sum(axes, r.bool("keepdim"));
    let product_of_rest = zeros.binary("eq", zero).select(zero, rest);
    let product_of_rest = zeros.binary("eq", x.scalar(1.0)).select(product_of_rest, zero);
    let others = broadcast_to_operand(r, r.y()) / is_zero.select(x.scalar(1.0), x);
    is_zero.select(broadcast_to_operand(r, product_of_rest), others)
        * broadcast_to_operand(r, r.g())
}
