//! Fusion rules of the attention kernels: the supported operands, the results that one kernel
//! computes together, and the layouts in which it can store the output.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::{Access, Attention, Library};
use mithril_ir::op::view::IndexMap;

use super::is_one;

/// Head sizes must be multiples of this: the f32 lanes of the widest vector registers.
const LANES: i64 = 16;
/// The maximum head size. The rows of larger heads would not stay in the first-level cache.
const MAX_HEAD_SIZE: i64 = 256;

/// The result of attention that an operation computes, if it is attention or its gradient.
pub fn attention_result(op: &Operation) -> Option<Attention> {
    match op.op.access {
        Access::Library(Library::Attention(result)) => Some(result),
        _ => None,
    }
}

/// Whether an operation is attention or its gradient.
pub fn is_attention(op: &Operation) -> bool {
    attention_result(op).is_some()
}

/// Whether one kernel can compute both results: attention and its log-sum-exp, or several
/// gradients.
pub fn shares(a: &Operation, b: &Operation) -> bool {
    let gradient = |op| attention_result(op).map(|result| result == Attention::Gradient);
    let attrs = |op: &Operation| {
        let names = ["scale", "causal", "left", "right", "softcap", "grouped"];
        names.map(|name| op.attr(name).clone())
    };
    is_attention(a)
        && gradient(a) == gradient(b)
        && a.operands == b.operands
        && attrs(a) == attrs(b)
}

/// Whether attention can store its output directly in the layout of `copy`, which is a transpose of
/// it.
pub fn stores(f: &Function, definitions: &[Option<u32>], op: &Operation, copy: Value) -> bool {
    let own =
        transposed(f, definitions, copy).is_some_and(|own| f.ops[own.attention].first == op.first);
    own && attention_result(op) == Some(Attention::Output)
}

/// Whether a kernel can compute the operation. It requires f32, constant head sizes that are
/// multiples of 16, and batch dims that are equal or 1.
pub fn fits(function: &Function, op: &Operation) -> bool {
    let [q, k, v] = [0, 1, 2].map(|i| function.ty(op.operands[i]));
    let ranks = [q, k, v].map(|t| t.shape.rank());
    let (Some(rank), true) = (ranks[0], ranks[0] == ranks[1] && ranks[1] == ranks[2]) else {
        return false;
    };
    let mask = op.operand_index("mask").map(|at| function.ty(op.operands[at]));
    if rank < 2 || q.dtype != DType::F32 || mask.is_some_and(|mask| mask.shape.rank().is_none()) {
        return false;
    }
    let flag = |name: &str| matches!(op.attr(name), Attr::Bool(true));
    let dim = |t: &mithril_ir::shape::Type, axis: usize| t.shape.dims[axis].clone();
    let width =
        |d: Dim| d.as_const().is_some_and(|n| n > 0 && n % LANES == 0 && n <= MAX_HEAD_SIZE);
    let grouped = flag("grouped");
    let heads = usize::from(grouped);
    let batches = (0..rank - 2 - heads).all(|axis| {
        let own = dim(q, axis);
        let gradient = attention_result(op) == Some(Attention::Gradient);
        let same = |t| dim(t, axis) == own || (!gradient && is_one(&dim(t, axis)));
        same(k) && same(v)
    });
    let whole_groups = !grouped || {
        let [all, own] = [q, k].map(|t| dim(t, rank - 3).as_const());
        all.zip(own).is_some_and(|(all, own)| own > 0 && all % own == 0)
    };
    batches && whole_groups && width(dim(q, rank - 1)) && width(dim(v, rank - 1))
}

/// A value that holds attention's output, possibly with its axes permuted.
pub struct Transposed {
    /// The index of the attention operation.
    pub attention: usize,
    /// For each axis of attention's output, its stride in the memory of the value.
    pub strides: Vec<Dim>,
}

/// Traces a value back to attention's output through reshapes and a transpose that keeps the last
/// axis.
pub fn transposed(
    function: &Function,
    definitions: &[Option<u32>],
    value: Value,
) -> Option<Transposed> {
    let definition = |value: Value| definitions[value.index()].map(|at| at as usize);
    let mut at = definition(value)?;
    let is_reshape = |op| matches!(function.index_map(op), Some(IndexMap::Reshape(_)));
    while is_reshape(&function.ops[at]) {
        at = definition(function.ops[at].operands[0])?;
    }
    let op = &function.ops[at];
    let dims = &function.ty(op.result()).shape.dims;
    let mut strides = vec![Dim::Const(1); dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = &strides[axis] * &dims[axis];
    }
    if let Some(map) = function.index_map(op) {
        let permutation = map.permutation()?;
        if permutation.last() != dims.len().checked_sub(1).as_ref() {
            return None;
        }
        strides = permutation.iter().map(|axis| strides[*axis].clone()).collect();
        at = definition(op.operands[0])?;
    }
    let is = attention_result(&function.ops[at]) == Some(Attention::Output);
    is.then_some(Transposed { attention: at, strides })
}
