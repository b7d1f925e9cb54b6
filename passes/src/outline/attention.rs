//! Which attention has a kernel of its own.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::Access;

use super::views::is_one;

/// Heads are whole vectors of the widest registers there are.
const LANES: i64 = 16;
/// Wider ones would not stay in the first cache.
const WIDEST: i64 = 256;

/// Whether it is attention, or of its gradient.
pub fn is_attention(access: &Access) -> bool {
    matches!(
        access,
        Access::Attention
            | Access::AttentionLogSumExp
            | Access::AttentionGreatest
            | Access::AttentionGradient
    )
}

/// Whether one kernel has the results of both: attention and its sums, or its gradients.
pub fn is_one_kernel(a: &Operation, b: &Operation) -> bool {
    let gradient = |op: &Operation| op.op.access == Access::AttentionGradient;
    let own = |op: &Operation| -> Vec<Attr> {
        ["scale", "causal", "grouped"].map(|name| op.attr(name).clone()).into()
    };
    is_attention(&a.op.access)
        && is_attention(&b.op.access)
        && gradient(a) == gradient(b)
        && a.operands == b.operands
        && own(a) == own(b)
}

/// Whether query, key and value have batches, heads and widths that are equal, heads of keys and
/// values perhaps fewer, and there is no mask: what kernels of frameworks take.
pub fn is_plain(function: &Function, op: &Operation) -> bool {
    let grouped = matches!(op.attr("grouped"), Attr::Bool(true));
    let alike = |other: &[Dim], own: &[Dim]| {
        let heads = grouped || own[1] == other[1];
        own.len() == other.len() && own[0] == other[0] && heads && own[3] == other[3]
    };
    let [q, k, v] = [0, 1, 2].map(|i| &function.ty(op.operands[i]).shape);
    let ranks = [q, k, v].iter().all(|shape| shape.rank() == Some(4));
    let plain = ranks && mask(op).is_none();
    plain && alike(&q.dims, &k.dims) && alike(&q.dims, &v.dims) && k.dims[1] == v.dims[1]
}

/// The number of the mask among the operands of attention, or of its gradient, if it has one.
pub fn mask(op: &Operation) -> Option<usize> {
    let at = op.op.operands.iter().position(|operand| operand.name == "mask");
    at.filter(|&at| at < op.operands.len())
}

/// Whether a streaming kernel takes it: f32, heads of known widths that are
/// multiples of 16, batches that are equal or not there, and, where it is causal, a query for each
/// key.
pub fn fits(function: &Function, op: &Operation) -> bool {
    let [q, k, v] = [0, 1, 2].map(|i| function.ty(op.operands[i]));
    let ranks = [q, k, v].map(|t| t.shape.rank());
    let (Some(rank), true) = (ranks[0], ranks[0] == ranks[1] && ranks[1] == ranks[2]) else {
        return false;
    };
    let mask = mask(op).map(|at| function.ty(op.operands[at]));
    if rank < 2 || q.dtype != DType::F32 || mask.is_some_and(|mask| mask.shape.rank().is_none()) {
        return false;
    }
    let flag = |name: &str| matches!(op.attr(name), Attr::Bool(true));
    let dim = |t: &mithril_ir::shape::Type, axis: usize| t.shape.dims[axis].clone();
    let width = |d: Dim| d.as_const().is_some_and(|n| n > 0 && n % LANES == 0 && n <= WIDEST);
    let grouped = flag("grouped");
    let heads = usize::from(grouped);
    let batches = (0..rank - 2 - heads).all(|axis| {
        let own = dim(q, axis);
        let gradient = op.op.access == Access::AttentionGradient;
        let same = |t| dim(t, axis) == own || (!gradient && is_one(&dim(t, axis)));
        same(k) && same(v)
    });
    let counts = !grouped || {
        let [all, own] = [q, k].map(|t| dim(t, rank - 3).as_const());
        all.zip(own).is_some_and(|(all, own)| own > 0 && all % own == 0)
    };
    let square = !flag("causal") || dim(q, rank - 2) == dim(k, rank - 2);
    batches && counts && square && width(dim(q, rank - 1)) && width(dim(v, rank - 1))
}

/// A value whose elements are those of attention, in another order of its axes.
pub struct Turned {
    /// The number of the operation.
    pub attention: usize,
    /// For each axis of attention's result, from one element to the next in the value's memory.
    pub strides: Vec<Dim>,
}

/// How a value has the elements of attention: as they are, or behind a transpose that leaves the last
/// axis where it is, and reshapes.
pub fn turned(function: &Function, definitions: &[Option<u32>], value: Value) -> Option<Turned> {
    let definition = |value: Value| definitions[value.index()].map(|at| at as usize);
    let mut at = definition(value)?;
    while function.ops[at].op.access == Access::Reshape {
        at = definition(function.ops[at].operands[0])?;
    }
    let op = &function.ops[at];
    let dims = &function.ty(op.result()).shape.dims;
    let mut strides = vec![Dim::Const(1); dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = &strides[axis] * &dims[axis];
    }
    if op.op.access == Access::Transpose {
        let Attr::Ints(permutation) = op.attr("permutation") else { return None };
        let last = dims.len() as i64 - 1;
        let from = |axis: &i64| axis.rem_euclid(dims.len() as i64) as usize;
        if permutation.last().is_none_or(|axis| axis.rem_euclid(last + 1) != last) {
            return None;
        }
        let mut own = strides.clone();
        permutation
            .iter()
            .zip(&strides)
            .for_each(|(axis, stride)| own[from(axis)] = stride.clone());
        strides = own;
        at = definition(op.operands[0])?;
    }
    let is = function.ops[at].op.access == Access::Attention;
    is.then_some(Turned { attention: at, strides })
}
