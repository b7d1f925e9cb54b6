//! Reductions: of reductions, of scaled or negated values, and of matrix products.

use mithril_ir::attr::Attr;
use mithril_ir::op::infer::as_ints;

use super::Class::{Exact, Fast, Reassociating};
use super::matched::Match;
use super::pattern::{any, op, part_of_joined, unary, vars};
use super::{Attrs, Class, Rule, axes_of, choice};

/// Reductions whose nested form equals one reduction over all axes. For max and min, ties share the
/// gradient differently, so these rules are not exact.
const NESTED: [(Class, &str, &str); 4] = [
    (Fast, "max", "max-max"),
    (Fast, "min", "min-min"),
    (Exact, "any", "any-any"),
    (Exact, "all", "all-all"),
];

pub(super) fn rules() -> Vec<Rule> {
    let [x, y, z] = vars();
    let [sum, mean, max, min] = ["sum", "mean", "max", "min"].map(unary);
    let matmul = |x, y| op("matmul", [x, y]);
    let mut rules = vec![
        choice(Reassociating, "sum-sum", sum(sum(x)), sum(x).with(joined)),
        choice(Reassociating, "mean-mean", mean(mean(x)), mean(x).with(joined)),
        choice(Reassociating, "sum-scaled", sum(x * y), y * sum(x).with(|m| axes_of(m, "sum")))
            .when(is_scaled),
        choice(
            Reassociating,
            "mean-scaled-by",
            mean(x * y),
            y * mean(x).with(|m| axes_of(m, "mean")),
        )
        .when(is_scaled),
        choice(Reassociating, "sum-neg", sum(-x), -sum(x).with(|m| axes_of(m, "sum"))),
        choice(Reassociating, "sum-add", sum(x) + sum(y), sum(x + y).with(|m| axes_of(m, "sum")))
            .when(|m| m.shape(0) == m.shape(1) && have_equal_attrs(m, "sum")),
        choice(Exact, "max-neg", max(-x), -min(x).with(|m| axes_of(m, "max")))
            .when(super::is_float),
        choice(Exact, "min-neg", min(-x), -max(x).with(|m| axes_of(m, "min")))
            .when(super::is_float),
        choice(Reassociating, "matmul-left", matmul(x, matmul(y, z)), matmul(matmul(x, y), z))
            .when(matrices),
        choice(Reassociating, "matmul-right", matmul(matmul(x, y), z), matmul(x, matmul(y, z)))
            .when(matrices),
        choice(Reassociating, "matmul-scaled", matmul(x * z, y), z * matmul(x, y))
            .when(|m| m.uniform(2).is_some()),
        choice(Reassociating, "matmul-scaled-right", matmul(x, y * z), z * matmul(x, y))
            .when(|m| m.uniform(2).is_some()),
        choice(Reassociating, "matmul-scaled-before", z * matmul(x, y), matmul(x * z, y))
            .when(|m| m.uniform(2).is_some()),
        choice(Reassociating, "matmul-add-left", matmul(x, z) + matmul(y, z), matmul(x + y, z))
            .when(|m| m.shape(0) == m.shape(1)),
        choice(Reassociating, "matmul-add-right", matmul(z, x) + matmul(z, y), matmul(z, x + y))
            .when(|m| m.shape(0) == m.shape(1)),
    ];
    let swap = unary("swap_axes");
    let transpose = unary("transpose");
    rules.push(choice(
        Exact,
        "product-is-matmul",
        op("dot_general", [x, y]),
        matmul(
            transpose(x).with(|m| in_order(m, 0)),
            swap(transpose(y).with(|m| in_order(m, 1)))
                .with(|_| Some(vec![("first", Attr::Int(-2)), ("second", Attr::Int(-1))])),
        ),
    ));
    let products = any([matmul(x, y), op("dot_general", [x, y])]);
    rules.push(choice(Exact, "products-joined", products, part_of_joined()));
    for (class, name, rule) in NESTED {
        rules.push(choice(class, rule, op(name, [op(name, [x])]), op(name, [x]).with(joined)));
    }
    rules
}

/// The permutation that brings an operand of a matrix product to the order: batch axes, its own
/// axis, the contracted axis.
fn in_order(m: &Match, operand: usize) -> Option<Attrs> {
    let [batch, contract] = [["x_batch", "x_contract"], ["y_batch", "y_contract"]][operand];
    let rank = m.shape(operand).rank()?;
    let mut order = match as_ints(m.attr(0, batch)) {
        Some(_) => m.axes(0, batch, rank)?,
        None => Vec::new(),
    };
    let contract = m.axes(0, contract, rank)?;
    let own: Vec<usize> =
        (0..rank).filter(|axis| !order.contains(axis) && !contract.contains(axis)).collect();
    if own.len() != 1 || contract.len() != 1 {
        return None;
    }
    order.extend(own);
    order.extend(contract);
    Some(vec![("permutation", Attr::ints(order.iter().map(|axis| *axis as i64)))])
}

fn matrices(m: &Match) -> bool {
    [0, 1, 2].iter().all(|i| m.shape(*i).rank() == Some(2))
}

/// Whether the second variable is one number, and the first has the shape of the reduced operand.
fn is_scaled(m: &Match) -> bool {
    m.uniform(1).is_some() && *m.shape(0) == m.operand(0, 0).shape
}

/// Whether both operations of this name have equal attributes.
fn have_equal_attrs(m: &Match, name: &str) -> bool {
    let all = m.all(name);
    let attrs = |at: usize| ["axes", "keepdim", "acc"].map(|attr| m.attr(at, attr).clone());
    matches!(all[..], [a, b] if attrs(a) == attrs(b))
}

/// The axes of two nested reductions combined, if both keep their axes or neither does.
fn joined(m: &Match) -> Option<Attrs> {
    let rank = m.shape(0).rank()?;
    if m.attr(0, "keepdim") != m.attr(1, "keepdim") {
        return None;
    }
    let (keep, inner) = (m.attr(0, "keepdim").clone(), m.axes(1, "axes", rank)?);
    let stays = keep == Attr::Bool(true);
    let left: Vec<usize> = match stays {
        true => (0..rank).collect(),
        false => (0..rank).filter(|axis| !inner.contains(axis)).collect(),
    };
    let outer = match as_ints(m.attr(0, "axes")) {
        Some(_) => m.axes(0, "axes", left.len())?,
        None => (0..left.len()).collect(),
    };
    let mut axes: Vec<i64> = inner.iter().map(|axis| *axis as i64).collect();
    axes.extend(outer.iter().map(|axis| left[*axis] as i64));
    axes.sort_unstable();
    axes.dedup();
    Some(vec![("axes", Attr::ints(axes)), ("keepdim", keep)])
}
