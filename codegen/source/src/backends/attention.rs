//! Attention: which uses of it frameworks have functions for.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};

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
