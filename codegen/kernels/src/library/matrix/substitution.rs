//! Systems of equations with triangular matrices, solved for several rows at a time.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;

use super::products::{Factors, HEIGHT, Products};
use super::work::{Rows, padded};
use crate::code::{Binary, Mem, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;
use crate::lower::index::Ix;

/// A triangular matrix of `n` rows, and the columns of right sides that the solution replaces.
pub struct Triangle {
    pub factors: Factors,
    pub n: V,
    /// Whether the first row has a single element; otherwise the last row has.
    pub forward: bool,
    /// Whether the elements of the diagonal are ones.
    pub unit: bool,
    pub right: Rows,
    pub columns: [V; 2],
}

impl Standalone<'_> {
    pub fn triangular_solve(&mut self) -> Dim {
        let flag = |name: &str| matches!(self.op.attr(name), Attr::Bool(true));
        let (lower, transposed, unit) = (flag("lower"), flag("transposed"), flag("unit_diagonal"));
        let (batch, [size, width]) = self.split_dims(self.op.result());
        let columns = padded(&width, self.lanes());
        let right = self.allocate(self.dtype(), &size, &columns);
        let computed = self.nest.arg(self.op.operands[0]).is_none();
        let padded_size = padded(&size, self.lanes());
        let copy = computed.then(|| self.allocate(self.dtype(), &size, &padded_size));
        self.tasks(&batch, |own, place| {
            let (n, width) = (own.nest.dim(&size), own.nest.dim(&width));
            let a = own.operand(0, place);
            if let Some(copy) = &copy {
                own.fetch(&a, copy, [n, n]);
            }
            let rows = a.memory.or(copy).unwrap_or(right);
            let factors = Factors::of(own, &rows, transposed);
            let b = own.operand(1, place);
            own.fetch(&b, &right, [n, width]);
            let columns = [own.nest.b.index(0), own.nest.dim(&columns)];
            let forward = lower != transposed;
            Triangle { factors, n, forward, unit, right, columns }.solve(own);
            let result = own.result(&batch, place, [n, width]);
            own.put(&right, &result, [n, width]);
        })
    }

    /// The memory of the result's matrix, of this size, at an index of the batch.
    pub fn result(&mut self, batch: &[Dim], place: &[Ix], [rows, columns]: [V; 2]) -> Rows {
        self.matrix_of(self.nest.results[0], batch, place, [rows, columns])
    }

    /// A matrix of this size in an array, at an index of the batch.
    pub fn matrix_of(
        &mut self,
        mem: Mem,
        batch: &[Dim],
        place: &[Ix],
        [rows, columns]: [V; 2],
    ) -> Rows {
        let number = self.nest.flat_index(batch, place);
        let number = self.nest.as_value(number);
        let size = self.nest.b.mul(rows, columns);
        Rows { mem, at: self.nest.b.mul(number, size), stride: columns }
    }
}

impl Triangle {
    pub fn solve(&self, own: &mut Standalone) {
        let (zero, height) = (own.nest.b.index(0), own.nest.b.index(HEIGHT));
        let rest = own.nest.b.binary(Binary::Rem, self.n, height);
        let whole = own.nest.b.sub(self.n, rest);
        own.each(zero, whole, HEIGHT, |own, step| {
            let end = own.nest.b.offset(step, HEIGHT);
            // The first row of the block, and the rows that are known.
            let (first, known) = match self.forward {
                true => (step, [zero, step]),
                false => {
                    let first = own.nest.b.sub(self.n, end);
                    let known = own.nest.b.sub(self.n, step);
                    (first, [known, self.n])
                }
            };
            self.products(known).subtract_block(own, first, HEIGHT);
            let count = own.nest.b.index(HEIGHT);
            own.each(zero, count, 1, |own, at| {
                let (i, range) = match self.forward {
                    true => {
                        let i = own.nest.b.add(first, at);
                        (i, [first, i])
                    }
                    false => {
                        let i = own.nest.b.sub(known[0], at);
                        let i = own.nest.b.offset(i, -1);
                        (i, [own.nest.b.offset(i, 1), known[0]])
                    }
                };
                self.finish_row(own, i, range);
            });
        });
        own.each(whole, self.n, 1, |own, step| {
            let (i, range) = match self.forward {
                true => (step, [zero, step]),
                false => {
                    let next = own.nest.b.sub(self.n, step);
                    (own.nest.b.offset(next, -1), [next, self.n])
                }
            };
            self.finish_row(own, i, range);
        });
    }

    fn products(&self, range: [V; 2]) -> Products {
        let (to, terms) = (self.right, self.right);
        Products { to, factors: self.factors, terms, columns: self.columns, range }
    }

    /// Subtracts products with the rows in the range, and divides by the diagonal element.
    fn finish_row(&self, own: &mut Standalone, i: V, range: [V; 2]) {
        self.products(range).subtract_block(own, i, 1);
        if self.unit {
            return;
        }
        let lanes = own.lanes();
        let divisor = self.factors.load(own, i, i);
        let divisor = own.nest.b.splat(divisor, lanes);
        own.each_vector(self.columns[0], self.columns[1], |own, j| {
            let b = &mut own.nest.b;
            let v = self.right.load(b, i, j, lanes);
            let v = b.div(v, divisor);
            self.right.store(b, i, j, v);
        });
    }
}
