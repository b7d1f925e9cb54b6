//! Maps floats to integers in the same order (sort keys). A maximum of sort keys is an integer
//! reduction, which compilers may reorder and vectorize.

use super::value::Val;
use crate::code::Callee;

/// A mask of all bits except the sign.
fn magnitude(x: Val) -> i64 {
    if x.dtype().bits() == 64 { i64::MAX } else { i32::MAX.into() }
}

/// The bits of the canonical NaN.
fn nan(x: Val) -> i64 {
    if x.is_f64() { f64::NAN.to_bits() as i64 } else { f32::NAN.to_bits().into() }
}

/// Flips all bits except the sign if the number is negative. This function is its own inverse.
fn flipped(bits: Val) -> Val {
    let sign = bits >> (i64::from(bits.dtype().bits()) - 1);
    bits ^ (sign & magnitude(bits))
}

/// Maps a float to its sort key: -0 is before +0. NaN is before all numbers if `first` is set,
/// otherwise after them.
pub fn sort_key(x: Val, first: bool) -> Val {
    if x.calls() {
        let callee = if first { Callee::SortKeyNanFirst } else { Callee::SortKeyNanLast };
        return x.call(callee, x.bits().dtype());
    }
    let bits = x.bits().named("bits");
    let nan = if first { !nan(x) } else { nan(x) };
    bits.int(nan).when(x.is_nan(), flipped(bits))
}

/// Maps a sort key back to its float.
pub fn from_sort_key(key: Val) -> Val {
    match key.calls() {
        true => key.call(Callee::FromSortKey, key.float().dtype()),
        false => flipped(key).float(),
    }
}
