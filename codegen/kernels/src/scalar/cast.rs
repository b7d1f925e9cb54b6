//! Casts between registers' dtypes. Halves are held as f32, so that a cast to one rounds there and
//! back; every cast rounds once.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;

use super::value::Val;
use super::{held, integer};

/// `x`, which is of dtype `from`, as an element of `to`.
pub fn cast<'a>(x: Val<'a>, from: DType, to: DType) -> Val<'a> {
    if from == to {
        return x;
    }
    match (from.is_float(), to.is_float()) {
        (true, _) if to == DType::Bool => x.ne(0.0),
        (true, false) => saturated(x, to),
        (true, true) if is_half(to) => rounded(x, to),
        (false, true) if is_half(to) => rounded(exact_enough(x), to),
        _ => x.convert(held(to)),
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Toward zero; beyond the range its end, and 0 for NaN.
fn saturated(x: Val, to: DType) -> Val {
    let (low, high) = round::int_range(to);
    let top = greatest_below(x.dtype(), high);
    let within = x.at_least(low as f64).at_most(top);
    let whole = within.number(0.0).when(x.is_nan(), within).convert(to);
    match top as i128 == high {
        true => whole,
        false => whole.int(high as i64).when(x.gt(top), whole),
    }
}

/// The greatest float that is not beyond `high`.
fn greatest_below(dtype: DType, high: i128) -> f64 {
    let digits = round::mantissa_bits(dtype) + 1;
    let cut = (128 - high.leading_zeros()).saturating_sub(digits);
    (high >> cut << cut) as f64
}

/// A float rounded to a half, as f32.
fn rounded(x: Val, to: DType) -> Val {
    let x = if x.is_f64() { to_odd(x) } else { x };
    match to {
        DType::BF16 => to_bf16(x),
        _ => x.convert(to).convert(DType::F32),
    }
}

/// Rounded to nearest, ties to even, in the upper half of the bits.
fn to_bf16(x: Val) -> Val {
    let bits = x.bits();
    let even = (bits >> 16) & 1;
    let rounded = ((bits + even + 0x7fff) & !0xffff).float();
    x.when(x.is_nan(), rounded)
}

/// An f64 as f32, toward zero and the last bit set where something was cut off: to round that once
/// more is to round once.
fn to_odd(x: Val) -> Val {
    let nearest = x.convert(DType::F32);
    let back = nearest.convert(DType::F64);
    let bits = nearest.bits();
    let beyond = back.abs().gt(x.abs());
    let odd = (bits - 1).when(beyond, bits) | 1;
    odd.when(back.ne(x), bits).float()
}

/// An integer as a float that rounds to a half as the integer does.
fn exact_enough(x: Val) -> Val {
    match x.dtype() {
        DType::I64 | DType::U64 => {
            // From 2³² on a half's ties are multiples of 2¹⁶: of the bits below it counts whether
            // there are any, and without them f64 holds the rest.
            let cut = (x & !0xffff) | 0x8000;
            let small = integer::abs(x).lt(1 << 32);
            x.when((x & 0xffff).eq(0) | small, cut).convert(DType::F64)
        }
        DType::I32 | DType::U32 => x.convert(DType::F64),
        _ => x.convert(DType::F32),
    }
}
