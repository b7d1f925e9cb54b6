//! Tracks the elements of small integer tensors as dims, so that arithmetic on shapes gives dims.

use std::sync::Arc;

use crate::attr::Attr;
use crate::dim::Dim;
use crate::op::{Infer, Kind, expr};
use crate::scalar::Prim;
use crate::scalar::expr::{Expr, Node};
use crate::shape::Type;

/// The maximum number of elements that are tracked: more than any rank.
const MAX_ELEMENTS: usize = 32;

/// The elements of a result as dims, in row-major order; `None` where they are not known.
pub fn value(cx: &Infer, ty: &Type) -> Option<Arc<[Dim]>> {
    if !ty.dtype.is_int() {
        return None;
    }
    let count = match ty.shape.as_fixed()?[..] {
        [] => 1,
        [count] if count <= MAX_ELEMENTS => count,
        _ => return None,
    };
    let known = match cx.op.known {
        Some(rule) => rule(cx)?,
        None if cx.op.kind == Kind::Elementwise => elementwise(cx, count)?,
        None => return None,
    };
    (known.len() == count && !known.iter().any(Dim::is_unknown)).then(|| known.into())
}

fn elementwise(cx: &Infer, count: usize) -> Option<Vec<Dim>> {
    let expr = expr(cx.op)?;
    if cx.operands.iter().any(|ty| !ty.dtype.is_int()) {
        return None;
    }
    let operands: Option<Vec<&[Dim]>> = cx.known.iter().copied().collect();
    let operands = operands?;
    (0..count).map(|i| element(expr, &operands, cx.attrs, i)).collect()
}

fn element(expr: &Expr, operands: &[&[Dim]], attrs: &[Attr], i: usize) -> Option<Dim> {
    let mut terms: Vec<Dim> = Vec::with_capacity(expr.nodes().len());
    for node in expr.nodes() {
        let term = match node {
            Node::Const(x) if x.fract() == 0.0 => Dim::Const(*x as i64),
            Node::Const(_) => return None,
            Node::Var(v) => {
                let elements = operands[*v as usize];
                elements.get(if elements.len() == 1 { 0 } else { i })?.clone()
            }
            Node::Attr(a) => match attrs[*a as usize] {
                Attr::Int(v) => Dim::Const(v),
                _ => return None,
            },
            Node::Prim(prim, args) => {
                let arg = |k: usize| &terms[args[k] as usize];
                match prim {
                    Prim::Neg => -arg(0),
                    Prim::Add => arg(0) + arg(1),
                    Prim::Sub => arg(0) - arg(1),
                    Prim::Mul => arg(0) * arg(1),
                    Prim::FloorDiv => arg(0).floor_div(arg(1)),
                    Prim::Mod => arg(0).modulo(arg(1)),
                    Prim::Min => arg(0).min(arg(1)),
                    Prim::Max => arg(0).max(arg(1)),
                    Prim::Cast => arg(0).clone(),
                    // Bit operations, fractions and truth values do not exist for dims.
                    _ => return None,
                }
            }
        };
        terms.push(term);
    }
    Some(terms[expr.root() as usize].clone())
}
