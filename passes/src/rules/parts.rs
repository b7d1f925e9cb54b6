//! Slices of slices, slices of concatenations, and concatenations of slices.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::op::infer::as_ints;
use mithril_ir::op::view::slice_bounds;
use mithril_ir::shape::Shape;

use super::matched::Match;
use super::pattern::{among, neighbours, unary, vars};
use super::{Attrs, Rule, exact};

pub(super) fn rules() -> Vec<Rule> {
    let [x] = vars();
    let slice = unary("slice");
    vec![
        exact("slice-slice", slice(slice(x)), slice(x).with(slice_of_slice)),
        exact("slice-concat", slice(among("concat", x)), slice(x).with(slice_within_operand)),
        exact(
            "concat-slices",
            neighbours("concat", slice(x)),
            neighbours("concat", slice(x).with(adjacent_slices)),
        ),
    ]
}

/// The part of one axis that a slice takes, as written.
#[derive(Clone, PartialEq)]
struct Range {
    axis: usize,
    start: Dim,
    limit: Dim,
    step: i64,
}

impl Range {
    /// Start and limit for an axis of size `dim`, clamped to 0..=dim.
    fn bounds(&self, dim: &Dim) -> (Dim, Dim) {
        slice_bounds(&self.start, &self.limit, dim)
    }
}

/// The part that operation `op`, a slice of a value of this shape, takes of each of its axes.
fn ranges(m: &Match, op: usize, of: &Shape) -> Option<Vec<Range>> {
    let axes = m.axes(op, "axes", of.rank()?)?;
    let (Attr::Shape(starts), Attr::Shape(limits)) = (m.attr(op, "starts"), m.attr(op, "limits"))
    else {
        return None;
    };
    let steps = as_ints(m.attr(op, "steps"));
    let range = |(at, &axis): (usize, &usize)| Range {
        axis,
        start: starts.dims[at].clone(),
        limit: limits.dims[at].clone(),
        step: steps.map_or(1, |steps| steps[at]),
    };
    let once = |(at, axis): (usize, &usize)| !axes[..at].contains(axis);
    let once = axes.iter().enumerate().all(once);
    once.then(|| axes.iter().enumerate().map(range).collect())
}

fn attributes(ranges: &[Range]) -> Attrs {
    let steps = match ranges.iter().all(|range| range.step == 1) {
        true => Attr::None,
        false => Attr::ints(ranges.iter().map(|range| range.step)),
    };
    vec![
        ("axes", Attr::ints(ranges.iter().map(|range| range.axis as i64))),
        ("starts", Shape::new(ranges.iter().map(|range| range.start.clone())).into()),
        ("limits", Shape::new(ranges.iter().map(|range| range.limit.clone())).into()),
        ("steps", steps),
    ]
}

/// Whether `low <= high` always holds.
fn in_order(low: &Dim, high: &Dim) -> bool {
    (high - low).lower_bound().is_some_and(|least| least >= 0)
}

/// The slice of `x` that a slice of its slice equals.
fn slice_of_slice(m: &Match) -> Option<Attrs> {
    let mut all = ranges(m, 1, m.shape(0))?;
    let part = &m.operand(0, 0).shape;
    for outer in ranges(m, 0, part)? {
        let Some(inner) = all.iter_mut().find(|inner| inner.axis == outer.axis) else {
            all.push(outer);
            continue;
        };
        let (first, last) = inner.bounds(&m.shape(0).dims[outer.axis]);
        let (start, limit) = outer.bounds(&part.dims[outer.axis]);
        let step = Dim::Const(inner.step);
        inner.start = &first + &(&step * &start);
        inner.limit = (&first + &(&step * &limit)).min(&last);
        inner.step *= outer.step;
    }
    Some(attributes(&all))
}

/// The slice of one operand of a concatenation that a slice of the whole equals, if it lies inside
/// that operand.
fn slice_within_operand(m: &Match) -> Option<Attrs> {
    let whole = &m.operand(0, 0).shape;
    let axis = joined_axis(m, 1, whole)?;
    let mut all = ranges(m, 0, whole)?;
    let range = all.iter_mut().find(|range| range.axis == axis)?;
    let before =
        m.operands(1).take(m.part()).map(|part| part.shape.dims[axis].clone()).sum::<Dim>();
    let (start, limit) = range.bounds(&whole.dims[axis]);
    let (start, limit) = (&start - &before, &limit - &before);
    let within = in_order(&Dim::Const(0), &start)
        && in_order(&start, &limit)
        && in_order(&limit, &m.shape(0).dims[axis]);
    (range.start, range.limit) = (start, limit);
    within.then(|| attributes(&all))
}

/// The slice of `x` that two slices make up, if the second begins where the first one ends.
fn adjacent_slices(m: &Match) -> Option<Attrs> {
    let axis = joined_axis(m, 0, m.shape(0))?;
    let dim = &m.shape(0).dims[axis];
    let mut whole: Option<Vec<Range>> = None;
    for slice in m.all("slice") {
        let mut next = ranges(m, slice, m.shape(0))?;
        let range = next.iter_mut().find(|range| range.axis == axis && range.step == 1)?;
        let (start, limit) = range.bounds(dim);
        if !in_order(&start, &limit) {
            return None;
        }
        (range.start, range.limit) = (start, limit.clone());
        let Some(whole) = &mut whole else {
            whole = Some(next);
            continue;
        };
        let own = whole.iter_mut().find(|range| range.axis == axis)?;
        if own.limit != range.start {
            return None;
        }
        // Other axes must be sliced alike: compare the two slices with this axis made equal.
        range.start = own.start.clone();
        own.limit = limit;
        if *whole != next {
            return None;
        }
    }
    whole.map(|whole| attributes(&whole))
}

/// The axis along which operation `op` concatenates values of this rank.
fn joined_axis(m: &Match, op: usize, shape: &Shape) -> Option<usize> {
    Some(m.attr(op, "axis").as_int().rem_euclid(shape.rank()? as i64) as usize)
}
