//! The passes of a transform, one for each factor of its length (Stockham's algorithm, which needs
//! no reordering; Van Loan 1992, section 1.7).
//!
//! Before a pass of factor `r`, the memory holds `stride` interleaved transforms of `r m` elements.
//! The pass combines elements that are `m` apart to `r` elements each, and turns them by roots of
//! unity. What remains is `r stride` interleaved transforms of `m` elements.

use std::f64::consts::TAU;

use super::plan::{Factors, MAX_FACTOR, MAX_UNROLLED, Plan, SPECIAL};
use crate::builder::Builder;
use crate::code::{Binary, Cmp, V};
use crate::loops::Loops;

/// A complex number: its real and imaginary part.
pub type Complex = [V; 2];

/// The factor of a pass.
#[derive(Clone, Copy)]
enum Radix {
    Known(i64),
    Any(V),
}

/// One pass.
pub struct Pass {
    /// The number of elements of the transforms that remain.
    pub m: V,
    /// The number of interleaved transforms, without and with the lines of a task.
    pub count: V,
    pub stride: V,
    pub source: V,
    pub target: V,
}

impl Plan {
    /// Transforms `unit` lines from an offset on. Returns the offset of the result.
    pub fn run(&self, b: &mut Builder, unit: i64, source: V) -> V {
        let (zero, one) = (b.index(0), b.index(1));
        match &self.length.factors {
            Factors::Fixed(factors) => {
                let mut state = [self.length.value, one, source];
                for &factor in factors {
                    let radix = match factor <= MAX_UNROLLED {
                        true => Radix::Known(factor),
                        false => Radix::Any(b.index(factor)),
                    };
                    state = self.pass(b, radix, state, unit);
                }
                state[2]
            }
            Factors::Counted(counts) => {
                let mut state = vec![self.length.value, one, source];
                for (factor, count) in SPECIAL.into_iter().zip(counts) {
                    state = b.repeat(zero, *count, 1, &state, |b, _, state| {
                        let state = [state[0], state[1], state[2]];
                        self.pass(b, Radix::Known(factor), state, unit).to_vec()
                    });
                }
                self.other_passes(b, &state, unit)
            }
        }
    }

    /// The passes of factors that are found by trial.
    fn other_passes(&self, b: &mut Builder, state: &[V], unit: i64) -> V {
        let (zero, one) = (b.index(0), b.index(1));
        let more = b.compare(Cmp::Gt, state[0], one);
        let all = |b: &mut Builder| {
            let (first, limit) = (b.index(7), b.index(MAX_FACTOR + 1));
            let last = b.repeat(first, limit, 2, state, |b, factor, state| {
                let rounds = b.index(12);
                b.repeat(zero, rounds, 1, state, |b, _, state| {
                    let remainder = b.binary(Binary::Rem, state[0], factor);
                    let divides = b.compare(Cmp::Eq, remainder, zero);
                    let now = [state[0], state[1], state[2]];
                    let pass =
                        |b: &mut Builder| self.pass(b, Radix::Any(factor), now, unit).to_vec();
                    b.choose(divides, pass, |_| now.to_vec())
                })
            });
            vec![last[2]]
        };
        b.choose(more, all, |_| vec![state[2]])[0]
    }

    /// Emits a pass. The state is the number of elements of each transform, the number of
    /// interleaved transforms, and the offset of the elements.
    fn pass(&self, b: &mut Builder, radix: Radix, state: [V; 3], unit: i64) -> [V; 3] {
        let [rest, count, source] = state;
        let factor = match radix {
            Radix::Known(factor) => b.index(factor),
            Radix::Any(factor) => factor,
        };
        let m = b.div(rest, factor);
        let (stride, target) = (b.times(count, unit), b.sub(self.half, source));
        let pass = Pass { m, count, stride, source, target };
        let zero = b.index(0);
        b.each(zero, m, 1, |b, p| match radix {
            Radix::Known(factor) => self.known_pass(b, &pass, factor, p),
            Radix::Any(factor) => self.any_pass(b, &pass, factor, p),
        });
        [m, b.mul(count, factor), target]
    }

    /// The columns of a pass of a known factor: elements `p`, `p + m`, ….
    fn known_pass(&self, b: &mut Builder, pass: &Pass, factor: i64, p: V) {
        let step = b.mul(p, pass.count);
        // In the last pass all roots are 1.
        let turns = b.constant(pass.m) != Some(1);
        let roots: Vec<Complex> = match turns {
            true => (1..factor).map(|k| self.root(b, step, k)).collect(),
            false => vec![],
        };
        let from = b.mul(p, pass.stride);
        let to = b.times(from, factor);
        let (from, to) = (b.add(from, pass.source), b.add(to, pass.target));
        let apart = b.mul(pass.m, pass.stride);
        self.each_column(b, pass.stride, |plan, b, q, lanes| {
            let mut x = Vec::new();
            for j in 0..factor {
                let at = b.times(apart, j);
                let at = b.add(at, from);
                let at = b.add(at, q);
                x.push([plan.re, plan.im].map(|mem| b.load(mem, at, lanes, None)));
            }
            for (k, y) in plan.butterfly(b, &x).into_iter().enumerate() {
                let y = match k.checked_sub(1).and_then(|k| roots.get(k)) {
                    Some(root) => plan.turned(b, y, *root),
                    None => y,
                };
                let at = b.times(pass.stride, k as i64);
                let at = b.add(at, to);
                let at = b.add(at, q);
                for (mem, v) in [plan.re, plan.im].into_iter().zip(y) {
                    b.store(mem, at, v, None);
                }
            }
        });
    }

    fn root(&self, b: &mut Builder, step: V, k: i64) -> Complex {
        let at = b.times(step, k);
        [self.cos, self.sin].map(|mem| b.load(mem, at, 1, None))
    }

    /// Emits `body` for whole vectors of columns, then for single ones.
    pub fn each_column(
        &self,
        b: &mut Builder,
        count: V,
        mut body: impl FnMut(&Plan, &mut Builder, V, u32),
    ) {
        let (zero, lanes) = (b.index(0), b.index(i64::from(self.lanes)));
        // Whole tasks are multiples of vectors, single lines are not.
        let is_whole = b.form(count).is_multiple(self.lanes.into(), |_| false);
        let rest = match self.lanes == 1 || is_whole {
            true => zero,
            false => b.binary(Binary::Rem, count, lanes),
        };
        let whole = b.sub(count, rest);
        if b.constant(whole) != Some(0) {
            b.each(zero, whole, i64::from(self.lanes), |b, q| body(self, b, q, self.lanes));
        }
        if b.constant(rest) != Some(0) {
            b.each(whole, count, 1, |b, q| body(self, b, q, 1));
        }
    }

    /// `x (c - i s)`.
    pub fn turned(&self, b: &mut Builder, x: Complex, root: Complex) -> Complex {
        let lanes = b.ty(x[0]).lanes;
        let [c, s] = root.map(|v| b.splat(v, lanes));
        let (first, second) = (b.mul(x[1], s), b.mul(x[0], s));
        let re = self.mul_add(b, x[0], c, first);
        let im = b.mul(x[1], c);
        [re, b.sub(im, second)]
    }

    /// `x * y + z`, rounded as is fastest.
    pub fn mul_add(&self, b: &mut Builder, x: V, y: V, z: V) -> V {
        match (b.source().vectorizes, self.fuses) {
            (true, _) => b.mul_add(x, y, z),
            (false, true) => b.fma(x, y, z),
            (false, false) => {
                let product = b.mul(x, y);
                b.add(product, z)
            }
        }
    }

    /// The transform of a few elements.
    fn butterfly(&self, b: &mut Builder, x: &[Complex]) -> Vec<Complex> {
        match *x {
            [x, y] => vec![add(b, x, y), sub(b, x, y)],
            [x, y, z, w] => {
                let (even, odd) = (add(b, x, z), add(b, y, w));
                let (x, y) = (sub(b, x, z), sub(b, y, w));
                // y (-i)
                let turned = [y[1], y[0]];
                let second = [b.add(x[0], turned[0]), b.sub(x[1], turned[1])];
                let fourth = [b.sub(x[0], turned[0]), b.add(x[1], turned[1])];
                vec![add(b, even, odd), second, sub(b, even, odd), fourth]
            }
            _ => self.odd_butterfly(b, x),
        }
    }

    /// The transform of an odd number of elements. Elements `j` and `r - j` turn in opposite
    /// directions, so their sums and differences are multiplied by cosines and sines.
    fn odd_butterfly(&self, b: &mut Builder, x: &[Complex]) -> Vec<Complex> {
        let (r, half) = (x.len(), x.len() / 2);
        let sums: Vec<Complex> = (1..=half).map(|j| add(b, x[j], x[r - j])).collect();
        let differences: Vec<Complex> = (1..=half).map(|j| sub(b, x[j], x[r - j])).collect();
        let mut y = vec![x[0]; r];
        for sum in &sums {
            y[0] = add(b, y[0], *sum);
        }
        let ty = b.ty(x[0][0]);
        for k in 1..=half {
            let angle = |j: usize| TAU * ((j * k) % r) as f64 / r as f64;
            let mut even = x[0];
            let mut odd: Option<Complex> = None;
            for j in 1..=half {
                let (c, s) = (b.number(ty, angle(j).cos()), b.number(ty, angle(j).sin()));
                even = [0, 1].map(|part| self.mul_add(b, sums[j - 1][part], c, even[part]));
                odd = Some([0, 1].map(|part| match odd {
                    Some(odd) => self.mul_add(b, differences[j - 1][part], s, odd[part]),
                    None => b.mul(differences[j - 1][part], s),
                }));
            }
            let odd = odd.unwrap_or(even);
            // even - i odd, and even + i odd
            y[k] = [b.add(even[0], odd[1]), b.sub(even[1], odd[0])];
            y[r - k] = [b.sub(even[0], odd[1]), b.add(even[1], odd[0])];
        }
        y
    }
}

fn add(b: &mut Builder, x: Complex, y: Complex) -> Complex {
    [b.add(x[0], y[0]), b.add(x[1], y[1])]
}

fn sub(b: &mut Builder, x: Complex, y: Complex) -> Complex {
    [b.sub(x[0], y[0]), b.sub(x[1], y[1])]
}
