//! Values that must be computed once. Lazy frameworks compute a value again for each of its readers,
//! and the results may differ in the last bit. The gradient of a maximum compares the maximum with the
//! elements, of which one must be equal. The gradient of a distance has a case for equal points, whose
//! difference must be 0.

use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use rustc_hash::FxHashSet;

use super::body::{Binding, Body};
use super::expr::Expr;

/// The operations whose gradients compare the result with elements of operands.
const EXTREMA: [&str; 5] = ["max", "min", "max_pool", "scatter_max_along", "scatter_min_along"];

impl Body<'_, '_> {
    /// Has a lazy framework store the operands of an operation in memory, if they must be computed
    /// once.
    pub fn settle(&mut self, op: &Operation) {
        if !(self.file.backend.lazy && self.file.training) {
            return;
        }
        let function = self.function;
        let minuends = self.minuends.get_or_insert_with(|| minuends(function));
        let is_compared = |value: &&Value| {
            let compared = EXTREMA.contains(&op.op.name) || minuends.contains(*value);
            compared && function.ty(**value).dtype.is_float()
        };
        let compared: Vec<Value> = op.operands.iter().filter(is_compared).copied().collect();
        for value in compared {
            if !self.is_given(value) {
                self.store(value);
            }
        }
    }

    /// Whether the caller of the file gave the value. The arguments of functions inside may not have
    /// been computed yet.
    fn is_given(&self, value: Value) -> bool {
        let is_inside = self.file.defs.contains_key(&self.function.name);
        value.index() < self.function.args.len() && !is_inside
    }

    fn store(&mut self, value: Value) {
        let stored = |expr: Expr| expr.attribute("contiguous").call([]);
        match self.bindings[value.index()].clone() {
            Binding::Pending(expr) => {
                self.bindings[value.index()] = Binding::Pending(stored(expr));
            }
            Binding::Variable(name) if self.stored.insert(name.clone()) => {
                self.mark_read(value);
                self.write(value, format!("{name} = "), stored(Expr::name(&name)));
            }
            Binding::Variable(_)
            | Binding::Missing
            | Binding::Number(_)
            | Binding::Literal(_)
            | Binding::Known(_) => {}
        }
    }
}

/// The values of which elements are subtracted from each other.
fn minuends(function: &Function) -> FxHashSet<Value> {
    let mut roots: Vec<Value> = (0..function.values.len() as u32).map(Value).collect();
    for op in &function.ops {
        if op.op.kind == Kind::Layout && op.operands.len() == 1 {
            roots[op.result().index()] = roots[op.operands[0].index()];
        }
    }
    let own = |op: &&Operation| {
        op.op.name == "sub" && roots[op.operands[0].index()] == roots[op.operands[1].index()]
    };
    function.ops.iter().filter(own).map(|op| roots[op.operands[0].index()]).collect()
}
