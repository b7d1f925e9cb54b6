//! Passes of large odd factors, as loops: unrolled, their code would be long.
//!
//! Elements `j` and `r - j` turn in opposite directions, so their sums are multiplied by cosines and
//! their differences by sines. Both are summed for results `k` and `r - k` at once.

use super::passes::{Complex, Pass};
use super::plan::Plan;
use crate::builder::Builder;
use crate::code::{Cmp, Ty, V};
use crate::loops::Loops;

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
        let (one, two) = (b.index(1), b.index(2));
        let step = b.mul(p, pass.count);
        let from = b.mul(p, pass.stride);
        let to = b.mul(from, factor);
        let (from, to) = (b.add(from, pass.source), b.add(to, pass.target));
        let (apart, part) = (b.mul(pass.m, pass.stride), b.mul(pass.m, pass.count));
        let stride = pass.stride;
        let columns = Columns { plan: self, stride, factor, from, to, apart, step, part };
        columns.sum(b);
        let half = b.div(factor, two);
        let end = b.offset(half, 1);
        b.each(one, end, 1, |b, k| match b.source().vectorizes {
            true => columns.pair_by_rows(b, [k, end]),
            false => columns.pair(b, [k, end]),
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

    /// Computes the first result: the sum of all elements.
    fn sum(&self, b: &mut Builder) {
        let (zero, one) = (b.index(0), b.index(1));
        self.plan.each_column(b, self.stride, |_, b, q, lanes| {
            let start = self.load(b, zero, q, lanes);
            let sum = b.repeat(one, self.factor, 1, &start, |b, j, sum| {
                let x = self.load(b, j, q, lanes);
                vec![b.add(sum[0], x[0]), b.add(sum[1], x[1])]
            });
            self.store(b, zero, q, [sum[0], sum[1]]);
        });
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
    fn pair(&self, b: &mut Builder, [k, end]: [V; 2]) {
        let (zero, one) = (b.index(0), b.index(1));
        let turn = b.mul(self.part, k);
        self.plan.each_column(b, self.stride, |_, b, q, lanes| {
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
        });
    }

    /// The same by loops over columns that a C compiler vectorizes. The sums are in the memory of
    /// the results.
    fn pair_by_rows(&self, b: &mut Builder, [k, end]: [V; 2]) {
        let (zero, one) = (b.index(0), b.index(1));
        let other = b.sub(self.factor, k);
        let turn = b.mul(self.part, k);
        let none = b.number(Ty::scalar(self.plan.dtype), 0.0);
        b.each(zero, self.stride, 1, |b, q| {
            let x = self.load(b, zero, q, 1);
            self.store(b, k, q, x);
            self.store(b, other, q, [none, none]);
        });
        // One result at a time: compilers do not vectorize loops with more arrays, which may overlap.
        b.repeat(one, end, 1, &[turn], |b, j, at| {
            let root = self.root(b, at[0]);
            for (part, is_even) in [(0, true), (1, true), (0, false), (1, false)] {
                let mem = [self.plan.re, self.plan.im][part];
                let (factor, result) = if is_even { (root[0], k) } else { (root[1], other) };
                b.each(zero, self.stride, 1, |b, q| {
                    let opposite = b.sub(self.factor, j);
                    let [x, y] = [j, opposite].map(|j| {
                        let at = self.element(b, j, q);
                        b.load(mem, at, 1, None)
                    });
                    let term = if is_even { b.add(x, y) } else { b.sub(x, y) };
                    let at = self.place(b, result, q);
                    let sum = b.load(mem, at, 1, None);
                    let sum = self.plan.mul_add(b, term, factor, sum);
                    b.store(mem, at, sum, None);
                });
            }
            vec![self.next(b, at[0], turn)]
        });
        b.each(zero, self.stride, 1, |b, q| {
            let sums = self.sums(b, [k, other], q);
            self.finish(b, k, q, sums);
        });
    }

    fn sums(&self, b: &mut Builder, results: [V; 2], q: V) -> [Complex; 2] {
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
