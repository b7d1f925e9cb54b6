//! Attention whose sequence may be divided over a mesh: keys and values then go from device to device
//! (Liu, Zaharia, Abbeel 2023, "Ring Attention with Blockwise Transformers for Near-Infinite
//! Context").

use mithril_ir::attr::Attr;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::Op;
use mithril_ir::op::access::{Access, Attention, Library};

use crate::target::{self, Target};

/// The target of plans: primitives, and attention whose sequence may be divided.
pub const PLANNED: &Target = &Target {
    name: "planned",
    takes: &|function, op| (target::CORE.takes)(function, op) || divides(function, op),
    pulls_back: &|function, op, by| is_attention(by) && divides(function, op),
    ..*target::CORE
};

/// Whether the operation is attention or belongs to its gradient.
pub fn is_attention(op: Op) -> bool {
    matches!(op.access, Access::Library(Library::Attention(_)))
}

/// Whether this is attention, or belongs to its gradient, without a sink and with query, key and
/// value of rank 4 with equal batches, heads and widths. If grouped, keys and values may have fewer
/// heads. If it is causal, there are as many keys as queries. A mask has its own rows on each device,
/// and all columns.
pub fn divides(function: &Function, op: &Operation) -> bool {
    if !is_attention(op.op) || op.operand_index("sink").is_some() {
        return false;
    }
    let [q, k, v] = [0, 1, 2].map(|at| &function.ty(op.operands[at]).shape);
    let ranks = [q, k, v].iter().all(|shape| shape.rank() == Some(4));
    let is = |name: &str| matches!(op.attr(name), Attr::Bool(true));
    let alike = |axis: usize| {
        let of_query = (is("grouped") && axis == 1) || q.dims[axis] == k.dims[axis];
        of_query && k.dims[axis] == v.dims[axis]
    };
    ranks && [0, 1, 3].into_iter().all(alike) && (!is("causal") || q.dims[2] == k.dims[2])
}

/// Whether one kernel computes the results of both operations: output and log-sum-exp, or several
/// gradients.
pub fn share_kernel(one: &Operation, other: &Operation) -> bool {
    let is_gradient = |op: &Operation| {
        matches!(op.op.access, Access::Library(Library::Attention(Attention::Gradient)))
    };
    let both = is_attention(one.op) && is_attention(other.op);
    both && is_gradient(one) == is_gradient(other) && one.operands[..3] == other.operands[..3]
}
