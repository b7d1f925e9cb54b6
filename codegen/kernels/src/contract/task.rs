//! Emits the loop over tasks, and splits task numbers into indices.

use crate::builder::Builder;
use crate::code::{Binary, Cmp, V};
use crate::contract::Side;
use crate::loops::Loops;

/// Runs `body` for the tasks `first..last`. A task's number is split into one index per extent, in
/// row-major order. Only the first task needs divisions; the indices of the next ones are
/// incremented.
pub fn each(
    b: &mut Builder,
    extents: &[V],
    carried: &[V],
    body: impl FnOnce(&mut Builder, &[V], &[V]) -> Vec<V>,
) {
    let (first, last) = (b.first(), b.last());
    let mut rest = first;
    let mut indices = vec![first; extents.len()];
    for (index, &extent) in indices.iter_mut().zip(extents).rev() {
        let one = b.index(1);
        let extent = b.binary(Binary::Max, extent, one);
        (*index, rest) = b.div_rem(rest, extent);
    }
    let start = [&indices, carried].concat();
    b.repeat(first, last, 1, &start, |b, _, now| {
        let (indices, carried) = now.split_at(extents.len());
        let mut indices = indices.to_vec();
        for (index, &extent) in indices.iter_mut().zip(extents) {
            if b.constant(extent) == Some(1) {
                *index = b.index(0);
            }
        }
        let carried = body(b, &indices, carried);
        [next(b, &indices, extents), carried].concat()
    });
}

/// Increments the indices to those of the next task.
fn next(b: &mut Builder, indices: &[V], extents: &[V]) -> Vec<V> {
    let (zero, one) = (b.index(0), b.index(1));
    let mut step = one;
    let mut next = indices.to_vec();
    for (index, &extent) in next.iter_mut().zip(extents).rev() {
        if b.constant(extent) == Some(1) {
            continue;
        }
        let incremented = b.add(*index, step);
        let wraps = b.compare(Cmp::Ge, incremented, extent);
        *index = b.select(wraps, zero, incremented);
        step = b.select(wraps, one, zero);
    }
    next
}

/// Emits a loop. If it is known to have 1 or 0 iterations, emits only the body or nothing.
pub fn span(b: &mut Builder, from: V, to: V, step: i64, body: impl FnOnce(&mut Builder, V)) {
    match (b.constant(from), b.constant(to)) {
        (Some(from), Some(to)) if from >= to => {}
        (Some(first), Some(to)) if first + step >= to => body(b, from),
        _ => b.each(from, to, step, body),
    }
}

/// Divides and rounds up: the number of blocks of `size` that cover `extent`.
pub fn block_count(b: &mut Builder, extent: V, size: i64) -> V {
    let up = b.offset(extent, size - 1);
    let size = b.index(size);
    b.div(up, size)
}

/// `min(size, extent - from)`.
pub fn part_size(b: &mut Builder, extent: V, from: V, size: i64) -> V {
    let rest = b.sub(extent, from);
    let size = b.index(size);
    b.binary(Binary::Min, rest, size)
}

/// The address of the first element at a batch index.
pub fn start(b: &mut Builder, side: &Side, batch: &[V]) -> V {
    side.batch.iter().zip(batch).fold(side.offset, |at, (&stride, &index)| {
        let step = b.mul(index, stride);
        b.add(at, step)
    })
}
