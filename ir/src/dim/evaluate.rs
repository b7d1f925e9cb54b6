//! Dims with values, or other dims, in place of their symbols.

use std::convert::Infallible;

use super::translate::{Operator, Translator};
use super::{Dim, Symbol, divide};

impl Dim {
    /// Replaces each symbol for which `f` returns a dim, and normalizes again. The replacement must
    /// be ≥ 0, as symbols are.
    pub fn substitute(&self, f: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        let Ok(dim) = self.translate(&mut Substitution(f));
        dim
    }

    /// Evaluates the dim with the values that `f` gives to symbols. `None` if the dim is unknown, a
    /// symbol has no value, a divisor is zero, or the result does not fit.
    pub fn evaluate(&self, f: &dyn Fn(&Symbol) -> Option<i64>) -> Option<i64> {
        match self {
            Dim::Const(value) => Some(*value),
            _ => self.translate(&mut Evaluation(f)).ok()?.try_into().ok(),
        }
    }

    pub(super) fn power(&self, power: u32) -> Dim {
        let Ok(dim) = match power {
            0 => Ok(Dim::Const(1)),
            _ => Substitution(&|_| None).power(self.clone(), power),
        };
        dim
    }
}

struct Substitution<'a>(&'a dyn Fn(&Symbol) -> Option<Dim>);

impl Translator for Substitution<'_> {
    type Value = Dim;
    type Error = Infallible;

    fn constant(&mut self, value: i64) -> Result<Dim, Infallible> {
        Ok(Dim::Const(value))
    }

    fn symbol(&mut self, symbol: &Symbol) -> Result<Dim, Infallible> {
        Ok((self.0)(symbol).unwrap_or_else(|| Dim::symbol(symbol)))
    }

    fn unknown(&mut self) -> Result<Dim, Infallible> {
        Ok(Dim::Unknown)
    }

    fn binary(&mut self, op: Operator, left: Dim, right: Dim) -> Result<Dim, Infallible> {
        Ok(match op {
            Operator::Add => left + right,
            Operator::Sub => left - right,
            Operator::Mul => left * right,
            Operator::FloorDiv => left.floor_div(&right),
            Operator::Mod => left.modulo(&right),
            Operator::Min => left.min(&right),
            Operator::Max => left.max(&right),
        })
    }
}

/// Evaluates in 128 bits, so that intermediate values overflow only if the result nearly does,
/// however the normal form has regrouped the expression.
struct Evaluation<'a>(&'a dyn Fn(&Symbol) -> Option<i64>);

/// There is no value.
struct Undefined;

impl Translator for Evaluation<'_> {
    type Value = i128;
    type Error = Undefined;

    fn constant(&mut self, value: i64) -> Result<i128, Undefined> {
        Ok(value.into())
    }

    fn symbol(&mut self, symbol: &Symbol) -> Result<i128, Undefined> {
        (self.0)(symbol).map(i128::from).ok_or(Undefined)
    }

    fn unknown(&mut self) -> Result<i128, Undefined> {
        Err(Undefined)
    }

    fn binary(&mut self, op: Operator, left: i128, right: i128) -> Result<i128, Undefined> {
        let value = match op {
            Operator::Add => left.checked_add(right),
            Operator::Sub => left.checked_sub(right),
            Operator::Mul => left.checked_mul(right),
            Operator::FloorDiv => divide::floor_div_wide(left, right),
            Operator::Mod => divide::modulo_wide(left, right),
            Operator::Min => Some(left.min(right)),
            Operator::Max => Some(left.max(right)),
        };
        value.ok_or(Undefined)
    }
}
