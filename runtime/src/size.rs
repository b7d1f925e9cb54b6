//! Integer expressions over the symbols of a program: sizes, dims, task counts.

use std::fmt;
use std::ops::{Add, Mul, Neg};

/// An integer that is known once the symbols have values.
///
/// Operators and methods do constant folding: a constant expression becomes [`Size::Const`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    Const(i64),
    /// The value of one symbol, by its index.
    Symbol(usize),
    Sum(Vec<Size>),
    Product(Vec<Size>),
    /// A quotient, rounded towards negative infinity.
    FloorDiv(Box<(Size, Size)>),
    /// The remainder of `FloorDiv`: it has the sign of the divisor.
    Mod(Box<(Size, Size)>),
    Min(Box<(Size, Size)>),
    Max(Box<(Size, Size)>),
}

use Size::*;

impl Size {
    /// Evaluates for these values of the symbols; none on overflow, division by zero, or a symbol
    /// without a value.
    pub fn eval(&self, symbols: &[i64]) -> Option<i64> {
        let pair = |of: &(Size, Size), f: fn(i64, i64) -> Option<i64>| {
            f(of.0.eval(symbols)?, of.1.eval(symbols)?)
        };
        match self {
            Const(value) => Some(*value),
            Symbol(index) => symbols.get(*index).copied(),
            Sum(of) => of.iter().try_fold(0, |sum: i64, x| sum.checked_add(x.eval(symbols)?)),
            Product(of) => of.iter().try_fold(1, |all: i64, x| all.checked_mul(x.eval(symbols)?)),
            FloorDiv(of) => pair(of, floor_div),
            Mod(of) => pair(of, modulo),
            Min(of) => pair(of, |a, b| Some(a.min(b))),
            Max(of) => pair(of, |a, b| Some(a.max(b))),
        }
    }

    /// `self / divisor`, rounded towards negative infinity.
    pub fn floor_div(self, divisor: impl Into<Size>) -> Size {
        Size::fold(self, divisor.into(), floor_div, |a, b| FloorDiv(Box::new((a, b))))
    }

    /// `self / divisor`, rounded towards positive infinity; `divisor` is positive.
    pub fn ceil_div(self, divisor: impl Into<Size>) -> Size {
        let divisor = divisor.into();
        (self + divisor.clone() + Const(-1)).floor_div(divisor)
    }

    /// The remainder of `floor_div`.
    pub fn modulo(self, divisor: impl Into<Size>) -> Size {
        Size::fold(self, divisor.into(), modulo, |a, b| Mod(Box::new((a, b))))
    }

    /// The smaller of the two.
    pub fn min(self, other: impl Into<Size>) -> Size {
        Size::fold(self, other.into(), |a, b| Some(a.min(b)), |a, b| Min(Box::new((a, b))))
    }

    /// The larger of the two.
    pub fn max(self, other: impl Into<Size>) -> Size {
        Size::fold(self, other.into(), |a, b| Some(a.max(b)), |a, b| Max(Box::new((a, b))))
    }

    /// The number of symbols that must have values: one more than the largest index.
    pub fn symbols(&self) -> usize {
        match self {
            Const(_) => 0,
            Symbol(index) => index.saturating_add(1),
            Sum(of) | Product(of) => of.iter().map(Size::symbols).max().unwrap_or(0),
            FloorDiv(of) | Mod(of) | Min(of) | Max(of) => of.0.symbols().max(of.1.symbols()),
        }
    }

    fn fold(
        a: Size,
        b: Size,
        value: fn(i64, i64) -> Option<i64>,
        whole: fn(Size, Size) -> Size,
    ) -> Size {
        match (&a, &b) {
            (Const(x), Const(y)) => value(*x, *y).map_or_else(|| whole(a, b), Const),
            _ => whole(a, b),
        }
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    // `a / b` did not overflow, so `a % b` does not either.
    let rest = a % b;
    Some(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn modulo(a: i64, b: i64) -> Option<i64> {
    if b == 0 {
        return None;
    }
    let rest = a.wrapping_rem(b);
    Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
}

impl<T: Into<Size>> Add<T> for Size {
    type Output = Size;

    fn add(self, other: T) -> Size {
        Size::fold(self, other.into(), i64::checked_add, |a, b| match (a, b) {
            (Const(0), x) | (x, Const(0)) => x,
            (Sum(mut of), x) => {
                of.push(x);
                Sum(of)
            }
            (a, b) => Sum(vec![a, b]),
        })
    }
}

impl<T: Into<Size>> Mul<T> for Size {
    type Output = Size;

    fn mul(self, other: T) -> Size {
        Size::fold(self, other.into(), i64::checked_mul, |a, b| match (a, b) {
            (Const(1), x) | (x, Const(1)) => x,
            (Product(mut of), x) => {
                of.push(x);
                Product(of)
            }
            (a, b) => Product(vec![a, b]),
        })
    }
}

impl Neg for Size {
    type Output = Size;

    fn neg(self) -> Size {
        let Product(mut of) = self else { return self * Const(-1) };
        let opposite = |part: &mut Size| match part {
            Const(value) => value.checked_neg().map(|value| *part = Const(value)),
            _ => None,
        };
        if of.iter_mut().find_map(opposite).is_none() {
            of.push(Const(-1));
        }
        Product(of)
    }
}

impl From<i64> for Size {
    fn from(value: i64) -> Size {
        Const(value)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let list = |f: &mut fmt::Formatter, of: &[Size], between: &str| {
            let parts: Vec<_> = of.iter().map(Size::to_string).collect();
            write!(f, "({})", parts.join(between))
        };
        match self {
            Const(value) => write!(f, "{value}"),
            Symbol(index) => write!(f, "s{index}"),
            Sum(of) => list(f, of, " + "),
            Product(of) => list(f, of, "*"),
            FloorDiv(of) => write!(f, "({} floordiv {})", of.0, of.1),
            Mod(of) => write!(f, "({} mod {})", of.0, of.1),
            Min(of) => write!(f, "min({}, {})", of.0, of.1),
            Max(of) => write!(f, "max({}, {})", of.0, of.1),
        }
    }
}
