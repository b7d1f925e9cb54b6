//! Reads and writes at indices that are data.

use smallvec::SmallVec;

use super::access::{Access, Extent, Fold, Gather, Indexes, Scatter};
use super::batch::{self, Batch};
use super::layout::rules::{axis_dim, slice_shape};
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr,
    operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::Name::Operand;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::eval::{index, layout};
use crate::message;
use crate::scalar::Prim;
use crate::shape::Shape;

const INDEX: OpDef = OpDef { kind: Kind::Index, ..BASE };
const AXIS: super::AttrDef = attr("axis", AttrKind::Int, Default::Required).axes();
const OUT_OF_RANGE_NOTE: &str = "A negative index counts from the end. An index out of range is \
                            clamped on the evaluator and native targets. NumPy and torch raise, \
                            but torch's `take_along` wraps around; JAX reads NaN or the smallest \
                            integer, and drops writes; MLX clamps computed indices and checks no \
                            others; tinygrad reads 0 and drops writes.";

const TAKE_OUT_OF_RANGE_NOTE: &str = "A negative index counts from the end. An index out of range is \
                                  clamped on the evaluator and native targets. NumPy and torch \
                                  raise. JAX clamps along axis 0; along other axes it reads NaN \
                                  or the smallest integer. MLX clamps computed \
                                  indices and checks no others. tinygrad reads 0.";

const ANY: super::Operand = operand("x", Class::Any);
const NUMBER: super::Operand = operand("x", Class::Number);
const ALONG: Option<Indexes> =
    Some(Indexes { operand: 1, extent: Extent::Along("axis"), from_end: true });
const INDICES: super::Operand = operand("indices", Class::Int).own_dtype();
const UPDATES: super::Operand = operand("updates", Class::Number);

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "take",
        batch: batch::TAKE,
        noun: "taken",
        access: Access::Gather(Gather::Take),
        indexes: ALONG,
        doc: "The slices of `x` at `indices` along `axis`. In the result the axes of `indices` \
              replace `axis`.",
        operands: &[ANY, INDICES],
        attrs: &[AXIS],
        shape: ShapeRule::Rule(take_shape),
        meaning: Meaning::Kernel(|i| index::take(i.arg(0), i.arg(1), i.required_axis())),
        gradient: Gradient::Rule(|r| {
            let zeros = r.arg(0).full_like(0.0);
            let attrs = [("axis", r.attr("axis").clone())];
            vec![Some(r.build("scatter_add", &[zeros, r.arg(1), r.g()], &attrs)), None]
        }),
        known: Some(|cx| {
            let (values, places) = (cx.known[0]?, cx.known[1]?);
            let pick = |place: &Dim| {
                let at = place.as_const()?;
                let at = if at < 0 { at + values.len() as i64 } else { at };
                values.get(usize::try_from(at).ok()?).cloned()
            };
            places.iter().map(pick).collect()
        }),
        note: TAKE_OUT_OF_RANGE_NOTE,
        ..INDEX
    },
    OpDef {
        name: "take_along",
        batch: Batch::Leading,
        noun: "picked",
        access: Access::Gather(Gather::TakeAlong),
        indexes: ALONG,
        doc: "For each element of `indices`, the element of `x` at that index along `axis` and at \
              the same position along the other axes.",
        operands: &[ANY, INDICES],
        attrs: &[AXIS],
        shape: ShapeRule::Rule(along_shape),
        meaning: Meaning::Kernel(|i| index::take_along_axis(i.arg(0), i.arg(1), i.required_axis())),
        gradient: Gradient::Rule(|r| {
            let zeros = r.arg(0).full_like(0.0);
            let attrs = [("axis", r.attr("axis").clone())];
            vec![Some(r.build("scatter_add_along", &[zeros, r.arg(1), r.g()], &attrs)), None]
        }),
        note: OUT_OF_RANGE_NOTE,
        ..INDEX
    },
    OpDef {
        name: "scatter_add",
        batch: batch::SCATTER,
        noun: "scattered",
        access: Access::Scatter(Scatter::Rows),
        indexes: ALONG,
        doc: "`x` with each slice of `updates` added at its index along `axis`: the transpose of \
              `take`.",
        operands: &[NUMBER, INDICES, UPDATES],
        attrs: &[AXIS],
        shape: ShapeRule::Rule(scatter_shape),
        meaning: Meaning::Kernel(|i| {
            index::scatter_add(i.arg(0), i.arg(1), i.arg(2), i.required_axis())
        }),
        gradient: Gradient::Rule(|r| {
            let attrs = [("axis", r.attr("axis").clone())];
            vec![Some(r.g()), None, Some(r.build("take", &[r.g(), r.arg(1)], &attrs))]
        }),
        note: OUT_OF_RANGE_NOTE,
        ..INDEX
    },
    OpDef {
        name: "scatter_add_along",
        batch: Batch::Leading,
        noun: "scattered",
        access: Access::Scatter(Scatter::Along(Fold::Sum)),
        indexes: ALONG,
        doc: "`x` with each element of `updates` added at its index along `axis`: the transpose \
              of `take_along`.",
        operands: &[NUMBER, INDICES, UPDATES],
        attrs: &[AXIS],
        shape: ShapeRule::Rule(scatter_along_shape),
        meaning: Meaning::Kernel(|i| {
            index::scatter_along(Prim::Add, i.arg(0), i.arg(1), i.arg(2), i.required_axis())
        }),
        gradient: Gradient::Rule(|r| {
            let attrs = [("axis", r.attr("axis").clone())];
            vec![Some(r.g()), None, Some(r.build("take_along", &[r.g(), r.arg(1)], &attrs))]
        }),
        note: OUT_OF_RANGE_NOTE,
        ..INDEX
    },
    OpDef {
        name: "slice_update",
        batch: Batch::Leading,
        noun: "updated",
        access: Access::Gather(Gather::SliceUpdate),
        doc: "`x` with `update` written to the elements that `slice` with the same bounds reads.",
        operands: &[ANY, operand("update", Class::Any)],
        attrs: &[
            attr("axes", AttrKind::Ints, Default::Required).axes(),
            attr("starts", AttrKind::Shape, Default::Required),
            attr("limits", AttrKind::Shape, Default::Required),
            attr("steps", AttrKind::Ints, Default::None),
        ],
        shape: ShapeRule::Rule(|cx| {
            let (part, update) = (slice_shape(cx)?, cx.shape(1).clone());
            cx.same(&part, &update, message!["the slice and ", Operand("update")])?;
            Ok(cx.shape(0).clone())
        }),
        meaning: Meaning::Kernel(|i| {
            let (starts, limits, steps) = i.bounds();
            layout::slice_update(i.arg(0), i.arg(1), &starts, &limits, &steps)
        }),
        gradient: Gradient::Rule(|r| {
            let attrs: Vec<(&str, Attr)> = ["axes", "starts", "limits", "steps"]
                .map(|name| (name, r.attr(name).clone()))
                .to_vec();
            let zeros = r.arg(1).full_like(0.0);
            let rest = r.build("slice_update", &[r.g(), zeros], &attrs);
            // The slice has the update's shape, but inference cannot prove it for all symbolic
            // dims.
            let part = r.g().unary("slice", &attrs);
            vec![Some(rest), Some(part.reshape(r.arg(1).shape()))]
        }),
        ..INDEX
    },
    OpDef {
        name: "dynamic_slice",
        batch: batch::BLOCK,
        noun: "part",
        access: Access::Gather(Gather::DynamicSlice),
        doc: "The block of `x` of shape `sizes` that begins at `starts`, clamped so that the \
              block lies inside `x`.",
        operands: &[ANY, operand("starts", Class::Int).own_dtype().many()],
        attrs: &[attr("sizes", AttrKind::Shape, Default::Required)],
        shape: ShapeRule::Rule(|cx| {
            let sizes = cx.whole_shape("sizes")?;
            starts_match(cx, 1, &sizes)?;
            Ok(sizes)
        }),
        meaning: Meaning::Kernel(|i| {
            index::dynamic_slice(i.arg(0), &i.integers(1), &i.shape("sizes"))
        }),
        gradient: Gradient::Rule(|r| {
            let zeros = r.arg(0).full_like(0.0);
            let mut operands = vec![zeros, r.g()];
            operands.extend(&r.operands[1..]);
            let mut gradients = vec![None; r.operands.len()];
            gradients[0] = Some(r.build("dynamic_update_slice", &operands, &[]));
            gradients
        }),
        ..INDEX
    },
    OpDef {
        name: "dynamic_update_slice",
        batch: batch::BLOCK,
        noun: "updated",
        access: Access::Gather(Gather::DynamicUpdate),
        doc: "`x` with `update` written at `starts`, clamped so that `update` lies inside `x`.",
        operands: &[
            ANY,
            operand("update", Class::Any),
            operand("starts", Class::Int).own_dtype().many(),
        ],
        shape: ShapeRule::Rule(|cx| {
            let update = cx.shape(1).clone();
            starts_match(cx, 2, &update)?;
            Ok(cx.shape(0).clone())
        }),
        meaning: Meaning::Kernel(|i| {
            index::dynamic_update_slice(i.arg(0), i.arg(1), &i.integers(2))
        }),
        gradient: Gradient::Rule(|r| {
            let zeros = r.arg(1).full_like(0.0);
            let mut masked = vec![r.g(), zeros];
            masked.extend(&r.operands[2..]);
            let mut read = vec![r.g()];
            read.extend(&r.operands[2..]);
            let sizes = [("sizes", Attr::from(r.arg(1).shape()))];
            let mut gradients = vec![None; r.operands.len()];
            gradients[0] = Some(r.build("dynamic_update_slice", &masked, &[]));
            gradients[1] = Some(r.build("dynamic_slice", &read, &sizes));
            gradients
        }),
        ..INDEX
    },
    OpDef {
        name: "one_hot",
        batch: Batch::Leading,
        doc: "A new last axis of size `classes` that is 1 at the index and 0 elsewhere; all 0 for \
              an index out of range.",
        kind: Kind::Composite,
        operands: &[INDICES],
        attrs: &[
            attr("classes", AttrKind::Int, Default::Required),
            attr("dtype", AttrKind::DType, Default::Required),
        ],
        shape: ShapeRule::Rule(|cx| {
            let mut shape = cx.shape(0).clone();
            shape.dims.push(Dim::Const(cx.int("classes")));
            cx.dtype_attr("dtype", |_| true, "a dtype to compute in")?;
            Ok(shape)
        }),
        dtype: DTypeRule::Attr("dtype"),
        indexes: Some(Indexes { operand: 0, extent: Extent::Count("classes"), from_end: false }),
        meaning: Meaning::Decompose(one_hot),
        gradient: Gradient::Zero,
        note: "torch raises for an index out of range.",
        ..BASE
    },
];

fn take_shape(cx: &mut Infer) -> Result<Shape> {
    let (x, indices) = (cx.shape(0), cx.shape(1));
    let back = x.axis_from_back(cx.int("axis"))?;
    let at = x.dims.len() - back;
    match (&x.lead, &indices.lead) {
        // A rank variable of the indices must come first, so no axis of `x` may precede it.
        (None, Some(_)) if at > 0 => return Err(indices.need_rank().unwrap_err()),
        (Some(_), Some(_)) => return Err(indices.need_rank().unwrap_err()),
        _ => {}
    }
    let mut dims: SmallVec<[Dim; 4]> = x.dims[..at].iter().cloned().collect();
    dims.extend(indices.dims.iter().cloned());
    dims.extend(x.dims[at + 1..].iter().cloned());
    Ok(Shape { lead: x.lead.clone().or_else(|| indices.lead.clone()), dims })
}

fn along_shape(cx: &mut Infer) -> Result<Shape> {
    let (x, indices) = (cx.shape(0).clone(), cx.shape(1).clone());
    let back = x.axis_from_back(cx.int("axis"))?;
    if x.dims.len() != indices.dims.len() || x.lead != indices.lead {
        return cx.mismatch(message![
            Operand("x"),
            " and ",
            Operand("indices"),
            " must have the same number of dims",
        ]);
    }
    let at = x.dims.len() - back;
    for axis in (0..x.dims.len()).filter(|&axis| axis != at) {
        let axes = format!(" in axis {axis}");
        let what = message!["dims of ", Operand("x"), " and ", Operand("indices"), axes];
        cx.unify(&x.dims[axis], &indices.dims[axis], what)?;
    }
    Ok(indices)
}

fn scatter_shape(cx: &mut Infer) -> Result<Shape> {
    let x = cx.shape(0).clone();
    let expected = take_shape(cx)?;
    let updates = cx.shape(2).clone();
    cx.same(&updates, &expected, message![Operand("updates"), " and the result of `take`"])?;
    Ok(x)
}

fn scatter_along_shape(cx: &mut Infer) -> Result<Shape> {
    let (indices, updates) = (along_shape(cx)?, cx.shape(2).clone());
    cx.same(&indices, &updates, message![Operand("indices"), " and ", Operand("updates")])?;
    Ok(cx.shape(0).clone())
}

fn starts_match(cx: &mut Infer, from: usize, block: &Shape) -> Result<()> {
    let x = cx.shape(0).clone();
    let rank = x.need_rank()?;
    if block.dims.len() != rank || cx.operands.len() - from != rank {
        return cx.mismatch(format!("{rank} starts and sizes are needed, one per axis"));
    }
    for i in from..cx.operands.len() {
        if cx.shape(i).rank() != Some(0) {
            return cx.mismatch("each start must be a scalar");
        }
    }
    for (axis, (size, dim)) in block.dims.iter().zip(&x.dims).enumerate() {
        if let (Some(s), Some(d)) = (size.as_const(), axis_dim(&x, axis as i64)?.as_const()) {
            if s > d {
                return cx.mismatch(format!(
                    "the block of size size {size} is longer than axis {axis} of size size {dim}"
                ));
            }
        }
    }
    Ok(())
}

fn one_hot<'a>(r: &Rule<'a>) -> Var<'a> {
    let indices = r.arg(0).expand_dims(&[-1]);
    let classes = Shape::new([Dim::Const(r.int("classes"))]);
    let attrs = [("shape", Attr::from(classes)), ("dtype", indices.dtype().into())];
    let ramp = r.build("iota", &[], &attrs);
    let dtype = r.dtype("dtype").unwrap_or(indices.dtype());
    indices.binary("eq", ramp).cast(dtype)
}

/// Last in the op table, so that random tests still draw the same uses of the other operations.
pub const PICK: &[OpDef] = &[OpDef {
    name: "pick",
    noun: "picked",
    doc: "The elements of `x` at `indices` along `axis`, which is removed from the result, such \
          as the scores of labelled classes. Indices are at least 0.",
    kind: Kind::Composite,
    operands: &[ANY, INDICES],
    attrs: &[AXIS],
    indexes: Some(Indexes { operand: 1, extent: Extent::Along("axis"), from_end: false }),
    shape: ShapeRule::Rule(|cx| {
        let axis = -(cx.shape(0).axis_from_back(cx.int("axis"))? as i64);
        let shape = super::reduce::without_axes(cx.shape(0), Some(&[axis]), false)?;
        let indices = cx.shape(1).clone();
        cx.same(
            &shape,
            &indices,
            message![Operand("indices"), " and ", Operand("x"), " without `axis`"],
        )?;
        Ok(shape)
    }),
    meaning: Meaning::Decompose(|r| {
        // Counts from the back, which works for a shape of any rank.
        let axis = r.arg(0).shape().axis_from_back(r.int("axis")).map_or(-1, |a| -(a as i64));
        let places = r.arg(1).expand_dims(&[axis]);
        r.build("take_along", &[r.arg(0), places], &[("axis", axis.into())]).squeeze(&[axis])
    }),
    note: OUT_OF_RANGE_NOTE,
    ..BASE
}];

/// As `scatter_add_along`, with another operator.
const COMBINED: OpDef = OpDef {
    noun: "scattered",
    indexes: ALONG,
    operands: &[NUMBER, INDICES, UPDATES],
    attrs: &[AXIS],
    shape: ShapeRule::Rule(scatter_along_shape),
    batch: Batch::Leading,
    note: OUT_OF_RANGE_NOTE,
    ..INDEX
};

/// Last in the op table, as [`PICK`] was.
pub const COMBINE: &[OpDef] = &[
    OpDef {
        name: "scatter_mul_along",
        access: Access::Scatter(Scatter::Along(Fold::Product)),
        doc: "`x` with each element multiplied by the elements of `updates` at its index along \
              `axis`.",
        meaning: Meaning::Kernel(|i| {
            index::scatter_along(Prim::Mul, i.arg(0), i.arg(1), i.arg(2), i.required_axis())
        }),
        gradient: Gradient::Rule(scatter_mul_gradients),
        ..COMBINED
    },
    OpDef {
        name: "scatter_max_along",
        access: Access::Scatter(Scatter::Along(Fold::Max)),
        doc: "The maximum of each element of `x` and the elements of `updates` at its index along \
              `axis`; NaN if any of them is NaN. Equal maxima share the gradient.",
        meaning: Meaning::Kernel(|i| {
            index::scatter_along(Prim::Max, i.arg(0), i.arg(1), i.arg(2), i.required_axis())
        }),
        gradient: Gradient::Rule(scatter_extremum_gradients),
        ..COMBINED
    },
    OpDef {
        name: "scatter_min_along",
        access: Access::Scatter(Scatter::Along(Fold::Min)),
        doc: "The minimum of each element of `x` and the elements of `updates` at its index along \
              `axis`; NaN if any of them is NaN. Equal minima share the gradient.",
        meaning: Meaning::Kernel(|i| {
            index::scatter_along(Prim::Min, i.arg(0), i.arg(1), i.arg(2), i.required_axis())
        }),
        gradient: Gradient::Rule(scatter_extremum_gradients),
        ..COMBINED
    },
];

/// The product of the other factors: where a factor is 0, it is that of those that are not 0,
/// unless there is another 0.
fn scatter_mul_gradients<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let (x, indices, updates) = (r.arg(0), r.arg(1), r.arg(2));
    let attrs = [("axis", r.attr("axis").clone())];
    let (zero, one) = (x.scalar(0.0), x.scalar(1.0));
    let is_zero = |v: Var<'a>| v.binary("eq", zero);
    let nonzero = |v: Var<'a>| is_zero(v).select(one, v);
    let count = |v: Var<'a>| is_zero(v).cast(x.dtype());
    let zeros = r.build("scatter_add_along", &[count(x), indices, count(updates)], &attrs);
    let factors = [nonzero(x), indices, nonzero(updates)];
    let product = r.g() * r.build("scatter_mul_along", &factors, &attrs);
    let gradient = |v: Var<'a>, zeros: Var<'a>, product: Var<'a>| {
        let alone = zeros.binary("eq", is_zero(v).select(one, zero));
        alone.select(product / nonzero(v), zero)
    };
    let at = |v: Var<'a>| r.build("take_along", &[v, indices], &attrs);
    let of_updates = gradient(updates, at(zeros), at(product));
    vec![Some(gradient(x, zeros, product)), None, Some(of_updates)]
}

fn scatter_extremum_gradients<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let (x, indices, updates) = (r.arg(0), r.arg(1), r.arg(2));
    let attrs = [("axis", r.attr("axis").clone())];
    let at = |v: Var<'a>| r.build("take_along", &[v, indices], &attrs);
    let (own, other) = (x.binary("eq", r.y()), updates.binary("eq", at(r.y())));
    let mask = |v: Var<'a>| v.cast(x.dtype());
    let count = r.build("scatter_add_along", &[mask(own), indices, mask(other)], &attrs);
    let zero = r.g().scalar(0.0);
    let share = r.g() / count.binary("maximum", count.scalar(1.0));
    vec![Some(own.select(share, zero)), None, Some(other.select(at(share), zero))]
}
