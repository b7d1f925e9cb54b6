//! Elements in memory and in registers.

use mithril_ir::dtype::DType;

use super::value::build;
use super::{cast, float8};
use crate::builder::Builder;
use crate::code::V;

/// The dtype that registers have for an element: f32 for floats of fewer bits, and bytes for
/// integers of four.
pub fn held(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => DType::F32,
        DType::I4 => DType::I8,
        DType::U4 => DType::U8,
        other => other,
    }
}

/// The dtype that loads and stores have for an element: bytes for what is smaller or strange.
pub fn stored(dtype: DType) -> DType {
    match dtype {
        DType::F8E4M3 | DType::F8E5M2 | DType::U4 => DType::U8,
        DType::I4 => DType::I8,
        other => other,
    }
}

/// What was loaded, of dtype `dtype`, as registers hold it.
pub fn from_memory(b: &mut Builder, loaded: V, dtype: DType) -> V {
    match dtype {
        _ if b.is_portable() => b.convert(loaded, held(dtype)),
        // By its bits, or LLVM would round results to it that it then has no instruction for.
        DType::BF16 => build(b, [loaded], |[x]| {
            (x.bitcast(DType::U16).convert(DType::U32) << 16).bitcast(DType::F32)
        }),
        DType::F8E4M3 | DType::F8E5M2 => build(b, [loaded], |[x]| float8::decode(x, dtype)),
        _ => b.convert(loaded, held(dtype)),
    }
}

/// What registers hold as an element to be stored, rounded to `dtype`.
pub fn to_memory(b: &mut Builder, value: V, dtype: DType) -> V {
    match dtype {
        _ if b.is_portable() => b.convert(value, dtype),
        // Not every machine has an instruction for it.
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
