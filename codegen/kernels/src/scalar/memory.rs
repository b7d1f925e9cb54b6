//! Conversions of elements between memory and registers.

use mithril_ir::dtype::DType;

use super::value::build;
use super::{cast, float8};
use crate::builder::Builder;
use crate::code::V;

/// The dtype in which registers hold an element: f32 for narrower floats, bytes for 4-bit integers.
pub fn register_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => DType::F32,
        DType::I4 => DType::I8,
        DType::U4 => DType::U8,
        other => other,
    }
}

/// The dtype of loads and stores of an element: bytes for smaller and for non-native dtypes.
pub fn stored(dtype: DType) -> DType {
    match dtype {
        DType::F8E4M3 | DType::F8E5M2 | DType::U4 => DType::U8,
        DType::I4 => DType::I8,
        other => other,
    }
}

/// Converts a loaded element of dtype `dtype` to its register dtype.
pub fn from_memory(b: &mut Builder, loaded: V, dtype: DType) -> V {
    match dtype {
        _ if b.source().calls => b.convert(loaded, register_dtype(dtype)),
        // Shifts the bits instead of converting. With a conversion, LLVM would round results to
        // bf16, for which the processor has no instructions.
        DType::BF16 => build(b, [loaded], |[x]| {
            (x.bitcast(DType::U16).convert(DType::U32) << 16).bitcast(DType::F32)
        }),
        DType::F8E4M3 | DType::F8E5M2 => build(b, [loaded], |[x]| float8::decode(x, dtype)),
        _ => b.convert(loaded, register_dtype(dtype)),
    }
}

/// Converts a register value to an element to be stored, rounded to `dtype`.
pub fn to_memory(b: &mut Builder, value: V, dtype: DType) -> V {
    match dtype {
        _ if b.source().calls => b.convert(value, dtype),
        // Not every processor has an instruction for this conversion.
        DType::BF16 => build(b, [value], |[x]| {
            let upper = cast::upper_half(x).bitcast(DType::U32) >> 16;
            upper.convert(DType::U16).bitcast(DType::BF16)
        }),
        DType::F8E4M3 | DType::F8E5M2 => {
            build(b, [value], |[x]| float8::encode(float8::round(x, dtype), dtype))
        }
        _ => b.convert(value, stored(dtype)),
    }
}
