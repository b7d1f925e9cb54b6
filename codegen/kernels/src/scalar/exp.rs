//! Exponentials and functions based on them: x = n ln 2 + r with |r| at most half of ln 2, and eˣ =
//! 2ⁿ eʳ.

use mithril_ir::scalar::Prim;

use super::bits::{bias, exponent_field, power_of_two, rounder};
use super::poly::{by_dtype, horner};
use super::unary_float;
use super::value::Val;
use crate::code::Callee;

/// ln 2 in two parts; the first has few enough bits for its product with n to be exact.
pub const LN2_F32: (f64, f64) = (0.693359375, -2.1219444005469057e-4);
pub const LN2_F64: (f64, f64) = (6.931471803691238e-1, 1.9082149292705877e-10);

/// eʳ in f32, with a relative error of less than 2⁻²⁷.
const EXP: [f64; 7] = [
    1.0,
    1.0,
    0.4999999403953552,
    0.16666516661643982,
    0.04166810214519501,
    0.008369192481040955,
    0.001383890281431377,
];

/// 2ʳ in f32.
const EXP2: [f64; 7] = [
    1.0,
    0.6931472420692444,
    0.24022655189037323,
    0.05550277978181839,
    0.009617111645638943,
    0.0013414548011496663,
    0.000157855887664482,
];

/// (eʳ - 1 - r) / r².
const EXPM1_F32: [f64; 5] =
    [0.5, 0.16666539013385773, 0.04166661202907562, 0.008367099799215794, 0.0013917619362473488];
const EXPM1_F64: [f64; 10] = [
    0.5000000000000001,
    0.16666666666666669,
    0.04166666666662367,
    0.008333333333330027,
    0.0013888888917442772,
    0.00019841269863229763,
    2.4801520940521364e-05,
    2.755726818666448e-06,
    2.7620257282985725e-07,
    2.5100515333382707e-08,
];

/// `x` reduced by a multiple of ln 2.
struct Reduced<'a> {
    /// The number of multiples, as a float.
    n: Val<'a>,
    /// An integer whose low bits are those of `n` plus the offset. Only as many bits as an exponent
    /// has are valid.
    bits: Val<'a>,
    r: Val<'a>,
}

fn reduce(x: Val, offset: i64) -> Reduced {
    let rounder = rounder(x) + offset as f64;
    let sum = x.mul_add(std::f64::consts::LOG2_E, rounder).named("sum");
    let n = (sum - rounder).named("n");
    let (high, low) = if x.is_f64() { LN2_F64 } else { LN2_F32 };
    let r = n.mul_add(-low, n.mul_add(-high, x)).named("r");
    Reduced { n, bits: sum.bits(), r }
}

/// Reduces `x` for 2ˣ: subtracts whole numbers, and leaves `r` without the factor ln 2.
fn reduce_base_2(x: Val, offset: i64) -> Reduced {
    let rounder = rounder(x) + offset as f64;
    let sum = (x + rounder).named("sum");
    let n = (sum - rounder).named("n");
    Reduced { n, bits: sum.bits(), r: (x - n).named("r") }
}

impl<'a> Reduced<'a> {
    /// `x` times 2ⁿ. The offset must be twice the bias.
    fn times_power(&self, x: Val<'a>) -> Val<'a> {
        let [first, second] = match x.scale(self.n) {
            Some(scaled) => return scaled,
            None => factors(self.bits),
        };
        x * first * second
    }

    /// 2^min(n, 0) and 2^-max(n, 0). The offset must be 0.
    fn sigmoid_powers(&self) -> [Val<'a>; 2] {
        let one = self.n.number(1.0);
        let below = self.n.at_most(0.0);
        if let (Some(factor), Some(rest)) = (one.scale(below), one.scale(below - self.n)) {
            return [factor, rest];
        }
        let n = self.bits - self.n.number(rounder(self.n)).bits();
        let below = n.at_most(0);
        let [first, second] = factors(below - n + 2 * bias(self.n));
        [power_of_two(below), first * second]
    }
}

/// eʳ for a reduced `r`.
fn series(r: Val) -> Val {
    if r.is_f64() { series_less_one(r) + 1.0 } else { horner(r, &EXP) }
}

/// 2ʳ for a reduced `r`.
fn series_base_2(r: Val) -> Val {
    if r.is_f64() { series(r * std::f64::consts::LN_2) } else { horner(r, &EXP2) }
}

/// eʳ - 1 for a reduced `r`.
fn series_less_one(r: Val) -> Val {
    (r * r).mul_add(by_dtype(r, &EXPM1_F32, &EXPM1_F64), r)
}

/// Evaluates a formula for `x` clamped to its range. The result is 0 where eˣ underflows. If the
/// processor has an instruction for `x * 2ⁿ`, clamping to the lowest argument gives this 0.
/// Otherwise computing results that underflow is slow, so these lanes get another argument and
/// their results are replaced. With the instruction, f32 also needs no upper clamp: its polynomials
/// have even degree and no zero, so they are positive for any `r`.
fn in_range<'a>(
    x: Val<'a>,
    (low, high): (f64, f64),
    formula: impl FnOnce(Val<'a>) -> Val<'a>,
) -> Val<'a> {
    if x.scales() {
        let below = if x.is_f64() { x.at_most(high) } else { x };
        return formula(below.at_least(low).named("inside"));
    }
    let (below, zero) = (x.lt(low).named("below"), x.number(0.0));
    let inside = zero.when(below, x.at_most(high));
    formula(inside.named("inside")).when(!below, zero)
}

/// 2ⁿ as two factors. `n` includes twice the bias. A single factor would be out of range at both
/// ends.
fn factors<'a>(n: Val<'a>) -> [Val<'a>; 2] {
    let half = (n >> 1).named("half");
    [exponent_field(half), exponent_field(n - half)]
}

/// The arguments whose exponential is neither 0 nor infinite.
fn range(x: Val) -> (f64, f64) {
    if x.is_f64() { (-745.2, 709.9) } else { (-104.0, 88.8) }
}

/// eˣ.
pub fn exp(x: Val) -> Val {
    in_range(x, range(x), |x| {
        let reduced = reduce(x, 2 * bias(x));
        reduced.times_power(series(reduced.r))
    })
}

/// exp(x + rest) for a small `rest`.
pub fn exp_of_sum<'a>(x: Val<'a>, rest: Val<'a>) -> Val<'a> {
    in_range(x, range(x), |x| {
        let reduced = reduce(x, 2 * bias(x));
        reduced.times_power(series(reduced.r + rest))
    })
}

/// 2ˣ.
pub fn exp2(x: Val) -> Val {
    let limits = if x.is_f64() { (-1075.5, 1024.0) } else { (-150.5, 128.0) };
    in_range(x, limits, |x| {
        let reduced = reduce_base_2(x, 2 * bias(x));
        reduced.times_power(series_base_2(reduced.r))
    })
}

/// 2ˣ for x ≤ 0. The result is 0 where 2ˣ is subnormal.
pub fn exp2_nonpositive(x: Val) -> Val {
    let lowest = -bias(x) as f64;
    // The lowest exponent plus the bias is 0, which gives the float 0.
    let x = x.at_least(lowest);
    let rounder = rounder(x) - lowest;
    let sum = x + rounder;
    let r = x - (sum - rounder);
    series_base_2(r) * exponent_field(sum.bits())
}

/// eˣ - 1.
pub fn expm1(x: Val) -> Val {
    let (low, high, tiny) = if x.is_f64() { (-38.0, 709.9, -54) } else { (-18.0, 88.8, -25) };
    let half = expm1_scaled(x.at_most(high).at_least(low), -1).less_one;
    x.when(x.abs().lt(2f64.powi(tiny)), half + half)
}

/// eˣ and eˣ - 1, times a power of two that keeps the results in range where 2ⁿ is not.
pub struct Scaled<'a> {
    pub exp: Val<'a>,
    pub less_one: Val<'a>,
}

/// See [`Scaled`]. `n + power` must be a normal exponent.
pub fn expm1_scaled(x: Val, power: i32) -> Scaled {
    let Reduced { bits, r, .. } = reduce(x, bias(x) + power as i64);
    let scale = exponent_field(bits);
    let part = series_less_one(r);
    Scaled {
        exp: scale.mul_add(part, scale),
        less_one: scale.mul_add(part, scale - 2f64.powi(power)),
    }
}

/// 1 / (1 + e⁻ˣ). With e⁻ˣ = 2ⁿ p this is 1 / (1 + 2ⁿ p), or 2⁻ⁿ / (2⁻ⁿ + p) if n is positive.
/// Nothing overflows, and only the sum and the quotient are rounded.
pub fn sigmoid(x: Val) -> Val {
    if x.calls() {
        return x.call(Callee::Sigmoid, x.dtype());
    }
    let (low, high) = if x.is_f64() { (-708.0, 745.2) } else { (-87.0, 104.0) };
    let reduced = reduce((-x).at_most(high).at_least(low), 0);
    let [factor, one] = reduced.sigmoid_powers();
    let r = reduced.r;
    let sum = factor + one;
    // The rounding error of the sum. It is up to half a unit in the last place of the quotient, at
    // n = 24 or 53.
    let cut = one - (sum - factor);
    one / (factor.mul_add(series_less_one(r), cut) + sum)
}

/// `1 / (1 + exp(-y))`, where y is `x * (c + a * x * x)`.
pub fn cubic_sigmoid(x: Val, a: f64, c: f64) -> Val {
    x.number(1.0) / cubic_divisor(x, a, c)
}

/// `x / (1 + exp(-y))`, with y as in [`cubic_sigmoid`].
pub fn cubic_gate(x: Val, a: f64, c: f64) -> Val {
    x / cubic_divisor(x, a, c)
}

/// `1 + exp(-y)`. Uses [`exp2`], because the rounding error of the cubic is larger than the error
/// of [`exp2`].
fn cubic_divisor(x: Val, a: f64, c: f64) -> Val {
    let cube = |by: f64| x * (x * x).mul_add(a * by, c * by);
    let power = match x.calls() {
        true => unary_float(Prim::Exp, cube(-1.0)),
        false => exp2(cube(-std::f64::consts::LOG2_E)),
    };
    power + 1.0
}
