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

/// The largest number that, added to scores, hides them: their weights become 0.
const HIDDEN: f64 = -1e30;

/// The most operations that are looked through.
const DEPTH: usize = 6;

/// Whether the variable with index `mask` lets each query see the keys that are not later, and no
/// others.
pub fn is_causal(m: &Match, mask: usize) -> bool {
    let [queries, keys] = [m.shape(0), m.shape(1)].map(|shape| shape.dims.iter().nth_back(1));
    let dims = &m.shape(mask).dims;
    let over = dims.last() == keys && dims.iter().nth_back(1) == queries;
    let alone = dims.iter().rev().skip(2).all(|dim| dim.as_const() == Some(1));
    if !over || !alone || dims.len() < 2 {
        return false;
    }
    match (halves(m.facts(), m.var(mask), DEPTH), m.dtype(mask)) {
        (Some([lower, upper]), DType::Bool) => lower != 0.0 && upper == 0.0,
        (Some([lower, upper]), _) => lower == 0.0 && upper <= HIDDEN,
        (None, _) => false,
    }
}

/// The number on and below the main diagonal of the last two axes, and the number above it.
fn halves(facts: &dyn Facts, value: Value, depth: usize) -> Option<[f64; 2]> {
    if let Some(number) = facts.uniform(value) {
        return Some([number; 2]);
    }
    let made = |op: Op| {
        facts.made(value, op).into_iter().find_map(|made| through(facts, value, &made, depth))
    };
    let ops = op::table().filter(|op| matches!(op.kind, Kind::Constant | Kind::Elementwise));
    let others = ["tril", "triu"].into_iter().map(op::get);
    (depth > 0).then(|| ops.chain(others).find_map(made)).flatten()
}

fn through(facts: &dyn Facts, value: Value, made: &Producer, depth: usize) -> Option<[f64; 2]> {
    let operand = |at: usize| halves(facts, made.operands[at], depth - 1);
    let diagonal = made.op.attr_index("diagonal").map(|at| made.attrs[at].as_int());
    match (made.op.name, diagonal, made.attrs.first()) {
        ("tril", Some(0), _) => Some([operand(0)?[0], 0.0]),
        ("triu", Some(1), _) => Some([0.0, operand(0)?[1]]),
        ("tril" | "triu", ..) => None,
        (_, _, Some(Attr::Tensor(tensor))) => written(tensor),
        _ => each(facts, value, made, depth),
    }
}

/// The numbers for an elementwise operation, which is evaluated only for the two numbers of each
/// operand.
fn each(facts: &dyn Facts, value: Value, made: &Producer, depth: usize) -> Option<[f64; 2]> {
    let pair = |value: &Value| {
        let numbers = halves(facts, *value, depth - 1)?;
        Some(Tensor::from_f64s(facts.ty(*value).dtype, vec![2], &numbers))
    };
    // A row or a column that is broadcast is not a matrix of two numbers.
    let last = |of: Value| facts.ty(of).shape.dims.iter().rev().take(2).collect::<Vec<&Dim>>();
    let mut matrices = made.operands.iter().filter(|of| facts.uniform(**of).is_none());
    if !matrices.all(|of| last(*of) == last(value)) {
        return None;
    }
    let pairs: Option<Vec<Tensor>> = made.operands.iter().map(pair).collect();
    let found = evaluated(made.op, made.attrs, &pairs?)?;
    Some([0, 1].map(|at| found.element_f64(at)))
}

/// The numbers for a literal.
fn written(tensor: &Tensor) -> Option<[f64; 2]> {
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
