//! 8-bit floats, held as f32.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round::{mantissa_bits, max_finite};

use super::bits::exponent_field;
use super::value::Val;

/// The exponent bias.
fn bias(dtype: DType) -> i64 {
    if dtype == DType::F8E5M2 { 15 } else { 7 }
}

/// The number of bits by which the exponent field is lower than in f32.
fn shift(dtype: DType) -> i64 {
    23 - mantissa_bits(dtype) as i64
}

/// The value of numbers above the largest finite one.
fn beyond(dtype: DType) -> f64 {
    if dtype == DType::F8E5M2 { f64::INFINITY } else { f64::NAN }
}

/// Rounds an f32 to nearest, ties to even.
pub fn round(x: Val, to: DType) -> Val {
    let bits = mantissa_bits(to) as i64;
    let exponent = ((x.bits() >> 23) & 255).at_least(128 - bias(to));
    // Scales by a power of two so that the last kept bit is worth 1. Scaled back below.
    let units = (x * exponent_field(-exponent + (254 + bits))).round();
    let rounded = units * exponent_field(exponent - bits);
    let end = x.number(beyond(to)).abs().sign_of(x);
    end.when(rounded.abs().gt(max_finite(to)), rounded)
}

/// Decodes a byte.
pub fn decode(byte: Val, dtype: DType) -> Val {
    let bits = byte.convert(DType::I32);
    let code = bits & 0x7f;
    // Shifts the bits, then corrects the exponent bias by a multiplication, which also normalizes
    // subnormal numbers.
    let magnitude = (code << shift(dtype)).float() * 2f64.powi(127 - bias(dtype) as i32);
    let magnitude = match dtype {
        DType::F8E5M2 => {
            let endless = magnitude.number(f64::INFINITY).when(code.eq(0x7c), magnitude);
            endless.number(f64::NAN).when(code.gt(0x7c), endless)
        }
        _ => magnitude.number(f64::NAN).when(code.eq(0x7f), magnitude),
    };
    ((magnitude.bits() & 0x7fffffff) | ((bits & 0x80) << 24)).float()
}

/// Encodes a value that is already rounded.
pub fn encode(x: Val, dtype: DType) -> Val {
    let magnitude = x.abs() * 2f64.powi(bias(dtype) as i32 - 127);
    let code = magnitude.bits() >> shift(dtype);
    let code = match dtype {
        DType::F8E5M2 => code.int(0x7c).when(x.abs().eq(f64::INFINITY), code),
        _ => code,
    };
    let nan = if dtype == DType::F8E5M2 { 0x7e } else { 0x7f };
    let code = code.int(nan).when(x.is_nan(), code);
    (code | ((x.bits() >> 24) & 0x80)).convert(DType::U8)
}
