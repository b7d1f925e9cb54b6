//! Translates dims to other forms: values, code, sizes that are evaluated later.

use super::poly::{Atom, Monomial};
use super::{Dim, Symbol};

/// An operator between two dims. Division rounds towards minus infinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    Add,
    Sub,
    Mul,
    FloorDiv,
    Mod,
    Min,
    Max,
}

/// The form that [`Dim::translate`] produces.
pub trait Translator {
    type Value: Clone;
    type Error;

    fn constant(&mut self, value: i64) -> Result<Self::Value, Self::Error>;

    fn symbol(&mut self, symbol: &Symbol) -> Result<Self::Value, Self::Error>;

    fn unknown(&mut self) -> Result<Self::Value, Self::Error>;

    fn binary(
        &mut self,
        op: Operator,
        left: Self::Value,
        right: Self::Value,
    ) -> Result<Self::Value, Self::Error>;

    fn negate(&mut self, value: Self::Value) -> Result<Self::Value, Self::Error> {
        let zero = self.constant(0)?;
        self.binary(Operator::Sub, zero, value)
    }

    /// A power of at least 2. Squares repeatedly, since a power read from text may be large.
    fn power(&mut self, base: Self::Value, power: u32) -> Result<Self::Value, Self::Error> {
        if power < 2 {
            return Ok(base);
        }
        let half = self.power(base.clone(), power / 2)?;
        let square = self.binary(Operator::Mul, half.clone(), half)?;
        match power.is_multiple_of(2) {
            true => Ok(square),
            false => self.binary(Operator::Mul, square, base),
        }
    }

    /// A quotient or remainder, with the dim that is divided.
    fn divide(
        &mut self,
        op: Operator,
        _dividend: &Dim,
        left: Self::Value,
        right: Self::Value,
    ) -> Result<Self::Value, Self::Error> {
        self.binary(op, left, right)
    }

    /// The minimum or maximum of two or more values.
    fn extremum(
        &mut self,
        op: Operator,
        first: Self::Value,
        others: Vec<Self::Value>,
    ) -> Result<Self::Value, Self::Error> {
        others.into_iter().try_fold(first, |a, b| self.binary(op, a, b))
    }
}

impl Dim {
    /// Translates the normal form: a sum of terms, each a product of atoms and a coefficient. Terms
    /// with a positive coefficient come first, so that a sum seldom begins with a sign.
    ///
    /// Errors: those of the translator.
    pub fn translate<T: Translator>(&self, to: &mut T) -> Result<T::Value, T::Error> {
        let poly = match self {
            Dim::Const(value) => return to.constant(*value),
            Dim::Unknown => return to.unknown(),
            Dim::Expr(poly) => poly,
        };
        let terms = || poly.terms().iter();
        // The smallest coefficient has no opposite.
        let is_added = |coefficient: i64| coefficient >= 0 || coefficient == i64::MIN;
        let mut sum = None;
        for (monomial, coefficient) in terms().filter(|(_, c)| is_added(*c)) {
            let term = product(to, monomial, *coefficient)?;
            sum = Some(match sum {
                None => term,
                Some(sum) => to.binary(Operator::Add, sum, term)?,
            });
        }
        for (monomial, coefficient) in terms().filter(|(_, c)| !is_added(*c)) {
            let term = product(to, monomial, -coefficient)?;
            sum = Some(match sum {
                None => to.negate(term)?,
                Some(sum) => to.binary(Operator::Sub, sum, term)?,
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => to.constant(0),
        }
    }
}

fn product<T: Translator>(
    to: &mut T,
    monomial: &Monomial,
    coefficient: i64,
) -> Result<T::Value, T::Error> {
    let mut product = None;
    for (atom, power) in monomial.factors() {
        let mut factor = atom.translate(to)?;
        if *power > 1 {
            factor = to.power(factor, *power)?;
        }
        product = Some(match product {
            None => factor,
            Some(product) => to.binary(Operator::Mul, product, factor)?,
        });
    }
    match (product, coefficient) {
        (Some(product), 1) => Ok(product),
        (Some(product), _) => {
            let coefficient = to.constant(coefficient)?;
            to.binary(Operator::Mul, product, coefficient)
        }
        (None, _) => to.constant(coefficient),
    }
}

impl Atom {
    fn translate<T: Translator>(&self, to: &mut T) -> Result<T::Value, T::Error> {
        let (op, operands) = match self {
            Atom::Symbol(symbol) => return to.symbol(symbol),
            Atom::FloorDiv(pair) => return quotient(to, Operator::FloorDiv, pair),
            Atom::Mod(pair) => return quotient(to, Operator::Mod, pair),
            Atom::Min(operands) => (Operator::Min, operands),
            Atom::Max(operands) => (Operator::Max, operands),
        };
        let Some((first, others)) = operands.split_first() else { return to.unknown() };
        let first = first.translate(to)?;
        let others = others.iter().map(|dim| dim.translate(to)).collect::<Result<Vec<_>, _>>()?;
        to.extremum(op, first, others)
    }
}

fn quotient<T: Translator>(
    to: &mut T,
    op: Operator,
    [dividend, divisor]: &[Dim; 2],
) -> Result<T::Value, T::Error> {
    let (left, right) = (dividend.translate(to)?, divisor.translate(to)?);
    to.divide(op, dividend, left, right)
}
