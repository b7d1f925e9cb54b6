//! Linear layers: a product of rows with a matrix, to which a bias is added. Frameworks have one
//! function for both, so the sum writes the product, which is not written by itself.
//!
//! This is a matter of spelling: the two stay operations of their own, which rewrites and other
//! targets know, and every level of optimization has the same source.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::shape::Shape;
use smallvec::SmallVec;

use super::body::{Binding, Body};
use super::contraction::{self, Side};
use super::expr::Expr;
use super::template::{Guard, Test};

/// A sum that is a linear layer.
pub struct Linear<'m> {
    pub product: &'m Operation,
    pub bias: Value,
    /// How the product transposes its operands.
    sides: (Side, Side),
}

impl<'m> Body<'_, 'm> {
    /// The linear layer that a sum computes, if its product is not yet written.
    pub fn linear(&self, op: &Operation) -> Option<Linear<'m>> {
        let [x, y] = op.operands[..] else { return None };
        let found = || [(x, y), (y, x)].into_iter().find_map(|(x, bias)| self.layer(x, bias));
        (op.op.name == "add").then(found)?
    }

    /// Whether an operation is the product of a linear layer that the framework has whole.
    pub fn is_within_linear(&mut self, op: &'m Operation) -> bool {
        let mut readers = self.neighbours.readers(op.result());
        let (Some(sum), None) = (readers.next(), readers.next()) else { return false };
        drop(readers);
        if !self.linear(sum).is_some_and(|layer| std::ptr::eq(layer.product, op)) {
            return false;
        }
        let asks = |guard: &Guard| matches!(&guard.test, Test::Is(word) if word == "linear");
        let template = self.file.template(sum.op);
        self.with_facts(sum, None, |facts| {
            let chosen = template.iter().find(|a| a.guards.iter().all(|guard| facts.holds(guard)));
            chosen.is_some_and(|alternative| alternative.guards.iter().any(asks))
        })
    }

    /// The product that computes `x`, if `x` plus the bias is a linear layer.
    fn layer(&self, x: Value, bias: Value) -> Option<Linear<'m>> {
        let product = self.neighbours.producer(x)?;
        let [rows, matrix] = product.operands[..] else { return None };
        let is_alone = self.is_read_once(x)
            && self.function.info(x).name.is_none()
            && matches!(self.bindings[x.index()], Binding::Missing);
        let ty = |value: Value| self.function.ty(value);
        let dtype = ty(bias).dtype;
        let is_uniform =
            dtype.is_float() && [rows, matrix, x].map(ty).iter().all(|t| t.dtype == dtype);
        let is_plain =
            product.op.attr_index("acc").is_none_or(|at| product.attrs[at] == Attr::None);
        let is_matrix = ty(matrix).shape.rank() == Some(2);
        if !is_alone || !is_uniform || !is_plain || !is_matrix {
            return None;
        }
        let sides = match product.op.name {
            "matmul" => (Side::Plain, Side::Plain),
            "dot_general" => contraction::matmul((self.function, product))?,
            _ => return None,
        };
        let columns = &ty(matrix).shape.dims[usize::from(sides.1 == Side::Plain)];
        let has_rows = ty(rows).shape.lead.is_some() || !ty(rows).shape.dims.is_empty();
        let fits = ty(bias).shape == Shape::new([columns.clone()]);
        (has_rows && fits).then_some(Linear { product, bias, sides })
    }

    /// The values that the expression of an operation reads.
    pub fn read_values(&self, op: &Operation) -> SmallVec<[Value; 3]> {
        match self.linear(op) {
            Some(layer) => layer.product.operands.iter().copied().chain([layer.bias]).collect(),
            None => op.operands.iter().copied().collect(),
        }
    }

    /// The expression of a part of a linear layer: `input`, `weights` or `bias`. `is_transposed`
    /// has rows of the weights for each output.
    pub fn linear_part(
        &mut self,
        layer: &Linear<'m>,
        name: &str,
        is_transposed: bool,
    ) -> Result<Expr> {
        let (left, right) = layer.sides;
        let (value, transposes) = match name {
            "bias" => (layer.bias, false),
            "input" => (layer.product.operands[0], left == Side::Transposed),
            _ => (layer.product.operands[1], (right == Side::Transposed) != is_transposed),
        };
        Ok(match (self.array(value)?, transposes) {
            (x, false) => x,
            (Expr::Attribute(x, name), true) if name == "T" => *x,
            (x, true) => x.attribute("T"),
        })
    }
}
