//! Passes of large odd factors, as loops: unrolled, their code would be long.
//!
//! Elements `j` and `r - j` turn in opposite directions, so their sums are multiplied by cosines and
//! their differences by sines. Both are summed for results `k` and `r - k` at once.

use super::passes::{Complex, Pass};
use super::plan::Plan;
use crate::builder::Builder;
use crate::code::{Binary, Cmp, Ty, V};
use crate::loops::Loops;

/// The number of columns that code for C transforms at a time, so that they stay in the caches.
const CHUNK: i64 = 64;
/// Fewer columns are transformed one at a time: loops over them would be too short.
const FEW: i64 = 16;

/// The columns of a pass: the first elements that it reads and writes, the distance of those that
/// it combines, and of their roots.
struct Columns<'a> {
    plan: &'a Plan,
    stride: V,
    factor: V,
    from: V,
    to: V,
    apart: V,
    step: V,
    part: V,
}

impl Plan {
    /// The columns of a pass of an odd factor: elements `p`, `p + m`, ….
    pub fn any_pass(&self, b: &mut Builder, pass: &Pass, factor: V, p: V) {
        let step = b.mul(p, pass.count);
        let from = b.mul(p, pass.stride);
        let to = b.mul(from, factor);
        let (from, to) = (b.add(from, pass.source), b.add(to, pass.target));
        let (apart, part) = (b.mul(pass.m, pass.stride), b.mul(pass.m, pass.count));
        let stride = pass.stride;
        let columns = Columns { plan: self, factor, stride, from, to, apart, step, part };
        let is_narrow = b.constant(stride).is_some_and(|stride| stride < FEW);
        if b.source().vectorizes && !is_narrow {
            return columns.transform_by_rows(b);
        }
        // All results of some columns, whose elements stay in the caches.
        self.each_column(b, stride, |_, b, q, lanes| {
            columns.sum(b, q, lanes);
            columns.each_pair(b, |b, k, end| columns.pair(b, [k, end], q, lanes));
        });
    }
}

impl Columns<'_> {
    fn element(&self, b: &mut Builder, j: V, q: V) -> V {
        let at = b.mul(self.apart, j);
        let at = b.add(at, self.from);
        b.add(at, q)
    }

    fn load(&self, b: &mut Builder, j: V, q: V, lanes: u32) -> Complex {
        let at = self.element(b, j, q);
        [self.plan.re, self.plan.im].map(|mem| b.load(mem, at, lanes, None))
    }

    fn place(&self, b: &mut Builder, k: V, q: V) -> V {
        let at = b.mul(self.stride, k);
        let at = b.add(at, self.to);
        b.add(at, q)
    }

    fn store(&self, b: &mut Builder, k: V, q: V, v: Complex) {
        let at = self.place(b, k, q);
        for (mem, v) in [self.plan.re, self.plan.im].into_iter().zip(v) {
            b.store(mem, at, v, None);
        }
    }

    fn root(&self, b: &mut Builder, at: V) -> Complex {
        [self.plan.cos, self.plan.sin].map(|mem| b.load(mem, at, 1, None))
    }

    /// Calls `body` for each `k` from 1 up to half of the factor, with the end of that range.
    fn each_pair(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, V, V)) {
        let (one, two) = (b.index(1), b.index(2));
        let half = b.div(self.factor, two);
        let end = b.offset(half, 1);
        b.each(one, end, 1, |b, k| body(b, k, end));
    }

    /// Computes the first result: the sum of all elements.
    fn sum(&self, b: &mut Builder, q: V, lanes: u32) {
        let (zero, one) = (b.index(0), b.index(1));
        let start = self.load(b, zero, q, lanes);
        let sum = b.repeat(one, self.factor, 1, &start, |b, j, sum| {
            let x = self.load(b, j, q, lanes);
            vec![b.add(sum[0], x[0]), b.add(sum[1], x[1])]
        });
        self.store(b, zero, q, [sum[0], sum[1]]);
    }

    /// The sum and the difference of elements `j` and `factor - j`.
    fn both(&self, b: &mut Builder, j: V, q: V, lanes: u32) -> [Complex; 2] {
        let other = b.sub(self.factor, j);
        let (x, y) = (self.load(b, j, q, lanes), self.load(b, other, q, lanes));
        [[b.add(x[0], y[0]), b.add(x[1], y[1])], [b.sub(x[0], y[0]), b.sub(x[1], y[1])]]
    }

    /// Adds the terms of elements `j` and `factor - j` to the even and the odd sum.
    fn terms(
        &self,
        b: &mut Builder,
        [even, odd]: [Complex; 2],
        [sum, difference]: [Complex; 2],
        root: Complex,
    ) -> [Complex; 2] {
        let lanes = b.ty(even[0]).lanes;
        let [c, s] = root.map(|v| b.splat(v, lanes));
        let even = [0, 1].map(|part| self.plan.mul_add(b, sum[part], c, even[part]));
        let odd = [0, 1].map(|part| self.plan.mul_add(b, difference[part], s, odd[part]));
        [even, odd]
    }

    /// The index of the root of the next element.
    fn next(&self, b: &mut Builder, at: V, turn: V) -> V {
        let next = b.add(at, turn);
        let less = b.sub(next, self.plan.length.value);
        let over = b.compare(Cmp::Ge, next, self.plan.length.value);
        b.select(over, less, next)
    }

    /// Computes results `k` and `factor - k`.
    fn pair(&self, b: &mut Builder, [k, end]: [V; 2], q: V, lanes: u32) {
        let (zero, one) = (b.index(0), b.index(1));
        let turn = b.mul(self.part, k);
        let none = b.number(Ty { dtype: self.plan.dtype, lanes }, 0.0);
        let x = self.load(b, zero, q, lanes);
        let start = [x[0], x[1], none, none, turn];
        let sums = b.repeat(one, end, 1, &start, |b, j, state| {
            let root = self.root(b, state[4]);
            let both = self.both(b, j, q, lanes);
            let sums = [[state[0], state[1]], [state[2], state[3]]];
            let [even, odd] = self.terms(b, sums, both, root);
            vec![even[0], even[1], odd[0], odd[1], self.next(b, state[4], turn)]
        });
        self.finish(b, k, q, [[sums[0], sums[1]], [sums[2], sums[3]]]);
    }

    /// The same by loops over columns that a C compiler vectorizes. The sums are in the memory of
    /// the results.
    fn transform_by_rows(&self, b: &mut Builder) {
        let (zero, one) = (b.index(0), b.index(1));
        b.each(zero, self.stride, CHUNK, |b, first| {
            let end = b.offset(first, CHUNK);
            let range = [first, b.binary(Binary::Min, end, self.stride)];
            b.each(range[0], range[1], 1, |b, q| {
                let x = self.load(b, zero, q, 1);
                self.store(b, zero, q, x);
            });
            b.each(one, self.factor, 1, |b, j| {
                b.each(range[0], range[1], 1, |b, q| {
                    let (x, [sum]) = (self.load(b, j, q, 1), self.sums(b, [zero], q));
                    let sum = [b.add(sum[0], x[0]), b.add(sum[1], x[1])];
                    self.store(b, zero, q, sum);
                });
            });
            self.each_pair(b, |b, k, end| self.pair_by_rows(b, [k, end], range));
        });
    }

    fn pair_by_rows(&self, b: &mut Builder, [k, end]: [V; 2], range: [V; 2]) {
        let (zero, one) = (b.index(0), b.index(1));
        let other = b.sub(self.factor, k);
        let turn = b.mul(self.part, k);
        let none = b.number(Ty::scalar(self.plan.dtype), 0.0);
        b.each(range[0], range[1], 1, |b, q| {
            let x = self.load(b, zero, q, 1);
            self.store(b, k, q, x);
            self.store(b, other, q, [none, none]);
        });
        // Two terms at a time: the sums are loaded and stored half as often.
        let two = b.index(2);
        let count = b.sub(end, one);
        let rest = b.binary(Binary::Rem, count, two);
        let whole = b.sub(end, rest);
        let at = b.repeat(one, whole, 2, &[turn], |b, j, at| {
            let (next, second) = (b.offset(j, 1), self.next(b, at[0], turn));
            self.add_terms(b, &[(j, at[0]), (next, second)], [k, other], range);
            vec![self.next(b, second, turn)]
        });
        b.each(whole, end, 1, |b, j| self.add_terms(b, &[(j, at[0])], [k, other], range));
        b.each(range[0], range[1], 1, |b, q| {
            let sums = self.sums(b, [k, other], q);
            self.finish(b, k, q, sums);
        });
    }

    /// Adds terms of elements `j` and `factor - j` to the sums in memory, one part at a time:
    /// compilers do not vectorize loops over more arrays, which may overlap. Each `j` has the index
    /// of its root.
    fn add_terms(&self, b: &mut Builder, terms: &[(V, V)], results: [V; 2], range: [V; 2]) {
        let terms: Vec<([V; 2], Complex)> = terms
            .iter()
            .map(|&(j, root)| ([j, b.sub(self.factor, j)], self.root(b, root)))
            .collect();
        for (part, result) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let mem = [self.plan.re, self.plan.im][part];
            b.each(range[0], range[1], 1, |b, q| {
                let at = self.place(b, results[result], q);
                let mut sum = b.load(mem, at, 1, None);
                for (elements, root) in &terms {
                    let [x, y] = elements.map(|j| {
                        let at = self.element(b, j, q);
                        b.load(mem, at, 1, None)
                    });
                    let term = if result == 0 { b.add(x, y) } else { b.sub(x, y) };
                    sum = self.plan.mul_add(b, term, root[result], sum);
                }
                b.store(mem, at, sum, None);
            });
        }
    }

    fn sums<const N: usize>(&self, b: &mut Builder, results: [V; N], q: V) -> [Complex; N] {
        results.map(|k| {
            let at = self.place(b, k, q);
            [self.plan.re, self.plan.im].map(|mem| b.load(mem, at, 1, None))
        })
    }

    /// Stores results `k` and `factor - k`: even - i odd, and even + i odd, turned.
    fn finish(&self, b: &mut Builder, k: V, q: V, [even, odd]: [Complex; 2]) {
        let first = [b.add(even[0], odd[1]), b.sub(even[1], odd[0])];
        let second = [b.sub(even[0], odd[1]), b.add(even[1], odd[0])];
        let other = b.sub(self.factor, k);
        for (k, v) in [(k, first), (other, second)] {
            let at = b.mul(self.step, k);
            let root = self.root(b, at);
            let v = self.plan.turned(b, v, root);
            self.store(b, k, q, v);
        }
    }
}
