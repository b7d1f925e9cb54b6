//! Intervals that contain the value of a dim for all values ≥ 0 of its symbols.

use super::Dim;
use super::poly::{Atom, Poly};

/// A closed interval. An end is `None` where it is not known, or where computing it overflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    pub lo: Option<i64>,
    pub hi: Option<i64>,
}

/// The maximum number of atoms of a sum that are replaced by bounds, one after the other. Each
/// doubles the work.
const MAX_ATOMS: u8 = 4;

/// A lower bound of a sum, found by replacing one of its atoms by a simpler bound. `budget` is the
/// number of further atoms that may be replaced.
///
/// - `p - c*(r//b)` is at least `(b*p - c*r)/b`, so `n - n//2` is at least 0.
/// - `p + c*(r//b)` is at least `(b*p + c*(r - b + 1))/b`.
/// - A maximum is at least its first operand, and a minimum is at most its first operand.
fn bound_by_atom(poly: &Poly, budget: u8) -> Option<i64> {
    let budget = budget.checked_sub(1)?;
    let (atom, by, lower, divisor) = poly.terms().iter().find_map(|(monomial, by)| {
        let [(atom, 1)] = monomial.factors() else { return None };
        let (lower, divisor) = match (atom, *by < 0) {
            (Atom::FloorDiv(pair), below) => {
                let divisor = pair[1].as_const().filter(|divisor| *divisor > 0)?;
                // `divisor` times a bound of the quotient: an upper bound if it is subtracted, else
                // a lower one.
                let lower = if below { pair[0].clone() } else { &pair[0] + (1 - divisor) };
                (lower, divisor)
            }
            (Atom::Max(operands), false) | (Atom::Min(operands), true) => (operands[0].clone(), 1),
            (Atom::Max(_) | Atom::Min(_) | Atom::Mod(_) | Atom::Symbol(_), _) => return None,
        };
        Some((Dim::atom(atom.clone()), *by, lower, divisor))
    })?;
    let rest = Dim::from(poly.clone()) - atom * by;
    let lower = Bounds::within(&(rest * divisor + lower * by), budget).lo?;
    // Rounds up, as the dim is an integer.
    Some(-lower.checked_neg()?.div_euclid(divisor))
}

impl Bounds {
    const ANY: Bounds = Bounds { lo: None, hi: None };

    fn point(value: i64) -> Bounds {
        Bounds { lo: Some(value), hi: Some(value) }
    }

    pub(super) fn of(dim: &Dim) -> Bounds {
        Bounds::within(dim, MAX_ATOMS)
    }

    fn within(dim: &Dim, budget: u8) -> Bounds {
        match dim {
            Dim::Const(value) => Bounds::point(*value),
            Dim::Unknown => Bounds::ANY,
            Dim::Expr(poly) => Bounds::of_poly_within(poly, budget),
        }
    }

    pub(super) fn of_poly(poly: &Poly) -> Bounds {
        Bounds::of_poly_within(poly, MAX_ATOMS)
    }

    fn of_poly_within(poly: &Poly, budget: u8) -> Bounds {
        let mut total = Bounds::point(0);
        for (monomial, coefficient) in poly.terms() {
            let mut product = Bounds::point(1);
            for (atom, power) in monomial.factors() {
                product = product.mul(Bounds::of_atom(atom, budget).power(*power));
            }
            total = total.add(product.scale(*coefficient));
        }
        total.lo = total.lo.or_else(|| bound_by_atom(poly, budget));
        total.hi = total.hi.or_else(|| bound_by_atom(&poly.neg()?, budget)?.checked_neg());
        total
    }

    fn of_atom(atom: &Atom, budget: u8) -> Bounds {
        let of = |dim: &Dim| Bounds::within(dim, budget);
        match atom {
            Atom::Symbol(_) => Bounds { lo: Some(0), hi: None },
            Atom::FloorDiv(pair) => of(&pair[0]).floor_div(of(&pair[1])),
            Atom::Mod(pair) => of(&pair[0]).modulo(of(&pair[1])),
            Atom::Min(operands) => Bounds::of_min(operands, budget),
            Atom::Max(operands) => Bounds::of_max(operands, budget),
        }
    }

    // One end of a minimum or maximum is known as soon as any operand's is: other operands can only
    // tighten it.
    fn of_min(operands: &[Dim], budget: u8) -> Bounds {
        let bounds = operands.iter().map(|dim| Bounds::within(dim, budget));
        Bounds {
            lo: bounds.clone().map(|b| b.lo).reduce(|a, b| Some(a?.min(b?))).flatten(),
            hi: bounds.filter_map(|b| b.hi).min(),
        }
    }

    fn of_max(operands: &[Dim], budget: u8) -> Bounds {
        let bounds = operands.iter().map(|dim| Bounds::within(dim, budget));
        Bounds {
            lo: bounds.clone().filter_map(|b| b.lo).max(),
            hi: bounds.map(|b| b.hi).reduce(|a, b| Some(a?.max(b?))).flatten(),
        }
    }

    fn add(self, other: Bounds) -> Bounds {
        let add = |a: Option<i64>, b: Option<i64>| a?.checked_add(b?);
        Bounds { lo: add(self.lo, other.lo), hi: add(self.hi, other.hi) }
    }

    fn scale(self, by: i64) -> Bounds {
        let scale = |end: Option<i64>| end?.checked_mul(by);
        let Bounds { lo, hi } = self;
        if by < 0 {
            Bounds { lo: scale(hi), hi: scale(lo) }
        } else {
            Bounds { lo: scale(lo), hi: scale(hi) }
        }
    }

    fn mul(self, other: Bounds) -> Bounds {
        let mul = |a: Option<i64>, b: Option<i64>| a?.checked_mul(b?);
        if self.is_natural() && other.is_natural() {
            return Bounds { lo: mul(self.lo, other.lo), hi: mul(self.hi, other.hi) };
        }
        let ends =
            [(self.lo, other.lo), (self.lo, other.hi), (self.hi, other.lo), (self.hi, other.hi)];
        match ends.map(|(a, b)| mul(a, b)) {
            [Some(a), Some(b), Some(c), Some(d)] => {
                Bounds { lo: Some(a.min(b).min(c).min(d)), hi: Some(a.max(b).max(c).max(d)) }
            }
            _ => Bounds::ANY,
        }
    }

    fn power(self, power: u32) -> Bounds {
        if self.is_natural() {
            let raise = |end: Option<i64>| end?.checked_pow(power);
            return Bounds { lo: raise(self.lo), hi: raise(self.hi) };
        }
        if power == 1 {
            self
        } else {
            Bounds { lo: power.is_multiple_of(2).then_some(0), hi: None }
        }
    }

    fn is_natural(self) -> bool {
        self.lo.is_some_and(|lo| lo >= 0)
    }

    pub(super) fn floor_div(self, divisor: Bounds) -> Bounds {
        if !divisor.is_natural() {
            return Bounds::ANY;
        }
        // A divisor is never zero.
        let lower = divisor.lo.map_or(1, |lo| lo.max(1));
        let most = divisor.hi.map(|hi| hi.max(1));
        // The smallest divisor gives the quotient furthest from zero, the largest one the nearest.
        let far = |end: i64| end.div_euclid(lower);
        let near = |end: i64| match most {
            Some(most) => end.div_euclid(most),
            None if end < 0 => -1,
            None => 0,
        };
        Bounds {
            lo: self.lo.map(|lo| if lo < 0 { far(lo) } else { near(lo) }),
            hi: self.hi.map(|hi| if hi < 0 { near(hi) } else { far(hi) }),
        }
    }

    fn modulo(self, divisor: Bounds) -> Bounds {
        if !divisor.is_natural() {
            return Bounds::ANY;
        }
        let below_divisor = divisor.hi.map(|hi| hi.max(1) - 1);
        let own = self.hi.filter(|_| self.is_natural());
        Bounds { lo: Some(0), hi: below_divisor.into_iter().chain(own).min() }
    }
}
