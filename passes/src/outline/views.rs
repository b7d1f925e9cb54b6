//! Views: operations that only say where elements lie, or that cost nothing to compute. They are
//! part of every kernel that reads them.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::access::Access;

/// What an axis of a value is in the space of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// An axis of the space.
    Axis(usize),
    /// A dim of 1.
    One,
}

/// Whether every kernel that reads the operation's result computes it anew.
pub fn is_view(function: &Function, op: &Operation) -> bool {
    match op.op.kind {
        Kind::Layout if joins_many(op) => false,
        Kind::Layout | Kind::Dim | Kind::Barrier => true,
        Kind::Constant => match op.op.access {
            Access::Literal => is_small(function, op.result()),
            _ => true,
        },
        Kind::Elementwise
        | Kind::Reduce
        | Kind::Contraction
        | Kind::Index
        | Kind::Order
        | Kind::Random
        | Kind::Composite
        | Kind::Call => false,
    }
}

/// The most parts that loops look through for an element.
const FEW: usize = 4;

/// Whether it concatenates so many parts that copying each to its place is less work than looking
/// for the part of each element.
pub fn joins_many(op: &Operation) -> bool {
    op.op.access == Access::Concat && op.operands.len() > FEW
}

/// Literals of a few elements are part of the code.
const SMALL: i64 = 16;

fn is_small(function: &Function, value: Value) -> bool {
    let count = function.ty(value).shape.elements().and_then(|n| n.as_const());
    count.is_some_and(|n| n <= SMALL)
}

/// The places of the operand's axes under a view, from those of its result. `None` where elements
/// do not stay in line with the space.
pub fn through(function: &Function, op: &Operation, places: &[Place]) -> Option<Vec<Place>> {
    let operand = &function.ty(*op.operands.first()?).shape.dims;
    match op.op.access {
        Access::Same => Some(places.to_vec()),
        Access::Broadcast => {
            let axes: Vec<usize> = match op.attr("axes") {
                Attr::Ints(axes) => {
                    axes.iter().map(|a| a.rem_euclid(places.len() as i64) as usize).collect()
                }
                _ => (places.len() - operand.len()..places.len()).collect(),
            };
            let place = |(dim, axis): (&Dim, usize)| match is_one(dim) {
                true => Place::One,
                false => places[axis],
            };
            Some(operand.iter().zip(axes).map(place).collect())
        }
        Access::Transpose => {
            let Attr::Ints(permutation) = op.attr("permutation") else {
                return None;
            };
            let mut out = vec![Place::One; operand.len()];
            for (to, from) in permutation.iter().enumerate() {
                out[from.rem_euclid(operand.len() as i64) as usize] = places[to];
            }
            Some(out)
        }
        Access::Reshape => reshaped(operand, &function.ty(op.result()).shape.dims, places),
        _ => None,
    }
}

/// A reshape keeps elements in line where it only puts in or takes away dims of 1.
fn reshaped(operand: &[Dim], result: &[Dim], places: &[Place]) -> Option<Vec<Place>> {
    let kept: Vec<usize> = (0..result.len()).filter(|&i| !is_one(&result[i])).collect();
    let own: Vec<usize> = (0..operand.len()).filter(|&i| !is_one(&operand[i])).collect();
    let same =
        kept.len() == own.len() && kept.iter().zip(&own).all(|(&r, &o)| result[r] == operand[o]);
    if !same {
        return None;
    }
    let mut out = vec![Place::One; operand.len()];
    for (&r, &o) in kept.iter().zip(&own) {
        out[o] = places[r];
    }
    Some(out)
}

pub fn is_one(dim: &Dim) -> bool {
    dim.as_const() == Some(1)
}
