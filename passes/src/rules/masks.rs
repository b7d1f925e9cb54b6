//! Recognises causal masks, however they are written: matrices of one number on and below the main
//! diagonal, and of another above it.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::op::{self, Kind, Op};
use mithril_ir::tensor::Tensor;

use super::matched::{Facts, Match, Producer};
use crate::fold_constants::evaluated;

/// A number up to this value, added to a score, masks it: its weight becomes 0.
const MASKED: f64 = -1e30;

/// The maximum number of operations to look through.
const MAX_DEPTH: usize = 6;

/// Whether the variable with index `mask` is a causal mask: each query attends to the keys up to
/// its own position.
pub fn is_causal(m: &Match, mask: usize) -> bool {
    let [queries, keys] = [m.shape(0), m.shape(1)].map(|shape| shape.dims.iter().nth_back(1));
    let dims = &m.shape(mask).dims;
    let covers_scores = dims.last() == keys && dims.iter().nth_back(1) == queries;
    let leading_ones = dims.iter().rev().skip(2).all(|dim| dim.as_const() == Some(1));
    if !covers_scores || !leading_ones || dims.len() < 2 {
        return false;
    }
    match (triangles(m.facts(), m.var(mask), MAX_DEPTH), m.dtype(mask)) {
        (Some([lower, upper]), DType::Bool) => lower != 0.0 && upper == 0.0,
        (Some([lower, upper]), _) => lower == 0.0 && upper <= MASKED,
        (None, _) => false,
    }
}

/// The number on and below the main diagonal of the last two axes, and the number above it.
fn triangles(facts: &dyn Facts, value: Value, depth: usize) -> Option<[f64; 2]> {
    if let Some(number) = facts.uniform(value) {
        return Some([number; 2]);
    }
    let triangles_of = |op: Op| {
        facts
            .producers(value, op)
            .into_iter()
            .find_map(|producer| through(facts, value, &producer, depth))
    };
    let ops = op::table().filter(|op| matches!(op.kind, Kind::Constant | Kind::Elementwise));
    let others = ["tril", "triu"].into_iter().map(op::get);
    (depth > 0).then(|| ops.chain(others).find_map(triangles_of)).flatten()
}

fn through(facts: &dyn Facts, value: Value, producer: &Producer, depth: usize) -> Option<[f64; 2]> {
    let operand = |at: usize| triangles(facts, producer.operands[at], depth - 1);
    let diagonal = producer.op.attr_index("diagonal").map(|at| producer.attrs[at].as_int());
    match (producer.op.name, diagonal, producer.attrs.first()) {
        ("tril", Some(0), _) => Some([operand(0)?[0], 0.0]),
        ("triu", Some(1), _) => Some([0.0, operand(0)?[1]]),
        ("tril" | "triu", ..) => None,
        (_, _, Some(Attr::Tensor(tensor))) => literal(tensor),
        _ => elementwise(facts, value, producer, depth),
    }
}

/// The numbers for an elementwise operation, which is evaluated only for the two numbers of each
/// operand.
fn elementwise(
    facts: &dyn Facts,
    value: Value,
    producer: &Producer,
    depth: usize,
) -> Option<[f64; 2]> {
    let pair = |value: &Value| {
        let numbers = triangles(facts, *value, depth - 1)?;
        Some(Tensor::from_f64s(facts.ty(*value).dtype, vec![2], &numbers))
    };
    // A row or a column that is broadcast is not a matrix of two numbers.
    let last = |of: Value| facts.ty(of).shape.dims.iter().rev().take(2).collect::<Vec<&Dim>>();
    let mut matrices = producer.operands.iter().filter(|of| facts.uniform(**of).is_none());
    if !matrices.all(|of| last(*of) == last(value)) {
        return None;
    }
    let pairs: Option<Vec<Tensor>> = producer.operands.iter().map(pair).collect();
    let found = evaluated(producer.op, producer.attrs, &pairs?)?;
    Some([0, 1].map(|at| found.element_f64(at)))
}

/// The numbers for a literal.
fn literal(tensor: &Tensor) -> Option<[f64; 2]> {
    let [.., rows, columns] = *tensor.shape() else {
        return None;
    };
    if columns < 2 || tensor.is_empty() {
        return None;
    }
    let numbers = [0, 1].map(|at| tensor.element_f64(at));
    let fits = |at: usize| {
        let later = at % columns > at / columns % rows;
        tensor.element_f64(at).to_bits() == numbers[usize::from(later)].to_bits()
    };
    (0..tensor.len()).all(fits).then_some(numbers)
}
