//! Sine, cosine and tangent of |x|, reduced by multiples of π/2.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

use mithril_ir::dtype::DType;

use super::bits::{bias, mantissa, power_of_two, rounder};
use super::poly::{by_dtype, horner};
use super::value::Val;
use crate::code::Unary;

/// (sin(r) / r - 1) / r², a polynomial in r², up to (π/4)².
const SIN_F32: [f64; 4] =
    [-0.1666666716337204, 0.008333380334079266, -0.00019853483536280692, 2.8369506708258996e-06];
const SIN_F64: [f64; 6] = [
    -0.16666666666666666,
    0.008333333333330918,
    -0.00019841269836712495,
    2.755731607868067e-06,
    -2.505112687608495e-08,
    1.5917771759319144e-10,
];

/// (cos(r) - 1 + r²/2) / r⁴.
const COS_F32: [f64; 3] = [0.04166664555668831, -0.0013887308305129409, 2.4432101781712845e-05];
const COS_F64: [f64; 6] = [
    0.041666666666666664,
    -0.0013888888888887378,
    2.4801587298736863e-05,
    -2.755731725679604e-07,
    2.0876143159909197e-09,
    -1.138240875413901e-11,
];

/// (tan(r) / r - 1) / r².
const TAN_F32: [f64; 7] = [
    0.3333335220813751,
    0.13332583010196686,
    0.05406865105032921,
    0.02123861014842987,
    0.010945543646812439,
    -4.618688399204984e-05,
    0.004441829398274422,
];

/// π/2 in three parts.
const HALF_PI_F32: [f64; 3] = [1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15];
const HALF_PI_F64: [f64; 3] = [FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];

/// The bits of 2/π after the binary point, 53 per entry.
const TWO_BY_PI: [u64; 24] = [
    0x145f306dc9c882,
    0x14a7f09d5f47d4,
    0x1a6ee06db14acc,
    0x13c439041fe516,
    0x0757bd778ac36e,
    0x091b8e909374b8,
    0x00324977504e8c,
    0x121cfe1deb1cb1,
    0x0534e7dd1046be,
    0x14baed1213a671,
    0x18135a2fbf209c,
    0x191d639835339f,
    0x093908bf177bf2,
    0x0a0ec7fe25fff7,
    0x102cc07f79788c,
    0x0b5a0a6d1f6d36,
    0x0fd9e4f96136e9,
    0x1d18fd9a797fa8,
    0x16ba93dd63f5f2,
    0x1f17b3d0739f78,
    0x14a525d4d7f6bf,
    0x0c47e357421580,
    0x198237e3db5d5f,
    0x10cfbc209af436,
];

/// Up to this argument, π/2 in three parts is accurate enough.
const DIRECT: f64 = 131072.0;

/// `r + low` is x minus a multiple of π/2; `n` holds the low two bits of the multiple.
struct Reduced<'a> {
    n: Val<'a>,
    r: Val<'a>,
    low: Val<'a>,
}

fn reduce(a: Val) -> Reduced {
    let Reduced { n, r, low } = reduce_near(a);
    let large = a.gt(DIRECT) & a.lt(f64::INFINITY);
    let given = [a, n, r, low];
    let parts =
        Val::choose(large, given, "reduce_far", reduce_far, |[_, n, r, low]| vec![n, r, low]);
    Reduced { n: parts[0], r: parts[1], low: parts[2] }
}

fn reduce_near(a: Val) -> Reduced {
    let rounder = rounder(a);
    let sum = a.mul_add(FRAC_2_PI, rounder);
    let n = sum - rounder;
    let [first, second, third] = if a.is_f64() { HALF_PI_F64 } else { HALF_PI_F32 };
    // The first step is exact.
    let exact = n.mul_add(-first, a);
    let r = n.mul_add(-third, n.mul_add(-second, exact));
    // Repeats the reduction and keeps the rounding errors.
    let product = n * second;
    let (close, cut) = two_sum(exact, -product);
    let low = cut - n.mul_add(third, n.mul_add(second, -product));
    Reduced { n: sum.bits(), r, low: (close - r) + low }
}

/// Replaces the results for large numbers, for which the direct reduction is wrong.
fn reduce_far<'a>([a, n, r, low]: [Val<'a>; 4]) -> Vec<Val<'a>> {
    let all = reduce_any(a);
    let large = a.gt(DIRECT) & a.lt(f64::INFINITY);
    [(all.n, n), (all.r, r), (all.low, low)].map(|(any, near)| any.when(large, near)).into()
}

/// Reduces any finite number that is at least [`DIRECT`], in f64.
fn reduce_any(a: Val) -> Reduced {
    let dtype = a.dtype();
    let [first, second, _] = HALF_PI_F64;
    if dtype == DType::F64 {
        let [whole, turn, rest] = quarter_turns(a);
        let r = turn * first;
        let low = rest.mul_add(first, turn.mul_add(second, turn.mul_add(first, -r)));
        return Reduced { n: whole.convert(DType::I64), r, low };
    }
    let [whole, turn] = quarter_turns_of_single(a.convert(DType::F64));
    let r = turn * first;
    let single = r.convert(dtype);
    let low = (r - single.convert(DType::F64)).convert(dtype);
    Reduced { n: whole.convert(DType::I64).convert(DType::I32), r: single, low }
}

/// 2/π times an f64 number, modulo 4: the nearest whole number, and the fraction in two parts.
///
/// Bits of 2/π that only contribute multiples of 4 are skipped. Five groups of the other bits
/// suffice, even for the float that is closest to a multiple of π/2.
fn quarter_turns(a: Val) -> [Val; 3] {
    let last = 18;
    let bits = large_exponent(a) - 54;
    // Divides by 53, for numbers up to 1023.
    let group = ((bits.at_least(0) * 1237) >> 16).at_most(last);
    let scaled = a * power_of_two(-(group * 53));
    let mut sum = Sum::new(a);
    for (k, bits) in window(group, 53, last as usize + 5).into_iter().enumerate() {
        let x = scaled * 2f64.powi(-53 * k as i32);
        let product = x * bits;
        let cut = x.mul_add(bits, -product);
        for term in [product, cut] {
            // From the third group on, terms are less than 4.
            sum.add(if k < 2 { modulo_4(term) } else { term });
        }
    }
    let whole = sum.high.round();
    let turn = (sum.high - whole) + sum.middle;
    let rest = (sum.middle - (turn - (sum.high - whole))) + sum.low;
    [whole, turn, rest]
}

/// Like [`quarter_turns`], for a number of 24 bits, with the fraction in one part. Its products
/// with 28-bit groups are exact.
fn quarter_turns_of_single(a: Val) -> [Val; 2] {
    let last = 3;
    let bits = large_exponent(a) - 25;
    // Divides by 28, for numbers up to 102.
    let group = ((bits.at_least(0) * 2341) >> 16).at_most(last);
    let scaled = a * power_of_two(-(group * 28));
    let parts = window(group, 28, last as usize + 5);
    let part = |k: usize| scaled * 2f64.powi(-28 * k as i32) * parts[k];
    let (high, cut) = two_sum(modulo_4(part(0)), modulo_4(part(1)));
    let (high, next) = two_sum(high, part(2));
    let whole = high.round();
    [whole, (high - whole) + (cut + next + (part(3) + part(4)))]
}

/// Subtracts the nearest multiple of 4.
fn modulo_4(x: Val) -> Val {
    x - (x * 0.25).round() * 4.0
}

/// The exponent of a positive normal number.
fn large_exponent(a: Val) -> Val {
    (a.bits() >> mantissa(a)) - bias(a)
}

/// Five consecutive groups of `bits` bits of 2/π, as fractions, starting with number `group` of the
/// first `count` groups.
fn window(group: Val, bits: usize, count: usize) -> [Val; 5] {
    let like = group.float();
    let fraction = |at| like.number(two_by_pi(at * bits, bits) as f64 * 2f64.powi(-(bits as i32)));
    let mut all: Vec<Val> = (0..count).map(fraction).collect();
    for shift in [16, 8, 4, 2, 1] {
        if shift + 4 >= all.len() {
            continue;
        }
        let shifted = (group & shift as i64).ne(0);
        all = (0..shift + 4)
            .map(|i| all.get(i + shift).map_or(all[i], |&next| next.when(shifted, all[i])))
            .collect();
    }
    std::array::from_fn(|i| all[i])
}

/// Up to 53 bits of 2/π, starting with bit `from` after the binary point.
fn two_by_pi(from: usize, bits: usize) -> u64 {
    let (word, skipped) = (from / 53, from % 53);
    let next = TWO_BY_PI.get(word + 1).copied().unwrap_or(0);
    let both = u128::from(TWO_BY_PI[word]) << 53 | u128::from(next);
    (both >> (106 - skipped - bits)) as u64 & ((1 << bits) - 1)
}

/// A number as an unevaluated sum of three parts.
struct Sum<'a> {
    high: Val<'a>,
    middle: Val<'a>,
    low: Val<'a>,
}

impl<'a> Sum<'a> {
    fn new(like: Val<'a>) -> Sum<'a> {
        let zero = like.number(0.0);
        Sum { high: zero, middle: zero, low: zero }
    }

    fn add(&mut self, term: Val<'a>) {
        let (high, cut) = two_sum(self.high, term);
        let (middle, cut) = two_sum(self.middle, cut);
        *self = Sum { high, middle, low: self.low + cut };
    }
}

/// A sum and its rounding error.
fn two_sum<'a>(x: Val<'a>, y: Val<'a>) -> (Val<'a>, Val<'a>) {
    let sum = x + y;
    let part = sum - x;
    (sum, (x - (sum - part)) + (y - part))
}

fn sin_series(r: Val) -> Val {
    let square = r * r;
    (r * square).mul_add(by_dtype(square, &SIN_F32, &SIN_F64), r)
}

fn cos_series(r: Val) -> Val {
    let square = r * r;
    let rest = square.mul_add(-0.5, 1.0);
    (square * square).mul_add(by_dtype(square, &COS_F32, &COS_F64), rest)
}

/// Flips the sign of `x` if bit 1 of `n` is set.
fn flip<'a>(x: Val<'a>, n: Val<'a>) -> Val<'a> {
    (x.bits() ^ ((n & 2) << (n.dtype().bits() as i64 - 2))).float()
}

/// `cos(2π k / n)` for whole numbers `0 ≤ k ≤ n` in f64.
pub fn cos_of_turn<'a>(k: Val<'a>, n: Val<'a>) -> Val<'a> {
    let Turn { odd, negates_cos, angle, .. } = turn(k, n);
    let cos = turn_sin(angle).when(odd, turn_cos(angle));
    (-cos).when(negates_cos, cos)
}

/// `sin(2π k / n)` for whole numbers `0 ≤ k ≤ n` in f64.
pub fn sin_of_turn<'a>(k: Val<'a>, n: Val<'a>) -> Val<'a> {
    let Turn { odd, negates_sin, angle, .. } = turn(k, n);
    let sin = turn_cos(angle).when(odd, turn_sin(angle));
    (-sin).when(negates_sin, sin)
}

/// A part of a turn: whole quarters, and an angle of at most an eighth of a turn.
struct Turn<'a> {
    /// Whether the number of quarters is odd, and which signs they change.
    odd: Val<'a>,
    negates_cos: Val<'a>,
    negates_sin: Val<'a>,
    angle: Val<'a>,
}

/// Divides `k / n` of a turn. The division is exact, so that angles have no error but rounding.
fn turn<'a>(k: Val<'a>, n: Val<'a>) -> Turn<'a> {
    let eighths = (k * 8.0 / n).unary(Unary::Floor);
    let quarters = ((eighths + 1.0) * 0.5).unary(Unary::Floor);
    let angle = (k * 4.0 - quarters * n) * FRAC_PI_2 / n;
    let is = |count: f64| quarters.eq(count);
    Turn {
        odd: is(1.0) | is(3.0),
        negates_cos: is(1.0) | is(2.0),
        negates_sin: is(2.0) | is(3.0),
        angle,
    }
}

fn turn_sin(r: Val) -> Val {
    let square = r * r;
    r + r * square * plain_horner(square, &SIN_F64)
}

fn turn_cos(r: Val) -> Val {
    let square = r * r;
    let half = square * 0.5;
    let one = r.number(1.0);
    let rest = one - half;
    // What `rest` lost to rounding.
    let lost = (one - rest) - half;
    rest + (lost + square * square * plain_horner(square, &COS_F64))
}

/// A polynomial without fused operations, which C compilers replace by calls where a processor has
/// none.
fn plain_horner<'a>(x: Val<'a>, coefficients: &[f64]) -> Val<'a> {
    let (last, rest) = coefficients.split_last().expect("a polynomial has coefficients");
    rest.iter().rev().fold(x.number(*last), |sum, &c| sum * x + c)
}

pub fn sin(x: Val) -> Val {
    let Reduced { n, r, .. } = reduce(x.abs());
    let odd = (n & 1).ne(0);
    let result = flip(cos_series(r).when(odd, sin_series(r)), n);
    (result.bits() ^ x.sign_bit()).float()
}

pub fn cos(x: Val) -> Val {
    let Reduced { n, r, .. } = reduce(x.abs());
    let odd = (n & 1).ne(0);
    flip(sin_series(r).when(odd, cos_series(r)), n + 1)
}

/// Tangent: its own series, or sine divided by cosine; inverted at odd multiples of π/2.
pub fn tan(x: Val) -> Val {
    let Reduced { n, r, low } = reduce(x.abs());
    let odd = (n & 1).ne(0);
    let (num, den) = match x.is_f64() {
        true => (sin_series(r), cos_series(r)),
        false => {
            let square = r * r;
            let rest = (r * square).mul_add(horner(square, &TAN_F32), low.mul_add(square, low));
            (r + rest, r.number(1.0))
        }
    };
    let result = (-den).when(odd, num) / num.when(odd, den);
    (result.bits() ^ x.sign_bit()).float()
}
