//! The nodes of scalar expressions.

use super::Prim;

/// One node of an [`Expr`](super::expr::Expr).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Node {
    /// A number, cast to the dtype that the expression is evaluated in.
    Const(f64),
    /// An operand, by its index.
    Var(u8),
    /// An attribute, by its index; a number, cast to the same dtype.
    Attr(u8),
    /// A primitive on earlier nodes; slots beyond the arity are 0.
    Prim(Prim, [u16; 3]),
}
