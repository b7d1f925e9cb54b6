//! Parts of parts, parts of what is joined, and what is joined of parts.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::op::infer::{as_int, as_ints};
use mithril_ir::op::view::slice_bounds;
use mithril_ir::shape::Shape;

use super::matching::Match;
use super::pattern::{among, neighbours, unary, vars};
use super::{Attrs, Rule, exact};

pub(super) fn rules() -> Vec<Rule> {
    let [x] = vars();
    let slice = unary("slice");
    vec![
        exact("slice-slice", slice(slice(x)), slice(x).with(of_both)),
        exact("slice-concat", slice(among("concat", x)), slice(x).with(within_part)),
        exact(
            "concat-slices",
            neighbours("concat", slice(x)),
            neighbours("concat", slice(x).with(side_by_side)),
        ),
    ]
}

/// What a slice takes of one axis, as it is written.
#[derive(Clone, PartialEq)]
struct Range {
    axis: usize,
    start: Dim,
    limit: Dim,
    step: i64,
}

impl Range {
    /// From where to where, of an axis of this dim: neither is below 0 nor above it.
    fn bounds(&self, dim: &Dim) -> (Dim, Dim) {
        slice_bounds(&self.start, &self.limit, dim)
    }
}

/// What operation number `op`, a slice of a value of this shape, takes of each of its axes.
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

/// Whether the second dim is never below the first one.
fn in_order(low: &Dim, high: &Dim) -> bool {
    (high - low).lower_bound().is_some_and(|least| least >= 0)
}

/// The part of `x` that a part of its part is.
fn of_both(m: &Match) -> Option<Attrs> {
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

/// The part of an operand of a concatenation that a part of the whole is, if it lies within it.
fn within_part(m: &Match) -> Option<Attrs> {
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

/// The part of `x` that two parts make up, the second of which begins where the first one ends.
fn side_by_side(m: &Match) -> Option<Attrs> {
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
        // What is left of the axis is the same in all parts.
        range.start = own.start.clone();
        own.limit = limit;
        if *whole != next {
            return None;
        }
    }
    whole.map(|whole| attributes(&whole))
}

/// The axis along which operation number `op` joins values of this rank.
fn joined_axis(m: &Match, op: usize, shape: &Shape) -> Option<usize> {
    Some(as_int(m.attr(op, "axis")).rem_euclid(shape.rank()? as i64) as usize)
}
