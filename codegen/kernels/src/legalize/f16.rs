//! Expands conversions of f16 into integer arithmetic, for processors without F16C (x86-64-v2).
//!
//! LLVM would call a library function for each element, but kernels are not linked with a library.

use mithril_ir::dtype::DType;

use super::{Steps, replace};
use crate::code::{Binary, Cmp, Code, Inst, Ty, V};

/// The number of fraction bits that f32 has in addition to those of f16.
const CUT: u64 = 13;
/// The difference of the exponent biases of f32 and f16, and 2 to the power of this difference, as
/// f32 bits.
const BIAS: u64 = 112 << 23;
const SCALE: u64 = (112 + 127) << 23;
/// One half, in f32.
const HALF: u64 = 126 << 23;

/// Replaces every conversion from and to f16.
pub fn expand_f16(code: &mut Code) {
    replace(code, &|steps, stmt| {
        let Inst::Convert(x) = stmt.inst else { return false };
        let result = stmt.results[0];
        match (steps.ty(x).dtype, steps.ty(result).dtype) {
            (DType::F16, _) => widen(steps, x, result),
            (_, DType::F16) => narrow(steps, x, result),
            _ => return false,
        }
        true
    });
}

/// Converts f16 to f32, which is exact, and then to the result's type.
fn widen(steps: &mut Steps, x: V, result: V) {
    let to = steps.ty(result);
    let (ints, floats) = (to.with(DType::U32), to.with(DType::F32));
    let bits = steps.value(to.with(DType::U16), Inst::Bitcast(x));
    let bits = steps.value(ints, Inst::Convert(bits));
    let magnitude = masked(steps, bits, 0x7fff);
    let magnitude = shifted(steps, Binary::Shl, magnitude, CUT);
    // Shifts the bits, then corrects the exponent bias by a multiplication, which also normalizes
    // subnormal numbers.
    let unbiased = steps.value(floats, Inst::Bitcast(magnitude));
    let scale = steps.value(floats, Inst::Const(SCALE));
    let value = steps.binary(Binary::Mul, unbiased, scale);
    let value = steps.value(ints, Inst::Bitcast(value));
    let [endless, top] =
        [0x7c00 << CUT, 0x7f80_0000].map(|bits| steps.value(ints, Inst::Const(bits)));
    let is_endless = compare(steps, Cmp::Ge, magnitude, endless);
    let infinite = steps.binary(Binary::Or, value, top);
    let value = steps.value(ints, Inst::Select(is_endless, infinite, value));
    let sign = masked(steps, bits, 0x8000);
    let sign = shifted(steps, Binary::Shl, sign, 16);
    let value = steps.binary(Binary::Or, value, sign);
    if to.dtype == DType::F32 {
        return steps.define(result, Inst::Bitcast(value));
    }
    let float = steps.value(floats, Inst::Bitcast(value));
    steps.define(result, Inst::Convert(float));
}

/// Converts to f32, and then to the nearest f16, ties to even.
fn narrow(steps: &mut Steps, x: V, result: V) {
    let (from, to) = (steps.ty(x), steps.ty(result));
    let (ints, floats) = (to.with(DType::U32), to.with(DType::F32));
    let x = if from.dtype == DType::F32 { x } else { steps.value(floats, Inst::Convert(x)) };
    let bits = steps.value(ints, Inst::Bitcast(x));
    let magnitude = masked(steps, bits, 0x7fff_ffff);
    // Adds half a unit in the last kept bit, or slightly less if that bit is even. May carry.
    let last = shifted(steps, Binary::Shr, magnitude, CUT);
    let odd = masked(steps, last, 1);
    let rest = steps.value(ints, Inst::Const(0xfff_u64.wrapping_sub(BIAS) & 0xffff_ffff));
    let sum = steps.binary(Binary::Add, magnitude, rest);
    let sum = steps.binary(Binary::Add, sum, odd);
    let normal = shifted(steps, Binary::Shr, sum, CUT);
    // For subnormal results, adding ½ aligns the sum so that f32 rounds at f16's last bit.
    let absolute = steps.value(floats, Inst::Bitcast(magnitude));
    let half = steps.value(floats, Inst::Const(HALF));
    let placed = steps.binary(Binary::Add, absolute, half);
    let placed = steps.value(ints, Inst::Bitcast(placed));
    let half = steps.value(ints, Inst::Const(HALF));
    let subnormal = steps.binary(Binary::Sub, placed, half);
    // 2⁻¹⁴, 65536 and infinity as f32 bits; infinity and NaN as f16 bits.
    let [least, beyond, endless, infinity, nan] =
        [113 << 23, 143 << 23, 0x7f80_0000, 0x7c00, 0x7e00]
            .map(|bits| steps.value(ints, Inst::Const(bits)));
    let small = compare(steps, Cmp::Lt, magnitude, least);
    let value = steps.value(ints, Inst::Select(small, subnormal, normal));
    let large = compare(steps, Cmp::Ge, magnitude, beyond);
    let value = steps.value(ints, Inst::Select(large, infinity, value));
    let unknown = compare(steps, Cmp::Gt, magnitude, endless);
    let value = steps.value(ints, Inst::Select(unknown, nan, value));
    let sign = shifted(steps, Binary::Shr, bits, 16);
    let sign = masked(steps, sign, 0x8000);
    let value = steps.binary(Binary::Or, value, sign);
    let value = steps.value(to.with(DType::U16), Inst::Convert(value));
    steps.define(result, Inst::Bitcast(value));
}

fn masked(steps: &mut Steps, x: V, bits: u64) -> V {
    let mask = steps.value(steps.ty(x), Inst::Const(bits));
    steps.binary(Binary::And, x, mask)
}

fn shifted(steps: &mut Steps, op: Binary, x: V, places: u64) -> V {
    let places = steps.value(steps.ty(x), Inst::Const(places));
    steps.binary(op, x, places)
}

/// Returns the mask of lanes in which a comparison holds, for integers below 2³¹.
fn compare(steps: &mut Steps, cmp: Cmp, x: V, y: V) -> V {
    let truth: Ty = steps.ty(x).with(DType::Bool);
    steps.value(truth, Inst::Compare(cmp, x, y))
}
