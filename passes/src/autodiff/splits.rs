//! Cotangents of values that are split into slices. If adjacent slices make up the whole value, its
//! cotangent is the concatenation of theirs. This avoids adding each into an array of zeros.

use mithril_ir::algebra::{Var, build};
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op;
use mithril_ir::op::infer::{as_ints, find_attr};
use mithril_ir::op::view::slice_bounds;
use rustc_hash::{FxHashMap, FxHashSet};

use super::cotangents::Cotangents;

/// The values that are split into slices, and how.
pub struct Splits {
    /// By the first slice of each value, which is the last one to get its cotangent in the backward
    /// pass.
    by_first: FxHashMap<Value, Split>,
    parts: FxHashSet<Value>,
}

/// Slices that make up a value, in their order along an axis.
pub struct Split {
    pub of: Value,
    axis: usize,
    parts: Vec<Value>,
}

/// One slice along one axis, of step 1.
struct Slice {
    start: Dim,
    limit: Dim,
    value: Value,
}

impl Splits {
    /// Finds the splits among the operations of a function.
    pub fn new(function: &Function, operations: &[Operation]) -> Splits {
        let slice = op::get("slice");
        let mut found: FxHashMap<(Value, usize), Vec<Slice>> = FxHashMap::default();
        for operation in operations.iter().filter(|operation| operation.op == slice) {
            if let Some((axis, part)) = part(function, operation) {
                found.entry((operation.operands[0], axis)).or_default().push(part);
            }
        }
        let mut splits = Splits { by_first: FxHashMap::default(), parts: FxHashSet::default() };
        for ((of, axis), parts) in found {
            let first = parts[0].value;
            if let Some(parts) = in_order(parts, &function.ty(of).shape.dims[axis]) {
                splits.parts.extend(&parts);
                splits.by_first.insert(first, Split { of, axis, parts });
            }
        }
        splits
    }

    /// Whether this operation is a slice of one of the splits.
    pub fn contains(&self, operation: &Operation) -> bool {
        operation.results > 0 && self.parts.contains(&operation.first)
    }

    /// The split that is complete once this slice has its cotangent.
    pub fn completed_by(&self, operation: &Operation) -> Option<&Split> {
        self.by_first.get(&operation.first)
    }
}

fn part(function: &Function, operation: &Operation) -> Option<(usize, Slice)> {
    let shape = &function.ty(operation.operands[0]).shape;
    let rank = shape.rank()? as i64;
    let attr = |name| find_attr(operation.op, &operation.attrs, name);
    let [axis] = as_ints(attr("axes"))? else { return None };
    let axis = axis.rem_euclid(rank.max(1)) as usize;
    let (Attr::Shape(starts), Attr::Shape(limits)) = (attr("starts"), attr("limits")) else {
        return None;
    };
    let contiguous = as_ints(attr("steps")).is_none_or(|steps| steps == [1]);
    let dim = &shape.dims[axis];
    let (start, limit) = slice_bounds(&starts.dims[0], &limits.dims[0], dim);
    let value = operation.result();
    let in_bounds = function.ty(value).shape.dims[axis] == &limit - &start;
    (contiguous && in_bounds).then_some((axis, Slice { start, limit, value }))
}

/// The slices in order, if there are at least two and they cover `0..dim` without gaps or overlap.
fn in_order(parts: Vec<Slice>, dim: &Dim) -> Option<Vec<Value>> {
    let (mut at, mut values) = (Dim::Const(0), Vec::new());
    let mut by_start: FxHashMap<Dim, Vec<Slice>> = FxHashMap::default();
    for part in parts.into_iter().rev() {
        by_start.entry(part.start.clone()).or_default().push(part);
    }
    let mut left: usize = by_start.values().map(Vec::len).sum();
    while left > 0 {
        let part = by_start.get_mut(&at)?.pop()?;
        values.push(part.value);
        at = part.limit;
        left -= 1;
    }
    (at == *dim && values.len() > 1).then_some(values)
}

impl Split {
    /// The cotangent of the whole; `None` if no slice has one.
    pub fn joined<'b>(&self, builder: &'b Builder, cotangents: &Cotangents) -> Option<Var<'b>> {
        let known = |part: &Value| cotangents.0.get(part).map(|own| builder.var(*own));
        self.parts.iter().any(|part| cotangents.0.contains_key(part)).then_some(())?;
        let zeros = |part: &Value| builder.var(*part).full_like(0.0);
        let parts = self.parts.iter().map(|part| known(part).unwrap_or_else(|| zeros(part)));
        let axis = Attr::Int(self.axis as i64);
        Some(build(builder, "concat", &parts.collect::<Vec<_>>(), &[("axis", axis)]))
    }
}
