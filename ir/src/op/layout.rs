//! Operations that only move or repeat elements according to shapes, and those that make shapes and
//! ramps.

mod maps;
pub(super) mod rules;

use rules::*;

use super::access::{Access, Constant, Fold, Pieces};
use super::batch::{self, Batch};
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Kind, Meaning, OpDef, ShapeRule, attr, operand,
};
use crate::attr::{Attr, AttrKind};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::{Array, layout, reduce};
use crate::shape::Shape;

const LAYOUT: OpDef = OpDef { kind: Kind::Layout, operands: &[operand("x", Class::Any)], ..BASE };
const SHAPE: super::AttrDef = attr("shape", AttrKind::Shape, Default::Required);
const AXES: super::AttrDef = attr("axes", AttrKind::Ints, Default::Required).axes();
const AXIS: super::AttrDef = attr("axis", AttrKind::Int, Default::Required).axes();
const CONSTANT: OpDef = OpDef { kind: Kind::Constant, gradient: Gradient::Zero, ..BASE };

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "constant",
        noun: "filled",
        access: Access::Constant(Constant::Literal),
        doc: "A literal tensor.",
        attrs: &[attr("value", AttrKind::Tensor, Default::Required)],
        shape: ShapeRule::Rule(|cx| Ok(Shape::fixed(cx.attr("value").as_tensor().shape()))),
        dtype: DTypeRule::Attr("value"),
        meaning: Meaning::Kernel(|i| Ok(i.tensor("value").into())),
        known: Some(|cx| match cx.attr("value") {
            Attr::Tensor(t) => Some(t.to_i64s().into_iter().map(Dim::from).collect()),
            _ => None,
        }),
        ..CONSTANT
    },
    OpDef {
        name: "iota",
        noun: "indices",
        access: Access::Constant(Constant::Iota),
        doc: "0, 1, 2, … along `axis` of `shape`, repeated along the other axes.",
        attrs: &[SHAPE, attr("axis", AttrKind::Int, Default::Int(0)).axes(), DTYPE],
        shape: ShapeRule::Rule(iota_shape),
        dtype: DTypeRule::Attr("dtype"),
        meaning: Meaning::Kernel(|i| {
            layout::iota(&i.shape("shape"), i.axis_of_result(), i.dtype())
        }),
        ..CONSTANT
    },
    OpDef {
        name: "eye",
        kind: Kind::Composite,
        doc: "A matrix of `shape` with 1 on the main diagonal and 0 elsewhere.",
        attrs: &[SHAPE, DTYPE],
        shape: ShapeRule::Rule(eye_shape),
        dtype: DTypeRule::Attr("dtype"),
        meaning: Meaning::Decompose(|r| {
            let ramp = |axis: i64| {
                let dtype = DType::I32.into();
                let attrs =
                    [("shape", r.attr("shape").clone()), ("axis", axis.into()), ("dtype", dtype)];
                r.build("iota", &[], &attrs)
            };
            let own = r.ty.dtype;
            ramp(0).binary("eq", ramp(1)).cast(own)
        }),
        ..CONSTANT
    },
    OpDef {
        name: "dim",
        batch: batch::OF_SHAPE,
        access: Access::Constant(Constant::Known),
        doc: "The size of `axis`, as a scalar.",
        kind: Kind::Dim,
        operands: &[operand("x", Class::Any)],
        attrs: &[AXIS],
        shape: ShapeRule::Rule(|cx| {
            cx.shape(0).axis_from_back(cx.int("axis"))?;
            Ok(Shape::scalar())
        }),
        dtype: DTypeRule::Fixed(DType::I64),
        gradient: Gradient::Zero,
        meaning: Meaning::Kernel(|i| Ok(integer(i.arg(0).shape[i.required_axis()]))),
        known: Some(|cx| Some(vec![axis_dim(cx.shape(0), cx.int("axis")).ok()?.clone()])),
        ..BASE
    },
    OpDef {
        name: "element_count",
        batch: batch::OF_SHAPE,
        access: Access::Constant(Constant::Known),
        doc: "The product of the dims of `axes` (all if omitted), as a scalar.",
        kind: Kind::Dim,
        operands: &[operand("x", Class::Any)],
        attrs: &[attr("axes", AttrKind::Ints, Default::None).axes()],
        shape: ShapeRule::Rule(|_| Ok(Shape::scalar())),
        dtype: DTypeRule::Fixed(DType::I64),
        gradient: Gradient::Zero,
        meaning: Meaning::Kernel(|i| {
            let x = i.arg(0);
            Ok(integer(i.axes().iter().map(|&a| x.shape[a]).product()))
        }),
        known: Some(|cx| Some(vec![crate::algebra::count_dims(cx.shape(0), cx.ints("axes"))?])),
        ..BASE
    },
    OpDef {
        name: "broadcast_in_dim",
        batch: batch::BROADCAST,
        noun: "expanded",
        access: Access::View(maps::broadcast),
        doc: "`x` broadcast to `shape`. Its axes become `axes` of the result; if omitted, they \
              become the last ones, as in NumPy.",
        attrs: &[SHAPE, attr("axes", AttrKind::Ints, Default::None).axes()],
        shape: ShapeRule::Rule(broadcast_shape),
        meaning: Meaning::Kernel(|i| {
            let x = i.arg(0);
            let shape = i.shape("shape");
            let axes: Vec<usize> = match i.ints("axes") {
                Some(axes) => {
                    axes.iter().map(|a| a.rem_euclid(shape.len() as i64) as usize).collect()
                }
                None => (shape.len() - x.shape.len()..shape.len()).collect(),
            };
            layout::broadcast_in_dim(x, &shape, &axes)
        }),
        gradient: Gradient::Rule(broadcast_gradient),
        ..LAYOUT
    },
    OpDef {
        name: "sum_to",
        batch: batch::SUM_TO,
        noun: "total",
        access: Access::Fold(Fold::Sum),
        doc: "`x` summed to `shape`: the transpose of broadcasting from `shape` to the shape of \
              `x`.",
        kind: Kind::Reduce,
        operands: &[operand("x", Class::Number)],
        attrs: &[SHAPE],
        shape: ShapeRule::Rule(|cx| {
            let (x, target) = (cx.shape(0).clone(), cx.whole_shape("shape")?);
            cx.broadcasts_to(&target, &x)?;
            Ok(target)
        }),
        meaning: Meaning::Kernel(|i| reduce::sum_to(i.arg(0), &i.shape("shape"))),
        gradient: Gradient::Rule(|r| vec![Some(r.g().broadcast_to(r.arg(0).shape()))]),
        ..LAYOUT
    },
    OpDef {
        name: "reshape",
        batch: batch::RESHAPE,
        noun: "reshaped",
        access: Access::View(maps::reshape),
        doc: "The same elements in row-major order in another shape; one dim may be `?`, which is \
              inferred from the others.",
        attrs: &[SHAPE],
        shape: ShapeRule::Rule(reshape_shape),
        meaning: Meaning::Kernel(|i| layout::reshape(i.arg(0), &i.shape("shape"))),
        gradient: Gradient::Rule(|r| vec![Some(r.g().reshape(r.arg(0).shape()))]),
        known: Some(|cx| cx.known[0].map(<[Dim]>::to_vec)),
        ..LAYOUT
    },
    OpDef {
        name: "transpose",
        batch: batch::TRANSPOSE,
        noun: "transposed",
        access: Access::View(maps::transpose),
        doc: "Axis `i` of the result is axis `permutation[i]` of `x`.",
        attrs: &[attr("permutation", AttrKind::Ints, Default::Required)],
        shape: ShapeRule::Rule(transpose_shape),
        meaning: Meaning::Kernel(|i| layout::transpose(i.arg(0), &i.axes_of("permutation", 0))),
        gradient: Gradient::Rule(|r| {
            let permutation = r.ints("permutation").unwrap_or(&[]);
            let rank = permutation.len() as i64;
            let mut inverse = vec![0; permutation.len()];
            for (to, &from) in permutation.iter().enumerate() {
                inverse[from.rem_euclid(rank) as usize] = to as i64;
            }
            vec![Some(r.g().transpose(&inverse))]
        }),
        ..LAYOUT
    },
    OpDef {
        name: "swap_axes",
        batch: Batch::Leading,
        noun: "transposed",
        doc: "`x` with two axes exchanged.",
        kind: Kind::Composite,
        attrs: &[
            attr("first", AttrKind::Int, Default::Required).axes(),
            attr("second", AttrKind::Int, Default::Required).axes(),
        ],
        shape: ShapeRule::Rule(swap_shape),
        meaning: Meaning::Decompose(|r| {
            let rank = r.arg(0).rank() as i64;
            let at = |name| r.int(name).rem_euclid(rank.max(1)) as usize;
            let mut permutation: Vec<i64> = (0..rank).collect();
            if rank > 0 {
                permutation.swap(at("first"), at("second"));
            }
            r.arg(0).transpose(&permutation)
        }),
        gradient: Gradient::Rule(|r| {
            let attrs = [("first", r.attr("first").clone()), ("second", r.attr("second").clone())];
            vec![Some(r.g().unary("swap_axes", &attrs))]
        }),
        ..LAYOUT
    },
    OpDef {
        name: "expand_dims",
        batch: Batch::Leading,
        noun: "expanded",
        doc: "`x` with axes of size 1 inserted at `axes` of the result.",
        kind: Kind::Composite,
        attrs: &[AXES],
        shape: ShapeRule::Rule(expand_shape),
        meaning: Meaning::Decompose(|r| r.arg(0).reshape(r.ty.shape.clone())),
        gradient: Gradient::Rule(|r| vec![Some(r.g().reshape(r.arg(0).shape()))]),
        known: Some(|cx| cx.known[0].map(<[Dim]>::to_vec)),
        ..LAYOUT
    },
    OpDef {
        name: "squeeze",
        batch: Batch::Leading,
        noun: "squeezed",
        doc: "`x` with axes of size 1 removed.",
        kind: Kind::Composite,
        attrs: &[AXES],
        shape: ShapeRule::Rule(squeeze_shape),
        meaning: Meaning::Decompose(|r| r.arg(0).reshape(r.ty.shape.clone())),
        gradient: Gradient::Rule(|r| vec![Some(r.g().reshape(r.arg(0).shape()))]),
        known: Some(|cx| cx.known[0].map(<[Dim]>::to_vec)),
        ..LAYOUT
    },
    OpDef {
        name: "slice",
        batch: Batch::Leading,
        noun: "part",
        access: Access::View(maps::slice),
        doc: "Every `steps`-th element from `starts` up to but not including `limits` along each \
              of `axes`; a limit of `?` is the end.",
        attrs: &[
            AXES,
            attr("starts", AttrKind::Shape, Default::Required),
            attr("limits", AttrKind::Shape, Default::Required),
            attr("steps", AttrKind::Ints, Default::None),
        ],
        shape: ShapeRule::Rule(slice_shape),
        meaning: Meaning::Kernel(|i| {
            let (starts, limits, steps) = i.bounds();
            layout::slice(i.arg(0), &starts, &limits, &steps)
        }),
        gradient: Gradient::Rule(slice_gradient),
        known: Some(known_slice),
        ..LAYOUT
    },
    OpDef {
        name: "reverse",
        batch: Batch::Leading,
        noun: "flipped",
        access: Access::View(maps::reverse),
        doc: "`x` with the elements along each of `axes` in reverse order.",
        attrs: &[AXES],
        shape: ShapeRule::Rule(|cx| {
            super::reduce::without_axes(cx.shape(0), cx.ints("axes"), true)?;
            Ok(cx.shape(0).clone())
        }),
        meaning: Meaning::Kernel(|i| layout::reverse(i.arg(0), &i.axes())),
        gradient: Gradient::Rule(|r| {
            vec![Some(r.g().unary("reverse", &[("axes", r.attr("axes").clone())]))]
        }),
        ..LAYOUT
    },
    OpDef {
        name: "concat",
        batch: Batch::Leading,
        noun: "joined",
        access: Access::Pieces(Pieces::Concat),
        doc: "The inputs concatenated along `axis`.",
        operands: &[operand("inputs", Class::Any).many()],
        attrs: &[AXIS],
        shape: ShapeRule::Rule(concat_shape),
        meaning: Meaning::Kernel(|i| layout::concat(i.args(), i.required_axis())),
        gradient: Gradient::Rule(concat_gradient),
        known: Some(|cx| {
            let parts: Option<Vec<&[Dim]>> = cx.known.iter().copied().collect();
            Some(parts?.concat())
        }),
        ..LAYOUT
    },
    OpDef {
        name: "pad",
        batch: batch::PAD,
        noun: "padded",
        access: Access::Pieces(Pieces::Pad),
        doc: "`x` with `low` copies of `value` before, `high` after and `interior` between the \
              elements of each axis. Negative `low` and `high` crop, at most to size 0.",
        operands: &[operand("x", Class::Any), operand("value", Class::Any)],
        attrs: &[
            attr("low", AttrKind::Ints, Default::Required),
            attr("high", AttrKind::Ints, Default::Required),
            attr("interior", AttrKind::Ints, Default::None),
        ],
        shape: ShapeRule::Rule(pad_shape),
        meaning: Meaning::Kernel(|i| {
            let rank = i.arg(0).shape.len();
            let zeros = vec![0; rank];
            let interior = i.ints("interior").unwrap_or(&zeros);
            let (low, high) = (i.ints("low").unwrap_or(&zeros), i.ints("high").unwrap_or(&zeros));
            layout::pad(i.arg(0), i.arg(1), low, high, interior)
        }),
        gradient: Gradient::Rule(pad_gradient),
        ..LAYOUT
    },
];

const DTYPE: super::AttrDef = attr("dtype", AttrKind::DType, Default::Required);

fn integer(value: usize) -> Array {
    Array::from(&crate::tensor::Tensor::from_i64s(DType::I64, vec![], &[value as i64]))
}
