//! Eigenvalues and eigenvectors of symmetric matrices: reduction to a tridiagonal matrix by
//! reflections, and the implicit QL algorithm (Golub & Van Loan, Matrix Computations, 8.3).

use mithril_ir::dim::Dim;

use super::products::{Factors, Products};
use super::reflection::{Reflection, Vector};
use super::rotation::Rotation;
use super::work::{Rows, padded};
use crate::code::{Binary, Cmp, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// The limit of iterations for one eigenvalue; two are usual.
const ITERATIONS: i64 = 60;

/// A matrix that is reduced, and the memory for it. Vectors are matrices of one row.
struct Symmetric {
    /// The matrix; then the reflections in its rows; then the eigenvectors as rows.
    a: Rows,
    /// The product of the reflections, if eigenvectors are needed.
    z: Option<Rows>,
    diagonal: Rows,
    off: Rows,
    taus: Rows,
    w: Rows,
    n: V,
    padded: V,
}

impl Standalone<'_> {
    pub fn eigen(&mut self) -> Dim {
        let (batch, [size, _]) = self.split_dims(self.op.operands[0]);
        let (lanes, dtype) = (self.lanes(), self.dtype());
        let columns = padded(&size, lanes);
        let [values, vectors] = [0, 1].map(|of| self.part(of));
        let one = Dim::Const(1);
        let a = self.allocate(dtype, &size, &columns);
        let z = vectors.map(|_| self.allocate(dtype, &size, &columns));
        let [diagonal, off, taus, w] = [(); 4].map(|()| self.allocate(dtype, &one, &columns));
        self.tasks(&batch.clone(), |own, place| {
            let x = own.operand(0, place);
            let [n, padded] = [&size, &columns].map(|dim| own.nest.dim(dim));
            let all = Symmetric { a, z, diagonal, off, taus, w, n, padded };
            let scale = all.fetch(own, &x);
            all.reduce(own);
            if let Some(z) = &z {
                all.expand(own, z);
                own.transpose(z, &a, n, false);
            }
            all.iterate(own);
            all.sort(own, scale);
            if let Some((mem, _)) = values {
                let one = own.nest.b.index(1);
                let result = own.matrix_of(mem, &batch, place, [one, n]);
                own.put(&diagonal, &result, [one, n]);
            }
            if let Some((mem, _)) = vectors {
                all.orient(own);
                let result = own.matrix_of(mem, &batch, place, [n, n]);
                own.transpose(&a, &result, n, false);
            }
        })
    }
}

impl Symmetric {
    /// Copies the lower triangle of the operand to both triangles, divided by its largest
    /// magnitude, which is returned.
    fn fetch(&self, own: &mut Standalone, x: &super::Operand) -> V {
        let first = own.nest.b.index(0);
        let ty = Ty::scalar(own.dtype());
        let zero = own.nest.b.number(ty, 0.0);
        own.clear(&self.a, self.n, self.padded);
        let largest = own.repeat(first, self.n, 1, &[zero], |own, i, most| {
            let end = own.nest.b.offset(i, 1);
            own.repeat(first, end, 1, most, |own, j, most| {
                let v = x.load(own, i, j, 1, None);
                let b = &mut own.nest.b;
                let v = b.unary(Unary::Abs, v);
                vec![b.binary(Binary::Max, v, most[0])]
            })
        });
        let scale = own.usable(largest[0]);
        own.each(first, self.n, 1, |own, i| {
            let end = own.nest.b.offset(i, 1);
            own.each(first, end, 1, |own, j| {
                let v = x.load(own, i, j, 1, None);
                let b = &mut own.nest.b;
                let v = b.div(v, scale);
                self.a.store(b, i, j, v);
                self.a.store(b, j, i, v);
            });
        });
        scale
    }

    /// The part of row `k` behind the diagonal.
    fn row(&self, own: &mut Standalone, k: V) -> Vector {
        let b = &mut own.nest.b;
        let next = b.offset(k, 1);
        let (at, count) = (self.a.element(b, k, next), b.sub(self.n, next));
        Vector { mem: self.a.mem, at, step: b.index(1), count }
    }

    /// Reduces the matrix to its diagonal and off-diagonal elements. Row `k` becomes the vector of
    /// reflection `k`.
    fn reduce(&self, own: &mut Standalone) {
        let first = own.nest.b.index(0);
        let ty = Ty::scalar(own.dtype());
        let [zero, one] = [0.0, 1.0].map(|v| own.nest.b.number(ty, v));
        let rows = own.nest.b.index(1);
        for vector in [&self.diagonal, &self.off, &self.w] {
            own.clear(vector, rows, self.padded);
        }
        own.each(first, self.n, 1, |own, k| {
            let b = &mut own.nest.b;
            let diagonal = self.a.load(b, k, k, 1);
            self.diagonal.store(b, first, k, diagonal);
            let next = b.offset(k, 1);
            let remains = b.compare(Cmp::Lt, next, self.n);
            own.when(remains, |own| {
                let vector = self.row(own, k);
                let (off, tau) = vector.reflect(own);
                vector.store(own, first, one);
                let b = &mut own.nest.b;
                self.off.store(b, first, k, off);
                self.taus.store(b, first, k, tau);
                let from = own.whole(next);
                own.each(from, next, 1, |own, j| self.a.store(&mut own.nest.b, k, j, zero));
                self.update(own, k, [next, from], tau);
            });
        });
    }

    /// Applies reflection `k` from both sides to the rows from `next` on: subtracts `v wᵀ + w vᵀ`.
    fn update(&self, own: &mut Standalone, k: V, [next, from]: [V; 2], tau: V) {
        let (first, lanes) = (own.nest.b.index(0), own.lanes());
        // w = -a v, as the matrix is symmetric.
        own.clear_vectors(&self.w, [from, self.padded]);
        let b = &mut own.nest.b;
        let vector = Rows { at: self.a.element(b, k, first), stride: first, ..self.a };
        let factors = Factors::of(own, &vector, false);
        let columns = [from, self.padded];
        let range = [next, self.n];
        Products { to: self.w, factors, terms: self.a, columns, range }
            .subtract_block(own, first, 1);
        // Elements before the vector do not count.
        let zero = own.nest.b.number(Ty::scalar(own.dtype()), 0.0);
        own.each(from, next, 1, |own, j| self.w.store(&mut own.nest.b, first, j, zero));
        let dot = own.dot([(&vector, first), (&self.w, first)], [from, self.padded], 1);
        let b = &mut own.nest.b;
        let half = b.number(Ty::scalar(b.ty(tau).dtype), 0.5);
        let half = b.mul(half, tau);
        // w = tau a v - (tau / 2) (tau v a v) v
        let by = b.mul(tau, half);
        let by = b.mul(by, dot);
        let negative = b.unary(Unary::Neg, tau);
        let (by, negative) = (b.splat(by, lanes), b.splat(negative, lanes));
        own.each_vector(from, self.padded, |own, j| {
            let b = &mut own.nest.b;
            let (w, v) = (self.w.load(b, first, j, lanes), vector.load(b, first, j, lanes));
            let w = b.mul(w, negative);
            let w = own.multiply_add(by, v, w);
            self.w.store(&mut own.nest.b, first, j, w);
        });
        own.each(next, self.n, 1, |own, i| {
            let b = &mut own.nest.b;
            let [v, w] = [&vector, &self.w].map(|row| {
                let element = row.load(b, first, i, 1);
                let element = b.unary(Unary::Neg, element);
                b.splat(element, lanes)
            });
            own.each_vector(from, self.padded, |own, j| {
                let b = &mut own.nest.b;
                let old = self.a.load(b, i, j, lanes);
                let (row, other) =
                    (self.w.load(b, first, j, lanes), vector.load(b, first, j, lanes));
                let new = own.multiply_add(v, row, old);
                let new = own.multiply_add(w, other, new);
                self.a.store(&mut own.nest.b, i, j, new);
            });
        });
    }

    /// Computes the product of the reflections.
    fn expand(&self, own: &mut Standalone, z: &Rows) {
        let first = own.nest.b.index(0);
        own.clear(z, self.n, self.padded);
        let one = own.nest.b.number(Ty::scalar(own.dtype()), 1.0);
        own.each(first, self.n, 1, |own, i| z.store(&mut own.nest.b, i, i, one));
        let count = own.nest.b.offset(self.n, -1);
        own.each(first, count, 1, |own, step| {
            let b = &mut own.nest.b;
            let next = b.sub(count, step);
            let k = b.offset(next, -1);
            let vector = self.row(own, k);
            let tau = self.taus.load(&mut own.nest.b, first, k, 1);
            let from = own.whole(next);
            Reflection { vector, tau }.apply(own, z, next, [from, self.padded], &self.w);
        });
    }

    /// Finds each eigenvalue by implicit QL steps. The rotations are applied to the rows of `a`.
    fn iterate(&self, own: &mut Standalone) {
        let (first, last) = (own.nest.b.index(0), own.nest.b.offset(self.n, -1));
        let (limit, more) = (own.nest.b.index(ITERATIONS), own.nest.b.index(1));
        own.each(first, last, 1, |own, l| {
            own.repeat(first, limit, 1, &[more], |own, _, state| {
                let b = &mut own.nest.b;
                let active = b.compare(Cmp::Ne, state[0], first);
                let next = own.choose(active, |own| self.advance(own, l), vec![first]);
                vec![next[0]]
            });
        });
    }

    /// Takes a step unless the eigenvalue at `l` has converged. Returns 1 if it takes one, or 0.
    fn advance(&self, own: &mut Standalone, l: V) -> Vec<V> {
        let last = own.nest.b.offset(self.n, -1);
        let count = own.nest.b.sub(last, l);
        let zero = own.nest.b.index(0);
        let epsilon = own.epsilon();
        // The first negligible element from `l` on ends the block.
        let end = own.repeat(zero, count, 1, &[last], |own, step, end| {
            let b = &mut own.nest.b;
            let back = b.sub(last, step);
            let i = b.offset(back, -1);
            let [off, own_value, next] =
                [(&self.off, i), (&self.diagonal, i), (&self.diagonal, back)].map(|(row, at)| {
                    let v = row.load(b, zero, at, 1);
                    b.unary(Unary::Abs, v)
                });
            let sum = b.add(own_value, next);
            let limit = b.mul(epsilon, sum);
            let small = b.compare(Cmp::Le, off, limit);
            vec![b.select(small, i, end[0])]
        });
        let m = end[0];
        let moves = own.nest.b.compare(Cmp::Ne, m, l);
        own.when(moves, |own| self.step(own, l, m));
        vec![own.nest.b.convert(moves, Ty::INDEX.dtype)]
    }

    /// One implicit QL step with Wilkinson's shift on the block from `l` to `m`.
    fn step(&self, own: &mut Standalone, l: V, m: V) {
        let zero = own.nest.b.index(0);
        let dtype = own.dtype();
        let b = &mut own.nest.b;
        let [none, one, two] = [0.0, 1.0, 2.0].map(|v| b.number(Ty::scalar(dtype), v));
        let next = b.offset(l, 1);
        let [own_value, next_value, end_value] =
            [l, next, m].map(|at| self.diagonal.load(b, zero, at, 1));
        let off = self.off.load(b, zero, l, 1);
        let difference = b.sub(next_value, own_value);
        let twice = b.mul(two, off);
        let g = b.div(difference, twice);
        let divisor = own.signed_root(g);
        let b = &mut own.nest.b;
        let shift = b.div(off, divisor);
        let g = b.sub(end_value, own_value);
        let g = b.add(g, shift);
        let count = b.sub(m, l);
        let done = own.repeat(zero, count, 1, &[g, one, one, none], |own, at, state| {
            let [g, s, c, p] = [state[0], state[1], state[2], state[3]];
            let b = &mut own.nest.b;
            let next = b.sub(m, at);
            let i = b.offset(next, -1);
            let off = self.off.load(b, zero, i, 1);
            let (f, product) = (b.mul(s, off), b.mul(c, off));
            let (r, c, s) = own.rotation_of(f, g);
            let b = &mut own.nest.b;
            self.off.store(b, zero, next, r);
            let [upper, lower] = [next, i].map(|at| self.diagonal.load(b, zero, at, 1));
            let g = b.sub(upper, p);
            let difference = b.sub(lower, g);
            let r = b.mul(difference, s);
            let twice = b.mul(two, c);
            let r = own.multiply_add(twice, product, r);
            let b = &mut own.nest.b;
            let p = b.mul(s, r);
            let value = b.add(g, p);
            self.diagonal.store(b, zero, next, value);
            let g = b.mul(c, r);
            let g = b.sub(g, product);
            if self.z.is_some() {
                Rotation { c, s, columns: self.padded }.apply(own, &self.a, [i, next]);
            }
            vec![g, s, c, p]
        });
        let b = &mut own.nest.b;
        let value = self.diagonal.load(b, zero, l, 1);
        let value = b.sub(value, done[3]);
        self.diagonal.store(b, zero, l, value);
        self.off.store(b, zero, l, done[0]);
        self.off.store(b, zero, m, none);
    }

    /// Sorts the eigenvalues, with the eigenvectors, in ascending order, and multiplies them by
    /// `scale`.
    fn sort(&self, own: &mut Standalone, scale: V) {
        let vectors = self.z.map(|_| (self.a, self.padded));
        own.sort_rows(&self.diagonal, self.n, false, &vectors.into_iter().collect::<Vec<_>>());
        let zero = own.nest.b.index(0);
        own.each(zero, self.n, 1, |own, i| {
            let b = &mut own.nest.b;
            let v = self.diagonal.load(b, zero, i, 1);
            let v = b.mul(v, scale);
            self.diagonal.store(b, zero, i, v);
        });
    }

    /// Negates eigenvectors whose largest element is negative.
    fn orient(&self, own: &mut Standalone) {
        let first = own.nest.b.index(0);
        own.each(first, self.n, 1, |own, i| {
            let negative = own.has_negative((&self.a, i), self.n);
            own.negate_row(negative, (&self.a, i), self.padded);
        });
    }
}
