//! Hyperbolic functions, by e to the |x|.

use super::exp::expm1_scaled;
use super::value::Val;

/// Tanh: t / (t + 2) with t = e²ˣ - 1.
pub fn tanh(x: Val) -> Val {
    let end = if x.is_f64() { 22.0 } else { 10.0 };
    let a = x.abs().at_most(end);
    let t = expm1_scaled(a + a, 0).less_one;
    (t / (t + 2.0)).sign_of(x)
}

/// Beyond this sinh and cosh are infinite, and a quarter of eˣ is not.
fn end(x: Val) -> f64 {
    if x.is_f64() { 710.6 } else { 89.6 }
}

/// Sinh: (t + t / (t + 1)) / 2 with t = eˣ - 1, of which a quarter is taken.
pub fn sinh(x: Val) -> Val {
    let quarter = expm1_scaled(x.abs().at_most(end(x)), -2).less_one;
    let inverse = quarter / (quarter + 0.25) * 0.5;
    let result = quarter.mul_add(2.0, inverse).sign_of(x);
    let tiny = if x.is_f64() { -28 } else { -13 };
    x.when(x.abs().lt(2f64.powi(tiny)), result)
}

/// Cosh: (e + 1 / e) / 2, of a quarter of e.
pub fn cosh(x: Val) -> Val {
    let quarter = expm1_scaled(x.abs().at_most(end(x)), -2).exp;
    quarter.mul_add(2.0, quarter.number(0.125) / quarter)
}
