//! Operations on the bits of floats: exponents and powers of two.

use super::value::Val;

/// The number of stored mantissa bits.
pub fn mantissa(x: Val) -> i64 {
    if x.dtype().bits() == 64 { 52 } else { 23 }
}

/// The exponent bias.
pub fn bias(x: Val) -> i64 {
    if x.dtype().bits() == 64 { 1023 } else { 127 }
}

/// A number that, added to a small number, leaves the nearest whole number in the low bits of the
/// sum.
pub fn rounder(x: Val) -> f64 {
    1.5 * 2f64.powi(mantissa(x) as i32)
}

/// 2ⁿ, for integers `n` in the range of normal exponents.
pub fn power_of_two(n: Val) -> Val {
    exponent_field(n + bias(n))
}

/// The float whose sign and exponent bits are the low bits of `n`, and whose mantissa is 1.
pub fn exponent_field(n: Val) -> Val {
    (n << mantissa(n)).float()
}

/// The exponent of a positive number.
pub fn exponent(x: Val) -> Val {
    let (normal, shift) = normalized(x);
    (normal.bits() >> mantissa(x)) - bias(x) - shift
}

/// Scales a positive number by a power of two if it is subnormal. Returns the scaled number and the
/// exponent of the power.
pub fn normalized<'a>(x: Val<'a>) -> (Val<'a>, Val<'a>) {
    let power = mantissa(x) + 1;
    let tiny = x.lt(2f64.powi(1 - bias(x) as i32));
    let bits = x.bits();
    ((x * 2f64.powi(power as i32)).when(tiny, x), bits.int(power).when(tiny, 0))
}
