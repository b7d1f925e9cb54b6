//! Tasks: the indices of the parts of a contraction.

use crate::builder::Builder;
use crate::code::{Binary, Cmp, V};
use crate::contract::Side;
use crate::loops::Loops;

/// Runs `body` for the tasks `first..last`. A task's number is split into digits below the given
/// extents, the last digit running fastest. Only the first task needs divisions.
pub fn each(
    b: &mut Builder,
    extents: &[V],
    carried: &[V],
    body: impl FnOnce(&mut Builder, &[V], &[V]) -> Vec<V>,
) {
    let (first, last) = (b.first(), b.last());
    let mut rest = first;
    let mut digits = vec![first; extents.len()];
    for (digit, &extent) in digits.iter_mut().zip(extents).rev() {
        let one = b.index(1);
        let extent = b.binary(Binary::Max, extent, one);
        (*digit, rest) = b.div_rem(rest, extent);
    }
    let start = [&digits, carried].concat();
    b.repeat(first, last, 1, &start, |b, _, now| {
        let (digits, carried) = now.split_at(extents.len());
        let mut digits = digits.to_vec();
        for (digit, &extent) in digits.iter_mut().zip(extents) {
            if b.constant(extent) == Some(1) {
                *digit = b.index(0);
            }
        }
        let carried = body(b, &digits, carried);
        [next(b, &digits, extents), carried].concat()
    });
}

/// The digits of the next task.
fn next(b: &mut Builder, digits: &[V], extents: &[V]) -> Vec<V> {
    let (zero, one) = (b.index(0), b.index(1));
    let mut step = one;
    let mut next = digits.to_vec();
    for (digit, &extent) in next.iter_mut().zip(extents).rev() {
        if b.constant(extent) == Some(1) {
            continue;
        }
        let raised = b.add(*digit, step);
        let wraps = b.compare(Cmp::Ge, raised, extent);
        *digit = b.select(wraps, zero, raised);
        step = b.select(wraps, one, zero);
    }
    next
}

/// A loop; only its body, or nothing, where the number of iterations is known to be 1 or 0.
pub fn span(b: &mut Builder, from: V, to: V, step: i64, body: impl FnOnce(&mut Builder, V)) {
    match (b.constant(from), b.constant(to)) {
        (Some(from), Some(to)) if from >= to => {}
        (Some(first), Some(to)) if first + step >= to => body(b, from),
        _ => b.each(from, to, step, body),
    }
}

/// How many blocks of `size` cover `extent`.
pub fn blocks(b: &mut Builder, extent: V, size: i64) -> V {
    let up = b.offset(extent, size - 1);
    let size = b.index(size);
    b.div(up, size)
}

/// `min(size, extent - from)`.
pub fn part(b: &mut Builder, extent: V, from: V, size: i64) -> V {
    let rest = b.sub(extent, from);
    let size = b.index(size);
    b.binary(Binary::Min, rest, size)
}

/// The index at which the elements of a batch index begin.
pub fn start(b: &mut Builder, side: &Side, batch: &[V]) -> V {
    side.batch.iter().zip(batch).fold(side.offset, |at, (&stride, &index)| {
        let step = b.mul(index, stride);
        b.add(at, step)
    })
}
