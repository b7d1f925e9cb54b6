//! Emits passes over a row: vectorized and unrolled loops along its last axis.

use mithril_ir::dtype::DType;

use super::Rows;
use crate::builder::Builder;
use crate::code::{Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::Nest;

/// The unroll factor of reducing passes, which is also the number of independent accumulators. With
/// several, an operation does not wait for the previous one.
const ACCUMULATORS: i64 = 4;
/// The number of partial float sums in code for compilers that vectorize. These do not reorder
/// float additions, so they vectorize only sums that are independent in the source.
const PARTIAL_SUMS: i64 = 16;

/// Accumulates the elements at an index: returns the new accumulators.
type Accumulate<'a> = dyn Fn(&mut Nest, &Index, &[V]) -> Vec<V> + 'a;
/// Combines the accumulators of two parts of a row.
type Merge<'a> = dyn Fn(&mut Nest, &[V], &[V]) -> Vec<V> + 'a;

/// The initial accumulators of a pass, and its work at each vector.
struct Pass<'a> {
    initial: &'a [V],
    accumulate: &'a Accumulate<'a>,
    merge: &'a Merge<'a>,
}

impl Rows<'_> {
    /// Emits a pass over a row: loops over the inner axes, with vectors along the last.
    /// `accumulate` gets an index and the accumulators, and returns the new accumulators.
    pub fn run_pass(
        &mut self,
        place: &Index,
        chunk: Option<(V, V)>,
        initial: &[V],
        accumulate: &Accumulate,
        merge: &Merge,
    ) -> Vec<V> {
        let pass = Pass { initial, accumulate, merge };
        self.run_pass_from(self.outer, place, chunk, initial, &pass)
    }

    fn run_pass_from(
        &mut self,
        axis: usize,
        place: &Index,
        chunk: Option<(V, V)>,
        so_far: &[V],
        pass: &Pass,
    ) -> Vec<V> {
        if axis >= self.axis {
            return self.run_pass_over_line(place, chunk, so_far, pass);
        }
        let size = self.nest.dim(&self.space[axis].clone());
        let zero = self.nest.b.index(0);
        self.repeat(zero, size, 1, so_far, |rows, i, so_far| {
            let mut place = place.clone();
            if rows.space[axis].as_const() != Some(1) {
                place[axis] = Ix::Uniform(i);
            }
            rows.run_pass_from(axis + 1, &place, chunk, so_far, pass)
        })
    }

    /// Returns the start and end of the loop along the last axis.
    pub fn line(&mut self, chunk: Option<(V, V)>) -> (V, V) {
        match chunk {
            Some(line) => line,
            None => (self.nest.b.index(0), self.length()),
        }
    }

    /// Rounds `to` down so that `from..to` consists of whole steps.
    pub fn round_down(&mut self, from: V, to: V, step: i64) -> V {
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

    /// Emits a loop over `from..to`, unless it is known to be empty.
    pub fn steps(&mut self, from: V, to: V, step: i64, body: impl FnOnce(&mut Nest, V)) {
        if !self.is_empty(from, to) {
            self.nest.each(from, to, step, body);
        }
    }

    fn is_empty(&self, from: V, to: V) -> bool {
        let known = (self.nest.b.constant(from), self.nest.b.constant(to));
        matches!(known, (Some(a), Some(b)) if a >= b) || from == to
    }

    /// Emits the masked remainder: `body` for the last vector, if it is not full.
    pub fn remainder(
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
        let masked_body = |nest: &mut Nest| {
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
            Some(_) => self.nest.scoped(masked_body),
            None => {
                let rest = self.nest.b.compare(Cmp::Lt, from, to);
                self.nest.emit_if(rest, so_far, masked_body)
            }
        }
    }

    fn run_pass_over_line(
        &mut self,
        place: &Index,
        chunk: Option<(V, V)>,
        so_far: &[V],
        pass: &Pass,
    ) -> Vec<V> {
        if self.nest.b.source().vectorizes && !pass.initial.is_empty() {
            return self.run_pass_with_partial_sums(place, chunk, so_far, pass);
        }
        let axis = self.axis;
        let lanes = i64::from(self.nest.lanes);
        // Loops begin at a multiple of the number of lanes and advance by that number.
        let at = |nest: &mut Nest, base: V| {
            nest.multiples.insert(base);
            let mut place = place.clone();
            if let Some(ix) = place.get_mut(axis) {
                *ix = Ix::Ascending(base);
            }
            place
        };
        let (from, to) = self.line(chunk);
        let unroll = if pass.initial.is_empty() { 1 } else { ACCUMULATORS };
        let mut middle = from;
        let mut accumulators = so_far.to_vec();
        if unroll > 1 {
            middle = self.round_down(from, to, unroll * lanes);
        }
        if !self.is_empty(from, middle) {
            let width = so_far.len();
            let mut carried = so_far.to_vec();
            (1..unroll).for_each(|_| carried.extend(pass.initial));
            let all = self.nest.repeat(from, middle, unroll * lanes, &carried, |nest, i, now| {
                let each = now.chunks(width).enumerate().flat_map(|(u, own)| {
                    let base = nest.b.offset(i, u as i64 * lanes);
                    let place = at(nest, base);
                    (pass.accumulate)(nest, &place, own)
                });
                each.collect()
            });
            let mut parts: Vec<Vec<V>> = all.chunks(width).map(<[V]>::to_vec).collect();
            while parts.len() > 1 {
                let pairs = parts.chunks(2);
                parts = pairs.map(|p| (pass.merge)(&mut self.nest, &p[0], &p[1])).collect();
            }
            accumulators = parts.remove(0);
        }
        let end = self.round_down(from, to, lanes);
        if !self.is_empty(middle, end) {
            accumulators = self.nest.repeat(middle, end, lanes, &accumulators, |nest, i, now| {
                let place = at(nest, i);
                (pass.accumulate)(nest, &place, now)
            });
        }
        self.remainder(end, to, &accumulators, |nest, i, now| {
            let place = at(nest, i);
            (pass.accumulate)(nest, &place, now)
        })
    }

    /// Emits the loop for compilers that vectorize. Float sums have several partial sums in arrays,
    /// which an inner loop updates. Other reductions are left to the compiler's vectorizer.
    fn run_pass_with_partial_sums(
        &mut self,
        place: &Index,
        chunk: Option<(V, V)>,
        so_far: &[V],
        pass: &Pass,
    ) -> Vec<V> {
        let axis = self.axis;
        let accumulate = |nest: &mut Nest, base: V, now: &[V]| {
            let mut place = place.clone();
            if let Some(ix) = place.get_mut(axis) {
                *ix = Ix::Ascending(base);
            }
            (pass.accumulate)(nest, &place, now)
        };
        let (from, to) = self.line(chunk);
        let sums = pass.initial.iter().any(|&v| self.nest.b.ty(v).dtype.is_float());
        let middle = if sums { self.round_down(from, to, PARTIAL_SUMS) } else { from };
        let mut accumulators = so_far.to_vec();
        if !self.is_empty(from, middle) {
            let b = &mut self.nest.b;
            let (zero, count) = (b.index(0), b.index(PARTIAL_SUMS));
            let dtypes: Vec<DType> = pass.initial.iter().map(|&v| b.ty(v).dtype).collect();
            let parts: Vec<Mem> =
                dtypes.into_iter().map(|dtype| b.local(dtype, PARTIAL_SUMS)).collect();
            let load = |b: &mut Builder, at: V| -> Vec<V> {
                parts.iter().map(|&part| b.load(part, at, 1, None)).collect()
            };
            let store = |b: &mut Builder, at: V, values: &[V]| {
                parts.iter().zip(values).for_each(|(&part, &v)| b.store(part, at, v, None));
            };
            b.each(zero, count, 1, |b, at| store(b, at, pass.initial));
            self.steps(from, middle, PARTIAL_SUMS, |nest, first| {
                nest.each(zero, count, 1, |nest, at| {
                    let now = load(&mut nest.b, at);
                    let base = nest.b.add(first, at);
                    let next = accumulate(nest, base, &now);
                    store(&mut nest.b, at, &next);
                });
            });
            accumulators = self.nest.repeat(zero, count, 1, &accumulators, |nest, at, now| {
                let part = load(&mut nest.b, at);
                (pass.merge)(nest, now, &part)
            });
        }
        if self.is_empty(middle, to) {
            return accumulators;
        }
        self.nest.repeat(middle, to, 1, &accumulators, |nest, i, now| accumulate(nest, i, now))
    }
}
