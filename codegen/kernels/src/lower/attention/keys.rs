//! Queries against a block of keys: scores, and what they come to in the running softmax.

use mithril_ir::dtype::DType;

use super::{Attention, Head, ROWS, STEPS, Seen};
use crate::code::{Binary, Cmp, Ty, V};
use crate::scalar::exp2_nonpositive;

impl Attention<'_> {
    /// A block of keys: scores, their greatest, P, and what the values add.
    pub fn keys(&mut self, heads: &[Head], q0: V, k0: V, seen: Seen) {
        // On the diagonal, strips of keys are seen by the queries from their own on alone.
        let lanes = i64::from(self.lanes);
        let strips: Vec<(i64, i64, i64)> = match seen {
            Seen::Earlier => (0..self.vectors).map(|g| (g * lanes, (g + 1) * lanes, g)).collect(),
            _ => vec![(0, self.block_size(), 0)],
        };
        for &(from, to, vector) in &strips {
            self.score(heads[1], q0, k0, [from, to], vector, seen);
        }
        let shrink = self.shrink();
        for &(from, to, vector) in &strips {
            self.powers([from, to], vector);
        }
        for (i, &(from, to, vector)) in strips.iter().enumerate() {
            let shrink = if i == 0 { Some(&shrink[..]) } else { None };
            self.values(heads[2], k0, [from, to], vector, shrink);
        }
    }

    /// scores = K·Qᵀ of some keys, and the greatest so far.
    pub fn score(&mut self, keys: Head, q0: V, k0: V, span: [i64; 2], vector: i64, seen: Seen) {
        let cols = self.columns(vector);
        let [from, to] = span.map(|i| self.nest.b.index(i));
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(self.width));
        let last = self.nest.b.offset(self.keys, -1);
        let none = self.nest.b.number(self.ty(), 0.0);
        self.repeat(from, to, ROWS, &[], |own, key, _| {
            let first = own.nest.b.add(k0, key);
            let numbers: Vec<V> = (0..ROWS).map(|i| own.nest.b.offset(first, i)).collect();
            let rows: Vec<V> = match seen {
                Seen::All => numbers.clone(),
                _ => numbers.iter().map(|&k| own.nest.b.binary(Binary::Min, k, last)).collect(),
            };
            let start = vec![none; cols.len() * ROWS as usize];
            let sums = own.repeat(zero, width, STEPS, &start, |own, d, sums| {
                let mut sums = sums.to_vec();
                for step in 0..STEPS {
                    let d = own.nest.b.offset(d, step);
                    let q: Vec<V> = cols.iter().map(|&c| own.load(own.turned, d, c)).collect();
                    own.multiply(keys, &rows, d, &q, &mut sums);
                }
                sums
            });
            for (j, &col) in cols.iter().enumerate() {
                let mut greatest = own.load(own.now, zero, col);
                for (i, &number) in numbers.iter().enumerate() {
                    let score = sums[i * cols.len() + j];
                    let score = own.hidden(score, number, q0, col, seen, j == 0);
                    let row = own.nest.b.offset(key, i as i64);
                    own.store(own.scores, row, col, score);
                    greatest = own.nest.b.binary(Binary::Max, score, greatest);
                }
                own.store(own.now, zero, col, greatest);
            }
            vec![]
        });
    }

    /// Adds to each sum element `d` of a row times a vector.
    pub fn multiply(&mut self, head: Head, rows: &[V], d: V, vectors: &[V], sums: &mut [V]) {
        for (i, &row) in rows.iter().enumerate() {
            let at = self.element(head, row, d);
            let element = self.nest.b.load(head.mem, at, 1, None);
            let element = self.nest.b.splat(element, self.lanes);
            for (j, &v) in vectors.iter().enumerate() {
                let sum = &mut sums[i * vectors.len() + j];
                *sum = self.nest.b.fma(element, v, *sum);
            }
        }
    }

    /// The score, -inf where the query does not see the key.
    pub fn hidden(&mut self, score: V, key: V, q0: V, col: i64, seen: Seen, first: bool) -> V {
        let b = &mut self.nest.b;
        let unseen = b.number(Ty::vector(DType::F32, self.lanes), f64::NEG_INFINITY);
        let (condition, bound) = match seen {
            Seen::All => return score,
            Seen::Present => (b.compare(Cmp::Lt, key, self.keys), None),
            // Beyond its first vector a strip is seen wholly; a key that is not there is later.
            Seen::Earlier if !first => return score,
            Seen::Earlier => (b.int(Ty::scalar(DType::Bool), 1), Some(key)),
        };
        let Some(key) = bound else {
            let seen = b.splat(condition, self.lanes);
            return b.select(seen, score, unseen);
        };
        let from = b.offset(q0, col);
        let ahead = b.sub(key, from);
        let ahead = b.convert(ahead, DType::I32);
        let ahead = b.splat(ahead, self.lanes);
        let lane = b.iota(Ty::vector(DType::I32, self.lanes));
        let seen = b.compare(Cmp::Ge, lane, ahead);
        b.select(seen, score, unseen)
    }

    /// What sums so far are to be multiplied by, now that greater scores are known.
    pub fn shrink(&mut self) -> Vec<V> {
        let zero = self.nest.b.index(0);
        let mut factors = Vec::new();
        for col in self.columns(0) {
            let (before, now) = (self.load(self.before, zero, col), self.load(self.now, zero, col));
            let less = self.nest.b.sub(before, now);
            let factor = exp2_nonpositive(&mut self.nest.b, less);
            self.store(self.before, zero, col, now);
            let sum = self.load(self.sums, zero, col);
            let sum = self.nest.b.mul(sum, factor);
            self.store(self.sums, zero, col, sum);
            factors.push(factor);
        }
        factors
    }

    /// P = 2^(scores - m), and its sums.
    pub fn powers(&mut self, span: [i64; 2], vector: i64) {
        let cols = self.columns(vector);
        let zero = self.nest.b.index(0);
        let now: Vec<V> = cols.iter().map(|&c| self.load(self.now, zero, c)).collect();
        let sums: Vec<V> = cols.iter().map(|&c| self.load(self.sums, zero, c)).collect();
        let [from, to] = span.map(|i| self.nest.b.index(i));
        let sums = self.repeat(from, to, 1, &sums, |own, key, sums| {
            let mut next = Vec::new();
            for ((&col, &now), &sum) in cols.iter().zip(&now).zip(sums) {
                let score = own.load(own.scores, key, col);
                let less = own.nest.b.sub(score, now);
                let power = exp2_nonpositive(&mut own.nest.b, less);
                own.store(own.scores, key, col, power);
                next.push(own.nest.b.add(sum, power));
            }
            next
        });
        for (&col, sum) in cols.iter().zip(sums) {
            self.store(self.sums, zero, col, sum);
        }
    }
}
