//! Composites that arrange elements, or put 0 in the place of some.

use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, Python, ShapeRule, all, attr,
    operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::shape::Shape;

const TRIANGLE: OpDef = OpDef {
    kind: Kind::Composite,
    operands: &[operand("x", Class::Any)],
    attrs: &[attr("diagonal", AttrKind::Int, Default::Int(0))],
    shape: ShapeRule::Rule(triangle_shape),
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "stack",
        doc: "The inputs, of one shape, along a new `axis` of the result.",
        kind: Kind::Composite,
        operands: &[operand("inputs", Class::Any).many()],
        attrs: &[attr("axis", AttrKind::Int, Default::Int(0))],
        shape: ShapeRule::Rule(stack_shape),
        meaning: Meaning::Decompose(|r| {
            let axis = r.int("axis");
            let each: Vec<Var> = r.operands.iter().map(|x| x.expand_dims(&[axis])).collect();
            r.build("concat", &each, &[("axis", axis.into())])
        }),
        python: Python {
            torch: "@stack([{inputs}][, dim={axis}])",
            ..all("@stack([{inputs}][, axis={axis}])")
        },
        known: Some(|cx| {
            let parts: Option<Vec<&[Dim]>> = cx.known.iter().copied().collect();
            Some(parts?.concat())
        }),
        ..BASE
    },
    OpDef {
        name: "tril",
        doc: "`x` with 0 above the `diagonal` of the last two axes, counted to the right from the \
              main one.",
        meaning: Meaning::Decompose(|r| triangle(r, "ge")),
        gradient: Gradient::Rule(|r| triangle_gradient(r, "tril")),
        python: Python {
            torch: "@tril({x}.to(@int64)[, {diagonal}]).to({dtype}) if x is unsigned; \
                    @tril({x}[, {diagonal}])",
            ..all("@tril({x}[, {diagonal}])")
        },
        ..TRIANGLE
    },
    OpDef {
        name: "triu",
        doc: "`x` with 0 below the `diagonal` of the last two axes, counted to the right from the \
              main one.",
        meaning: Meaning::Decompose(|r| triangle(r, "le")),
        gradient: Gradient::Rule(|r| triangle_gradient(r, "triu")),
        python: Python {
            torch: "@triu({x}.to(@int64)[, {diagonal}]).to({dtype}) if x is unsigned; \
                    @triu({x}[, {diagonal}])",
            ..all("@triu({x}[, {diagonal}])")
        },
        ..TRIANGLE
    },
];

fn stack_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    for i in 1..cx.operands.len() {
        let next = cx.shape(i).clone();
        cx.same(&shape, &next, &format!("inputs 0 and {i}"))?;
    }
    let count = Dim::from(cx.operands.len());
    let axis = cx.int("axis");
    let at = match &shape.lead {
        None => Shape::new(shape.dims.iter().cloned().chain([Dim::Const(1)])).axis(axis)?,
        Some(_) if axis < 0 => {
            let behind = axis.unsigned_abs() as usize - 1;
            shape.dims.len() - shape.need_trailing(behind)?.len()
        }
        Some(_) => shape.need_rank()?,
    };
    shape.dims.insert(at, count);
    Ok(shape)
}

/// Errors: a dtype that has no 0 to compute with; less than two axes.
fn triangle_shape(cx: &mut Infer) -> Result<Shape> {
    let dtype = cx.operands[0].dtype;
    if dtype.is_storage_only() {
        return Diagnostic::new(format!("`{}` does not take this dtype", cx.op.name))
            .got(dtype)
            .expected("a dtype to compute in")
            .hint("make the dtype explicit with `cast`")
            .err();
    }
    cx.shape(0).need_trailing(2)?;
    Ok(cx.shape(0).clone())
}

/// `x` where row + diagonal is at least (at most) the column, 0 elsewhere.
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
