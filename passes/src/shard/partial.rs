//! Partial sums: after an operation that adds up a divided axis, each device has a term of each
//! element. Where the elements are only added up further, the terms stay apart until then, so that
//! fewer of them are combined.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::access::{Access, Fold};

use super::layout::{Axis, Layout};
use crate::cost::bytes;

/// How sums are added up further in a function.
#[derive(Debug)]
pub struct PartialSums {
    /// For each value, the operation that adds its elements up further, or only moves them, and its
    /// result; none if anything else reads the value.
    further: Vec<Option<(usize, Value)>>,
}

impl PartialSums {
    pub fn of(function: &Function) -> PartialSums {
        let uses = function.uses();
        let mut further = vec![None; function.values.len()];
        for (at, op) in function.ops.iter().enumerate() {
            if let [value] = op.operands[..]
                && uses[value.index()] == 1
                && keeps_terms(function, op)
            {
                further[value.index()] = Some((at, op.result()));
            }
        }
        PartialSums { further }
    }

    /// The operations that add up a value further, or only move its elements, with their results.
    pub fn after(&self, value: Value) -> impl Iterator<Item = (usize, Value)> {
        let next = |value: Value| self.further[value.index()];
        std::iter::successors(next(value), move |(_, value)| next(*value))
    }

    /// The value in which the terms of a sum over an axis that this mesh axis divides are combined,
    /// if that is not the sum itself: the last one that follows from it and that the mesh axis does
    /// not divide. Frameworks combine the terms of products and of rows of tables at once.
    pub fn combined(&self, op: &Operation, axis: Axis, layouts: &[Layout]) -> Option<Value> {
        let is_divided = |value: Value| layouts[value.index()].uses(axis);
        if !is_sum(op) || is_divided(op.result()) {
            return None;
        }
        let after = self.after(op.result()).map(|(_, value)| value);
        after.take_while(|value| !is_divided(*value)).last()
    }
}

/// Whether terms of the operand give terms of the result, of which there are no more.
fn keeps_terms(function: &Function, op: &Operation) -> bool {
    let moves = matches!(op.op.access, Access::View(_)) && op.op.kind == Kind::Layout;
    let [from, to] = [op.operands[0], op.result()].map(|value| bytes(function.ty(value)));
    let is_larger = match [&from, &to].map(Dim::as_const) {
        [Some(from), Some(to)] => to > from,
        _ => from != to,
    };
    (is_sum(op) || moves) && !is_larger
}

fn is_sum(op: &Operation) -> bool {
    matches!(op.op.access, Access::Fold(Fold::Sum))
}
