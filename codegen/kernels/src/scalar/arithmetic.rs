//! Float operations without series: signs, minimum and maximum, and division with remainder.

use mithril_ir::scalar::Prim;

use super::bits::{bias, exponent, power_of_two};
use super::value::{Val, build};
use crate::builder::Builder;
use crate::code::V;

/// Returns -1 or 1. Returns ±0 and NaN unchanged.
pub fn sign(x: Val) -> Val {
    let below = x.number(-1.0).when(x.lt(0.0), x);
    x.number(1.0).when(x.gt(0.0), below)
}

/// The minimum; NaN if either is NaN. -0 is less than +0.
pub fn min<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    match (x.constant(), y.constant()) {
        (Some(c), _) if one_instruction_suffices(c, false) => x.native_min(y),
        (_, Some(c)) if one_instruction_suffices(c, false) => y.native_min(x),
        _ if x.calls() => x.call_prim(Prim::Min, Some(y), x.dtype()),
        // Both minima differ only for zeros of opposite sign, where `or` gives -0, and if one
        // operand is NaN, where `or` keeps the exponent bits of the NaN.
        _ => (x.native_min(y).bits() | y.native_min(x).bits()).float(),
    }
}

/// The maximum; NaN if either is NaN. -0 is less than +0.
pub fn max<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    match (x.constant(), y.constant()) {
        (Some(c), _) if one_instruction_suffices(c, true) => x.native_max(y),
        (_, Some(c)) if one_instruction_suffices(c, true) => y.native_max(x),
        // Adding +0 turns -0 into +0, and leaves other numbers unchanged.
        (Some(0.0), _) => x.native_max(y) + 0.0,
        (_, Some(0.0)) => y.native_max(x) + 0.0,
        _ if x.calls() => x.call_prim(Prim::Max, Some(y), x.dtype()),
        _ => -min(-x, -y),
    }
}

/// Whether one machine instruction suffices for a constant operand `c`. The instruction returns the
/// other operand if both are equal or either is NaN.
fn one_instruction_suffices(c: f64, sign_of_harmless_zero: bool) -> bool {
    !c.is_nan() && (c != 0.0 || c.is_sign_negative() == sign_of_harmless_zero)
}

/// `x / y`, where `y` is the same for all lanes. Multiplies by the reciprocal of `y`, which is
/// computed once. The remainder of this product corrects the last bit, after P. Markstein
/// (Computation of elementary functions on the IBM RISC System/6000 processor, 1990). The
/// correction is inexact if the remainder is subnormal.
pub fn div_by_uniform(b: &mut Builder, x: V, y: V) -> V {
    let lanes = b.ty(x).lanes;
    // Scales divisors whose reciprocal is not a normal number towards 1. Makes all divisors
    // positive, so that the correction keeps the signs of zeros.
    let scale = build(b, [y], |[y]| {
        let large = 2f64.powi(bias(y) as i32 - 2);
        let (up, down) = (y.number(2f64.powi(60)), y.number(2f64.powi(-60)));
        let down = down.when(y.abs().gt(large), y.number(1.0));
        up.when(y.abs().lt(1.0 / large), down).sign_of(y)
    });
    let y = build(b, [y, scale], |[y, scale]| y * scale);
    let reciprocal = build(b, [y], |[y]| y.number(1.0) / y);
    let [scale, y, reciprocal] = [scale, y, reciprocal].map(|v| b.splat(v, lanes));
    build(b, [x, y, reciprocal, scale], |[x, y, reciprocal, scale]| {
        let quotient = x * reciprocal;
        let excess = quotient.mul_add(y, -x);
        let corrected = (-excess).mul_add(reciprocal, quotient);
        // If the quotient is infinite, the correction is NaN.
        quotient.when(corrected.is_nan(), corrected) * scale
    })
}

/// Floor division and its remainder, as NumPy defines them. Both are computed from the exact
/// remainder.
pub fn floor_div_mod<'a>(x: Val<'a>, y: Val<'a>) -> (Val<'a>, Val<'a>) {
    let rest = remainder(x, y);
    let quotient = (x - rest) / y;
    let whole = rest.eq(0.0);
    let below = (rest.bits() ^ y.bits()).lt(0) & !whole;
    let rest = (rest + y).when(below, rest.number(0.0).sign_of(y).when(whole, rest));
    let quotient = (quotient - 1.0).when(below, quotient);
    // The division may differ slightly from the exact result, which is a whole number.
    let down = quotient.unary(crate::code::Unary::Floor);
    let nearest = (down + 1.0).when((quotient - down).gt(0.5), down);
    let zero = quotient.number(0.0).sign_of(x / y);
    let quotient = zero.when(quotient.eq(0.0), nearest);
    let by_zero = y.eq(0.0);
    ((x / y).when(by_zero, quotient), rest.number(f64::NAN).when(by_zero, rest))
}

/// The exact remainder of truncating division, with the sign of `x`.
fn remainder<'a>(x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let (a, d) = (x.abs(), y.abs());
    // Below this bound, the rounded quotient is off by at most one, so one step gives the exact
    // remainder.
    let direct = if x.is_f64() { 2f64.powi(51) } else { 2f64.powi(22) };
    let large = (a / d).ge(direct) & a.lt(f64::INFINITY) & d.gt(0.0);
    let rest = Val::choose(large, [a, d], "reduce", |[a, d]| vec![reduce(a, d)], |[a, _]| vec![a]);
    let rest = rest[0];
    let rest = last_step(rest, d);
    let rest = a.when(d.eq(f64::INFINITY), rest);
    rest.number(f64::NAN).when(!a.lt(f64::INFINITY) | y.is_nan(), rest.sign_of(x))
}

/// The remainder, for quotients that are small enough for one step.
fn last_step<'a>(a: Val<'a>, d: Val<'a>) -> Val<'a> {
    let quotient = (a / d).trunc();
    let rest = (-quotient).mul_add(d, a);
    let rest = (rest + d).when(rest.lt(0.0), rest);
    let rest = (rest - d).when(rest.ge(d), rest);
    rest.abs()
}

/// Subtracts multiples of `d` from `a` until the quotient is small. Each iteration removes about 20
/// (f32) or 50 (f64) bits of the quotient.
fn reduce<'a>(a: Val<'a>, d: Val<'a>) -> Val<'a> {
    let (steps, step) = if a.is_f64() { (46, 48) } else { (17, 19) };
    Val::repeat(steps, [a, d], |[a, d]| {
        let gap = (exponent(a) - exponent(d) - step).at_least(0).at_most(2 * bias(a));
        let half = gap >> 1;
        let multiple = d * power_of_two(half) * power_of_two(gap - half);
        vec![last_step(a, multiple), d]
    })[0]
}
