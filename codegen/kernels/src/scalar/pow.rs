//! Powers of floats.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use super::bits::{normalized, power_of_two};
use super::exp::{self, LN2_F64};
use super::log;
use super::poly::horner;
use super::value::Val;

/// (2 artanh(s) / s - 2) / s², a polynomial in s², for f32 results.
const LOG: [f64; 5] = [
    0.6666666666737868,
    0.3999999879244169,
    0.28571755535032944,
    0.2219133742806578,
    0.1936388498663324,
];

/// (eʳ - 1 - r) / r², for f32 results.
const EXP: [f64; 6] = [
    0.5000000013574719,
    0.16666666681744183,
    0.041666463838651,
    0.008333310804807224,
    0.0013933770447165223,
    0.00019891124585823478,
];

/// (2 artanh(s) / s - 2 - 2s²/3) / s⁴, a polynomial in s².
const LOG_REST: [f64; 8] = [
    0.4,
    0.2857142857142937,
    0.22222222221652765,
    0.18181818336099848,
    0.15384594887007175,
    0.13334808798812547,
    0.11706126464558674,
    0.1172432706088951,
];

/// x to the power of y, with the special cases of IEEE 754.
pub fn pow<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    if let Some(result) = y.constant().and_then(|exponent| by_constant(x, exponent)) {
        return result;
    }
    if x.calls() {
        return x.call_prim(Prim::Pow, Some(y), x.dtype());
    }
    let a = x.abs();
    let power = if x.is_f64() { double(a, y) } else { single(a, y) };
    // Powers of ±1 are ±1, even for infinite exponents.
    let power = a.when(a.eq(1.0), power);
    let whole = y.unary(crate::code::Unary::Floor).eq(y);
    let half = y * 0.5;
    let odd = whole & half.unary(crate::code::Unary::Floor).ne(half);
    let power = (power.bits() | x.bits().int(0).when(!odd, x.sign_bit())).float();
    let undefined = x.lt(0.0) & x.gt(f64::NEG_INFINITY) & !whole;
    let power = power.number(f64::NAN).when(undefined | x.is_nan() | y.is_nan(), power);
    power.number(1.0).when(x.eq(1.0) | y.eq(0.0), power)
}

/// Computes powers with constant exponents that have a simpler formula.
fn by_constant<'a>(x: Val<'a>, exponent: f64) -> Option<Val<'a>> {
    let endless = || x.eq(f64::NEG_INFINITY);
    // Adding +0 turns -0 into +0.
    let root = || (x + 0.0).sqrt();
    match exponent {
        0.0 => Some(x.number(1.0)),
        1.0 => Some(x),
        2.0 => Some(x * x),
        3.0 => Some(x * x * x),
        4.0 => Some((x * x) * (x * x)),
        -1.0 => Some(x.number(1.0) / x),
        0.5 => Some(x.number(f64::INFINITY).when(endless(), root())),
        -0.5 => Some(x.number(0.0).when(endless(), x.number(1.0) / root())),
        _ => None,
    }
}

/// Computes a power of a non-negative number in f32. The computation is in f64, where a single
/// number represents the logarithm precisely enough.
fn single<'a>(a: Val<'a>, y: Val<'a>) -> Val<'a> {
    let [a, y] = [a, y].map(|v| v.convert(DType::F64));
    let (k, m) = log::split(a);
    let f = m - 1.0;
    let s = f / (f + 2.0);
    let square = s * s;
    let rest = (s * square).mul_add(horner(square, &LOG), s + s);
    let log2 = rest.mul_add(std::f64::consts::LOG2_E, k.convert(DType::F64));
    let exponent = (ends(a, log2) * y).at_most(200.0).at_least(-200.0);
    let n = exponent.round();
    let r = (exponent - n) * std::f64::consts::LN_2;
    let power = (r * r).mul_add(horner(r, &EXP), r + 1.0);
    let n = n.when(n.eq(n), 0.0).convert(DType::I64);
    (power * power_of_two(n)).convert(DType::F32)
}

/// Corrects the logarithm at 0 and infinity.
fn ends<'a>(a: Val<'a>, log: Val<'a>) -> Val<'a> {
    let log = log.number(f64::NEG_INFINITY).when(a.eq(0.0), log);
    log.number(f64::INFINITY).when(a.eq(f64::INFINITY), log)
}

/// Computes a power of a non-negative number in f64, with a logarithm in two parts.
fn double<'a>(a: Val<'a>, y: Val<'a>) -> Val<'a> {
    let (normal, shift) = normalized(a);
    let (k, m) = log::split(normal);
    let k = (k - shift).convert(DType::F64);
    let log = log_of_mantissa(m);
    let whole = k * LN2_F64.0;
    let sum = whole + log.high;
    let low = (log.high - (sum - whole)) + k.mul_add(LN2_F64.1, log.low);
    let high = ends(a, sum);
    let product = high * y;
    let rest = y.mul_add(low, y.mul_add(high, -product));
    // Far out of range, the low part is not needed and may be NaN.
    let rest = rest.when(product.abs().lt(1000.0), 0.0);
    exp::exp_of_sum(product, rest)
}

/// A number as an unevaluated sum of two parts.
struct Pair<'a> {
    high: Val<'a>,
    low: Val<'a>,
}

impl<'a> Pair<'a> {
    fn mul(&self, other: &Pair<'a>) -> Pair<'a> {
        let high = self.high * other.high;
        let cut = self.high.mul_add(other.high, -high);
        let low = self.high.mul_add(other.low, self.low.mul_add(other.high, cut));
        Pair { high, low }
    }

    /// Adds a larger number, which is also in two parts.
    fn add(&self, larger: f64, rest: f64) -> Pair<'a> {
        let high = self.high + larger;
        Pair { high, low: (self.high - (high - larger)) + (self.low + rest) }
    }
}

/// The logarithm of a number between √½ and √2: 2 artanh(s) with s = (m - 1) / (m + 1).
fn log_of_mantissa(m: Val) -> Pair {
    let f = m - 1.0;
    let den = m + 1.0;
    let cut = m - (den - 1.0);
    let inverse = den.number(1.0) / den;
    let quotient = f * inverse;
    let rest = (-quotient).mul_add(cut, (-quotient).mul_add(den, f));
    let s = Pair { high: quotient, low: rest * inverse };
    let square = s.mul(&s);
    let series = square.high * horner(square.high, &LOG_REST);
    let series = Pair { high: series, low: series.number(0.0) };
    // Adds ⅔, multiplies by s², and adds 2.
    let series = series.add(0.6666666666666666, 3.700743415417188e-17);
    s.mul(&square.mul(&series).add(2.0, 0.0))
}
