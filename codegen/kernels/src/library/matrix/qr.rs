//! The QR factorisation by reflections of columns, with LAPACK's signs.

use mithril_ir::dim::Dim;

use super::reflection::{Reflection, Vector};
use super::work::{Rows, padded};
use crate::code::{Binary, Ty, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// The dims of a factorisation, and its memory.
struct Factorisation {
    work: Rows,
    /// One row: the factors of the reflections.
    taus: Rows,
    /// One row of sums, for code for C.
    sums: Rows,
    rows: V,
    /// The number of columns, rounded up to whole vectors.
    padded: V,
    size: V,
}

impl Standalone<'_> {
    pub fn qr(&mut self) -> Dim {
        let (batch, [rows, columns]) = self.split_dims(self.op.operands[0]);
        let (size, lanes, dtype) = (rows.min(&columns), self.lanes(), self.dtype());
        let parts = [0, 1].map(|of| self.part(of));
        let own_padded = padded(&columns, lanes);
        let size_padded = padded(&size, lanes);
        let one = Dim::Const(1);
        let work = self.allocate(dtype, &rows, &own_padded);
        let taus = self.allocate(dtype, &one, &size);
        let sums = self.allocate(dtype, &one, &own_padded.max(&size_padded));
        let q = parts[0].map(|(mem, _)| (mem, self.allocate(dtype, &rows, &size_padded)));
        self.tasks(&batch.clone(), |own, place| {
            let x = own.operand(0, place);
            let dims = [&rows, &columns, &own_padded, &size].map(|dim| own.nest.dim(dim));
            let [rows, columns, padded, size] = dims;
            own.fetch(&x, &work, [rows, columns]);
            let all = Factorisation { work, taus, sums, rows, padded, size };
            all.reduce(own);
            if let Some((mem, q)) = q {
                let width = own.nest.dim(&size_padded);
                all.expand(own, &q, width);
                let result = own.matrix_of(mem, &batch, place, [rows, size]);
                own.put(&q, &result, [rows, size]);
            }
            if let Some((mem, _)) = parts[1] {
                all.clear_below(own);
                let result = own.matrix_of(mem, &batch, place, [size, columns]);
                own.put(&work, &result, [size, columns]);
            }
        })
    }
}

impl Factorisation {
    /// The part of column `k` from the diagonal on.
    fn column(&self, own: &mut Standalone, k: V) -> Vector {
        let b = &mut own.nest.b;
        let (at, count) = (self.work.element(b, k, k), b.sub(self.rows, k));
        Vector { mem: self.work.mem, at, step: self.work.stride, count }
    }

    /// Replaces the matrix by its upper triangular factor, with the reflections below.
    fn reduce(&self, own: &mut Standalone) {
        let (zero, lanes) = (own.nest.b.index(0), own.lanes());
        own.each(zero, self.size, 1, |own, k| {
            let vector = self.column(own, k);
            let (first, tau) = vector.reflect(own);
            vector.store(own, zero, first);
            self.taus.store(&mut own.nest.b, zero, k, tau);
            let next = own.nest.b.offset(k, 1);
            // Vectors that begin before the next column would change the reflections: single
            // columns are reflected up to the next whole vector.
            let whole = own.nest.b.offset(next, i64::from(lanes) - 1);
            let whole = own.whole(whole);
            let whole = own.nest.b.binary(Binary::Min, whole, self.padded);
            let reflection = Reflection { vector, tau };
            own.each(next, whole, 1, |own, j| reflection.apply_column(own, &self.work, k, j));
            reflection.apply(own, &self.work, k, [whole, self.padded], &self.sums);
        });
    }

    /// Computes the orthogonal factor: the product of the reflections.
    fn expand(&self, own: &mut Standalone, q: &Rows, width: V) {
        let zero = own.nest.b.index(0);
        own.clear(q, self.rows, width);
        let one = own.nest.b.number(Ty::scalar(own.dtype()), 1.0);
        own.each(zero, self.size, 1, |own, i| q.store(&mut own.nest.b, i, i, one));
        own.each(zero, self.size, 1, |own, step| {
            let b = &mut own.nest.b;
            let next = b.sub(self.size, step);
            let k = b.offset(next, -1);
            let vector = self.column(own, k);
            let tau = self.taus.load(&mut own.nest.b, zero, k, 1);
            let from = own.whole(k);
            Reflection { vector, tau }.apply(own, q, k, [from, width], &self.sums);
        });
    }

    /// Sets the elements below the diagonal to 0.
    fn clear_below(&self, own: &mut Standalone) {
        let first = own.nest.b.index(0);
        let zero = own.nest.b.number(Ty::scalar(own.dtype()), 0.0);
        own.each(first, self.size, 1, |own, i| {
            own.each(first, i, 1, |own, j| self.work.store(&mut own.nest.b, i, j, zero));
        });
    }
}
