//! Hyperbolic functions, based on exp(|x|).

use super::exp::expm1_scaled;
use super::poly::horner;
use super::value::Val;

/// (tanh(x) / x - 1) / x², a polynomial in x², up to x² = 0.39.
const TANH: [f64; 5] = [
    -0.3333328068256378,
    0.13331405818462372,
    -0.05373651534318924,
    0.02062816731631756,
    -0.005692296661436558,
];

/// (sinh(x) / x - 1) / x², a polynomial in x², up to x² = 1.
const SINH: [f64; 4] =
    [0.1666666716337204, 0.008333311416208744, 0.0001984262780752033, 2.7840162601933116e-06];

/// tanh, with t = e²ˣ - 1: t / (t + 2) in f64; in f32 a series up to |x| = 0.625, and 1 - 2 / (t +
/// 2) above it.
pub fn tanh(x: Val) -> Val {
    let a = x.abs().at_most(if x.is_f64() { 22.0 } else { 10.0 });
    let scaled = expm1_scaled(a + a, 0);
    if x.is_f64() {
        return (scaled.less_one / (scaled.less_one + 2.0)).sign_of(x);
    }
    let large = a.number(1.0) - a.number(2.0) / (scaled.exp + 1.0);
    odd_series(a, &TANH).when(a.lt(0.625), large).sign_of(x)
}

/// x + x³ P(x²).
fn odd_series<'a>(x: Val<'a>, coefficients: &[f64]) -> Val<'a> {
    let square = x * x;
    (x * square).mul_add(horner(square, coefficients), x)
}

/// Above this argument sinh and cosh are infinite, but a quarter of eˣ is finite.
fn end(x: Val) -> f64 {
    if x.is_f64() { 710.6 } else { 89.6 }
}

/// sinh: (t + t / (t + 1)) / 2 with t = eˣ - 1, computed from a quarter of t.
pub fn sinh(x: Val) -> Val {
    let quarter = expm1_scaled(x.abs().at_most(end(x)), -2).less_one;
    let inverse = quarter / (quarter + 0.25) * 0.5;
    let result = quarter.mul_add(2.0, inverse).sign_of(x);
    let (small, below) = match x.is_f64() {
        true => (x, 2f64.powi(-28)),
        false => (odd_series(x.abs(), &SINH).sign_of(x), 1.0),
    };
    small.when(x.abs().lt(below), result)
}

/// cosh: (eˣ + e⁻ˣ) / 2, computed from a quarter of eˣ.
pub fn cosh(x: Val) -> Val {
    let quarter = expm1_scaled(x.abs().at_most(end(x)), -2).exp;
    quarter.mul_add(2.0, quarter.number(0.125) / quarter)
}
