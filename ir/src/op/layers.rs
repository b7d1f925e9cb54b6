//! Operands, attributes and rules shared by the operations of layers: norms, softmax, activations.

use super::{AttrDef, Class, Default, Infer, Operand, attr, operand};
use crate::algebra::Var;
use crate::attr::AttrKind;
use crate::diagnostic::{Name, Result};
use crate::message;
use crate::shape::Shape;

pub(super) const AXIS: AttrDef = attr("axis", AttrKind::Int, Default::Int(-1)).axes();
pub(super) const EPSILON: AttrDef = attr("epsilon", AttrKind::Float, Default::Float(1e-5));
pub(super) const X: Operand = operand("x", Class::Float);
pub(super) const WEIGHT: Operand = operand("weight", Class::Float).optional();
pub(super) const BIAS: Operand = operand("bias", Class::Float).optional();
pub(super) const BETA: AttrDef = attr("beta", AttrKind::Float, Default::Float(1.0));
pub(super) const SLOPE: AttrDef = attr("slope", AttrKind::Float, Default::Float(0.01));
pub(super) const ALPHA: AttrDef = attr("alpha", AttrKind::Float, Default::Float(1.0));

/// The shape of the first operand. Checks the other operands, which scale its last axis.
pub(super) fn normalised(cx: &mut Infer) -> Result<Shape> {
    let shape = cx.shape(0).clone();
    check_scales(cx, &shape, 1)?;
    Ok(shape)
}

/// Checks that the operands from `from` on have one dim, equal to the last dim of `shape`.
pub(super) fn check_scales(cx: &mut Infer, shape: &Shape, from: usize) -> Result<()> {
    let last = shape.need_trailing(1)?[0].clone();
    for i in from..cx.operands.len() {
        let own = cx.shape(i).clone();
        if own.rank() != Some(1) {
            return cx
                .mismatch(message![Name::Operand(cx.op.operand(i).name), " must have one dim"]);
        }
        cx.unify(&own.dims[0], &last, "the normalised dim and that of its scale")?;
    }
    Ok(())
}

/// The gradient of softmax, given its result `y` and the cotangent `g`.
pub(super) fn softmax_gradient<'a>(g: Var<'a>, y: Var<'a>, axis: i64) -> Var<'a> {
    let weighted = g * y;
    weighted - y * weighted.sum(Some(&[axis]), true)
}

/// The gradient of log-softmax, given its result `y` and the cotangent `g`.
pub(super) fn log_softmax_gradient<'a>(g: Var<'a>, y: Var<'a>, axis: i64) -> Var<'a> {
    g - y.exp() * g.sum(Some(&[axis]), true)
}
