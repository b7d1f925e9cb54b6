//! Elimination with partial pivoting: the solution of systems of equations, and determinants.
//!
//! Panels of columns are eliminated one column at a time. Then the columns to the right of the
//! panel are updated at once. Right sides are further columns.

use mithril_ir::dim::Dim;
use mithril_ir::scalar::Prim;

use super::products::{Factors, Products};
use super::substitution::Triangle;
use super::work::{Rows, padded};
use crate::code::{Binary, Cmp, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;
use crate::scalar;

/// The number of columns of a panel; a multiple of the number of lanes.
const PANEL: i64 = 32;

/// A matrix of `n` rows that is eliminated.
struct Elimination {
    work: Rows,
    n: V,
    /// The columns of the square matrix, rounded up to whole vectors, and of all of `work`.
    columns: V,
    all: V,
    /// A copy of the pivot row, without the columns before the pivot.
    pivot_row: Rows,
}

impl Standalone<'_> {
    pub fn solve(&mut self) -> Dim {
        let (batch, [size, width]) = self.split_dims(self.op.result());
        let (own_columns, right) = (padded(&size, self.lanes()), padded(&width, self.lanes()));
        let all = &own_columns + &right;
        let (work, pivot_row) = self.allocate_elimination(&size, &all);
        self.tasks(&batch, |own, place| {
            let (n, width) = (own.nest.dim(&size), own.nest.dim(&width));
            let (columns, all) = (own.nest.dim(&own_columns), own.nest.dim(&all));
            let a = own.operand(0, place);
            own.fetch(&a, &work, [n, n]);
            let b = own.operand(1, place);
            let right = Rows { at: columns, ..work };
            own.fetch(&b, &right, [n, width]);
            Elimination { work, n, columns, all, pivot_row }.run(own);
            let factors = Factors::of(own, &work, false);
            let columns = [columns, all];
            let (forward, unit) = (false, false);
            Triangle { factors, n, forward, unit, right: work, columns }.solve(own);
            let result = own.result(&batch, place, [n, width]);
            own.put(&right, &result, [n, width]);
        })
    }

    pub fn determinant(&mut self) -> Dim {
        self.eliminated(|own, sign, pivots, place| {
            let (zero, n) = (own.nest.b.index(0), pivots.1);
            let product = own.repeat(zero, n, 1, &[sign], |own, i, product| {
                let b = &mut own.nest.b;
                let pivot = pivots.0.load(b, i, i, 1);
                vec![b.mul(product[0], pivot)]
            });
            own.write(place, product[0]);
        })
    }

    pub fn log_determinant(&mut self) -> Dim {
        let parts = [0, 1].map(|of| self.part(of));
        self.eliminated(|own, sign, pivots, place| {
            let (first, n, dtype) = (own.nest.b.index(0), pivots.1, own.dtype());
            let zero = own.nest.b.number(Ty::scalar(dtype), 0.0);
            let sums = own.repeat(first, n, 1, &[sign, zero], |own, i, sums| {
                let b = &mut own.nest.b;
                let pivot = pivots.0.load(b, i, i, 1);
                let signum = scalar::apply(b, Prim::Sign, dtype, &[pivot], None);
                let magnitude = b.unary(Unary::Abs, pivot);
                let log = scalar::apply(b, Prim::Log, dtype, &[magnitude], None);
                vec![b.mul(sums[0], signum), b.add(sums[1], log)]
            });
            for (part, sum) in parts.iter().zip(sums) {
                if let Some((mem, value)) = *part {
                    let dims = own.nest.dims(value);
                    own.nest.write(mem, dims, place, sum);
                }
            }
        })
    }

    /// Eliminates each matrix. `finish` is given the sign of the permutation, and the matrix with
    /// its number of rows.
    fn eliminated(
        &mut self,
        finish: impl FnOnce(&mut Self, V, (Rows, V), &[crate::lower::index::Ix]),
    ) -> Dim {
        let (batch, [size, _]) = self.split_dims(self.op.operands[0]);
        let columns = padded(&size, self.lanes());
        let (work, pivot_row) = self.allocate_elimination(&size, &columns);
        self.tasks(&batch, |own, place| {
            let (n, columns) = (own.nest.dim(&size), own.nest.dim(&columns));
            let x = own.operand(0, place);
            own.fetch(&x, &work, [n, n]);
            let sign = Elimination { work, n, columns, all: columns, pivot_row }.run(own);
            finish(own, sign, (work, n), place);
        })
    }

    fn allocate_elimination(&mut self, size: &Dim, columns: &Dim) -> (Rows, Rows) {
        let work = self.allocate(self.dtype(), size, columns);
        (work, self.allocate(self.dtype(), &Dim::Const(1), &Dim::Const(PANEL)))
    }
}

impl Elimination {
    /// Replaces the matrix by its two triangles. Returns the sign of the permutation of the rows.
    fn run(&self, own: &mut Standalone) -> V {
        let zero = own.nest.b.index(0);
        let positive = own.nest.b.number(Ty::scalar(own.dtype()), 1.0);
        let signs = own.repeat(zero, self.n, PANEL, &[positive], |own, first, sign| {
            let b = &mut own.nest.b;
            let next = b.offset(first, PANEL);
            // One past the last row of the panel's triangle, and one past its last column.
            let (last, end) =
                (b.binary(Binary::Min, next, self.n), b.binary(Binary::Min, next, self.columns));
            let sign = own.repeat(first, last, 1, sign, |own, k, sign| {
                vec![self.eliminate_column(own, k, [first, end], sign[0])]
            });
            let factors = Factors::of(own, &self.work, false);
            let products = |range: [V; 2]| Products {
                to: self.work,
                factors,
                terms: self.work,
                columns: [end, self.all],
                range,
            };
            own.each(first, last, 1, |own, i| {
                products([first, i]).subtract_block(own, i, 1);
            });
            products([first, last]).subtract(own, [last, self.n]);
            sign
        });
        signs[0]
    }

    /// Chooses the pivot of a column, swaps rows, and subtracts multiples of the pivot row from the
    /// rows below, in the columns of the panel. The multiples replace the column.
    fn eliminate_column(&self, own: &mut Standalone, k: V, [first, end]: [V; 2], sign: V) -> V {
        let sign = self.pivot(own, k, sign);
        let (work, lanes) = (&self.work, own.lanes());
        let b = &mut own.nest.b;
        let pivot = work.load(b, k, k, 1);
        let ty = b.ty(pivot);
        let (zero, one) = (b.number(ty, 0.0), b.number(ty, 1.0));
        // If the pivot is 0, so are the elements below it.
        let is_zero = b.compare(Cmp::Eq, pivot, zero);
        let divisor = b.select(is_zero, one, pivot);
        let next = b.offset(k, 1);
        let from = own.whole(next);
        self.copy_pivot_row(own, k, [first, from, end]);
        own.each(next, self.n, 1, |own, i| {
            let b = &mut own.nest.b;
            let element = work.load(b, i, k, 1);
            let multiple = b.div(element, divisor);
            work.store(b, i, k, multiple);
            let factor = b.unary(Unary::Neg, multiple);
            let factor = b.splat(factor, lanes);
            own.each_vector(from, end, |own, j| {
                let b = &mut own.nest.b;
                let column = b.sub(j, first);
                let at = b.add(self.pivot_row.at, column);
                let top = b.load(self.pivot_row.mem, at, lanes, None);
                let v = work.load(b, i, j, lanes);
                let v = own.multiply_add(factor, top, v);
                work.store(&mut own.nest.b, i, j, v);
            });
        });
        sign
    }

    /// Copies the pivot row from column `from` on. Columns up to the pivot become 0, so that
    /// vectors that contain some of them leave these unchanged.
    fn copy_pivot_row(&self, own: &mut Standalone, k: V, [first, from, end]: [V; 3]) {
        let lanes = own.lanes();
        own.each_vector(from, end, |own, j| {
            let b = &mut own.nest.b;
            let v = self.work.load(b, k, j, lanes);
            let v = match lanes {
                1 => v,
                _ => {
                    let index = Ty { lanes, ..Ty::INDEX };
                    let (start, ramp) = (b.splat(j, lanes), b.iota(index));
                    let columns = b.add(start, ramp);
                    let pivot = b.splat(k, lanes);
                    let behind = b.compare(Cmp::Gt, columns, pivot);
                    let zero = b.number(b.ty(v), 0.0);
                    b.select(behind, v, zero)
                }
            };
            let column = b.sub(j, first);
            let at = b.add(self.pivot_row.at, column);
            b.store(self.pivot_row.mem, at, v, None);
        });
    }

    /// Swaps row `k` with the row from `k` on that has the largest magnitude in column `k`. Returns
    /// the sign of the permutation.
    fn pivot(&self, own: &mut Standalone, k: V, sign: V) -> V {
        let (work, lanes) = (&self.work, own.lanes());
        let magnitude = |own: &mut Standalone, i: V| {
            let b = &mut own.nest.b;
            let v = work.load(b, i, k, 1);
            b.unary(Unary::Abs, v)
        };
        let (largest, next) = (magnitude(own, k), own.nest.b.offset(k, 1));
        let best = own.repeat(next, self.n, 1, &[largest, k], |own, i, best| {
            let own_magnitude = magnitude(own, i);
            let b = &mut own.nest.b;
            let larger = b.compare(Cmp::Gt, own_magnitude, best[0]);
            vec![b.select(larger, own_magnitude, best[0]), b.select(larger, i, best[1])]
        });
        let b = &mut own.nest.b;
        let moves = b.compare(Cmp::Ne, best[1], k);
        let zero = b.index(0);
        let end = b.select(moves, self.all, zero);
        own.each_vector(zero, end, |own, j| {
            let b = &mut own.nest.b;
            let (x, y) = (work.load(b, k, j, lanes), work.load(b, best[1], j, lanes));
            work.store(b, k, j, y);
            work.store(b, best[1], j, x);
        });
        let b = &mut own.nest.b;
        let negative = b.unary(Unary::Neg, sign);
        b.select(moves, negative, sign)
    }
}
