//! Layouts: those that change nothing, and pairs that combine into one.

use mithril_ir::attr::Attr;
use mithril_ir::op::infer::as_ints;

use super::matched::Match;
use super::pattern::{known, map, op, unary, vars};
use super::{Attrs, Class, Rule, choice, exact};

/// Rules without a condition rely on the engine's check that both sides have the same, known type.
pub(super) fn rules() -> Vec<Rule> {
    let [x] = vars();
    let [reshape, expand, squeeze] = ["reshape", "expand_dims", "squeeze"].map(unary);
    let [transpose, swap, reverse] = ["transpose", "swap_axes", "reverse"].map(unary);
    let [broadcast, sum_to, slice] = ["broadcast_in_dim", "sum_to", "slice"].map(unary);
    let [concat, dim, count] = ["concat", "dim", "element_count"].map(unary);
    let [sum, prod, max, min] = ["sum", "prod", "max", "min"].map(unary);
    let [any, all, mean] = ["any", "all", "mean"].map(unary);
    vec![
        exact("reshape-same", reshape(x), x),
        exact("expand-none", expand(x), x),
        exact("squeeze-none", squeeze(x), x),
        exact("reshape-reshape", reshape(reshape(x)), reshape(x).with(own_shape)),
        exact("reshape-expand", reshape(expand(x)), reshape(x).with(own_shape)),
        exact("reshape-squeeze", reshape(squeeze(x)), reshape(x).with(own_shape)),
        exact("expand-reshape", expand(reshape(x)), reshape(x).with(own_shape)),
        exact("expand-squeeze", expand(squeeze(x)), reshape(x).with(own_shape)),
        exact("expand-expand", expand(expand(x)), reshape(x).with(own_shape)),
        exact("squeeze-reshape", squeeze(reshape(x)), reshape(x).with(own_shape)),
        exact("squeeze-expand", squeeze(expand(x)), reshape(x).with(own_shape)),
        exact("squeeze-squeeze", squeeze(squeeze(x)), reshape(x).with(own_shape)),
        exact("transpose-none", transpose(x), x).when(keeps_axes),
        exact("transpose-transpose", transpose(transpose(x)), transpose(x).with(composed)),
        exact("swap-swap", swap(swap(x)), x).when(same_pair),
        exact("swap-transpose", swap(transpose(x)), transpose(x).with(composed)),
        exact("transpose-swap", transpose(swap(x)), transpose(x).with(composed)),
        exact("reverse-none", reverse(x), x).when(no_axes),
        exact("reverse-reverse", reverse(reverse(x)), x).when(same_axes),
        exact("slice-all", slice(x), x).when(from_the_start),
        exact("concat-one", concat(x), x),
        exact("broadcast-same", broadcast(x), x).when(in_order),
        exact("broadcast-broadcast", broadcast(broadcast(x)), broadcast(x).with(own_shape))
            .when(both_in_order),
        exact("sum-to-same", sum_to(x), x),
        exact("sum-none", sum(x), x).when(no_axes),
        exact("prod-none", prod(x), x).when(no_axes),
        exact("max-none", max(x), x).when(no_axes),
        exact("min-none", min(x), x).when(no_axes),
        exact("any-none", any(x), x).when(no_axes),
        exact("all-none", all(x), x).when(no_axes),
        exact("mean-none", mean(x), x).when(no_axes),
        exact("dim-known", dim(x), known()),
        exact("count-known", count(x), known()),
    ]
}

fn rank(m: &Match) -> usize {
    m.shape(0).dims.len()
}

pub(super) fn own_shape(m: &Match) -> Option<Attrs> {
    Some(vec![("shape", m.result.shape.clone().into())])
}

fn keeps_axes(m: &Match) -> bool {
    let order = m.axes(0, "permutation", rank(m)).unwrap_or_default();
    order.iter().enumerate().all(|(i, &axis)| i == axis)
}

/// Axis `i` of the result is axis `outer[i]` of the inner result, which is axis `inner[outer[i]]`
/// of `x`.
fn composed(m: &Match) -> Option<Attrs> {
    let [outer, inner] = [order(m, 0)?, order(m, 1)?];
    let order = outer.iter().map(|&i| inner[i] as i64);
    Some(vec![("permutation", Attr::ints(order))])
}

/// For each axis of a transpose or an axis swap, the axis of its operand.
pub(super) fn order(m: &Match, op: usize) -> Option<Vec<usize>> {
    let rank = m.shape(0).rank()?;
    if m.all("transpose").contains(&op) {
        return m.axes(op, "permutation", rank);
    }
    let mut order: Vec<usize> = (0..rank).collect();
    let [first, second] = ["first", "second"].map(|name| m.attr(op, name).as_int());
    let front = |axis: i64| axis.rem_euclid(rank.max(1) as i64) as usize;
    order.swap(front(first), front(second));
    Some(order)
}

fn same_pair(m: &Match) -> bool {
    if m.shape(0).lead.is_some() {
        let both = |name| m.attr(0, name) == m.attr(1, name);
        return both("first") && both("second");
    }
    let axis = |op, name| match m.attr(op, name) {
        Attr::Int(axis) => axis.rem_euclid(rank(m).max(1) as i64),
        _ => 0,
    };
    let pair = |op| {
        let (a, b) = (axis(op, "first"), axis(op, "second"));
        (a.min(b), a.max(b))
    };
    pair(0) == pair(1)
}

fn no_axes(m: &Match) -> bool {
    as_ints(m.attr(0, "axes")).is_some_and(<[i64]>::is_empty)
}

fn same_axes(m: &Match) -> bool {
    if m.shape(0).lead.is_some() {
        return m.attr(0, "axes") == m.attr(1, "axes");
    }
    let [outer, inner] = [0, 1].map(|i| {
        let mut axes = m.axes(i, "axes", rank(m)).unwrap_or_default();
        axes.sort_unstable();
        axes
    });
    outer == inner
}

/// Together with the equal types, this means that the slice is all of `x`.
fn from_the_start(m: &Match) -> bool {
    let zeros = match m.attr(0, "starts") {
        Attr::Shape(starts) => starts.dims.iter().all(|d| d.as_const() == Some(0)),
        _ => false,
    };
    zeros && as_ints(m.attr(0, "steps")).is_none_or(|steps| steps.iter().all(|&s| s == 1))
}

fn in_order(m: &Match) -> bool {
    let increasing = |axes: &[i64]| axes.iter().enumerate().all(|(i, &axis)| i as i64 == axis);
    as_ints(m.attr(0, "axes")).is_none_or(increasing)
}

fn both_in_order(m: &Match) -> bool {
    *m.attr(0, "axes") == Attr::None && *m.attr(1, "axes") == Attr::None
}

/// Rules whose right side is not always better.
pub(super) fn choices() -> Vec<Rule> {
    let [x, y] = vars();
    let [expand, transpose, swap] = ["expand_dims", "transpose", "swap_axes"].map(unary);
    let matmul = |x, y| op("matmul", [x, y]);
    let kept = |name: &'static str, fold: &'static str| {
        let keep = |m: &Match| Some(m.attrs_but(1, "keepdim", true.into()));
        choice(Class::Exact, name, expand(op(fold, [x])), op(fold, [x]).with(keep))
            .when(|m| *m.attr(1, "keepdim") == Attr::Bool(false) && same_places(m))
    };
    vec![
        kept("expand-sum", "sum"),
        kept("expand-mean", "mean"),
        kept("expand-max", "max"),
        kept("expand-min", "min"),
        kept("expand-variance", "variance"),
        kept("expand-logsumexp", "logsumexp"),
        choice(Class::Exact, "swap-is-transpose", transpose(x), swap(x).with(last_two)),
        choice(
            Class::Exact,
            "matmul-swapped",
            matmul(swap(y), swap(x)),
            swap(matmul(x, y)).with(last_two_of_result),
        )
        .when(|m| {
            let attr = |at: usize, name| m.attr(m.all("swap_axes")[at], name).clone();
            let last =
                |at| [attr(at, "first"), attr(at, "second")] == [Attr::Int(-2), Attr::Int(-1)];
            m.all("swap_axes").len() == 2 && last(0) && last(1)
        }),
    ]
}

/// Layouts that only move elements, and the names of the rules that move them after an elementwise
/// operation: of one operand, of two operands with the same layout, of such an operand and a
/// number, of a number and such an operand.
const ELEMENT_MOVES: [(&str, [&str; 4]); 5] = [
    ("transpose", ["map-transpose", "map-transposes", "map-transpose-by", "map-by-transpose"]),
    ("swap_axes", ["map-swap", "map-swaps", "map-swap-by", "map-by-swap"]),
    ("reshape", ["map-reshape", "map-reshapes", "map-reshape-by", "map-by-reshape"]),
    ("expand_dims", ["map-expand", "map-expands", "map-expand-by", "map-by-expand"]),
    ("squeeze", ["map-squeeze", "map-squeezes", "map-squeeze-by", "map-by-squeeze"]),
];

/// Moves layouts after elementwise operations, where they meet other layouts and cancel.
pub(super) fn outward() -> Vec<Rule> {
    let [x, y, c] = vars();
    let rules = ELEMENT_MOVES.iter().flat_map(|(name, [one, both, left, right])| {
        let layout = unary(name);
        let sunk = |inner| layout(inner).with(|m| Some(m.attrs(1)));
        let number = |m: &Match| m.uniform(2).is_some() && m.shape(2).rank() == Some(0);
        [
            choice(Class::Exact, one, map([layout(x)]), sunk(map([x]))),
            choice(Class::Exact, both, map([layout(x), layout(y)]), sunk(map([x, y])))
                .when(|m| m.attrs(1) == m.attrs(2) && m.shape(0) == m.shape(1)),
            choice(Class::Exact, left, map([layout(x), c]), sunk(map([x, c]))).when(number),
            choice(Class::Exact, right, map([c, layout(x)]), sunk(map([c, x]))).when(number),
        ]
    });
    let broadcast = unary("broadcast_in_dim");
    let repeated = choice(
        Class::Recognise,
        "map-broadcast",
        map([broadcast(x)]),
        broadcast(map([x])).with(|m| Some(m.attrs(1))),
    );
    let one = |m: &Match| m.shape(2).rank() == Some(0) && m.shape(0) == &m.result.shape;
    let numbers = [
        choice(Class::Exact, "map-number", map([x, broadcast(c)]), map([x, c])).when(one),
        choice(Class::Exact, "map-by-number", map([broadcast(c), x]), map([c, x])).when(one),
    ];
    rules.chain([repeated]).chain(numbers).collect()
}

/// Whether the axes that a reduction removes are inserted again at the same positions.
fn same_places(m: &Match) -> bool {
    let rank = rank(m);
    match (m.axes(0, "axes", rank), m.axes(1, "axes", rank)) {
        (Some(mut back), Some(mut taken)) => {
            back.sort_unstable();
            taken.sort_unstable();
            m.shape(0).lead.is_none() && back == taken
        }
        _ => false,
    }
}

/// The attributes of the swap, for a permutation that swaps the last two axes.
fn last_two(m: &Match) -> Option<Attrs> {
    let (rank, order) = (m.shape(0).rank()?, m.axes(0, "permutation", rank(m))?);
    let mut swapped: Vec<usize> = (0..rank).collect();
    (rank >= 2).then(|| swapped.swap(rank - 2, rank - 1))?;
    (order == swapped).then(exchanged)
}

fn last_two_of_result(_: &Match) -> Option<Attrs> {
    Some(exchanged())
}

fn exchanged() -> Attrs {
    vec![("first", Attr::Int(-2)), ("second", Attr::Int(-1))]
}
