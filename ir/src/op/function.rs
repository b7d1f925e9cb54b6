//! Operations that name functions of the module, and barriers to optimization and differentiation.

use super::access::Access;
use super::batch::{self, Batch};
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Kind, Meaning, OpDef, Operand, ShapeRule, attr,
    operand,
};
use crate::attr::AttrKind;
use crate::diagnostic::Result;
use crate::eval::Array;
use crate::evaluate::Calls;

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
];

pub(super) fn run_callee(calls: &Calls) -> Result<Vec<Array>> {
    calls.run(0, calls.args().iter().map(|&a| a.clone()).collect())
}
