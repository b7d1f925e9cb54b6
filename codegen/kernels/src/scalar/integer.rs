//! Integer operations. They wrap, and division and shifts are defined for all operands.

use mithril_ir::dtype::DType;

use super::value::Val;

/// |x|. The lowest integer is returned unchanged.
pub fn abs(x: Val) -> Val {
    if x.dtype().is_signed_int() { x.abs() } else { x }
}

/// -1, 0 or 1.
pub fn sign(x: Val) -> Val {
    x.at_most(1).at_least(if x.dtype().is_signed_int() { -1 } else { 0 })
}

/// Truncating division. Division by zero gives all ones. The lowest integer divided by -1 gives
/// itself.
pub fn div<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let (safe, by_zero) = safe_divisor(x, y);
    x.int(-1).when(by_zero, quotient(x, safe))
}

/// Floor division and its remainder. Division by zero gives all ones and the remainder `x`.
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

/// Returns a divisor for which machine division is defined, and the mask of lanes where `y` is
/// zero. For the lowest integer, -1 is replaced by 1, which gives the same quotient and remainder.
fn safe_divisor<'a>(x: Val<'a>, y: Val<'a>) -> (Val<'a>, Val<'a>) {
    let by_zero = y.eq(0);
    let mut unsafe_ = by_zero;
    if x.dtype().is_signed_int() {
        unsafe_ = by_zero | (x.eq(lowest(x.dtype())) & y.eq(-1));
    }
    (y.int(1).when(unsafe_, y), by_zero)
}

/// The lowest value of a signed dtype.
fn lowest(dtype: DType) -> i64 {
    -1 << (dtype.bits() - 1)
}

/// Divides integers in floats, because processors have vector division only for floats. The
/// truncated result is exact if the float has twice as many bits as the integers, or 24 bits for
/// 16-bit integers.
fn quotient<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let float = match x.dtype().bits() {
        64 => return x / y,
        32 => DType::F64,
        _ => DType::F32,
    };
    (x.convert(float) / y.convert(float)).convert(x.dtype())
}

/// Exponentiation by squaring, with one step per bit of the exponent. A negative exponent gives ±1
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

/// `x` shifted left; 0 if all bits are shifted out.
pub fn shift_left<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let out = is_out(y);
    x.int(0).when(out, x << y.int(0).when(out, y))
}

/// `x` shifted right, filled with the sign bit if the dtype is signed.
pub fn shift_right<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let out = is_out(y);
    if x.dtype().is_signed_int() {
        return x >> y.int(x.dtype().bits() as i64 - 1).when(out, y);
    }
    x.int(0).when(out, x >> y.int(0).when(out, y))
}

/// Whether a shift count is negative or at least the width.
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
