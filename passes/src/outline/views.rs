//! Views: operations that only change where elements lie, or that cost nothing to compute. Every
//! kernel that reads a view computes it.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::access::{Access, Constant, Pieces};
use mithril_ir::op::view::{AxisMap, IndexMap};

/// The position of an axis of a value in the space of a kernel. A list with one entry per axis of
/// the value is its alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceAxis {
    /// An axis of the space.
    Axis(usize),
    /// A dim of 1.
    One,
}

/// Whether every kernel that reads the operation's result recomputes it.
pub fn is_view(function: &Function, op: &Operation) -> bool {
    match op.op.kind {
        Kind::Layout if joins_many(op) => false,
        Kind::Layout | Kind::Dim | Kind::Barrier => true,
        Kind::Constant => match op.op.access {
            Access::Constant(Constant::Literal) => is_small(function, op.result()),
            _ => true,
        },
        Kind::Elementwise
        | Kind::Reduce
        | Kind::Contraction
        | Kind::Index
        | Kind::Order
        | Kind::Matrix
        | Kind::Random
        | Kind::Composite
        | Kind::Call => false,
    }
}

/// The values, by index, that repeat elements as windows do: windows, and values computed from them
/// elementwise.
pub fn windowed(function: &Function) -> Vec<bool> {
    let mut windowed = vec![false; function.values.len()];
    for op in &function.ops {
        let passes = op.op.kind == Kind::Elementwise || is_view(function, op);
        windowed[op.first.index()] = function.index_map(op).is_some_and(|map| map.overlaps())
            || (passes && op.operands.iter().any(|value| windowed[value.index()]));
    }
    windowed
}

/// The maximum number of operands of a concatenation whose loops select an operand per element.
const MAX_SELECTED: usize = 4;

/// Whether it concatenates so many operands that copying each to its position is less work than
/// selecting the operand for each element.
pub fn joins_many(op: &Operation) -> bool {
    matches!(op.op.access, Access::Pieces(Pieces::Concat)) && op.operands.len() > MAX_SELECTED
}

/// Literals of at most this many elements are part of the code.
const MAX_INLINE_LITERAL: i64 = 16;

fn is_small(function: &Function, value: Value) -> bool {
    let count = function.ty(value).shape.elements().and_then(|n| n.as_const());
    count.is_some_and(|n| n <= MAX_INLINE_LITERAL)
}

/// The alignment of the operand of a view, given that of its result. `None` if its elements are not
/// aligned with the space.
pub fn through(
    function: &Function,
    op: &Operation,
    alignment: &[SpaceAxis],
) -> Option<Vec<SpaceAxis>> {
    let map = function.index_map(op)?;
    let [from, to] = [op.operands[0], op.result()].map(|value| &function.ty(value).shape);
    let map = match map {
        IndexMap::Affine(map) => map,
        IndexMap::Reshape(_) => return reshaped(&from.dims, &to.dims, alignment),
    };
    let place = |(map, dim): (&AxisMap, &Dim)| match map.same_axis() {
        Some(axis) => (to.dims[axis] == *dim).then(|| alignment[axis]),
        None => map.is_first().then_some(SpaceAxis::One),
    };
    map.iter().zip(&from.dims).map(place).collect()
}

/// A reshape keeps elements aligned if it only inserts or removes dims of 1.
fn reshaped(operand: &[Dim], result: &[Dim], alignment: &[SpaceAxis]) -> Option<Vec<SpaceAxis>> {
    let kept: Vec<usize> = (0..result.len()).filter(|&i| !is_one(&result[i])).collect();
    let own: Vec<usize> = (0..operand.len()).filter(|&i| !is_one(&operand[i])).collect();
    let same =
        kept.len() == own.len() && kept.iter().zip(&own).all(|(&r, &o)| result[r] == operand[o]);
    if !same {
        return None;
    }
    let mut out = vec![SpaceAxis::One; operand.len()];
    for (&r, &o) in kept.iter().zip(&own) {
        out[o] = alignment[r];
    }
    Some(out)
}

pub fn is_one(dim: &Dim) -> bool {
    dim.as_const() == Some(1)
}
