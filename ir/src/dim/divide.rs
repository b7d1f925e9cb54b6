//! The normal form of floor division and modulo.
//!
//! `(b*q + r)//b` is `q + r//b` and `(b*q + r)%b` is `r%b` for every polynomial `q`, so both are
//! reduced to the unique remainder of polynomial division. Common factors of remainder and divisor
//! cancel. Cancelling a symbol, as in `(x*y)//y` to `x`, is wrong where `y` is 0, but such a
//! division is undefined, and no shape with it exists.

use super::bounds::Bounds;
use super::poly::{Monomial, Poly, gcd};
use super::{Atom, Dim};

/// `None` on division by zero and on overflow.
pub(super) fn floor_div_wide(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    let rounded_up = a % b != 0 && (a < 0) != (b < 0);
    Some(quotient - i128::from(rounded_up))
}

/// `None` on division by zero and on overflow.
pub(super) fn modulo_wide(a: i128, b: i128) -> Option<i128> {
    let rest = a.checked_rem(b)?;
    Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
}

/// `None` on division by zero and on overflow.
pub(super) fn floor_div_const(a: i64, b: i64) -> Option<i64> {
    floor_div_wide(a.into(), b.into())?.try_into().ok()
}

/// `None` on division by zero.
pub(super) fn modulo_const(a: i64, b: i64) -> Option<i64> {
    modulo_wide(a.into(), b.into())?.try_into().ok()
}

/// `None` if the divisor is zero or does not divide exactly.
pub(super) fn exact(a: &Poly, b: &Poly) -> Option<Poly> {
    if b.is_leading_negative() {
        return exact(&a.neg()?, &b.neg()?);
    }
    let (quotient, rest) = a.div_rem(b)?;
    rest.is_zero().then_some(quotient)
}

/// `None` if the divisor is zero, and on overflow.
pub(super) fn floor_div(a: &Poly, b: &Poly) -> Option<Dim> {
    if b.is_leading_negative() {
        return floor_div(&a.neg()?, &b.neg()?);
    }
    let (quotient, rest) = a.div_rem(b)?;
    let Cancelled { rest, divisor, offset, .. } = cancel(rest, b)?;
    let fraction = if offset != 0 {
        // Without its constant term, the remainder may have more factors in common with the divisor.
        floor_div(&rest, &divisor)?
    } else if let Some(value) = constant_quotient(&rest, &divisor) {
        Dim::Const(value)
    } else if let Some((rest, divisor)) = merge_nested(&rest, &divisor) {
        floor_div(&rest, &divisor)?
    } else {
        Dim::Expr(Poly::atom(Atom::FloorDiv([rest.into(), divisor.into()].into()))?.into())
    };
    Some(Dim::from(quotient) + fraction)
}

/// `None` if the divisor is zero, and on overflow.
pub(super) fn modulo(a: &Poly, b: &Poly) -> Option<Dim> {
    if b.is_leading_negative() {
        return Some(-modulo(&a.neg()?, &b.neg()?)?);
    }
    let (_, rest) = a.div_rem(b)?;
    let Cancelled { rest, divisor, monomial, gcd, offset } = cancel(rest, b)?;
    let modulo = if offset != 0 {
        modulo(&rest, &divisor)?
    } else if let Some(quotient) = constant_quotient(&rest, &divisor) {
        rest.add_multiple(&divisor, &Monomial::one(), quotient.checked_neg()?)?.into()
    } else if let Some(unwrapped) = unwrap_modulos(&rest, &divisor) {
        modulo(&unwrapped, &divisor)?
    } else {
        Dim::Expr(Poly::atom(Atom::Mod([rest.into(), divisor.into()].into()))?.into())
    };
    Some((modulo * gcd + offset) * Dim::from(Poly::term(monomial, 1)?))
}

/// A remainder and its divisor after cancelling common factors. The originals are `monomial * (gcd
/// * rest + offset)` and `monomial * gcd * divisor`, where `0 <= offset < gcd`.
struct Cancelled {
    rest: Poly,
    divisor: Poly,
    monomial: Monomial,
    gcd: i64,
    offset: i64,
}

fn cancel(rest: Poly, divisor: &Poly) -> Option<Cancelled> {
    let monomial = match (rest.common_monomial(), divisor.common_monomial()) {
        (Some(a), Some(b)) => a.gcd(&b),
        _ => Monomial::one(),
    };
    let rest = rest.div_monomial(&monomial)?;
    let divisor = divisor.div_monomial(&monomial)?;
    let constant = divisor.constant_term().unsigned_abs();
    let mut shared = gcd(gcd(divisor.coefficients_gcd(), constant), rest.coefficients_gcd());
    // `(6*x + 5)//8` is `(3*x + 2)//4`: if the divisor is positive, the constant term need not be a
    // multiple of the common factor.
    if !is_positive(&divisor) {
        shared = gcd(shared, rest.constant_term().unsigned_abs());
    }
    let shared = i64::try_from(shared).ok()?;
    let reduce = |_: &Monomial, coefficient: i64| Some(coefficient.div_euclid(shared));
    Some(Cancelled {
        offset: rest.constant_term().rem_euclid(shared),
        rest: rest.map_coefficients(reduce)?,
        divisor: divisor.map_coefficients(reduce)?,
        monomial,
        gcd: shared,
    })
}

/// Whether a divisor is positive, given that it is not zero.
fn is_positive(divisor: &Poly) -> bool {
    Bounds::of_poly(divisor).lo.is_some_and(|least| least >= 0)
}

/// The quotient, if it is the same for all values of the symbols.
fn constant_quotient(rest: &Poly, divisor: &Poly) -> Option<i64> {
    let bounds = Bounds::of_poly(rest);
    let quotient = bounds.floor_div(Bounds::of_poly(divisor));
    if quotient.lo.is_some() && quotient.lo == quotient.hi {
        return quotient.lo;
    }
    if let Some(Atom::Mod(pair)) = rest.as_atom() {
        if pair[1].poly()?.as_ref() == divisor {
            return Some(0);
        }
    }
    let gap = Bounds::of_poly(&divisor.sub(rest)?);
    let is_less = bounds.lo.is_some_and(|lo| lo >= 0) && gap.lo.is_some_and(|lo| lo > 0);
    is_less.then_some(0)
}

/// `(a//b + c)//d` is `(a + b*c)//(b*d)` for positive constants `b` and `d`.
fn merge_nested(rest: &Poly, divisor: &Poly) -> Option<(Poly, Poly)> {
    let outer = divisor.as_const()?;
    for (monomial, coefficient) in rest.terms() {
        let ([(Atom::FloorDiv(pair), 1)], 1) = (monomial.factors(), *coefficient) else {
            continue;
        };
        let [a, Dim::Const(b)] = pair.as_ref() else {
            continue;
        };
        let others = rest.sub(&Poly::term(monomial.clone(), 1)?)?;
        let merged = a.poly()?.add_multiple(&others, &Monomial::one(), *b)?;
        return Some((merged, Poly::constant(outer.checked_mul(*b)?)));
    }
    None
}

/// Replaces `x%m` by `x` where `divisor` divides `m`. The result differs from `poly` by a multiple
/// of `divisor`. `None` if there is no such modulo, and on overflow.
fn unwrap_modulos(poly: &Poly, divisor: &Poly) -> Option<Poly> {
    let unwrapped = |atom: &Atom| match atom {
        Atom::Mod(pair) => exact(pair[1].poly()?.as_ref(), divisor).map(|_| pair[0].clone()),
        _ => None,
    };
    if poly.atoms().all(|atom| unwrapped(atom).is_none()) {
        return None;
    }
    let mut total = Poly::constant(0);
    for (monomial, coefficient) in poly.terms() {
        let mut product = Dim::Const(*coefficient);
        for (atom, power) in monomial.factors() {
            let factor = unwrapped(atom).unwrap_or_else(|| Dim::atom(atom.clone()));
            product = product * factor.power(*power);
        }
        total = total.add(product.poly()?.as_ref())?;
    }
    Some(total)
}
