//! Casts between register values. Floats narrower than 32 bits are held as f32, so a cast to such a
//! dtype rounds the value in f32. Every cast rounds once.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::{Prim, round};

use super::value::Val;
use super::{float8, integer, register_dtype};

/// Casts `x`, which is of dtype `from`, to `to`.
pub fn cast<'a>(x: Val<'a>, from: DType, to: DType) -> Val<'a> {
    if from == to {
        return x;
    }
    match (from.is_float(), to.is_float()) {
        (true, false) if to != DType::Bool && x.calls() => {
            x.call_prim(Prim::Cast, None, to).convert(register_dtype(to))
        }
        (true, true) if is_narrow(to) && x.calls() => x.convert(to).convert(DType::F32),
        (false, true) if is_narrow(to) && x.calls() => {
            exact_enough(x).convert(to).convert(DType::F32)
        }
        (true, _) if to == DType::Bool => x.ne(0.0),
        (true, false) => saturated(x, to),
        (true, true) if is_narrow(to) => rounded(x, to),
        (false, true) if is_narrow(to) => rounded(exact_enough(x), to),
        (false, false) => low_bits(x.convert(register_dtype(to)), to),
        _ => x.convert(register_dtype(to)),
    }
}

fn is_narrow(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() < 32
}

/// Keeps the low bits of an integer; 4-bit integers are extended to a byte.
fn low_bits(x: Val, to: DType) -> Val {
    match to {
        DType::I4 => (x << 4) >> 4,
        DType::U4 => x & 15,
        _ => x,
    }
}

/// Truncates to an integer. Clamps to the range of the dtype; NaN becomes 0.
fn saturated(x: Val, to: DType) -> Val {
    let (low, high) = round::int_range(to);
    let top = greatest_below(x.dtype(), high);
    let within = x.at_least(low as f64).at_most(top);
    let whole = within.number(0.0).when(x.is_nan(), within).convert(register_dtype(to));
    match top as i128 == high {
        true => whole,
        false => whole.int(high as i64).when(x.gt(top), whole),
    }
}

/// The largest float that is not above `high`.
fn greatest_below(dtype: DType, high: i128) -> f64 {
    let digits = round::mantissa_bits(dtype) + 1;
    let cut = (128 - high.leading_zeros()).saturating_sub(digits);
    (high >> cut << cut) as f64
}

/// Rounds a float to a narrower dtype; the result is held as f32.
fn rounded(x: Val, to: DType) -> Val {
    let x = if x.is_f64() { to_odd(x) } else { x };
    match to {
        DType::F16 => x.convert(to).convert(DType::F32),
        DType::BF16 => upper_half(x).float(),
        _ => float8::round(x, to),
    }
}

/// Rounds an f32 to the upper half of its bits, to nearest, ties to even.
pub fn upper_half(x: Val) -> Val {
    let bits = x.bits();
    let even = (bits >> 16) & 1;
    // Sets a bit of the upper half, so that a NaN stays NaN.
    let rounded = (bits | 0x400000).when(x.is_nan(), bits + even + 0x7fff);
    rounded & !0xffff
}

/// Rounds an f64 to odd in f32: truncates, and sets the last bit if the result is inexact. Rounding
/// the result again to a narrower dtype is then correct.
fn to_odd(x: Val) -> Val {
    let nearest = x.convert(DType::F32);
    let back = nearest.convert(DType::F64);
    let bits = nearest.bits();
    let beyond = back.abs().gt(x.abs());
    let odd = (bits - 1).when(beyond, bits) | 1;
    odd.when(back.ne(x), bits).float()
}

/// Converts an integer to a float. Rounding the float to 16 bits or fewer gives the same result as
/// rounding the integer.
fn exact_enough(x: Val) -> Val {
    match x.dtype() {
        DType::I64 | DType::U64 => {
            // From 2³² on, ties are multiples of 2¹⁶, so it only matters whether any bit below 2¹⁶
            // is set. f64 represents the other bits exactly.
            let cut = (x & !0xffff) | 0x8000;
            let small = integer::abs(x).lt(1 << 32);
            x.when((x & 0xffff).eq(0) | small, cut).convert(DType::F64)
        }
        DType::I32 | DType::U32 => x.convert(DType::F64),
        _ => x.convert(DType::F32),
    }
}
