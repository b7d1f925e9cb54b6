//! Operations that write their result into an operand, which saves the memory of the result.

use std::rc::Rc;

use mithril_ir::graph::{Operation, Value};

use super::body::{Binding, Body};
use super::template::{Alternative, parse};
use crate::backends::InPlace;

/// Operations whose result is a new array that no other operation's gradient reads again: the
/// gradient of a product reads the factors, and that of an exponential reads the result.
const NEW: [&str; 17] = [
    "add",
    "avg_pool",
    "batch_norm",
    "biased_conv",
    "biased_conv_transpose",
    "concat",
    "conv",
    "conv_transpose",
    "div",
    "dot_general",
    "layer_norm",
    "matmul",
    "max_pool",
    "mul",
    "neg",
    "select",
    "sub",
];

impl Body<'_, '_> {
    /// The templates of an operation that may write its result into its first operand; none if it
    /// must not, or the framework cannot.
    pub fn in_place(&self, op: &Operation) -> Vec<Rc<Alternative>> {
        let file = &self.file;
        let template = file.backend.template_in_place(op.op);
        let allowed = match file.in_place {
            InPlace::None => false,
            InPlace::OneArray => op.operands.iter().filter(|v| self.is_array(**v)).count() == 1,
            InPlace::All => true,
        };
        let is_free =
            |x: &Value| self.is_free(*x) && self.function.ty(*x) == self.function.ty(op.result());
        let is_refused = template.is_empty() || !allowed || file.mesh.is_some();
        if is_refused || self.linear(op).is_some() || !is_free(&op.operands[0]) {
            return Vec::new();
        }
        parse(template).into_iter().flatten().map(Rc::new).collect()
    }

    /// Whether nothing but one operation reads a new array.
    fn is_free(&self, value: Value) -> bool {
        let is_new = |op: &Operation| NEW.contains(&op.op.name);
        self.is_read_once(value)
            && self.is_array(value)
            && self.definition(value).is_some_and(is_new)
    }

    /// Whether the value is an expression of an array, not of a number.
    fn is_array(&self, value: Value) -> bool {
        matches!(self.bindings[value.index()], Binding::Variable(_) | Binding::Pending(_))
    }
}
