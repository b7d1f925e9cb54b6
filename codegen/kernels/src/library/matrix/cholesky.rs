//! The Cholesky factorisation, one block of rows of the upper factor after the other.

use mithril_ir::dim::Dim;

use super::products::{Factors, HEIGHT, Products};
use super::work::{Rows, padded};
use crate::code::{Cmp, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

impl Standalone<'_> {
    pub fn cholesky(&mut self) -> Dim {
        let (batch, [size, _]) = self.split_dims(self.op.operands[0]);
        let columns = padded(&size, self.lanes());
        let work = self.allocate(self.dtype(), &size, &columns);
        self.tasks(&batch.clone(), |own, place| {
            let x = own.operand(0, place);
            let (n, columns) = (own.nest.dim(&size), own.nest.dim(&columns));
            own.clear(&work, n, columns);
            own.fetch_lower(&x, &work, n);
            own.factorise(&work, n, columns);
            let result = own.result(&batch, place, [n, n]);
            own.transpose(&work, &result, n, false);
            own.reject(&work, &result, n);
        })
    }

    /// Replaces the upper triangle `a` by the factor `u` of `a = uᵀ u`. Row `i` of it is row `i` of
    /// `a` minus products of the rows above, divided by the root of its diagonal element.
    fn factorise(&mut self, work: &Rows, n: V, columns: V) {
        let (zero, height) = (self.nest.b.index(0), self.nest.b.index(HEIGHT));
        let rest = self.nest.b.binary(crate::code::Binary::Rem, n, height);
        let whole = self.nest.b.sub(n, rest);
        let factors = Factors::of(self, work, true);
        let products = |columns: [V; 2], range: [V; 2]| Products {
            to: *work,
            factors,
            terms: *work,
            columns,
            range,
        };
        self.each(zero, whole, HEIGHT, |own, first| {
            let from = own.whole(first);
            products([from, columns], [zero, first]).subtract_block(own, first, HEIGHT);
            let end = own.nest.b.offset(first, HEIGHT);
            own.each(first, end, 1, |own, i| {
                let own_from = own.whole(i);
                products([own_from, columns], [first, i]).subtract_block(own, i, 1);
                own.scale_row(work, i, [from, columns]);
            });
        });
        self.each(whole, n, 1, |own, i| {
            let from = own.whole(i);
            products([from, columns], [zero, i]).subtract_block(own, i, 1);
            own.scale_row(work, i, [from, columns]);
        });
    }

    /// Divides row `i` by the root of its diagonal element, which is NaN unless it is positive, and
    /// sets the elements before it, from column `start` on, to 0.
    fn scale_row(&mut self, work: &Rows, i: V, [start, columns]: [V; 2]) {
        let lanes = self.lanes();
        let b = &mut self.nest.b;
        let pivot = work.load(b, i, i, 1);
        let ty = b.ty(pivot);
        let (zero, nan) = (b.number(ty, 0.0), b.number(ty, f64::NAN));
        let positive = b.compare(Cmp::Gt, pivot, zero);
        let pivot = b.select(positive, pivot, nan);
        let root = b.unary(Unary::Sqrt, pivot);
        let divisor = b.splat(root, lanes);
        let from = self.whole(i);
        self.each_vector(from, columns, |own, j| {
            let b = &mut own.nest.b;
            let v = work.load(b, i, j, lanes);
            let v = b.div(v, divisor);
            work.store(b, i, j, v);
        });
        self.each(start, i, 1, |own, j| work.store(&mut own.nest.b, i, j, zero));
        work.store(&mut self.nest.b, i, i, root);
    }

    /// Sets the lower triangle of the result to NaN if the last diagonal element of the factor is
    /// NaN: a failure spreads to all later rows.
    fn reject(&mut self, work: &Rows, result: &Rows, n: V) {
        let zero = self.nest.b.index(0);
        let nan = self.nest.b.number(Ty::scalar(self.dtype()), f64::NAN);
        self.each(zero, n, 1, |own, i| {
            let b = &mut own.nest.b;
            let last = b.offset(n, -1);
            let last = work.load(b, last, last, 1);
            let failed = b.compare(Cmp::Ne, last, last);
            let end = b.offset(i, 1);
            let count = b.select(failed, end, zero);
            own.each(zero, count, 1, |own, j| result.store(&mut own.nest.b, i, j, nan));
        });
    }
}
