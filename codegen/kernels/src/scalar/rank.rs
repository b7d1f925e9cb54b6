//! Maps floats to integers of the same order. The maximum is then an integer reduction, which a
//! compiler may reorder and split as it likes.

use super::value::Val;
use crate::code::Callee;

/// All bits but the sign.
fn magnitude(x: Val) -> i64 {
    if x.dtype().bits() == 64 { i64::MAX } else { i32::MAX.into() }
}

/// The bits of the canonical NaN.
fn nan(x: Val) -> i64 {
    if x.is_f64() { f64::NAN.to_bits() as i64 } else { f32::NAN.to_bits().into() }
}

/// Flips all bits but the sign of negative numbers; its own inverse.
fn flipped(bits: Val) -> Val {
    let sign = bits >> (i64::from(bits.dtype().bits()) - 1);
    bits ^ (sign & magnitude(bits))
}

/// The integer of a float: -0 before +0, and NaN after all others, or before them if `first` is
/// set.
pub fn rank(x: Val, first: bool) -> Val {
    if x.calls() {
        let callee = if first { Callee::RankNanFirst } else { Callee::RankNanLast };
        return x.call(callee, x.bits().dtype());
    }
    let bits = x.bits().named("bits");
    let nan = if first { !nan(x) } else { nan(x) };
    bits.int(nan).when(x.is_nan(), flipped(bits))
}

/// The float of such an integer.
pub fn of_rank(rank: Val) -> Val {
    match rank.calls() {
        true => rank.call(Callee::OfRank, rank.float().dtype()),
        false => flipped(rank).float(),
    }
}
