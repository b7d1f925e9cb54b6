//! Attention: which uses of it frameworks have functions for.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::Op;
use mithril_ir::op::access::{Access, Library};

/// Whether the operation is attention or belongs to its gradient.
pub(super) fn is_attention(op: Op) -> bool {
    matches!(op.access, Access::Library(Library::Attention(_)))
}

/// Whether PyTorch has a function for this attention or its log-sum-exp. With a mask, PyTorch's
/// gradient needs another log-sum-exp than ours.
pub(super) fn has_kernel(op: &Operation) -> bool {
    let plain = matches!(op.attr("softcap"), Attr::None) && op.operand_index("sink").is_none();
    plain && (op.op.pullback.is_some() || !is_masked(op))
}

/// Whether a mask or a window hides keys from queries, other than those that `causal` hides.
fn is_masked(op: &Operation) -> bool {
    let window = ["left", "right"].iter().any(|side| !matches!(op.attr(side), Attr::None));
    window || op.operand_index("mask").is_some()
}

/// Whether PyTorch's kernels support the gradient of this attention: no mask, and query, key and
/// value of rank 4 with equal batches, heads and widths. If grouped, keys and values may have fewer
/// heads.
pub(super) fn has_backward_kernel(function: &Function, op: &Operation) -> bool {
    let grouped = matches!(op.attr("grouped"), Attr::Bool(true));
    let alike = |other: &[Dim], own: &[Dim]| {
        let heads = grouped || own[1] == other[1];
        own.len() == other.len() && own[0] == other[0] && heads && own[3] == other[3]
    };
    let [q, k, v] = [0, 1, 2].map(|i| &function.ty(op.operands[i]).shape);
    let ranks = [q, k, v].iter().all(|shape| shape.rank() == Some(4));
    let plain = ranks && has_kernel(op) && !is_masked(op);
    plain && alike(&q.dims, &k.dims) && alike(&q.dims, &v.dims) && k.dims[1] == v.dims[1]
}

/// Whether JAX's prelude computes this attention on a mesh that may divide the sequence: as many
/// keys as queries if it is causal, and a head of keys for each of queries.
pub(super) fn has_mesh_kernel(function: &Function, op: &Operation) -> bool {
    let is = |name: &str| matches!(op.attr(name), Attr::Bool(true));
    let length = |operand: usize| function.ty(op.operands[operand]).shape.dims.get(2);
    let aligned = !is("causal") || length(0) == length(1);
    aligned && !is("grouped") && has_backward_kernel(function, op)
}
