//! Transposed arrays around functions that take their axes in another order, such as convolutions
//! with channels last. The array itself gets the variable, and its reader transposes it: where that
//! is another such function, the two transposes cancel. Elementwise operations leave the order as it
//! is, and are transposed after them.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::Kind;

use super::body::{Binding, Body};
use super::expr::Expr;
use super::transposes::{in_order, transposed};

impl<'m> Body<'_, 'm> {
    /// The expression of an operation's result. An elementwise operation on one transposed array is
    /// the transpose of the operation on the array itself.
    pub fn spell_in_order(&mut self, op: &'m Operation) -> Result<Expr> {
        let Some((value, array, order)) = self.only_transposed(op) else { return self.spell(op) };
        self.bindings[value.index()] = match array {
            Expr::Name(name) => Binding::Variable(name),
            array => Binding::Pending(array),
        };
        Ok(in_order(self.spell(op)?, &order))
    }

    /// The only array that an elementwise operation reads, if it is a transposed one that is not yet
    /// written.
    fn only_transposed(&self, op: &Operation) -> Option<(Value, Expr, Vec<usize>)> {
        let is_array = |value: &&Value| {
            matches!(self.bindings[value.index()], Binding::Variable(_) | Binding::Pending(_))
        };
        let mut arrays = op.operands.iter().filter(is_array);
        let (Some(value), None) = (arrays.next(), arrays.next()) else { return None };
        let Binding::Pending(expr) = &self.bindings[value.index()] else { return None };
        let is_same = self.function.ty(*value).shape == self.function.ty(op.result()).shape;
        let (array, order) =
            transposed(expr).filter(|_| op.op.kind == Kind::Elementwise && is_same)?;
        Some((*value, array.clone(), order))
    }

    /// Assigns the array that an expression transposes to a variable, if the transpose can be left
    /// to the only reader of the value.
    pub fn keep_transposed(&mut self, value: Value, expr: &Expr) -> bool {
        let is_left = self.is_read_once(value)
            && !self.is_result(value)
            && self.function.info(value).name.is_none();
        let Some((array, order)) = transposed(expr).filter(|_| is_left) else { return false };
        let array = match array {
            Expr::Name(_) => array.clone(),
            _ => {
                let name = self.new_name(value);
                self.write(value, format!("{name} = "), array.clone());
                Expr::Name(name)
            }
        };
        self.bindings[value.index()] = Binding::Pending(in_order(array, &order));
        true
    }
}
