//! Singular values and vectors by one-sided Jacobi rotations: pairs of rows of the shorter side are
//! rotated until all are orthogonal (Golub & Van Loan, Matrix Computations, 8.6.3). Small singular
//! values are as exact as large ones.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;

use super::rotation::Rotation;
use super::work::{Rows, padded};
use crate::code::{Binary, Cmp, Fold, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// The limit of sweeps over all pairs; ten are usual for large matrices.
const SWEEPS: i64 = 60;
/// How many sums of scalars a loop computes at a time.
const PARTS: u32 = 8;

struct Singular {
    /// The rows that are rotated, and their number, elements and padded elements.
    w: Rows,
    size: V,
    length: V,
    padded: V,
    /// The product of the rotations, and its padded columns.
    turned: Rows,
    turned_padded: V,
    /// One row: the singular values.
    values: Rows,
    /// One row: for each axis, the sum of squares of the elements of unit vectors along it.
    used: Rows,
}

impl Standalone<'_> {
    pub fn singular(&mut self) -> Dim {
        let (batch, [rows, columns]) = self.split_dims(self.op.operands[0]);
        let (size, length) = (rows.min(&columns), rows.max(&columns));
        let (lanes, dtype, one) = (self.lanes(), self.dtype(), Dim::Const(1));
        let (wide, narrow) = (padded(&length, lanes.max(PARTS)), padded(&size, lanes));
        let parts = [0, 1, 2].map(|of| self.part(of).map(|(mem, _)| mem));
        let w = self.allocate(dtype, &size, &wide);
        let turned = self.allocate(dtype, &size, &narrow);
        let values = self.allocate(dtype, &one, &narrow);
        let used = self.allocate(dtype, &one, &wide);
        self.tasks(&batch.clone(), |own, place| {
            let x = own.operand(0, place);
            let [m, n] = [&rows, &columns].map(|dim| own.nest.dim(dim));
            let [size, length, padded, turned_padded] =
                [&size, &length, &wide, &narrow].map(|dim| own.nest.dim(dim));
            let all = Singular { w, size, length, padded, turned, turned_padded, values, used };
            let scale = all.fetch(own, &x, [m, n]);
            all.sweeps(own);
            all.finish(own, scale);
            let is_wide = is_wide(own, m, n);
            if let Some(mem) = parts[0] {
                let result = own.matrix_of(mem, &batch, place, [m, size]);
                own.either(is_wide, |own, wide| {
                    let (rows, count) = if wide { (&turned, size) } else { (&w, length) };
                    own.transpose_rows(rows, &result, [size, count]);
                });
            }
            if let Some(mem) = parts[1] {
                let first = own.nest.b.index(1);
                let result = own.matrix_of(mem, &batch, place, [first, size]);
                own.put(&values, &result, [first, size]);
            }
            if let Some(mem) = parts[2] {
                let result = own.matrix_of(mem, &batch, place, [size, n]);
                own.either(is_wide, |own, wide| {
                    let (rows, count) = if wide { (&w, length) } else { (&turned, size) };
                    own.put(rows, &result, [size, count]);
                });
            }
        })
    }

    /// Copies the transpose of a matrix of this many rows and columns.
    fn transpose_rows(&mut self, from: &Rows, to: &Rows, [rows, columns]: [V; 2]) {
        let zero = self.nest.b.index(0);
        self.each(zero, columns, 1, |own, j| {
            own.each(zero, rows, 1, |own, i| {
                let b = &mut own.nest.b;
                let v = from.load(b, i, j, 1);
                to.store(b, j, i, v);
            });
        });
    }
}

impl Singular {
    /// Copies the matrix, or its transpose if it has more rows than columns, divided by its largest
    /// magnitude, which is returned.
    fn fetch(&self, own: &mut Standalone, x: &super::Operand, [m, n]: [V; 2]) -> V {
        let first = own.nest.b.index(0);
        let ty = Ty::scalar(own.dtype());
        let [zero, one] = [0.0, 1.0].map(|v| own.nest.b.number(ty, v));
        own.clear(&self.w, self.size, self.padded);
        own.clear(&self.turned, self.size, self.turned_padded);
        own.each(first, self.size, 1, |own, i| self.turned.store(&mut own.nest.b, i, i, one));
        let largest = own.repeat(first, m, 1, &[zero], |own, i, most| {
            own.repeat(first, n, 1, most, |own, j, most| {
                let v = x.load(own, i, j, 1, None);
                let b = &mut own.nest.b;
                let v = b.unary(Unary::Abs, v);
                vec![b.binary(Binary::Max, v, most[0])]
            })
        });
        let scale = own.usable(largest[0]);
        let is_wide = is_wide(own, m, n);
        own.each(first, m, 1, |own, i| {
            own.each(first, n, 1, |own, j| {
                let v = x.load(own, i, j, 1, None);
                let b = &mut own.nest.b;
                let v = b.div(v, scale);
                let (row, column) = (b.select(is_wide, i, j), b.select(is_wide, j, i));
                self.w.store(b, row, column, v);
            });
        });
        scale
    }

    /// Sweeps over all pairs of rows until no pair is rotated.
    fn sweeps(&self, own: &mut Standalone) {
        let (first, one) = (own.nest.b.index(0), own.nest.b.index(1));
        let limit = own.nest.b.index(SWEEPS);
        let ty = Ty::scalar(own.dtype());
        let epsilon = own.epsilon();
        let b = &mut own.nest.b;
        let length = b.convert(self.length, ty.dtype);
        let root = b.unary(Unary::Sqrt, length);
        let tolerance = b.mul(epsilon, root);
        own.repeat(first, limit, 1, &[one], |own, _, state| {
            let active = own.nest.b.compare(Cmp::Ne, state[0], first);
            own.choose(
                active,
                |own| {
                    own.each(first, self.size, 1, |own, i| {
                        let square = self.dot(own, [i, i]);
                        self.values.store(&mut own.nest.b, first, i, square);
                    });
                    own.repeat(first, self.size, 1, &[first], |own, p, rotated| {
                        let next = own.nest.b.offset(p, 1);
                        own.repeat(next, self.size, 1, rotated, |own, q, rotated| {
                            let turns = self.orthogonalise(own, [p, q], tolerance);
                            vec![own.nest.b.binary(Binary::Or, rotated[0], turns)]
                        })
                    })
                },
                vec![first],
            )
        });
    }

    /// Rotates two rows so that they are orthogonal. Returns 1, or 0 if they already are. `values`
    /// has the sums of their squares: exact ones in a sweep that rotates nothing.
    fn orthogonalise(&self, own: &mut Standalone, [p, q]: [V; 2], tolerance: V) -> V {
        let first = own.nest.b.index(0);
        let [a, c] = [p, q].map(|row| self.values.load(&mut own.nest.b, first, row, 1));
        let g = self.dot(own, [p, q]);
        let ty = Ty::scalar(own.dtype());
        let b = &mut own.nest.b;
        let [zero, one, two] = [0.0, 1.0, 2.0].map(|v| b.number(ty, v));
        let [root, other] = [a, c].map(|v| b.unary(Unary::Sqrt, v));
        let limit = b.mul(tolerance, root);
        let limit = b.mul(limit, other);
        let magnitude = b.unary(Unary::Abs, g);
        let turns = b.compare(Cmp::Gt, magnitude, limit);
        own.when(turns, |own| {
            let b = &mut own.nest.b;
            let (difference, twice) = (b.sub(c, a), b.mul(two, g));
            let zeta = b.div(difference, twice);
            let divisor = own.signed_root(zeta);
            let b = &mut own.nest.b;
            let tangent = b.div(one, divisor);
            let moved = b.mul(tangent, g);
            let (less, more) = (b.sub(a, moved), b.add(c, moved));
            let less = b.binary(Binary::Max, less, zero);
            self.values.store(b, first, p, less);
            self.values.store(b, first, q, more);
            let square = own.multiply_add(tangent, tangent, one);
            let b = &mut own.nest.b;
            let root = b.unary(Unary::Sqrt, square);
            let cosine = b.div(one, root);
            let sine = b.mul(cosine, tangent);
            let rotation = Rotation { c: cosine, s: sine, columns: self.padded };
            rotation.apply(own, &self.w, [p, q]);
            Rotation { columns: self.turned_padded, ..rotation }.apply(own, &self.turned, [p, q]);
        });
        own.nest.b.convert(turns, Ty::INDEX.dtype)
    }

    /// The sum of the products of the elements of two rows.
    fn dot(&self, own: &mut Standalone, [p, q]: [V; 2]) -> V {
        let (first, lanes) = (own.nest.b.index(0), own.lanes());
        let dtype = own.dtype();
        let zero = own.nest.b.number(Ty::vector(dtype, lanes), 0.0);
        // Each sum of scalars would wait for the one before.
        let parts = if lanes == 1 { PARTS } else { 1 };
        let step = i64::from(lanes * parts);
        let start = vec![zero; parts as usize];
        let sums = own.repeat(first, self.padded, step, &start, |own, j, sums| {
            let mut next = Vec::with_capacity(sums.len());
            for (part, sum) in (0..).zip(sums) {
                let b = &mut own.nest.b;
                let j = b.offset(j, part);
                let (x, y) = (self.w.load(b, p, j, lanes), self.w.load(b, q, j, lanes));
                next.push(own.multiply_add(x, y, *sum));
            }
            next
        });
        let b = &mut own.nest.b;
        let sum = sums.into_iter().reduce(|x, y| b.add(x, y)).unwrap_or(zero);
        b.fold(Fold::Add, sum)
    }

    /// Computes the lengths of the rows, sorts the rows by them, and divides by them. Rows without a
    /// length become unit vectors that are orthogonal to the others.
    fn finish(&self, own: &mut Standalone, scale: V) {
        let (first, one) = (own.nest.b.index(0), own.nest.b.index(1));
        own.clear(&self.values, one, self.turned_padded);
        own.clear(&self.used, one, self.padded);
        let ty = Ty::scalar(own.dtype());
        own.each(first, self.size, 1, |own, i| {
            let square = self.dot(own, [i, i]);
            let b = &mut own.nest.b;
            let length = b.unary(Unary::Sqrt, square);
            self.values.store(b, first, i, length);
        });
        let with = [(self.w, self.padded), (self.turned, self.turned_padded)];
        own.sort_rows(&self.values, self.size, true, &with);
        own.each(first, self.size, 1, |own, i| {
            let b = &mut own.nest.b;
            let value = self.values.load(b, first, i, 1);
            let scaled = b.mul(value, scale);
            self.values.store(b, first, i, scaled);
            // The squares of smaller elements may be subnormal numbers.
            let least = if ty.dtype == DType::F64 { 2f64.powi(-400) } else { 2f64.powi(-40) };
            let least = b.number(ty, least);
            let vanishes = b.compare(Cmp::Lt, value, least);
            own.either(vanishes, |own, vanishes| match vanishes {
                true => self.complete(own, i),
                false => self.divide(own, i, value),
            });
            self.note(own, i);
        });
    }

    fn divide(&self, own: &mut Standalone, i: V, by: V) {
        let (first, lanes) = (own.nest.b.index(0), own.lanes());
        let by = own.nest.b.splat(by, lanes);
        own.each_vector(first, self.padded, |own, j| {
            let b = &mut own.nest.b;
            let v = self.w.load(b, i, j, lanes);
            let v = b.div(v, by);
            self.w.store(b, i, j, v);
        });
    }

    /// Adds the squares of a unit vector to those of the others.
    fn note(&self, own: &mut Standalone, i: V) {
        let (first, lanes) = (own.nest.b.index(0), own.lanes());
        own.each_vector(first, self.padded, |own, j| {
            let b = &mut own.nest.b;
            let (v, sum) = (self.w.load(b, i, j, lanes), self.used.load(b, first, j, lanes));
            let sum = own.multiply_add(v, v, sum);
            self.used.store(&mut own.nest.b, first, j, sum);
        });
    }

    /// Replaces row `i` by a unit vector that is orthogonal to the rows before it: the rest of the
    /// axis that is farthest from them.
    fn complete(&self, own: &mut Standalone, i: V) {
        let (first, lanes, two) = (own.nest.b.index(0), own.lanes(), own.nest.b.index(2));
        let ty = Ty::scalar(own.dtype());
        let [zero, one] = [0.0, 1.0].map(|v| own.nest.b.number(ty, v));
        let next = own.nest.b.index(1);
        let start = self.used.load(&mut own.nest.b, first, first, 1);
        let least = own.repeat(next, self.length, 1, &[start, first], |own, j, least| {
            let b = &mut own.nest.b;
            let v = self.used.load(b, first, j, 1);
            let less = b.compare(Cmp::Lt, v, least[0]);
            vec![b.select(less, v, least[0]), b.select(less, j, least[1])]
        });
        let zeros = own.nest.b.splat(zero, lanes);
        own.each_vector(first, self.padded, |own, j| {
            self.w.store(&mut own.nest.b, i, j, zeros);
        });
        self.w.store(&mut own.nest.b, i, least[1], one);
        // Twice: the first time rounding leaves parts of other rows.
        own.each(first, two, 1, |own, _| {
            own.each(first, i, 1, |own, other| {
                let dot = self.dot(own, [other, i]);
                let b = &mut own.nest.b;
                let by = b.unary(Unary::Neg, dot);
                let by = b.splat(by, lanes);
                own.each_vector(first, self.padded, |own, j| {
                    let b = &mut own.nest.b;
                    let (v, x) = (self.w.load(b, i, j, lanes), self.w.load(b, other, j, lanes));
                    let v = own.multiply_add(by, x, v);
                    self.w.store(&mut own.nest.b, i, j, v);
                });
            });
            let square = self.dot(own, [i, i]);
            let norm = own.nest.b.unary(Unary::Sqrt, square);
            self.divide(own, i, norm);
        });
    }
}

/// Whether there are more columns than rows. The difference of equal dims is a constant, which C's
/// compilers accept in a comparison, unlike a number compared with itself.
fn is_wide(own: &mut Standalone, rows: V, columns: V) -> V {
    let (zero, more) = (own.nest.b.index(0), own.nest.b.sub(columns, rows));
    own.nest.b.compare(Cmp::Gt, more, zero)
}
