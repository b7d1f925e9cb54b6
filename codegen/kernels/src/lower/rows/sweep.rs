//! Passes over a row: vectors along its last axis, several at once.

use mithril_ir::dtype::DType;

use super::Rows;
use crate::builder::Builder;
use crate::code::{Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::Nest;

/// The number of independent accumulators of a pass: an operation need not wait for the previous
/// one.
const UNROLL: i64 = 4;
/// The number of partial sums of floats, for compilers that vectorize. They keep the order of float
/// additions, so they vectorize only sums that are independent in the code.
const PARTS: i64 = 16;

/// Returns the accumulators after an index, from those before it.
type Take<'a> = dyn Fn(&mut Nest, &Index, &[V]) -> Vec<V> + 'a;
/// Combines the accumulators of two parts of a row.
type Join<'a> = dyn Fn(&mut Nest, &[V], &[V]) -> Vec<V> + 'a;

/// The work of a pass at each vector, and the initial accumulators.
struct Sweep<'a> {
    begin: &'a [V],
    take: &'a Take<'a>,
    join: &'a Join<'a>,
}

impl Rows<'_> {
    /// Runs a pass over a row: over all indices of the inner axes, with vectors along the last.
    /// `take` gets an index and the accumulators, and returns the new accumulators.
    pub fn sweep(
        &mut self,
        place: &Index,
        stretch: Option<(V, V)>,
        begin: &[V],
        take: &Take,
        join: &Join,
    ) -> Vec<V> {
        let sweep = Sweep { begin, take, join };
        self.sweep_from(self.outer, place, stretch, begin, &sweep)
    }

    fn sweep_from(
        &mut self,
        axis: usize,
        place: &Index,
        stretch: Option<(V, V)>,
        so_far: &[V],
        sweep: &Sweep,
    ) -> Vec<V> {
        if axis >= self.axis {
            return self.sweep_line(place, stretch, so_far, sweep);
        }
        let size = self.nest.dim(&self.space[axis].clone());
        let zero = self.nest.b.index(0);
        self.repeat(zero, size, 1, so_far, |rows, i, so_far| {
            let mut place = place.clone();
            if rows.space[axis].as_const() != Some(1) {
                place[axis] = Ix::At(i);
            }
            rows.sweep_from(axis + 1, &place, stretch, so_far, sweep)
        })
    }

    /// The start and end of a line.
    pub fn line(&mut self, stretch: Option<(V, V)>) -> (V, V) {
        match stretch {
            Some(line) => line,
            None => (self.nest.b.index(0), self.length()),
        }
    }

    /// The end of the whole steps between `from` and `to`.
    pub fn whole(&mut self, from: V, to: V, step: i64) -> V {
        if step == 1 {
            return to;
        }
        let b = &mut self.nest.b;
        let length = b.sub(to, from);
        let step = b.index(step);
        let count = b.div(length, step);
        let length = b.mul(count, step);
        b.add(from, length)
    }

    /// Runs `body` for the steps from `from` to below `to`.
    pub fn steps(&mut self, from: V, to: V, step: i64, body: impl FnOnce(&mut Nest, V)) {
        if !self.is_empty(from, to) {
            self.nest.each(from, to, step, body);
        }
    }

    fn is_empty(&self, from: V, to: V) -> bool {
        let known = (self.nest.b.constant(from), self.nest.b.constant(to));
        matches!(known, (Some(a), Some(b)) if a >= b) || from == to
    }

    /// Runs `body` for the last vector of a line if it is not full, under a mask.
    pub fn tail(
        &mut self,
        from: V,
        to: V,
        so_far: &[V],
        body: impl FnOnce(&mut Nest, V, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        if self.is_empty(from, to) {
            return so_far.to_vec();
        }
        let lanes = self.nest.lanes;
        let masked = |nest: &mut Nest| {
            let left = nest.b.sub(to, from);
            let left = nest.b.convert(left, DType::I32);
            let left = nest.b.splat(left, lanes);
            let lane = nest.b.iota(Ty::vector(DType::I32, lanes));
            nest.mask = Some(nest.b.compare(Cmp::Lt, lane, left));
            let next = body(nest, from, so_far);
            nest.mask = None;
            next
        };
        let known = self.nest.b.constant(from).zip(self.nest.b.constant(to));
        match known {
            Some(_) => self.nest.scoped(masked),
            None => {
                let rest = self.nest.b.compare(Cmp::Lt, from, to);
                self.nest.choose(rest, so_far, masked)
            }
        }
    }

    fn sweep_line(
        &mut self,
        place: &Index,
        stretch: Option<(V, V)>,
        so_far: &[V],
        sweep: &Sweep,
    ) -> Vec<V> {
        if self.nest.b.source().vectorizes && !sweep.begin.is_empty() {
            return self.sweep_parts(place, stretch, so_far, sweep);
        }
        let axis = self.axis;
        let lanes = i64::from(self.nest.lanes);
        // Lines begin at 0 or at a multiple of the number of lanes, and advance by that number.
        let at = |nest: &mut Nest, base: V| {
            nest.multiples.insert(base);
            let mut place = place.clone();
            if let Some(ix) = place.get_mut(axis) {
                *ix = Ix::Lanes(base);
            }
            place
        };
        let (from, to) = self.line(stretch);
        let unroll = if sweep.begin.is_empty() { 1 } else { UNROLL };
        let mut middle = from;
        let mut gathered = so_far.to_vec();
        if unroll > 1 {
            middle = self.whole(from, to, unroll * lanes);
        }
        if !self.is_empty(from, middle) {
            let width = so_far.len();
            let mut carried = so_far.to_vec();
            (1..unroll).for_each(|_| carried.extend(sweep.begin));
            let all = self.nest.repeat(from, middle, unroll * lanes, &carried, |nest, i, now| {
                let each = now.chunks(width).enumerate().flat_map(|(u, own)| {
                    let base = nest.b.offset(i, u as i64 * lanes);
                    let place = at(nest, base);
                    (sweep.take)(nest, &place, own)
                });
                each.collect()
            });
            let mut parts: Vec<Vec<V>> = all.chunks(width).map(<[V]>::to_vec).collect();
            while parts.len() > 1 {
                let pairs = parts.chunks(2);
                parts = pairs.map(|p| (sweep.join)(&mut self.nest, &p[0], &p[1])).collect();
            }
            gathered = parts.remove(0);
        }
        let end = self.whole(from, to, lanes);
        if !self.is_empty(middle, end) {
            gathered = self.nest.repeat(middle, end, lanes, &gathered, |nest, i, now| {
                let place = at(nest, i);
                (sweep.take)(nest, &place, now)
            });
        }
        self.tail(end, to, &gathered, |nest, i, now| {
            let place = at(nest, i);
            (sweep.take)(nest, &place, now)
        })
    }

    /// A pass over a line, for compilers that vectorize. Sums of floats have several partial sums in arrays,
    /// updated by an inner loop. For reductions in which the order does not matter, vectorization
    /// is left to the compiler.
    fn sweep_parts(
        &mut self,
        place: &Index,
        stretch: Option<(V, V)>,
        so_far: &[V],
        sweep: &Sweep,
    ) -> Vec<V> {
        let axis = self.axis;
        let take = |nest: &mut Nest, base: V, now: &[V]| {
            let mut place = place.clone();
            if let Some(ix) = place.get_mut(axis) {
                *ix = Ix::Lanes(base);
            }
            (sweep.take)(nest, &place, now)
        };
        let (from, to) = self.line(stretch);
        let sums = sweep.begin.iter().any(|&v| self.nest.b.ty(v).dtype.is_float());
        let middle = if sums { self.whole(from, to, PARTS) } else { from };
        let mut gathered = so_far.to_vec();
        if !self.is_empty(from, middle) {
            let b = &mut self.nest.b;
            let (zero, count) = (b.index(0), b.index(PARTS));
            let dtypes: Vec<DType> = sweep.begin.iter().map(|&v| b.ty(v).dtype).collect();
            let parts: Vec<Mem> = dtypes.into_iter().map(|dtype| b.local(dtype, PARTS)).collect();
            let load = |b: &mut Builder, at: V| -> Vec<V> {
                parts.iter().map(|&part| b.load(part, at, 1, None)).collect()
            };
            let store = |b: &mut Builder, at: V, values: &[V]| {
                parts.iter().zip(values).for_each(|(&part, &v)| b.store(part, at, v, None));
            };
            b.each(zero, count, 1, |b, at| store(b, at, sweep.begin));
            self.steps(from, middle, PARTS, |nest, first| {
                nest.each(zero, count, 1, |nest, at| {
                    let now = load(&mut nest.b, at);
                    let base = nest.b.add(first, at);
                    let next = take(nest, base, &now);
                    store(&mut nest.b, at, &next);
                });
            });
            gathered = self.nest.repeat(zero, count, 1, &gathered, |nest, at, now| {
                let part = load(&mut nest.b, at);
                (sweep.join)(nest, now, &part)
            });
        }
        if self.is_empty(middle, to) {
            return gathered;
        }
        self.nest.repeat(middle, to, 1, &gathered, |nest, i, now| take(nest, i, now))
    }
}
