//! The inner loops: rows of a matrix minus products with other rows.

use crate::code::{Binary, Mem, Ty, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

use super::work::Rows;

/// The number of rows of a block of results.
pub const HEIGHT: i64 = 4;
/// The number of terms that code for C subtracts in one pass over a row. Their sum is rounded once
/// when it is subtracted: elements may be much larger than the terms.
const STEPS: i64 = 8;

/// Factors of rows: the one of row `i` and term `k` is at `at + i·row + k·term`.
#[derive(Clone, Copy)]
pub struct Factors {
    pub mem: Mem,
    pub at: V,
    pub row: V,
    pub term: V,
}

impl Factors {
    /// The elements of a matrix, `rows[i, k]`, or if `transposed`, `rows[k, i]`.
    pub fn of(own: &mut Standalone, rows: &Rows, transposed: bool) -> Factors {
        let one = own.nest.b.index(1);
        let (row, term) = if transposed { (one, rows.stride) } else { (rows.stride, one) };
        Factors { mem: rows.mem, at: rows.at, row, term }
    }

    pub fn load(&self, own: &mut Standalone, i: V, k: V) -> V {
        let b = &mut own.nest.b;
        let (row, term) = (b.mul(i, self.row), b.mul(k, self.term));
        let at = b.add(self.at, row);
        let at = b.add(at, term);
        b.load(self.mem, at, 1, None)
    }
}

/// Subtracts `Σ factors[i, k]·terms[k, j]` from `to[i, j]`, for columns `j` from the first to the
/// second, a whole number of vectors, and terms `k` from the first to the second.
#[derive(Clone, Copy)]
pub struct Products {
    pub to: Rows,
    pub factors: Factors,
    pub terms: Rows,
    pub columns: [V; 2],
    pub range: [V; 2],
}

impl Standalone<'_> {
    /// `x * y + sum`, in one instruction if there is one.
    pub fn multiply_add(&mut self, x: V, y: V, sum: V) -> V {
        let b = &mut self.nest.b;
        match (b.source().vectorizes, self.fma) {
            (true, _) => b.mul_add(x, y, sum),
            (false, true) => b.fma(x, y, sum),
            (false, false) => {
                let product = b.mul(x, y);
                b.add(sum, product)
            }
        }
    }
}

impl Products {
    /// Subtracts from the rows from the first to the second.
    pub fn subtract(&self, own: &mut Standalone, rows: [V; 2]) {
        let count = own.nest.b.sub(rows[1], rows[0]);
        let height = own.nest.b.index(HEIGHT);
        let rest = own.nest.b.binary(Binary::Rem, count, height);
        let whole = own.nest.b.sub(rows[1], rest);
        own.each(rows[0], whole, HEIGHT, |own, i| self.subtract_block(own, i, HEIGHT));
        if own.nest.b.constant(rest) != Some(0) {
            own.each(whole, rows[1], 1, |own, i| self.subtract_block(own, i, 1));
        }
    }

    /// Subtracts from `height` rows from `i` on.
    pub fn subtract_block(&self, own: &mut Standalone, i: V, height: i64) {
        if own.nest.b.source().vectorizes {
            return self.subtract_plain(own, i, height);
        }
        let lanes = i64::from(own.nest.lanes);
        let [from, to] = self.columns;
        // Several sums at a time hide the latency of additions.
        let vectors = if height == 1 { 4 } else { 2 };
        let width = own.nest.b.index(vectors * lanes);
        let count = own.nest.b.sub(to, from);
        let rest = own.nest.b.binary(Binary::Rem, count, width);
        let whole = own.nest.b.sub(to, rest);
        own.each(from, whole, vectors * lanes, |own, j| self.tile(own, [i, j], height, vectors));
        if own.nest.b.constant(rest) != Some(0) {
            own.each(whole, to, lanes, |own, j| self.tile(own, [i, j], height, 1));
        }
    }

    /// A block of results, whose sums stay in registers.
    fn tile(&self, own: &mut Standalone, [i, j]: [V; 2], height: i64, width: i64) {
        let lanes = own.nest.lanes;
        let dtype = own.nest.b.mem_dtype(self.to.mem);
        let zero = own.nest.b.number(Ty::vector(dtype, lanes), 0.0);
        let sums = vec![zero; (height * width) as usize];
        let sums = own.repeat(self.range[0], self.range[1], 1, &sums, |own, k, sums| {
            let terms: Vec<V> = (0..width)
                .map(|v| {
                    let column = own.nest.b.offset(j, v * i64::from(lanes));
                    self.terms.load(&mut own.nest.b, k, column, lanes)
                })
                .collect();
            let mut next = Vec::new();
            for row in 0..height {
                let row_number = own.nest.b.offset(i, row);
                let factor = self.factors.load(own, row_number, k);
                let factor = own.nest.b.splat(factor, lanes);
                for (v, &term) in terms.iter().enumerate() {
                    let sum = sums[row as usize * width as usize + v];
                    next.push(own.multiply_add(factor, term, sum));
                }
            }
            next
        });
        for (at, &sum) in (0..).zip(&sums) {
            let b = &mut own.nest.b;
            let row = b.offset(i, at / width);
            let column = b.offset(j, at % width * i64::from(lanes));
            let old = self.to.load(b, row, column, lanes);
            let new = b.sub(old, sum);
            self.to.store(b, row, column, new);
        }
    }

    /// Loops over columns that a C compiler vectorizes.
    fn subtract_plain(&self, own: &mut Standalone, i: V, height: i64) {
        let [from, to] = self.range;
        let count = own.nest.b.sub(to, from);
        let steps = own.nest.b.index(STEPS);
        let rest = own.nest.b.binary(Binary::Rem, count, steps);
        let whole = own.nest.b.sub(to, rest);
        let end = own.nest.b.offset(i, height);
        own.each(i, end, 1, |own, i| {
            own.each(from, whole, STEPS, |own, k| self.subtract_terms(own, i, k, STEPS));
            if own.nest.b.constant(rest) != Some(0) {
                own.each(whole, to, 1, |own, k| self.subtract_terms(own, i, k, 1));
            }
        });
    }

    fn subtract_terms(&self, own: &mut Standalone, i: V, k: V, count: i64) {
        let terms: Vec<V> = (0..count).map(|step| own.nest.b.offset(k, step)).collect();
        let factors: Vec<V> = terms.iter().map(|&k| self.factors.load(own, i, k)).collect();
        own.each(self.columns[0], self.columns[1], 1, |own, j| {
            let b = &mut own.nest.b;
            let term = self.terms.load(b, terms[0], j, 1);
            let mut sum = b.mul(factors[0], term);
            for (&k, &factor) in terms.iter().zip(&factors).skip(1) {
                let term = self.terms.load(b, k, j, 1);
                sum = b.mul_add(factor, term, sum);
            }
            let old = self.to.load(b, i, j, 1);
            let new = b.sub(old, sum);
            self.to.store(b, i, j, new);
        });
    }
}
