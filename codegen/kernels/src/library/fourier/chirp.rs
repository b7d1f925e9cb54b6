//! Transforms of any length as a convolution (Bluestein 1970): with the chirp
//! `c[k] = exp(-πi k² / n)`, the transform of `x` is `c[k]` times the convolution of `x c` with the
//! conjugate of `c`.

use mithril_ir::dtype::DType;

use super::plan::{Choice, Plan};
use crate::builder::Builder;
use crate::code::{Mem, Ty, Unary, V};
use crate::loops::Loops;

impl Plan {
    /// Transforms the lines in the first half of memory. Returns the offset of the result.
    pub fn transform(&self, b: &mut Builder) -> V {
        let zero = b.index(0);
        match self.convolves {
            Choice::Never => self.run(b, self.unit, zero),
            Choice::Always => self.convolve(b),
            Choice::If(condition) => {
                let convolved = |b: &mut Builder| vec![self.convolve(b)];
                b.choose(condition, convolved, |b| vec![self.run(b, self.unit, zero)])[0]
            }
        }
    }

    /// Computes the chirp, and the spectrum of its conjugate over the length of the convolution.
    pub fn prepare_chirp(&self, b: &mut Builder) {
        let turn = b.add(self.size, self.size);
        let period = b.convert(turn, DType::F64);
        let period = b.splat(period, self.lanes);
        // k² modulo 2n; all numbers are whole and less than 2⁵³.
        self.fill(b, self.chirp, self.size, turn, |b, k| {
            let square = b.mul(k, k);
            let periods = b.div(square, period);
            let periods = b.unary(Unary::Floor, periods);
            let whole = b.mul(periods, period);
            b.sub(square, whole)
        });
        let (zero, one) = (b.index(0), b.index(1));
        let nothing = b.number(Ty::scalar(self.dtype), 0.0);
        b.each(zero, self.length.value, 1, |b, k| {
            b.store(self.re, k, nothing, None);
            b.store(self.im, k, nothing, None);
        });
        for (table, mem) in self.chirp.into_iter().zip([self.re, self.im]) {
            b.each(zero, self.size, 1, |b, k| {
                let v = b.load(table, k, 1, None);
                b.store(mem, k, v, None);
            });
            b.each(one, self.size, 1, |b, k| {
                let v = b.load(table, k, 1, None);
                let at = b.sub(self.length.value, k);
                b.store(mem, at, v, None);
            });
        }
        let source = self.run(b, 1, zero);
        let length = b.convert(self.length.value, self.dtype);
        for (table, mem) in self.filter.into_iter().zip([self.re, self.im]) {
            b.each(zero, self.length.value, 1, |b, k| {
                let at = b.add(source, k);
                let v = b.load(mem, at, 1, None);
                let v = b.div(v, length);
                b.store(table, k, v, None);
            });
        }
    }

    /// Multiplies by the chirp, convolves, and multiplies by the chirp again.
    fn convolve(&self, b: &mut Builder) -> V {
        let zero = b.index(0);
        // The table holds the conjugate of the chirp.
        self.multiply(b, zero, self.size, self.chirp, |plan, b, x, [c, s]| {
            let (re, im) = (plan.products(b, [x[0], c], [x[1], s]), b.mul(x[1], c));
            let other = b.mul(x[0], s);
            [re, b.sub(im, other)]
        });
        b.each(self.size, self.length.value, 1, |b, k| {
            let at = b.times(k, self.unit);
            self.each_line(b, |b, line, lanes| {
                let at = b.add(at, line);
                let nothing = b.number(Ty { dtype: self.dtype, lanes }, 0.0);
                b.store(self.re, at, nothing, None);
                b.store(self.im, at, nothing, None);
            });
        });
        let source = self.run(b, self.unit, zero);
        // The conjugate of the product, whose transform is the conjugate of the inverse.
        self.multiply(b, source, self.length.value, self.filter, |plan, b, x, [c, s]| {
            let (first, second) = (b.mul(x[0], c), b.mul(x[1], s));
            let im = plan.products(b, [x[0], s], [x[1], c]);
            [b.sub(first, second), b.unary(Unary::Neg, im)]
        });
        let source = self.run(b, self.unit, source);
        self.multiply(b, source, self.size, self.chirp, |plan, b, x, [c, s]| {
            // conj(x) (c - i s)
            let (first, second) = (b.mul(x[0], c), b.mul(x[1], s));
            let im = plan.products(b, [x[0], s], [x[1], c]);
            [b.sub(first, second), b.unary(Unary::Neg, im)]
        });
        source
    }

    /// `a[0] a[1] + b[0] b[1]`.
    fn products(&self, b: &mut Builder, [x, y]: [V; 2], [z, w]: [V; 2]) -> V {
        let second = b.mul(z, w);
        self.mul_add(b, x, y, second)
    }

    /// Replaces the first `count` elements from an offset on by a function of them and of a table.
    fn multiply(
        &self,
        b: &mut Builder,
        source: V,
        count: V,
        table: [Mem; 2],
        product: impl FnOnce(&Plan, &mut Builder, [V; 2], [V; 2]) -> [V; 2],
    ) {
        let zero = b.index(0);
        b.each(zero, count, 1, |b, k| {
            let factors = table.map(|mem| b.load(mem, k, 1, None));
            let at = b.times(k, self.unit);
            let at = b.add(at, source);
            self.each_line(b, |b, line, lanes| {
                let at = b.add(at, line);
                let x = [self.re, self.im].map(|mem| b.load(mem, at, lanes, None));
                let factors = factors.map(|v| b.splat(v, lanes));
                let product = product(self, b, x, factors);
                for (mem, v) in [self.re, self.im].into_iter().zip(product) {
                    b.store(mem, at, v, None);
                }
            });
        });
    }
}
