//! Casts to integers, and conversions of floats for which C has no type.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round::{int_range, mantissa_bits, max_finite};

use super::Parts;
use crate::entry::c_type;

/// Truncates a float to an integer. Clamps to the range of the dtype; NaN becomes 0.
pub fn to_integer(from: DType, to: DType) -> Parts {
    let (ty, (low, high)) = (c_type(to), int_range(to));
    let f = if from == DType::F64 { "" } else { "f" };
    let end = |value: i128| match value {
        v if v == i64::MIN.into() => "INT64_MIN".to_string(),
        v if v == i32::MIN.into() => "INT32_MIN".to_string(),
        v if v == u64::MAX.into() => "UINT64_MAX".to_string(),
        v if v == i64::MAX.into() => "INT64_MAX".to_string(),
        v if v == u32::MAX.into() => "UINT32_MAX".to_string(),
        v => v.to_string(),
    };
    let (low_text, high_text) = (end(low), end(high));
    let bound = |value: i128| format!("{:?}{f}", value as f64);
    let body = format!(
        "if (x >= {}) return {high_text};\nif (x <= {}) return {low_text};\n\
         return x == x ? ({ty})x : 0;",
        bound(high + 1),
        bound(low)
    );
    let about = "Truncates to an integer, and clamps to the range of the type; 0 for NaN.";
    (about.into(), ty, format!("{} x", c_type(from)), body)
}

/// The exponent bias of a dtype.
fn bias(dtype: DType) -> u32 {
    match dtype {
        DType::F8E4M3 => 7,
        _ => 15,
    }
}

/// The bits of infinity, or of the first NaN if the dtype has no infinity.
fn end(dtype: DType) -> u32 {
    match dtype {
        DType::F8E4M3 => 0x7f,
        DType::F8E5M2 => 0x7c,
        _ => 0x7c00,
    }
}

pub fn widen(from: DType) -> Parts {
    let (ty, mantissa, width) = (c_type(from), mantissa_bits(from), from.bits());
    let (shift, sign) = (23 - mantissa, 1u32 << (width - 1));
    let ends = match from {
        DType::F8E4M3 => format!("if (code == {:#x}) return NAN;\n", end(from)),
        _ => format!(
            "if (code > {0:#x}) return NAN;\n\
             if (code == {0:#x}) return sign != 0 ? -INFINITY : INFINITY;\n",
            end(from)
        ),
    };
    let scale = 127 - bias(from);
    let body = format!(
        "const uint32_t sign = (uint32_t)(x & {sign:#x}) << {};\n\
         const uint32_t code = x & {:#x};\n{ends}\
         const float magnitude = f32_bits_of_u32(code << {shift}) * 0x1p{scale}f;\n\
         return sign != 0 ? -magnitude : magnitude;",
        32 - width,
        sign - 1
    );
    let about = format!("Converts a {from} float, given by its bits, to float.");
    (about, "float", format!("{ty} x"), body)
}

pub fn narrow(to: DType) -> Parts {
    let (ty, mantissa, width) = (c_type(to), mantissa_bits(to), to.bits());
    let (shift, bias) = (23 - mantissa, bias(to));
    let nan = match to {
        DType::F16 => 0x7e00,
        DType::F8E5M2 => 0x7e,
        _ => 0x7f,
    };
    // Half a unit above the largest value is a tie, which rounds to even: to the largest value, or
    // to infinity or NaN above it.
    let largest = max_finite(to);
    let unit = 2f64.powi(largest.log2().floor() as i32 - mantissa as i32);
    let tie = largest + unit / 2.0;
    let beyond = if to == DType::F8E4M3 { ">" } else { ">=" };
    let lowest = 1 - bias as i32;
    let body = format!(
        "const uint32_t bits = u32_bits_of_f32(x);\n\
         const uint32_t sign = bits >> {} & {:#x};\n\
         const float magnitude = fabsf(x);\n\
         if (x != x) return {nan:#x};\n\
         if (magnitude {beyond} {tie:?}f) return ({ty})(sign | {:#x});\n\
         if (magnitude < 0x1p{lowest}f) {{\n\
         \x20 return ({ty})(sign | (uint32_t)rintf(magnitude * 0x1p{}f));\n}}\n\
         const uint32_t even = (bits & 0x7fffffff) + {:#x} + (bits >> {shift} & 1);\n\
         return ({ty})(sign | (even - ({}u << 23)) >> {shift});",
        32 - width,
        1u32 << (width - 1),
        end(to),
        mantissa as i32 - lowest,
        (1u32 << (shift - 1)) - 1,
        127 - bias,
    );
    let about = format!("Rounds to the nearest {to} float, ties to even, and returns its bits.");
    (about, ty, "float x".into(), body)
}

pub fn bits(from: DType, to: DType) -> Parts {
    let (source, target) = (c_type(from), c_type(to));
    let about = format!("Reinterprets the bits of `{source}` as `{target}`.");
    let body = format!("{target} result;\nmemcpy(&result, &x, sizeof result);\nreturn result;");
    (about, target, format!("{source} x"), body)
}
