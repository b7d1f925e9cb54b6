//! Logarithms: x = 2ᵏ (1 + f) with 1 + f between √½ and √2.

use super::bits::{bias, mantissa, normalized, power_of_two};
use super::exp::{LN2_F32, LN2_F64};
use super::poly::horner;
use super::value::Val;

/// (log(1 + f) - f + f²/2) / f³.
const LOG_F32: [f64; 9] = [
    0.3333331048488617,
    -0.24999986588954926,
    0.20002226531505585,
    -0.1666926145553589,
    0.1421864926815033,
    -0.12384016066789627,
    0.11878915876150131,
    -0.11841129511594772,
    0.0700015127658844,
];

/// (2 artanh(s) / s - 2) / s², a polynomial in s².
const LOG_F64: [f64; 7] = [
    0.666666666666667,
    0.3999999999989889,
    0.28571428626253836,
    0.22222211089379496,
    0.1818289243253687,
    0.15331611722055002,
    0.1461780715341737,
];

/// Splits a positive number into 2ᵏ m, with m between √½ and √2.
pub fn split<'a>(x: Val<'a>) -> (Val<'a>, Val<'a>) {
    let root = x.number(std::f64::consts::FRAC_1_SQRT_2).bits();
    let bits = x.bits();
    let k = (bits - root) >> mantissa(x);
    (k.named("k"), (bits - (k << mantissa(x))).float().named("m"))
}

/// The logarithm of 2ᵏ (1 + f).
fn series<'a>(k: Val<'a>, f: Val<'a>) -> Val<'a> {
    let (high, low) = if f.is_f64() { LN2_F64 } else { LN2_F32 };
    let square = f * f;
    if f.is_f64() {
        let half = square * 0.5;
        let s = f / (f + 2.0);
        let z = s * s;
        let rest = (horner(z, &LOG_F64).mul_add(z, half) * s + k * low) - half;
        return k.mul_add(high, f + rest);
    }
    let cubic = square * f * horner(f, &LOG_F32);
    let rest = square.mul_add(-0.5, k.mul_add(low, cubic));
    k.mul_add(high, f + rest)
}

/// The natural logarithm.
pub fn log(x: Val) -> Val {
    let (normal, shift) = normalized(x);
    let (k, m) = split(normal);
    let result = series((k - shift).convert(x.dtype()), m - 1.0);
    let result = result.when(x.lt(f64::INFINITY), x);
    let result = result.number(f64::NEG_INFINITY).when(x.eq(0.0), result);
    result.number(f64::NAN).when(x.lt(0.0), result)
}

/// log(1 + x).
pub fn log1p(x: Val) -> Val {
    let sum = x + 1.0;
    // The exact rounding error of the sum.
    let part = sum - 1.0;
    let lost = (part.number(1.0) - (sum - part)) + (x - part);
    let (k, m) = split(sum);
    let scale = power_of_two(-k.at_most(bias(k)));
    let result = series(k.convert(x.dtype()), lost.mul_add(scale, m - 1.0));
    let result = result.when(x.lt(f64::INFINITY), x);
    let result = result.number(f64::NEG_INFINITY).when(x.eq(-1.0), result);
    let result = result.number(f64::NAN).when(x.lt(-1.0), result);
    let tiny = if x.is_f64() { -54 } else { -25 };
    x.when(x.abs().lt(2f64.powi(tiny)), result)
}
