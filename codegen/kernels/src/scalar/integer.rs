//! Integer operations: they wrap, and division and shifts are defined everywhere.

use mithril_ir::dtype::DType;

use super::value::Val;

/// |x|; the smallest integer is returned as it is.
pub fn abs(x: Val) -> Val {
    if x.dtype().is_signed_int() { x.abs() } else { x }
}

/// -1, 0 or 1.
pub fn sign(x: Val) -> Val {
    x.at_most(1).at_least(if x.dtype().is_signed_int() { -1 } else { 0 })
}

/// The quotient rounded toward zero. Division by zero gives all ones; the smallest integer by -1
/// gives itself.
pub fn div<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let (safe, by_zero) = safe_divisor(x, y);
    x.int(-1).when(by_zero, quotient(x, safe))
}

/// The quotient rounded down, and its remainder. Division by zero gives all ones, and `x`.
pub fn floor_div_mod<'a>(x: Val<'a>, y: Val<'a>) -> (Val<'a>, Val<'a>) {
    let (safe, by_zero) = safe_divisor(x, y);
    let mut whole = quotient(x, safe);
    let mut rest = x - whole * safe;
    if x.dtype().is_signed_int() {
        let below = (rest ^ safe).lt(0) & rest.ne(0);
        whole = (whole - 1).when(below, whole);
        rest = (rest + safe).when(below, rest);
    }
    (whole.int(-1).when(by_zero, whole), x.when(by_zero, rest))
}

/// A divisor for which machine division is defined, and the mask where `y` is zero. For the
/// smallest integer -1 is replaced by 1, which has the same quotient and remainder.
fn safe_divisor<'a>(x: Val<'a>, y: Val<'a>) -> (Val<'a>, Val<'a>) {
    let by_zero = y.eq(0);
    let mut unsafe_ = by_zero;
    if x.dtype().is_signed_int() {
        unsafe_ = by_zero | (x.eq(least(x.dtype())) & y.eq(-1));
    }
    (y.int(1).when(unsafe_, y), by_zero)
}

/// The smallest value of a signed dtype.
fn least(dtype: DType) -> i64 {
    -1 << (dtype.bits() - 1)
}

/// Processors only divide vectors of floats. A quotient of integers is far enough from the next
/// whole number to be truncated correctly if the float has twice their bits, or 24 for 16-bit
/// integers.
fn quotient<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let float = match x.dtype().bits() {
        64 => return x / y,
        32 => DType::F64,
        _ => DType::F32,
    };
    (x.convert(float) / y.convert(float)).convert(x.dtype())
}

/// Exponentiation by squaring, one step for each bit of the exponent. A negative exponent gives ±1
/// or 0.
pub fn pow<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let bits = x.dtype().bits() as i64;
    let logical = y.bitcast(unsigned(y.dtype()));
    let powers = Val::repeat(bits, [x, logical, x.int(1)], |[base, exponent, power]| {
        let odd = (exponent & 1).ne(0);
        vec![base * base, exponent >> 1, (power * base).when(odd, power)]
    });
    if !x.dtype().is_signed_int() {
        return powers[2];
    }
    let parity = (x.int(1) - ((y & 1) << 1)).when(x.eq(-1), 0);
    let reciprocal = x.int(1).when(x.eq(1), parity);
    reciprocal.when(y.lt(0), powers[2])
}

/// `x` shifted left; 0 where all bits are shifted out.
pub fn shift_left<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let out = is_out(y);
    x.int(0).when(out, x << y.int(0).when(out, y))
}

/// `x` shifted right; the sign bit is shifted in if the dtype is signed.
pub fn shift_right<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let out = is_out(y);
    if x.dtype().is_signed_int() {
        return x >> y.int(x.dtype().bits() as i64 - 1).when(out, y);
    }
    x.int(0).when(out, x >> y.int(0).when(out, y))
}

/// Whether a shift count is negative, or at least the width.
fn is_out(y: Val) -> Val {
    y.bitcast(unsigned(y.dtype())).ge(y.dtype().bits() as i64)
}

/// The unsigned dtype of the same width.
fn unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I64 => DType::U64,
        DType::I32 => DType::U32,
        DType::I16 => DType::U16,
        DType::I8 => DType::U8,
        other => other,
    }
}
