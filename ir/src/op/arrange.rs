//! Composites that rearrange elements, or replace some by 0.

use super::access::{Extent, Indexes};
use super::batch::Batch;
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr,
    operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, ErrorKind, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::message;
use crate::shape::Shape;

const TRIANGLE: OpDef = OpDef {
    kind: Kind::Composite,
    operands: &[operand("x", Class::Any)],
    attrs: &[attr("diagonal", AttrKind::Int, Default::Int(0))],
    shape: ShapeRule::Rule(triangle_shape),
    batch: Batch::Leading,
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "stack",
        batch: Batch::Leading,
        noun: "stacked",
        doc: "The inputs, all of one shape, stacked along a new `axis` of the result.",
        kind: Kind::Composite,
        operands: &[operand("inputs", Class::Any).many()],
        attrs: &[attr("axis", AttrKind::Int, Default::Int(0)).axes()],
        shape: ShapeRule::Rule(stack_shape),
        meaning: Meaning::Decompose(|r| {
            let axis = r.int("axis");
            let each: Vec<Var> = r.operands.iter().map(|x| x.expand_dims(&[axis])).collect();
            r.build("concat", &each, &[("axis", axis.into())])
        }),
        known: Some(|cx| {
            let parts: Option<Vec<&[Dim]>> = cx.known.iter().copied().collect();
            Some(parts?.concat())
        }),
        ..BASE
    },
    OpDef {
        name: "tril",
        doc: "`x` with 0 above diagonal number `diagonal` of the last two axes; 0 is the main \
              one, 1 the next to its right.",
        meaning: Meaning::Decompose(|r| triangle(r, "ge")),
        gradient: Gradient::Rule(|r| triangle_gradient(r, "tril")),
        ..TRIANGLE
    },
    OpDef {
        name: "triu",
        doc: "`x` with 0 below diagonal number `diagonal` of the last two axes; 0 is the main \
              one, 1 the next to its right.",
        meaning: Meaning::Decompose(|r| triangle(r, "le")),
        gradient: Gradient::Rule(|r| triangle_gradient(r, "triu")),
        ..TRIANGLE
    },
    OpDef {
        name: "diagonal",
        batch: Batch::Leading,
        doc: "The diagonal of the last two axes, `offset` to the right of the main one.",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Any)],
        attrs: &[attr("offset", AttrKind::Int, Default::Int(0))],
        shape: ShapeRule::Rule(|cx| {
            let (mut shape, length) = (cx.shape(0).clone(), diagonal_length(cx)?);
            shape.dims.pop();
            *shape.dims.last_mut().expect("two axes") = length;
            Ok(shape)
        }),
        meaning: Meaning::Decompose(diagonal),
        ..BASE
    },
    OpDef {
        name: "roll",
        batch: Batch::Leading,
        noun: "rolled",
        doc: "The elements shifted by `shift` along `axis`; those shifted past one end wrap \
              around to the other.",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Any)],
        attrs: &[
            attr("shift", AttrKind::Int, Default::Required),
            attr("axis", AttrKind::Int, Default::Required).axes(),
        ],
        shape: ShapeRule::Rule(|cx| {
            cx.shape(0).axis_from_back(cx.int("axis"))?;
            Ok(cx.shape(0).clone())
        }),
        meaning: Meaning::Decompose(roll),
        gradient: Gradient::Rule(|r| {
            let attrs = [
                ("shift", Attr::Int(r.int("shift").saturating_neg())),
                ("axis", r.int("axis").into()),
            ];
            vec![Some(r.g().unary("roll", &attrs))]
        }),
        ..BASE
    },
    OpDef {
        name: "tile",
        batch: Batch::Leading,
        noun: "tiled",
        doc: "`x` repeated `reps` times along each of the last axes.",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Any)],
        attrs: &[attr("reps", AttrKind::Ints, Default::Required)],
        shape: ShapeRule::Rule(|cx| {
            let reps = cx.ints("reps").unwrap_or(&[]);
            not_negative(reps)?;
            cx.shape(0).need_rank()?;
            let (times, own) = tiles(cx.shape(0), reps);
            Ok(Shape::new(times.iter().zip(&own).map(|(t, d)| t * d)))
        }),
        meaning: Meaning::Decompose(|r| {
            let (times, own) = tiles(&r.arg(0).shape(), r.ints("reps").unwrap_or(&[]));
            let pairs = |a: &[Dim]| -> Vec<Dim> {
                a.iter().zip(&own).flat_map(|(t, d)| [t.clone(), d.clone()]).collect()
            };
            let split = r.arg(0).reshape(Shape::new(pairs(&vec![Dim::Const(1); own.len()])));
            split.broadcast_to(Shape::new(pairs(&times))).reshape(r.ty.shape.clone())
        }),
        ..BASE
    },
    OpDef {
        name: "repeat",
        batch: Batch::Leading,
        noun: "repeated",
        doc: "Each element repeated `repeats` times along `axis`.",
        kind: Kind::Composite,
        operands: &[operand("x", Class::Any)],
        attrs: &[
            attr("repeats", AttrKind::Int, Default::Required),
            attr("axis", AttrKind::Int, Default::Required).axes(),
        ],
        shape: ShapeRule::Rule(|cx| {
            not_negative(&[cx.int("repeats")])?;
            let mut shape = cx.shape(0).clone();
            let at = shape.dims.len() - shape.axis_from_back(cx.int("axis"))?;
            shape.dims[at] = &shape.dims[at] * &Dim::Const(cx.int("repeats"));
            Ok(shape)
        }),
        meaning: Meaning::Decompose(|r| {
            let mut each = r.arg(0).shape();
            let Ok(back) = each.axis_from_back(r.int("axis")) else {
                return r.arg(0);
            };
            each.dims.insert(each.dims.len() + 1 - back, Dim::Const(r.int("repeats")));
            r.arg(0).expand_dims(&[-(back as i64)]).broadcast_to(each).reshape(r.ty.shape.clone())
        }),
        ..BASE
    },
];

fn stack_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    for i in 1..cx.operands.len() {
        let next = cx.shape(i).clone();
        cx.same(&shape, &next, format!("inputs 0 and {i}"))?;
    }
    let count = Dim::from(cx.operands.len());
    let axis = cx.int("axis");
    let at = match &shape.lead {
        None => Shape::new(shape.dims.iter().cloned().chain([Dim::Const(1)])).axis(axis)?,
        Some(_) if axis < 0 => {
            let after = axis.unsigned_abs() as usize - 1;
            shape.dims.len() - shape.need_trailing(after)?.len()
        }
        Some(_) => shape.need_rank()?,
    };
    shape.dims.insert(at, count);
    Ok(shape)
}

/// Errors: a storage-only dtype, or fewer than two axes.
fn triangle_shape(cx: &mut Infer) -> Result<Shape> {
    let dtype = cx.operands[0].dtype;
    if dtype.is_storage_only() {
        return Diagnostic::of(ErrorKind::DType, message![cx.name(), " does not take this dtype"])
            .got(dtype)
            .expected("a dtype to compute in")
            .hint("make the dtype explicit with `cast`")
            .err();
    }
    cx.shape(0).need_trailing(2)?;
    Ok(cx.shape(0).clone())
}

/// Last in the op table, so that random tests still draw the same uses of the other operations.
pub const MASKS: &[OpDef] = &[OpDef {
    name: "sequence_mask",
    batch: Batch::Leading,
    noun: "inside",
    doc: "A new last axis, the one of `shape`, whose first `lengths` positions are true: which \
          steps are inside each sequence. Lengths are at least 0 and at most the size of the axis.",
    kind: Kind::Composite,
    operands: &[operand("lengths", Class::Int)],
    attrs: &[attr("shape", AttrKind::Shape, Default::Required)],
    indexes: Some(Indexes { operand: 0, extent: Extent::UpTo("shape"), from_end: false }),
    shape: ShapeRule::Rule(|cx| {
        let (mut shape, last) = (cx.shape(0).clone(), cx.whole_shape("shape")?);
        if last.rank() != Some(1) {
            let error = cx.shape_error(message![cx.name(), " needs a shape of one dim"]);
            return error.got(&last).expected("one dim").err();
        }
        shape.dims.extend(last.dims);
        Ok(shape)
    }),
    dtype: DTypeRule::Fixed(DType::Bool),
    meaning: Meaning::Decompose(|r| {
        let lengths = r.arg(0);
        let attrs = [("shape", r.attr("shape").clone()), ("dtype", lengths.dtype().into())];
        r.build("iota", &[], &attrs).binary("lt", lengths.expand_dims(&[-1]))
    }),
    gradient: Gradient::Zero,
    note: "A longer length counts as the size of the axis, a negative one as 0.",
    ..BASE
}];

/// Keeps `x` where row + diagonal is at least (or at most) the column, and is 0 elsewhere.
fn triangle<'a>(r: &Rule<'a>, holds: &str) -> Var<'a> {
    let x = r.arg(0);
    let shape = x.shape();
    let Ok(last) = shape.need_trailing(2) else {
        return x;
    };
    let square = Attr::from(Shape::new(last.iter().cloned()));
    let ramp = |axis: i64| {
        let attrs =
            [("shape", square.clone()), ("axis", axis.into()), ("dtype", DType::I32.into())];
        r.build("iota", &[], &attrs)
    };
    let kept = (ramp(0) + r.int("diagonal") as f64).binary(holds, ramp(1));
    kept.select(x, x.scalar(0.0))
}

fn triangle_gradient<'a>(r: &Rule<'a>, name: &str) -> Vec<Option<Var<'a>>> {
    vec![Some(r.g().unary(name, &[("diagonal", r.attr("diagonal").clone())]))]
}

/// The number of elements on the operand's diagonal. Errors: it begins outside of the operand.
fn diagonal_length(cx: &Infer) -> Result<Dim> {
    let (shape, offset) = (cx.shape(0), cx.int("offset"));
    let (_, length) = diagonal_of(shape.need_trailing(2)?, offset);
    match length.as_const() {
        Some(n) if n < 0 => Diagnostic::of(ErrorKind::Shapes, "the diagonal is out of range")
            .got(format!("offset {offset} of {shape}"))
            .err(),
        _ => Ok(length),
    }
}

/// The first row of a diagonal and its length, for a matrix with these rows and columns.
fn diagonal_of(last: &[Dim], offset: i64) -> (i64, Dim) {
    let (first, moved) = (offset.saturating_neg().max(0), offset.max(0));
    (first, (&last[0] - &Dim::Const(first)).min(&(&last[1] - &Dim::Const(moved))))
}

fn diagonal<'a>(r: &Rule<'a>) -> Var<'a> {
    let (x, offset) = (r.arg(0), r.int("offset"));
    let shape = x.shape();
    let Ok(last) = shape.need_trailing(2) else {
        return x;
    };
    let (first, length) = diagonal_of(last, offset);
    let ramp = |shape: Shape, start: i64| {
        let attrs = [("shape", shape.into()), ("axis", 0.into()), ("dtype", DType::I64.into())];
        let ramp = r.build("iota", &[], &attrs);
        if start == 0 { ramp } else { ramp + start as f64 }
    };
    let rows = match length == last[0] {
        true => x,
        false => {
            let which = ramp(Shape::new([length.clone()]), first);
            r.build("take", &[x, which], &[("axis", (-2).into())])
        }
    };
    let mut places = rows.shape();
    *places.dims.last_mut().expect("two axes") = Dim::Const(1);
    let columns = ramp(Shape::new([length, Dim::Const(1)]), offset.max(0)).broadcast_to(places);
    r.build("take_along", &[rows, columns], &[("axis", (-1).into())]).squeeze(&[-1])
}

fn roll<'a>(r: &Rule<'a>) -> Var<'a> {
    let (x, axis) = (r.arg(0), r.int("axis"));
    let shape = x.shape();
    let Ok(back) = shape.axis_from_back(axis) else {
        return x;
    };
    let length = &shape.dims[shape.dims.len() - back];
    if length.as_const() == Some(0) {
        return x;
    }
    // Avoids remainders of negative numbers, and division by 0, which a symbolic length may be.
    let within = |by: i64| Dim::Const(by).modulo(&length.max(&Dim::Const(1)));
    let at = match r.int("shift") {
        shift if shift < 0 => within(shift.saturating_neg()),
        shift => length - &within(shift),
    };
    let cut = |start: Dim, limit: Dim| {
        let attrs = [
            ("axes", Attr::ints([axis])),
            ("starts", Shape::new([start]).into()),
            ("limits", Shape::new([limit]).into()),
        ];
        x.unary("slice", &attrs)
    };
    let (front, rest) = (cut(Dim::Const(0), at.clone()), cut(at, Dim::Unknown));
    r.build("concat", &[rest, front], &[("axis", axis.into())])
}

/// The number of repetitions along each axis, and the dims of a shape, both padded with ones to the
/// result's rank.
fn tiles(shape: &Shape, reps: &[i64]) -> (Vec<Dim>, Vec<Dim>) {
    let rank = shape.dims.len().max(reps.len());
    let ones = |have: usize| std::iter::repeat_n(Dim::Const(1), rank - have);
    let times = ones(reps.len()).chain(reps.iter().map(|&r| Dim::Const(r))).collect();
    let own = ones(shape.dims.len()).chain(shape.dims.iter().cloned()).collect();
    (times, own)
}

/// Errors: a negative number of repetitions.
fn not_negative(times: &[i64]) -> Result<()> {
    match times.iter().find(|t| **t < 0) {
        Some(least) => Diagnostic::new("a number of repetitions is negative").got(least).err(),
        None => Ok(()),
    }
}
