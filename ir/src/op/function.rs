//! Operations that name functions of the module, and barriers to optimization and differentiation.

use super::access::Access;
use super::batch::{self, Batch};
use super::infer::Infer;
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Kind, Meaning, OpDef, Operand, ShapeRule, attr,
    operand,
};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, ErrorKind, Result};
use crate::eval::Array;
use crate::evaluate::Calls;
use crate::shape::Shape;

pub(super) const OPERANDS: &[Operand] = &[operand("operands", Class::Any).own_dtype().many()];

pub(super) const CALL: OpDef = OpDef {
    kind: Kind::Call,
    operands: OPERANDS,
    attrs: &[attr("callee", AttrKind::Function, Default::Required)],
    shape: ShapeRule::Call(|cx| cx.instantiate(cx.operands)),
    dtype: DTypeRule::Call,
    meaning: Meaning::Call(run_callee),
    gradient: Gradient::Callee,
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef { name: "call", doc: "The results of calling `callee` on the operands.", ..CALL },
    OpDef {
        name: "custom_gradient",
        doc: "The results of `callee`, whose gradient is the function `vjp`. It takes the \
              operands, the results and the cotangents of float results, and returns the \
              cotangents of float operands.",
        attrs: &[
            attr("callee", AttrKind::Function, Default::Required),
            attr("vjp", AttrKind::Function, Default::Required),
        ],
        gradient: Gradient::Vjp,
        ..CALL
    },
    OpDef {
        name: "checkpoint",
        doc: "The results of calling `callee` on the operands. Its gradient keeps no intermediate \
              values: it recomputes them from the operands.",
        gradient: Gradient::Recompute,
        ..CALL
    },
    OpDef {
        name: "optimization_barrier",
        batch: batch::BARRIER,
        access: Access::View(|view| view.identity()),
        doc: "`x`, available only after `other` has been computed. CSE does not merge operations \
              on the result with operations on `x`.",
        kind: Kind::Barrier,
        operands: &[operand("x", Class::Any), operand("other", Class::Any).own_dtype()],
        meaning: Meaning::Kernel(|i| Ok(i.arg(0).clone())),
        gradient: Gradient::Rule(|r| vec![Some(r.g()), None]),
        known: Some(|cx| cx.known[0].map(<[crate::dim::Dim]>::to_vec)),
        ..BASE
    },
    OpDef {
        name: "stop_gradient",
        batch: Batch::Leading,
        noun: "detached",
        access: Access::View(|view| view.identity()),
        doc: "`x` itself, treated as a constant in differentiation.",
        kind: Kind::Barrier,
        operands: &[operand("x", Class::Any)],
        meaning: Meaning::Kernel(|i| Ok(i.arg(0).clone())),
        gradient: Gradient::Zero,
        known: Some(|cx| cx.known[0].map(<[crate::dim::Dim]>::to_vec)),
        ..BASE
    },
    OpDef {
        name: "constrain",
        batch: Batch::Leading,
        noun: "sharded",
        access: Access::View(|view| view.identity()),
        doc: "`x` itself, divided over a device mesh: entry i of `by` is the mesh axis that divides \
              axis `axes[i]`. `by` separates names, or numbers of mesh axes, by commas. Other mesh \
              axes do not divide `x`. If it is `open`, a search for layouts decides instead.",
        kind: Kind::Barrier,
        operands: &[operand("x", Class::Any)],
        attrs: &[
            attr("axes", AttrKind::Ints, Default::Required).axes(),
            attr("by", AttrKind::Str, Default::Required),
            attr("open", AttrKind::Bool, Default::Bool(false)),
        ],
        shape: ShapeRule::Rule(constrained),
        meaning: Meaning::Kernel(|i| Ok(i.arg(0).clone())),
        gradient: Gradient::Rule(|r| {
            let attrs = ["axes", "by", "open"].map(|name| (name, r.attr(name).clone()));
            vec![Some(r.g().unary("constrain", &attrs))]
        }),
        known: Some(|cx| cx.known[0].map(<[crate::dim::Dim]>::to_vec)),
        ..BASE
    },
];

/// Errors: an axis that the operand does not have; a mesh axis that occurs twice.
fn constrained(cx: &mut Infer) -> Result<Shape> {
    let shape = cx.shape(0).clone();
    let Attr::Str(by) = cx.attr("by").clone() else { return Ok(shape) };
    let (names, axes) = (mesh_axes(&by), cx.ints("axes").unwrap_or_default());
    if let Some(name) = names.iter().enumerate().find(|(at, own)| names[..*at].contains(own)) {
        let what = format!("the mesh axis `{}` divides an array twice", name.1);
        return Diagnostic::of(ErrorKind::Argument, what).err();
    }
    if names.len() != axes.len() {
        let what = "a constraint must name one mesh axis for each axis that it divides";
        let got = format!("{} mesh axes for {} axes", names.len(), axes.len());
        return Diagnostic::of(ErrorKind::Argument, what).got(got).err();
    }
    let rank = shape.dims.len() as i64;
    let beyond = axes.iter().find(|axis| shape.lead.is_none() && !(-rank..rank).contains(axis));
    match beyond {
        Some(axis) => Diagnostic::of(
            ErrorKind::Shapes,
            "a mesh cannot divide an axis that the array does not have",
        )
        .got(format!("axis {axis} of {shape}"))
        .err(),
        None => Ok(shape),
    }
}

/// The mesh axes that the attribute `by` of a constraint names.
pub fn mesh_axes(by: &str) -> Vec<&str> {
    by.split(',').filter(|name| !name.is_empty()).collect()
}

pub(super) fn run_callee(calls: &Calls) -> Result<Vec<Array>> {
    calls.run(0, calls.args().iter().map(|&a| a.clone()).collect())
}
