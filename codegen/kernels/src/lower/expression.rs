//! Scalar expressions node by node.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::expr::{Expr, Kind, Node};
use mithril_ir::scalar::{Prim, Scalar};

use super::nest::held;
use crate::builder::Builder;
use crate::code::{Ty, V};
use crate::scalar;

/// The value of an expression that is worked in `dtype`, on operands of their own dtypes.
pub fn expression(
    b: &mut Builder,
    expr: &Expr,
    dtype: DType,
    own: &[DType],
    args: &[V],
    attrs: &[Scalar],
    lanes: u32,
) -> V {
    let mut values: Vec<V> = Vec::with_capacity(expr.nodes().len());
    let dtype_of = |i: usize| match (expr.kind(i as u16), expr.nodes()[i]) {
        (Kind::Bool, _) => DType::Bool,
        (Kind::Foreign, Node::Var(v)) => own[v as usize],
        _ => dtype,
    };
    for (i, &node) in expr.nodes().iter().enumerate() {
        let ty = Ty { dtype: held(dtype_of(i)), lanes };
        let value = match node {
            Node::Const(x) => constant(b, ty, Scalar::F(x), dtype),
            Node::Var(v) => b.splat(args[v as usize], lanes),
            Node::Attr(a) => constant(b, ty, attrs[a as usize], dtype),
            Node::Prim(prim, args) => {
                let operand = dtype_of(args[prim.arity() - 1] as usize);
                let args: Vec<V> =
                    args[..prim.arity()].iter().map(|&a| values[a as usize]).collect();
                let to = (prim == Prim::Cast).then_some(dtype);
                scalar::apply(b, prim, operand, &args, to)
            }
        };
        values.push(value);
    }
    values[expr.root() as usize]
}

/// A number as an element of `dtype`.
fn constant(b: &mut Builder, ty: Ty, value: Scalar, dtype: DType) -> V {
    let from = match value {
        Scalar::F(_) => DType::F64,
        Scalar::I(_) => DType::I64,
    };
    match value.cast(from, dtype) {
        Scalar::F(x) => b.number(ty, x),
        Scalar::I(x) => b.int(ty, x),
    }
}
