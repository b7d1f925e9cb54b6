//! Prints a dim as text that `parse` reads back.

use std::fmt::{self, Display, Formatter};

use super::Dim;
use super::poly::{Atom, Monomial, Poly};

/// Uses Python's operators and precedence: `4*batch + 1`, `(h + 1)//2`, `min(a, 3)`, and `?` for
/// unknown. The text is one token or one call if [`Dim::prints_as_atom`]; otherwise a context with
/// other operators must put it in parentheses.
impl Display for Dim {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Const(value) => value.fmt(f),
            Dim::Unknown => f.pad("?"),
            Dim::Expr(poly) => poly.fmt(f),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Dim {
    /// Whether the text never needs parentheses: a constant that is not negative, `?`, a symbol, or
    /// a call of `min` or `max`.
    pub fn prints_as_atom(&self) -> bool {
        match self {
            Dim::Const(value) => *value >= 0,
            Dim::Unknown => true,
            Dim::Expr(_) => {
                !matches!(self.as_atom(), None | Some(Atom::FloorDiv(_) | Atom::Mod(_)))
            }
        }
    }

    fn write_operand(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.prints_as_atom() { write!(f, "{self}") } else { write!(f, "({self})") }
    }
}

impl Display for Poly {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, (monomial, coefficient)) in self.terms().iter().enumerate() {
            let mut coefficient = *coefficient;
            if at > 0 {
                // The most negative coefficient cannot be negated: ` + -9223372036854775808*a`.
                match coefficient.checked_neg() {
                    Some(opposite) if opposite > 0 => {
                        coefficient = opposite;
                        f.write_str(" - ")?;
                    }
                    _ => f.write_str(" + ")?,
                }
            }
            write_term(f, monomial, coefficient)?;
        }
        Ok(())
    }
}

fn write_term(f: &mut Formatter<'_>, monomial: &Monomial, coefficient: i64) -> fmt::Result {
    match (monomial.factors(), coefficient) {
        ([], _) => return write!(f, "{coefficient}"),
        ([(atom, 1)], 1) => return write!(f, "{atom}"),
        (_, 1) => {}
        (_, -1) => f.write_str("-")?,
        _ => write!(f, "{coefficient}*")?,
    }
    let mut separator = "";
    for (atom, power) in monomial.factors() {
        for _ in 0..*power {
            f.write_str(separator)?;
            separator = "*";
            match atom {
                Atom::FloorDiv(_) | Atom::Mod(_) => write!(f, "({atom})")?,
                _ => write!(f, "{atom}")?,
            }
        }
    }
    Ok(())
}

impl Display for Atom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let call = match self {
            Atom::Symbol(symbol) => return f.write_str(symbol.as_str()),
            Atom::FloorDiv(pair) | Atom::Mod(pair) => {
                pair[0].write_operand(f)?;
                f.write_str(if matches!(self, Atom::Mod(_)) { "%" } else { "//" })?;
                return pair[1].write_operand(f);
            }
            Atom::Min(_) => "min",
            Atom::Max(_) => "max",
        };
        write!(f, "{call}(")?;
        for (at, operand) in self.operands().iter().enumerate() {
            write!(f, "{}{operand}", if at == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}
