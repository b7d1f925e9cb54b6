//! Operations that name functions of the module, and the barrier to differentiation.

use super::{
    BASE, Class, DTypeRule, Default, Gradient, Kind, Meaning, OpDef, Operand, Python, ShapeRule,
    attr, operand,
};
use crate::attr::AttrKind;

const OPERANDS: &[Operand] = &[operand("operands", Class::Any).apart().many()];

const CALL: OpDef = OpDef {
    kind: Kind::Call,
    operands: OPERANDS,
    attrs: &[attr("callee", AttrKind::Function, Default::Required)],
    shape: ShapeRule::Signature,
    dtype: DTypeRule::Signature,
    meaning: Meaning::Function,
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "call",
        doc: "The results of `callee` on the operands.",
        ..CALL
    },
    OpDef {
        name: "custom_gradient",
        doc: "The results of `callee`, differentiated by `vjp`: a function of the operands, the \
              results and the results' cotangents that gives the operands' cotangents.",
        attrs: &[
            attr("callee", AttrKind::Function, Default::Required),
            attr("vjp", AttrKind::Function, Default::Required),
        ],
        ..CALL
    },
    OpDef {
        name: "stop_gradient",
        doc: "`x` itself, which counts as constant in differentiation.",
        kind: Kind::Barrier,
        operands: &[operand("x", Class::Any)],
        meaning: Meaning::Kernel(|i| Ok(i.arg(0).clone())),
        gradient: Gradient::Zero,
        python: Python {
            numpy: "{x}",
            torch: "{x}.detach()",
            jax: "jax.lax.stop_gradient({x})",
        },
        known: Some(|cx| cx.known[0].map(<[crate::dim::Dim]>::to_vec)),
        ..BASE
    },
];
