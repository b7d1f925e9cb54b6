//! Polynomials with `i64` coefficients over atoms. Every operation that can overflow returns `None`
//! if it does.

use std::cmp::Ordering;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{Dim, Symbol};

/// The maximum [`Poly::size`] of a dim. Arithmetic with a larger result gives an unknown dim, so
/// that no expression takes time or memory out of proportion to its text.
pub const MAX_TERMS: usize = 1024;
/// The maximum nesting of floor divisions, modulos, minima and maxima, so that recursion over a dim
/// fits on a small stack. Each level takes two parentheses in text, which must be read back.
pub const MAX_NESTED: u16 = 24;
/// The maximum number of products of two terms in one multiplication, before equal ones are merged.
const MAX_PRODUCTS: usize = 1 << 15;

/// A sum of monomials with coefficients, the largest monomial first. No coefficient is zero and no
/// monomial occurs twice, so equal polynomials are equal in memory. Its size and depth are bounded.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Poly {
    terms: Vec<(Monomial, i64)>,
    /// The number of terms, factors and operands in its text, including those of nested dims.
    size: u32,
    /// The nesting depth of its atoms.
    depth: u16,
}

/// A product of powers of atoms, sorted by atom; powers are at least 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Monomial {
    factors: SmallVec<[(Atom, u32); 1]>,
}

/// A factor that polynomial arithmetic treats as opaque. The operands are in normal form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Atom {
    Symbol(Symbol),
    /// The quotient of the two, rounded towards minus infinity.
    FloorDiv(Arc<[Dim; 2]>),
    /// The remainder of the floor division of the two.
    Mod(Arc<[Dim; 2]>),
    /// The smallest of two or more.
    Min(Arc<[Dim]>),
    /// The largest of two or more.
    Max(Arc<[Dim]>),
}

impl Atom {
    /// The operands; a symbol has none.
    pub fn operands(&self) -> &[Dim] {
        match self {
            Atom::Symbol(_) => &[],
            Atom::FloorDiv(pair) | Atom::Mod(pair) => &pair[..],
            Atom::Min(operands) | Atom::Max(operands) => operands,
        }
    }

    fn size(&self) -> usize {
        let operands = self.operands().iter().map(|dim| dim.poly_size().0);
        operands.fold(1, usize::saturating_add)
    }

    fn depth(&self) -> u16 {
        let operands = self.operands().iter().map(|dim| dim.poly_size().1);
        operands.max().map_or(0, |depth| depth.saturating_add(1))
    }

    fn rank(&self) -> u8 {
        match self {
            Atom::Symbol(_) => 0,
            Atom::FloorDiv(_) => 1,
            Atom::Mod(_) => 2,
            Atom::Min(_) => 3,
            Atom::Max(_) => 4,
        }
    }
}

/// Orders symbols first, by their text; then other atoms by their operands.
impl Ord for Atom {
    fn cmp(&self, other: &Atom) -> Ordering {
        if let (Atom::Symbol(a), Atom::Symbol(b)) = (self, other) {
            return a.cmp(b);
        }
        let (a, b) = (self.operands(), other.operands());
        let by_operand = || a.iter().zip(b).map(|(a, b)| a.order(b)).find(|order| order.is_ne());
        self.rank()
            .cmp(&other.rank())
            .then_with(|| by_operand().unwrap_or_else(|| a.len().cmp(&b.len())))
    }
}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Atom) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A graded lexicographic order in which the larger monomial is `Less`, as text is written.
/// Polynomial division needs an order that multiplying both sides by a monomial does not change.
impl Ord for Monomial {
    fn cmp(&self, other: &Monomial) -> Ordering {
        other.degree().cmp(&self.degree()).then_with(|| {
            let pairs = self.factors.iter().zip(&other.factors);
            pairs
                .map(|((a, p), (b, q))| a.cmp(b).then(q.cmp(p)))
                .find(|order| order.is_ne())
                .unwrap_or_else(|| self.factors.len().cmp(&other.factors.len()))
        })
    }
}

impl PartialOrd for Monomial {
    fn partial_cmp(&self, other: &Monomial) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Monomial {
    pub(super) fn one() -> Monomial {
        Monomial { factors: smallvec![] }
    }

    /// Each atom with its power.
    pub fn factors(&self) -> &[(Atom, u32)] {
        &self.factors
    }

    /// Whether it is the monomial of a constant term.
    pub fn is_one(&self) -> bool {
        self.factors.is_empty()
    }

    fn degree(&self) -> u64 {
        self.factors.iter().map(|(_, power)| u64::from(*power)).sum()
    }

    fn power_of(&self, atom: &Atom) -> u32 {
        self.factors.iter().find(|(a, _)| a == atom).map_or(0, |(_, power)| *power)
    }

    fn mul(&self, other: &Monomial) -> Option<Monomial> {
        let mut factors = self.factors.clone();
        for (atom, power) in &other.factors {
            match factors.binary_search_by(|(a, _)| a.cmp(atom)) {
                Ok(at) => factors[at].1 = factors[at].1.checked_add(*power)?,
                Err(at) => factors.insert(at, (atom.clone(), *power)),
            }
        }
        Some(Monomial { factors })
    }

    /// `None` if `other` does not divide it.
    fn div(&self, other: &Monomial) -> Option<Monomial> {
        let mut factors = self.factors.clone();
        for (atom, power) in &other.factors {
            let at = factors.binary_search_by(|(a, _)| a.cmp(atom)).ok()?;
            factors[at].1 = factors[at].1.checked_sub(*power)?;
        }
        factors.retain(|(_, power)| *power > 0);
        Some(Monomial { factors })
    }

    /// The number of factors in text, where a power is written as a product.
    fn size(&self) -> usize {
        let sizes =
            self.factors.iter().map(|(atom, power)| atom.size().saturating_mul(*power as usize));
        sizes.fold(1, usize::saturating_add)
    }

    pub(super) fn gcd(&self, other: &Monomial) -> Monomial {
        let shared = |(atom, power): &(Atom, u32)| {
            let power = (*power).min(other.power_of(atom));
            (power > 0).then(|| (atom.clone(), power))
        };
        Monomial { factors: self.factors.iter().filter_map(shared).collect() }
    }
}

impl Poly {
    /// `None` if there are too many terms, or if they nest too deep.
    fn new(terms: Vec<(Monomial, i64)>) -> Option<Poly> {
        let sizes = terms.iter().map(|(monomial, _)| monomial.size());
        let size = sizes.fold(0, usize::saturating_add);
        let factors = terms.iter().flat_map(|(monomial, _)| &monomial.factors);
        let depth = factors.map(|(atom, _)| atom.depth()).max().unwrap_or(0);
        let fits = size <= MAX_TERMS && depth <= MAX_NESTED;
        fits.then_some(Poly { terms, size: size as u32, depth })
    }

    pub(super) fn constant(value: i64) -> Poly {
        let terms = if value == 0 { Vec::new() } else { vec![(Monomial::one(), value)] };
        Poly { size: terms.len() as u32, depth: 0, terms }
    }

    /// `None` if the operands are too large, or nest too deep.
    pub(super) fn atom(atom: Atom) -> Option<Poly> {
        Poly::term(Monomial { factors: smallvec![(atom, 1)] }, 1)
    }

    pub(super) fn symbol(symbol: Symbol) -> Poly {
        let monomial = Monomial { factors: smallvec![(Atom::Symbol(symbol), 1)] };
        Poly { terms: vec![(monomial, 1)], size: 2, depth: 0 }
    }

    /// `None` if the monomial is too large.
    pub(super) fn term(monomial: Monomial, coefficient: i64) -> Option<Poly> {
        Poly::new(if coefficient == 0 { Vec::new() } else { vec![(monomial, coefficient)] })
    }

    /// The number of terms, factors and operands, and the nesting depth.
    pub(super) fn size(&self) -> (usize, u16) {
        (self.size as usize, self.depth)
    }

    /// The terms, the largest monomial first and a constant last.
    pub fn terms(&self) -> &[(Monomial, i64)] {
        &self.terms
    }

    pub(super) fn atoms(&self) -> impl Iterator<Item = &Atom> {
        self.terms.iter().flat_map(|(monomial, _)| monomial.factors.iter().map(|(atom, _)| atom))
    }

    /// The atom, if it is exactly one.
    pub fn as_atom(&self) -> Option<&Atom> {
        match self.terms.as_slice() {
            [(monomial, 1)] => match monomial.factors.as_slice() {
                [(atom, 1)] => Some(atom),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value, if it has no atom.
    pub(super) fn as_const(&self) -> Option<i64> {
        (self.terms.len() <= self.constant_terms()).then(|| self.constant_term())
    }

    /// How many terms have no atom: none or one.
    fn constant_terms(&self) -> usize {
        usize::from(self.terms.last().is_some_and(|(monomial, _)| monomial.is_one()))
    }

    pub(super) fn constant_term(&self) -> i64 {
        self.terms.last().filter(|(monomial, _)| monomial.is_one()).map_or(0, |term| term.1)
    }

    /// The greatest common divisor of all coefficients except the constant term; 0 if there are
    /// none.
    pub(super) fn coefficients_gcd(&self) -> u64 {
        let terms = &self.terms[..self.terms.len() - self.constant_terms()];
        terms.iter().fold(0, |divisor, (_, coefficient)| gcd(divisor, coefficient.unsigned_abs()))
    }

    /// The largest monomial that divides every term; `None` for zero, which every monomial divides.
    pub(super) fn common_monomial(&self) -> Option<Monomial> {
        let (first, others) = self.terms.split_first()?;
        Some(others.iter().fold(first.0.clone(), |common, (monomial, _)| common.gcd(monomial)))
    }

    pub(super) fn is_leading_negative(&self) -> bool {
        self.terms.first().is_some_and(|(_, coefficient)| *coefficient < 0)
    }

    pub(super) fn neg(&self) -> Option<Poly> {
        self.map_coefficients(|_, coefficient| coefficient.checked_neg())
    }

    pub(super) fn add(&self, other: &Poly) -> Option<Poly> {
        self.add_multiple(other, &Monomial::one(), 1)
    }

    pub(super) fn sub(&self, other: &Poly) -> Option<Poly> {
        self.add_multiple(other, &Monomial::one(), -1)
    }

    pub(super) fn mul(&self, other: &Poly) -> Option<Poly> {
        if self.terms.len() * other.terms.len() > MAX_PRODUCTS {
            return None;
        }
        let mut terms = Vec::with_capacity(self.terms.len() * other.terms.len());
        for (a, p) in &self.terms {
            for (b, q) in &other.terms {
                terms.push((a.mul(b)?, i128::from(*p) * i128::from(*q)));
            }
        }
        Poly::collect(terms)
    }

    /// `self + coefficient * monomial * other`
    pub(super) fn add_multiple(
        &self,
        other: &Poly,
        monomial: &Monomial,
        coefficient: i64,
    ) -> Option<Poly> {
        let mut terms: Vec<_> = self.terms.iter().map(|(m, c)| (m.clone(), (*c).into())).collect();
        for (m, c) in &other.terms {
            terms.push((m.mul(monomial)?, i128::from(*c) * i128::from(coefficient)));
        }
        Poly::collect(terms)
    }

    /// Sorts terms and merges equal monomials. Only the merged coefficients must fit in 64 bits.
    fn collect(mut terms: Vec<(Monomial, i128)>) -> Option<Poly> {
        terms.sort_by(|a, b| a.0.cmp(&b.0));
        let mut merged: Vec<(Monomial, i128)> = Vec::with_capacity(terms.len());
        for (monomial, coefficient) in terms {
            match merged.last_mut() {
                Some(last) if last.0 == monomial => last.1 = last.1.checked_add(coefficient)?,
                _ => merged.push((monomial, coefficient)),
            }
        }
        let merged = merged.into_iter().filter(|(_, coefficient)| *coefficient != 0);
        let terms =
            merged.map(|(monomial, coefficient)| Some((monomial, coefficient.try_into().ok()?)));
        Poly::new(terms.collect::<Option<_>>()?)
    }

    pub(super) fn map_coefficients(
        &self,
        f: impl Fn(&Monomial, i64) -> Option<i64>,
    ) -> Option<Poly> {
        let mut terms = Vec::with_capacity(self.terms.len());
        for (monomial, coefficient) in &self.terms {
            let coefficient = f(monomial, *coefficient)?;
            if coefficient != 0 {
                terms.push((monomial.clone(), coefficient));
            }
        }
        Poly::new(terms)
    }

    /// Divides every term by a monomial; `None` if a term is not divisible.
    pub(super) fn div_monomial(&self, divisor: &Monomial) -> Option<Poly> {
        let term = |(monomial, coefficient): &(Monomial, i64)| {
            Some((monomial.div(divisor)?, *coefficient))
        };
        Poly::new(self.terms.iter().map(term).collect::<Option<_>>()?)
    }

    /// The quotient and the remainder, for a divisor whose first coefficient is positive.
    ///
    /// Wherever the divisor's first monomial divides a monomial of the remainder, the coefficient
    /// there is at least 0 and less than the divisor's first. There is only one such remainder, so
    /// polynomials that differ by a multiple of the divisor have the same one.
    pub(super) fn div_rem(&self, divisor: &Poly) -> Option<(Poly, Poly)> {
        let (leading, step) = divisor.terms.first()?;
        let mut rest = self.clone();
        let mut quotient = Vec::new();
        let mut at = 0;
        // Subtracting changes no term before `at`, as those have larger monomials.
        while let Some((monomial, coefficient)) = rest.terms.get(at) {
            let times = coefficient.div_euclid(*step);
            match monomial.div(leading) {
                Some(factor) if times != 0 => {
                    if quotient.len() == MAX_TERMS {
                        return None;
                    }
                    rest = rest.add_multiple(divisor, &factor, times.checked_neg()?)?;
                    quotient.push((factor, times));
                }
                _ => at += 1,
            }
        }
        Some((Poly::new(quotient)?, rest))
    }
}

pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl From<Poly> for Dim {
    fn from(poly: Poly) -> Dim {
        match poly.as_const() {
            Some(value) => Dim::Const(value),
            None => Dim::Expr(Arc::new(poly)),
        }
    }
}
