//! Polynomials.

use super::value::Val;

/// `c[0] + c[1] x + c[2] x² + …`.
pub fn horner<'a>(x: Val<'a>, coefficients: &[f64]) -> Val<'a> {
    let (last, rest) = coefficients.split_last().expect("a polynomial has coefficients");
    rest.iter().rev().fold(x.number(*last), |sum, &c| sum.mul_add(x, c).named("series"))
}

/// Evaluates the polynomial for the dtype of `x`.
pub fn by_dtype<'a>(x: Val<'a>, single: &[f64], double: &[f64]) -> Val<'a> {
    horner(x, if x.is_f64() { double } else { single })
}
