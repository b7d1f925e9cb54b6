//! The reduction of a matrix to a lower bidiagonal one by reflections from both sides (Golub & Van
//! Loan, Matrix Computations, 5.4.8).
//!
//! The matrix has no more rows than columns. A step reflects a row and then a column. Both
//! reflections change the rows below when the next step reads these.

use super::products::{Factors, Products};
use super::reflection::Vector;
use super::work::Rows;
use crate::code::{Binary, Cmp, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// The number of rows of an orthogonal matrix that are reflected while a reflection is in the caches.
const HEIGHT: i64 = 4;

/// Reflections: vectors as rows, zeros up to their first element, and one row of their factors.
#[derive(Clone, Copy)]
pub struct Reflections {
    pub vectors: Rows,
    pub factors: Rows,
    /// The number of columns, a whole number of units.
    pub columns: V,
}

/// A matrix that is reduced. Vectors are matrices of one row.
pub struct Bidiagonal {
    /// The matrix, whose rows become the reflections of rows.
    pub right: Reflections,
    pub left: Reflections,
    pub diagonal: Rows,
    /// The elements below the diagonal. The one before diagonal element `i` is element `i`.
    pub off: Rows,
    /// What the reflections of the last step add to rows: each row's multiple of the reflection of
    /// a row, and what the elements of the reflection of a column are multiplied by.
    pub products: Rows,
    pub sums: Rows,
    pub size: V,
    pub length: V,
    /// The number of vectors that are summed at a time.
    pub parts: u32,
}

impl Bidiagonal {
    /// A matrix of `size` rows and `length` columns. `rows` are the diagonal, the elements below it,
    /// the products, and the sums.
    pub fn new(
        [right, left]: [Reflections; 2],
        [diagonal, off, products, sums]: [Rows; 4],
        [size, length]: [V; 2],
        parts: u32,
    ) -> Bidiagonal {
        Bidiagonal { right, left, diagonal, off, products, sums, size, length, parts }
    }

    pub fn reduce(&self, own: &mut Standalone) {
        let (first, one) = (own.nest.b.index(0), own.nest.b.index(1));
        own.clear(&self.left.vectors, self.size, self.left.columns);
        for row in [&self.left.factors, &self.products, &self.diagonal, &self.off] {
            own.clear(row, one, self.left.columns);
        }
        own.clear(&self.sums, one, self.right.columns);
        let zero = own.nest.b.number(Ty::scalar(own.dtype()), 0.0);
        self.off.store(&mut own.nest.b, first, self.size, zero);
        own.each(first, self.size, 1, |own, k| {
            self.reflect_row(own, k);
            let b = &mut own.nest.b;
            let next = b.offset(k, 1);
            let remains = b.compare(Cmp::Lt, next, self.size);
            own.when(remains, |own| self.reflect_column(own, [k, next]));
        });
    }

    /// The largest multiple of the number of elements that are summed at a time, up to `v`.
    fn whole(&self, own: &mut Standalone, v: V) -> V {
        let unit = i64::from(own.lanes() * self.parts);
        let b = &mut own.nest.b;
        let unit = b.index(unit);
        let rest = b.binary(Binary::Rem, v, unit);
        b.sub(v, rest)
    }

    /// Reflects row `k`, and computes the products of the rows below with it.
    fn reflect_row(&self, own: &mut Standalone, k: V) {
        let w = &self.right.vectors;
        let (first, one) = (own.nest.b.index(0), own.nest.b.index(1));
        let ty = Ty::scalar(own.dtype());
        let [zero, unit] = [0.0, 1.0].map(|v| own.nest.b.number(ty, v));
        let from = self.whole(own, k);
        let b = &mut own.nest.b;
        // The first step has none before.
        let before = b.sub(k, one);
        let before = b.binary(Binary::Max, before, first);
        let is_first = b.compare(Cmp::Eq, k, first);
        let end = b.select(is_first, from, self.right.columns);
        self.update(own, k, before, [from, end]);
        let b = &mut own.nest.b;
        let (at, count) = (w.element(b, k, k), b.sub(self.length, k));
        let vector = Vector { mem: w.mem, at, step: one, count };
        let (value, tau) = vector.reflect(own);
        vector.store(own, first, unit);
        self.diagonal.store(&mut own.nest.b, first, k, value);
        self.right.factors.store(&mut own.nest.b, first, k, tau);
        own.each(from, k, 1, |own, j| w.store(&mut own.nest.b, k, j, zero));
        let by = own.nest.b.unary(Unary::Neg, tau);
        let next = own.nest.b.offset(k, 1);
        own.each(next, self.size, 1, |own, i| {
            self.update(own, i, before, [from, end]);
            let product = own.dot([(w, i), (w, k)], [from, self.right.columns], self.parts);
            let b = &mut own.nest.b;
            let product = b.mul(by, product);
            self.products.store(b, first, i, product);
            // The element of the column that is reflected next.
            let element = w.load(b, i, k, 1);
            let element = b.add(element, product);
            self.left.vectors.store(b, k, i, element);
        });
    }

    /// Adds to row `i` what the reflections of step `before` change, between two columns.
    fn update(&self, own: &mut Standalone, i: V, before: V, [from, end]: [V; 2]) {
        let (w, first, lanes) = (&self.right.vectors, own.nest.b.index(0), own.lanes());
        let b = &mut own.nest.b;
        let [x, y] = [(&self.products, first), (&self.left.vectors, before)].map(|(rows, row)| {
            let v = rows.load(b, row, i, 1);
            b.splat(v, lanes)
        });
        own.each_vector(from, end, |own, j| {
            let b = &mut own.nest.b;
            let v = w.load(b, i, j, lanes);
            let (row, sum) = (w.load(b, before, j, lanes), self.sums.load(b, first, j, lanes));
            let v = own.multiply_add(x, row, v);
            let v = own.multiply_add(y, sum, v);
            w.store(&mut own.nest.b, i, j, v);
        });
    }

    /// Reflects column `k` below the diagonal, and computes the sums of rows times it.
    fn reflect_column(&self, own: &mut Standalone, [k, next]: [V; 2]) {
        let (w, lanes) = (&self.right.vectors, own.lanes());
        let (first, one) = (own.nest.b.index(0), own.nest.b.index(1));
        let ty = Ty::scalar(own.dtype());
        let unit = own.nest.b.number(ty, 1.0);
        let vectors = &self.left.vectors;
        let b = &mut own.nest.b;
        let (at, count) = (vectors.element(b, k, next), b.sub(self.size, next));
        let vector = Vector { mem: vectors.mem, at, step: one, count };
        let (value, tau) = vector.reflect(own);
        vector.store(own, first, unit);
        self.off.store(&mut own.nest.b, first, next, value);
        self.left.factors.store(&mut own.nest.b, first, k, tau);
        let from = self.whole(own, next);
        let both = [(&self.products, first), (vectors, k)];
        let product = own.dot(both, [from, self.left.columns], self.parts);
        own.clear_vectors(&self.sums, [from, self.right.columns]);
        let b = &mut own.nest.b;
        let at = vectors.element(b, k, first);
        let factors = Factors { mem: vectors.mem, at, row: first, term: one };
        let (columns, range) = ([from, self.right.columns], [next, self.size]);
        Products { to: self.sums, factors, terms: *w, columns, range }
            .subtract_block(own, first, 1);
        let b = &mut own.nest.b;
        let by = b.unary(Unary::Neg, product);
        let [by, tau] = [by, tau].map(|v| b.splat(v, lanes));
        own.each_vector(from, self.right.columns, |own, j| {
            let b = &mut own.nest.b;
            let (sum, row) = (self.sums.load(b, first, j, lanes), w.load(b, k, j, lanes));
            let sum = own.multiply_add(by, row, sum);
            let b = &mut own.nest.b;
            let sum = b.mul(sum, tau);
            self.sums.store(b, first, j, sum);
        });
    }

    /// Computes the first rows of the transposed product of the reflections.
    pub fn expand(&self, own: &mut Standalone, of: &Reflections, to: &Rows) {
        let (first, lanes) = (own.nest.b.index(0), own.lanes());
        own.clear(to, self.size, of.columns);
        let one = own.nest.b.number(Ty::scalar(own.dtype()), 1.0);
        own.each(first, self.size, 1, |own, i| to.store(&mut own.nest.b, i, i, one));
        own.each(first, self.size, HEIGHT, |own, row| {
            let b = &mut own.nest.b;
            let end = b.offset(row, HEIGHT);
            let end = b.binary(Binary::Min, end, self.size);
            // Later reflections do not change these rows.
            own.each(first, end, 1, |own, step| {
                let b = &mut own.nest.b;
                let rest = b.sub(end, step);
                let k = b.offset(rest, -1);
                let tau = of.factors.load(b, first, k, 1);
                let tau = b.unary(Unary::Neg, tau);
                let columns = [self.whole(own, k), of.columns];
                own.each(row, end, 1, |own, i| {
                    let dot = own.dot([(to, i), (&of.vectors, k)], columns, self.parts);
                    let b = &mut own.nest.b;
                    let by = b.mul(tau, dot);
                    let by = b.splat(by, lanes);
                    own.each_vector(columns[0], columns[1], |own, j| {
                        let b = &mut own.nest.b;
                        let (v, x) = (to.load(b, i, j, lanes), of.vectors.load(b, k, j, lanes));
                        let v = own.multiply_add(by, x, v);
                        to.store(&mut own.nest.b, i, j, v);
                    });
                });
            });
        });
    }
}
