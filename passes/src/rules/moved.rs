//! Moves reductions before broadcasts, transposes and reshapes. A reduction before a broadcast
//! reads fewer elements. Layouts after a reduction may cancel with other layouts.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::op::infer::as_ints;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::Class::{Exact, Reassociating, Recognise};
use super::layout::{order, own_shape};
use super::matched::Match;
use super::pattern::{Pattern, any, op, unary, vars};
use super::{Attrs, Rule, choice, is_int};

/// Reductions, and the names of the rules that move them before a transpose and before a reshape.
const MOVED: [(&str, [&str; 2]); 7] = [
    ("sum", ["sum-transpose", "sum-reshape"]),
    ("mean", ["mean-transpose", "mean-reshape"]),
    ("prod", ["prod-transpose", "prod-reshape"]),
    ("max", ["max-transpose", "max-reshape"]),
    ("min", ["min-transpose", "min-reshape"]),
    ("any", ["any-transpose", "any-reshape"]),
    ("all", ["all-transpose", "all-reshape"]),
];

pub(super) fn rules() -> Vec<Rule> {
    let mut rules = before_broadcasts();
    for (fold, [transposed, reshaped]) in MOVED {
        let [left, right] = before_transpose(fold);
        // The order of elements does not matter for minima, maxima and truths.
        let ordered = matches!(fold, "sum" | "mean" | "prod");
        let rule = choice(Exact, transposed, left, right);
        rules.push(if ordered { rule.when(keeps_order) } else { rule });
        let [left, right] = before_reshape(fold);
        rules.push(choice(Exact, reshaped, left, right));
    }
    for (fold, name) in [("sum", "sum-transposed"), ("mean", "mean-transposed")] {
        let [left, right] = before_transpose(fold);
        rules.push(choice(Reassociating, name, left, right));
    }
    rules
}

fn before_transpose(fold: &str) -> [Pattern; 2] {
    let [x] = vars();
    let [transpose, swap] = ["transpose", "swap_axes"].map(unary);
    let left = op(fold, [any([transpose(x), swap(x)])]);
    [left, transpose(op(fold, [x]).with(transposed_axes)).with(transpose_of_result)]
}

fn before_reshape(fold: &str) -> [Pattern; 2] {
    let [x] = vars();
    let [reshape, expand, squeeze] = ["reshape", "expand_dims", "squeeze"].map(unary);
    let left = op(fold, [any([reshape(x), expand(x), squeeze(x)])]);
    [left, reshape(op(fold, [x]).with(reshaped_axes)).with(own_shape)]
}

/// Reduces each element once instead of each of its copies. Sums are multiplied by the number of
/// copies.
fn before_broadcasts() -> Vec<Rule> {
    let [x] = vars();
    let broadcast = unary("broadcast_in_dim");
    let before = |fold: &str| op(fold, [broadcast(x)]);
    let after = |fold: &str| op(fold, [x]).with(axes_of_operand);
    let once = |class, name: &'static str, fold: &str| {
        let right = broadcast(after(fold)).with(broadcast_of_result);
        choice(class, name, before(fold), right)
    };
    let several = broadcast(after("sum") * op("constant", []).with(repetitions_literal))
        .with(broadcast_of_result);
    vec![
        once(Exact, "max-broadcast", "max").when(|m| repetitions(m).is_some()),
        once(Exact, "min-broadcast", "min").when(|m| repetitions(m).is_some()),
        once(Exact, "any-broadcast", "any").when(|m| repetitions(m).is_some()),
        once(Exact, "all-broadcast", "all").when(|m| repetitions(m).is_some()),
        once(Recognise, "mean-repeated", "mean")
            .when(|m| repetitions(m).is_some() && reduces_no_elements(m)),
        once(Reassociating, "mean-broadcast", "mean")
            .when(|m| repetitions(m).is_some() && !reduces_no_elements(m)),
        choice(Exact, "sum-broadcast-int", before("sum"), several).when(is_int),
        choice(Reassociating, "sum-broadcast", before("sum"), several),
    ]
}

/// For each axis of a broadcast's operand, the axis of its result.
fn axis_map(m: &Match) -> Option<Vec<usize>> {
    let (rank, wide) = (m.shape(0).rank()?, m.operand(0, 0).shape.rank()?);
    match as_ints(m.attr(1, "axes")) {
        Some(_) => m.axes(1, "axes", wide),
        None => Some((wide - rank..wide).collect()),
    }
}

/// The axes of the broadcast's operand that the reduction of the broadcast reduces.
fn reduced_operand_axes(m: &Match) -> Option<Vec<usize>> {
    let folded = m.folded().folded;
    let axis_map = axis_map(m)?;
    Some((0..axis_map.len()).filter(|axis| folded[axis_map[*axis]]).collect())
}

fn reduces_no_elements(m: &Match) -> bool {
    let is_one = |axis: &usize| m.shape(0).dims[*axis].as_const() == Some(1);
    reduced_operand_axes(m).is_some_and(|axes| axes.iter().all(is_one))
}

fn axes_of_operand(m: &Match) -> Option<Attrs> {
    Some(reduction_attrs(reduced_operand_axes(m)?, false))
}

fn reduction_attrs(axes: Vec<usize>, keepdim: bool) -> Attrs {
    let axes = Attr::ints(axes.into_iter().map(|axis| axis as i64));
    vec![("axes", axes), ("keepdim", keepdim.into())]
}

/// The attributes of the broadcast after the reduction: axes that are not reduced are broadcast as
/// before.
fn broadcast_of_result(m: &Match) -> Option<Attrs> {
    let kept = m.folded().places;
    let axes: Vec<usize> = axis_map(m)?.into_iter().filter_map(|axis| kept[axis]).collect();
    let rank = m.result.shape.dims.len();
    let last = axes.iter().copied().eq(rank - axes.len()..rank);
    let axes = Attr::ints(axes.into_iter().map(|axis| axis as i64));
    let axes = if last { Attr::None } else { axes };
    Some(vec![("shape", m.result.shape.clone().into()), ("axes", axes)])
}

/// The number of copies of each element that are reduced together; `None` if that may be zero.
fn repetitions(m: &Match) -> Option<i64> {
    let (axis_map, narrow, wide) = (axis_map(m)?, m.shape(0), &m.operand(0, 0).shape);
    let mut repeated = m.folded().folded;
    for (dim, place) in narrow.dims.iter().zip(axis_map) {
        match *dim == wide.dims[place] {
            true => repeated[place] = false,
            false if dim.as_const() == Some(1) => {}
            false => return None,
        }
    }
    let dims = wide.dims.iter().zip(repeated).filter(|(_, repeated)| *repeated);
    let count = dims.map(|(dim, _)| dim.clone()).product::<Dim>().as_const()?;
    (count > 0).then_some(count)
}

/// The value of [`repetitions`] as a literal of the result's dtype, if it is exact.
fn repetitions_literal(m: &Match) -> Option<Attrs> {
    let count = repetitions(m)? as f64;
    let number = Tensor::scalar(m.result.dtype, count);
    (number.element_f64(0) == count).then(|| vec![("value", Attr::from(number))])
}

/// The axes of `x` that a reduction of its transpose reduces, in the order in which it reduces
/// them.
fn reduced_in_order(m: &Match) -> Option<Vec<usize>> {
    let (order, folded) = (order(m, 1)?, m.folded().folded);
    Some((0..order.len()).filter(|axis| folded[*axis]).map(|axis| order[axis]).collect())
}

fn keeps_order(m: &Match) -> bool {
    reduced_in_order(m).is_some_and(|axes| axes.is_sorted())
}

fn transposed_axes(m: &Match) -> Option<Attrs> {
    Some(reduction_attrs(reduced_in_order(m)?, *m.attr(0, "keepdim") == Attr::Bool(true)))
}

/// The permutation of the remaining axes, relative to their order in `x`.
fn transpose_of_result(m: &Match) -> Option<Attrs> {
    let (order, folded) = (order(m, 1)?, m.folded().folded);
    let keep = *m.attr(0, "keepdim") == Attr::Bool(true);
    let left = (0..order.len()).filter(|axis| keep || !folded[*axis]);
    let left: Vec<usize> = left.map(|axis| order[axis]).collect();
    let before = |axis: &usize| left.iter().filter(|other| *other < axis).count() as i64;
    Some(vec![("permutation", Attr::ints(left.iter().map(before)))])
}

/// The axes of `x` that a reduction of its reshape reduces. Groups of axes that are reshaped
/// together must be reduced entirely or not at all.
fn reshaped_axes(m: &Match) -> Option<Attrs> {
    let (own, new) = (m.shape(0), &m.operand(0, 0).shape);
    let [own_ends, new_ends] = [products(own)?, products(new)?];
    let folded = m.folded().folded;
    let (mut axes, mut own_at, mut new_at) = (Vec::new(), 0, 0);
    for (end, (_, count)) in own_ends.iter().enumerate() {
        let Some(other) = new_ends.iter().position(|(_, other)| other == count) else {
            continue;
        };
        let mut group = new_ends[new_at..=other].iter().map(|(axis, _)| folded[*axis]);
        let all = group.clone().all(|folded| folded);
        if !all && group.any(|folded| folded) {
            return None;
        }
        if all {
            axes.extend(own_ends[own_at..=end].iter().map(|(axis, _)| *axis));
        }
        (own_at, new_at) = (end + 1, other + 1);
    }
    let complete = own_at == own_ends.len() && new_at == new_ends.len();
    complete.then(|| reduction_attrs(axes, false))
}

/// The axes that are not 1, each with the number of elements up to it.
fn products(shape: &Shape) -> Option<Vec<(usize, Dim)>> {
    shape.rank()?;
    let mut count = Dim::Const(1);
    let mut all = Vec::new();
    for (axis, dim) in shape.dims.iter().enumerate().filter(|(_, dim)| dim.as_const() != Some(1)) {
        count = &count * dim;
        all.push((axis, count.clone()));
    }
    (count.as_const() != Some(0)).then_some(all)
}
