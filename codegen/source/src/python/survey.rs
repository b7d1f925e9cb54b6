//! Liveness of a function's operations, and uses of its values.

use std::sync::Arc;

use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::Kind;

/// Whether the operation is a constant whose value is a tensor.
pub(super) fn is_constant(op: &Operation) -> bool {
    op.op.kind == Kind::Constant && op.op.attr_index("value").is_some()
}

/// Liveness of the operations of a function, and uses of its values. `live` is indexed by
/// operation, the other fields by value.
pub(super) struct Survey<'m> {
    /// Which operations the results need.
    pub live: Vec<bool>,
    /// The block path of each value, if it has one.
    pub paths: Vec<Option<&'m str>>,
    /// How often live operations and results read each value.
    pub uses: Vec<u32>,
    /// Which values are read under a block path other than their own.
    pub escapes: Vec<bool>,
}

impl<'m> Survey<'m> {
    pub fn empty(function: &Function) -> Survey<'m> {
        let count = function.values.len();
        Survey {
            live: vec![false; function.ops.len()],
            paths: vec![None; count],
            uses: vec![0; count],
            escapes: vec![false; count],
        }
    }

    pub fn of(function: &'m Function) -> Survey<'m> {
        let mut survey = Survey::empty(function);
        for op in &function.ops {
            for value in op.results() {
                survey.paths[value.index()] = op.loc.shortest();
            }
        }
        for result in &function.results {
            survey.uses[result.value.index()] += 1;
            survey.escapes[result.value.index()] = true;
        }
        for (i, op) in function.ops.iter().enumerate().rev() {
            survey.live[i] = op.results().any(|v| survey.uses[v.index()] > 0);
            if !survey.live[i] {
                continue;
            }
            let known = !is_constant(op) && op.results().all(|v| function.info(v).known.is_some());
            for value in &op.operands {
                // A fixed shape is known without reading the array.
                if known && function.ty(*value).shape.as_fixed().is_some() {
                    continue;
                }
                survey.uses[value.index()] += 1;
                survey.escapes[value.index()] |= survey.paths[value.index()] != op.loc.shortest();
            }
        }
        survey
    }
}

/// The functions that the live operations of a function call, each with its operation, in order.
pub fn called(function: &Function) -> Vec<(&Arc<str>, &Operation)> {
    let live = Survey::of(function).live;
    let ops = function.ops.iter().zip(live).filter(|(_, live)| *live);
    ops.flat_map(|(op, _)| op.functions().map(move |name| (name, op))).collect()
}
