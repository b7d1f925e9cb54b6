//! Householder reflections `I - tau v vᵀ`, where the first element of `v` is 1.

use super::work::Rows;
use crate::code::{Binary, Cmp, Mem, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// A vector in memory: element `t` is at `at + t·step`.
#[derive(Clone, Copy)]
pub struct Vector {
    pub mem: Mem,
    pub at: V,
    pub step: V,
    pub count: V,
}

/// A vector whose first element counts as 1, and the factor of its reflection.
#[derive(Clone, Copy)]
pub struct Reflection {
    pub vector: Vector,
    pub tau: V,
}

/// The number of vectors of columns that are reflected at once.
const WIDTH: i64 = 4;

impl Vector {
    pub fn load(&self, own: &mut Standalone, t: V) -> V {
        let b = &mut own.nest.b;
        let at = b.mul(t, self.step);
        let at = b.add(self.at, at);
        b.load(self.mem, at, 1, None)
    }

    pub fn store(&self, own: &mut Standalone, t: V, v: V) {
        let b = &mut own.nest.b;
        let at = b.mul(t, self.step);
        let at = b.add(self.at, at);
        b.store(self.mem, at, v, None);
    }

    /// The sum of squares of the elements from `from` on, each divided by `scale`.
    fn squares(&self, own: &mut Standalone, from: V, scale: V) -> V {
        let dtype = own.nest.b.mem_dtype(self.mem);
        let zero = own.nest.b.number(Ty::scalar(dtype), 0.0);
        let sums = own.repeat(from, self.count, 1, &[zero], |own, t, sums| {
            let v = self.load(own, t);
            let v = own.nest.b.div(v, scale);
            vec![own.multiply_add(v, v, sums[0])]
        });
        sums[0]
    }

    /// Computes the reflection that turns the vector into a multiple of the first unit vector.
    /// Replaces all elements but the first by those of the reflection. Returns the new first
    /// element, and the factor, which is 0 if the other elements are 0.
    pub fn reflect(&self, own: &mut Standalone) -> (V, V) {
        let dtype = own.nest.b.mem_dtype(self.mem);
        let ty = Ty::scalar(dtype);
        let (first, next) = (own.nest.b.index(0), own.nest.b.index(1));
        let [zero, one] = [0.0, 1.0].map(|v| own.nest.b.number(ty, v));
        let largest = own.repeat(first, self.count, 1, &[zero], |own, t, most| {
            let v = self.load(own, t);
            let b = &mut own.nest.b;
            let v = b.unary(Unary::Abs, v);
            vec![b.binary(Binary::Max, v, most[0])]
        });
        let scale = own.usable(largest[0]);
        let below = self.squares(own, next, scale);
        // Everything is computed in multiples of the largest element: squares neither overflow nor
        // become subnormal numbers.
        let alpha = self.load(own, first);
        let scaled = own.nest.b.div(alpha, scale);
        let all = own.multiply_add(scaled, scaled, below);
        let b = &mut own.nest.b;
        let norm = b.unary(Unary::Sqrt, all);
        let opposite = b.unary(Unary::Neg, norm);
        let negative = b.compare(Cmp::Lt, alpha, zero);
        let beta = b.select(negative, norm, opposite);
        let none = b.compare(Cmp::Eq, below, zero);
        let beta = b.select(none, scaled, beta);
        let difference = b.sub(beta, scaled);
        let safe = b.select(none, one, beta);
        let tau = b.div(difference, safe);
        let divisor = b.sub(scaled, beta);
        let divisor = b.select(none, one, divisor);
        let new = b.mul(beta, scale);
        let beta = b.select(none, alpha, new);
        own.each(next, self.count, 1, |own, t| {
            let v = self.load(own, t);
            let b = &mut own.nest.b;
            let v = b.div(v, scale);
            let v = b.div(v, divisor);
            self.store(own, t, v);
        });
        (beta, tau)
    }
}

impl Standalone<'_> {
    /// The number itself, or 1 if it is 0 or not finite.
    pub fn usable(&mut self, largest: V) -> V {
        let b = &mut self.nest.b;
        let ty = b.ty(largest);
        let [zero, infinite, one] = [0.0, f64::INFINITY, 1.0].map(|v| b.number(ty, v));
        let above = b.compare(Cmp::Gt, largest, zero);
        let below = b.compare(Cmp::Lt, largest, infinite);
        let usable = b.binary(Binary::And, above, below);
        b.select(usable, largest, one)
    }
}

impl Reflection {
    /// Applies the reflection to columns of rows of a matrix, from row `first` on, one row for each
    /// element of the vector. The columns are a whole number of vectors.
    pub fn apply(&self, own: &mut Standalone, to: &Rows, first: V, columns: [V; 2], sums: &Rows) {
        if own.nest.b.source().vectorizes {
            return self.apply_plain(own, to, first, columns, sums);
        }
        let lanes = i64::from(own.lanes());
        let [from, end] = columns;
        let width = own.nest.b.index(WIDTH * lanes);
        let count = own.nest.b.sub(end, from);
        let rest = own.nest.b.binary(Binary::Rem, count, width);
        let whole = own.nest.b.sub(end, rest);
        own.each(from, whole, WIDTH * lanes, |own, j| self.apply_tile(own, to, [first, j], WIDTH));
        if own.nest.b.constant(rest) != Some(0) {
            own.each(whole, end, lanes, |own, j| self.apply_tile(own, to, [first, j], 1));
        }
    }

    /// Applies the reflection to a single column.
    pub fn apply_column(&self, own: &mut Standalone, to: &Rows, first: V, j: V) {
        let next = own.nest.b.index(1);
        let top = to.load(&mut own.nest.b, first, j, 1);
        let sums = own.repeat(next, self.vector.count, 1, &[top], |own, t, sums| {
            let factor = self.vector.load(own, t);
            let b = &mut own.nest.b;
            let row = b.add(first, t);
            let term = to.load(b, row, j, 1);
            vec![own.multiply_add(factor, term, sums[0])]
        });
        let b = &mut own.nest.b;
        let tau = b.unary(Unary::Neg, self.tau);
        let sum = b.mul(tau, sums[0]);
        let new = b.add(top, sum);
        to.store(b, first, j, new);
        own.each(next, self.vector.count, 1, |own, t| {
            let factor = self.vector.load(own, t);
            let row = own.nest.b.add(first, t);
            let old = to.load(&mut own.nest.b, row, j, 1);
            let new = own.multiply_add(factor, sum, old);
            to.store(&mut own.nest.b, row, j, new);
        });
    }

    fn apply_tile(&self, own: &mut Standalone, to: &Rows, [first, j]: [V; 2], width: i64) {
        let lanes = own.lanes();
        let next = own.nest.b.index(1);
        let columns: Vec<V> =
            (0..width).map(|v| own.nest.b.offset(j, v * i64::from(lanes))).collect();
        let load = |own: &mut Standalone, t: V| -> Vec<V> {
            let b = &mut own.nest.b;
            let row = b.add(first, t);
            columns.iter().map(|&j| to.load(b, row, j, lanes)).collect()
        };
        let zero = own.nest.b.index(0);
        let top = load(own, zero);
        let sums = own.repeat(next, self.vector.count, 1, &top, |own, t, sums| {
            let factor = self.vector.load(own, t);
            let factor = own.nest.b.splat(factor, lanes);
            let terms = load(own, t);
            let pairs = terms.iter().zip(sums);
            pairs.map(|(&term, &sum)| own.multiply_add(factor, term, sum)).collect()
        });
        let tau = own.nest.b.unary(Unary::Neg, self.tau);
        let tau = own.nest.b.splat(tau, lanes);
        let sums: Vec<V> = sums.into_iter().map(|sum| own.nest.b.mul(tau, sum)).collect();
        for ((&column, &sum), &v) in columns.iter().zip(&sums).zip(&top) {
            let b = &mut own.nest.b;
            let new = b.add(v, sum);
            to.store(b, first, column, new);
        }
        own.each(next, self.vector.count, 1, |own, t| {
            let factor = self.vector.load(own, t);
            let factor = own.nest.b.splat(factor, lanes);
            let old = load(own, t);
            for ((&column, &sum), &v) in columns.iter().zip(&sums).zip(&old) {
                let new = own.multiply_add(factor, sum, v);
                let b = &mut own.nest.b;
                let row = b.add(first, t);
                to.store(b, row, column, new);
            }
        });
    }

    /// Loops over columns that a C compiler vectorizes. `sums` has a row of as many columns.
    fn apply_plain(
        &self,
        own: &mut Standalone,
        to: &Rows,
        first: V,
        [from, end]: [V; 2],
        sums: &Rows,
    ) {
        let (zero, next) = (own.nest.b.index(0), own.nest.b.index(1));
        own.each(from, end, 1, |own, j| {
            let b = &mut own.nest.b;
            let v = to.load(b, first, j, 1);
            sums.store(b, zero, j, v);
        });
        own.each(next, self.vector.count, 1, |own, t| {
            let factor = self.vector.load(own, t);
            own.each(from, end, 1, |own, j| {
                let b = &mut own.nest.b;
                let row = b.add(first, t);
                let (v, sum) = (to.load(b, row, j, 1), sums.load(b, zero, j, 1));
                let sum = b.mul_add(factor, v, sum);
                sums.store(b, zero, j, sum);
            });
        });
        let tau = own.nest.b.unary(Unary::Neg, self.tau);
        let subtract = |own: &mut Standalone, t: V, factor: V| {
            own.each(from, end, 1, |own, j| {
                let b = &mut own.nest.b;
                let row = b.add(first, t);
                let (v, sum) = (to.load(b, row, j, 1), sums.load(b, zero, j, 1));
                let v = b.mul_add(factor, sum, v);
                to.store(b, row, j, v);
            });
        };
        subtract(own, zero, tau);
        own.each(next, self.vector.count, 1, |own, t| {
            let factor = self.vector.load(own, t);
            let factor = own.nest.b.mul(tau, factor);
            subtract(own, t, factor);
        });
    }
}
