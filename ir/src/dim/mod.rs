//! Symbolic dims: integer polynomials over named symbols with floor division, modulo, min and max,
//! kept in a normal form. Dims with equal normal forms are equal for all values of their symbols;
//! if the normal forms differ, equality may be undecided.

mod bounds;
mod divide;
mod evaluate;
mod extremum;
mod ops;
mod parse;
mod poly;
mod print;
mod translate;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use bounds::Bounds;
use extremum::Extremum;
pub use parse::{ParseDimError, parse_dim};
pub use poly::{Atom, MAX_NESTED, MAX_TERMS, Monomial, Poly};
pub use translate::{Operator, Translator};

/// The name of a dim that is only known at run time. Its value is an integer ≥ 0.
///
/// The text form can only be read back if the name is an identifier (`[A-Za-z_][A-Za-z0-9_.]*`), so
/// code that takes names from outside must rename others.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol {
    name: Arc<str>,
    number: Option<u32>,
}

impl Symbol {
    /// Dim number `n` of a kernel, printed as `d{n}`. It differs from a symbol with that name.
    pub fn numbered(n: u32) -> Symbol {
        Symbol { name: format!("d{n}").into(), number: Some(n) }
    }

    /// The number of a kernel's dim; `None` for a symbol that only has a name.
    pub fn number(&self) -> Option<usize> {
        self.number.map(|n| n as usize)
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

impl From<&str> for Symbol {
    fn from(text: &str) -> Symbol {
        Symbol { name: text.into(), number: None }
    }
}

impl From<String> for Symbol {
    fn from(text: String) -> Symbol {
        Symbol { name: text.into(), number: None }
    }
}

impl From<&Symbol> for Symbol {
    fn from(symbol: &Symbol) -> Symbol {
        symbol.clone()
    }
}

impl AsRef<str> for Symbol {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// One dim of a shape, in normal form.
///
/// Arithmetic never panics and never wraps. A result is `Unknown` if it overflows, has more than
/// [`MAX_TERMS`] terms, nests deeper than [`MAX_NESTED`], divides by a literal zero or has an
/// unknown operand. A dim is only evaluated where no divisor in it is zero, since a shape that
/// divides by zero is undefined; simplification relies on that, and on symbols being ≥ 0.
///
/// `Ord` is not implemented: with it, `a.min(b)` on two owned dims would call `Ord::min` and not
/// [`Dim::min`]. Sort with [`Dim::order`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    Const(i64),
    /// Nothing is known. `==` holds between two unknown dims; use [`Dim::compare`] to ask whether
    /// the sizes they stand for are equal.
    Unknown,
    /// Never a constant: constants are `Const`.
    Expr(Arc<Poly>),
}

/// The relation of two dims for all values of their symbols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Their normal forms are equal and known.
    Equal,
    /// They differ for every value of the symbols.
    Different,
    /// Not known at compile time; a guard checks it at run time.
    Undecided,
}

impl Dim {
    /// The dim that is one symbol.
    pub fn symbol(name: impl Into<Symbol>) -> Dim {
        Dim::Expr(Arc::new(Poly::symbol(name.into())))
    }

    /// Unknown if its operands are too large, or nest too deep.
    fn atom(atom: Atom) -> Dim {
        Poly::atom(atom).map_or(Dim::Unknown, |poly| Dim::Expr(Arc::new(poly)))
    }

    /// The number of terms, factors and operands, and the nesting depth.
    fn poly_size(&self) -> (usize, u16) {
        match self {
            Dim::Const(_) | Dim::Unknown => (1, 0),
            Dim::Expr(poly) => poly.size(),
        }
    }

    /// The value, if it is a constant.
    pub fn as_const(&self) -> Option<i64> {
        match self {
            Dim::Const(value) => Some(*value),
            _ => None,
        }
    }

    /// The symbol, if it is exactly one bare symbol.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match self.as_atom() {
            Some(Atom::Symbol(symbol)) => Some(symbol),
            _ => None,
        }
    }

    /// The atom, if it is exactly one: a symbol, or one floor division, modulo, min or max.
    pub fn as_atom(&self) -> Option<&Atom> {
        match self {
            Dim::Expr(poly) => poly.as_atom(),
            _ => None,
        }
    }

    /// Whether nothing is known about it.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Dim::Unknown)
    }

    /// An order by structure and text, the same in every process. It does not compare values.
    pub fn order(&self, other: &Dim) -> Ordering {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => a.cmp(b),
            (Dim::Expr(a), Dim::Expr(b)) => a.cmp(b),
            (Dim::Unknown, Dim::Unknown) => Ordering::Equal,
            (Dim::Const(_), _) | (_, Dim::Expr(_)) => Ordering::Less,
            (_, Dim::Const(_)) | (Dim::Expr(_), _) => Ordering::Greater,
        }
    }

    /// As a polynomial; `None` if unknown.
    fn poly(&self) -> Option<Cow<'_, Poly>> {
        match self {
            Dim::Const(value) => Some(Cow::Owned(Poly::constant(*value))),
            Dim::Unknown => None,
            Dim::Expr(poly) => Some(Cow::Borrowed(poly)),
        }
    }

    /// The quotient rounded towards minus infinity; unknown if `rhs` is a literal zero.
    pub fn floor_div(&self, rhs: &Dim) -> Dim {
        match (self, rhs) {
            (Dim::Const(a), Dim::Const(b)) => divide::floor_div_const(*a, *b).into(),
            (_, Dim::Const(1)) => self.clone(),
            _ => self.combine(rhs, divide::floor_div),
        }
    }

    /// The remainder of [`Dim::floor_div`], with the sign of `rhs`; unknown if `rhs` is a literal
    /// zero.
    pub fn modulo(&self, rhs: &Dim) -> Dim {
        match (self, rhs) {
            (Dim::Const(a), Dim::Const(b)) => divide::modulo_const(*a, *b).into(),
            (Dim::Expr(_), Dim::Const(1)) => Dim::Const(0),
            _ => self.combine(rhs, divide::modulo),
        }
    }

    /// The quotient rounded towards plus infinity; unknown if `rhs` is a literal zero.
    pub fn ceil_div(&self, rhs: &Dim) -> Dim {
        if rhs.lower_bound().is_some_and(|least| least >= 0) {
            // The usual way to write it, so that it compares equal to dims that users write.
            (self + rhs - 1).floor_div(rhs)
        } else {
            -(-self).floor_div(rhs)
        }
    }

    /// The smaller of the two.
    pub fn min(&self, rhs: &Dim) -> Dim {
        Extremum::Min.of(self, rhs)
    }

    /// The larger of the two.
    pub fn max(&self, rhs: &Dim) -> Dim {
        Extremum::Max.of(self, rhs)
    }

    /// The polynomial `q` with `q * rhs == self`, if there is one with integer coefficients.
    pub fn exact_div(&self, rhs: &Dim) -> Option<Dim> {
        divide::exact(self.poly()?.as_ref(), rhs.poly()?.as_ref()).map(Dim::from)
    }

    /// Calls `f` for each symbol in the order of the text, once per occurrence.
    pub fn for_each_symbol(&self, f: &mut dyn FnMut(&Symbol)) {
        if let Dim::Expr(poly) = self {
            for atom in poly.atoms() {
                match atom {
                    Atom::Symbol(symbol) => f(symbol),
                    _ => atom.operands().iter().for_each(|dim| dim.for_each_symbol(f)),
                }
            }
        }
    }

    /// The symbols in unspecified order, once per occurrence.
    pub fn symbols(&self) -> Vec<&Symbol> {
        let mut found = Vec::new();
        let mut open: Vec<&Dim> = vec![self];
        while let Some(dim) = open.pop() {
            let Dim::Expr(poly) = dim else { continue };
            for atom in poly.atoms() {
                match atom {
                    Atom::Symbol(symbol) => found.push(symbol),
                    _ => open.extend(atom.operands()),
                }
            }
        }
        found
    }

    /// The constant term of the polynomial.
    pub fn constant_term(&self) -> i64 {
        self.poly().map_or(0, |poly| poly.constant_term())
    }

    /// A lower bound of the dim's value, if one can be proved.
    pub fn lower_bound(&self) -> Option<i64> {
        Bounds::of(self).lo
    }

    /// Compares two dims for all values of their symbols.
    pub fn compare(&self, other: &Dim) -> Relation {
        match (self, other) {
            (Dim::Unknown, _) | (_, Dim::Unknown) => Relation::Undecided,
            _ if self == other => Relation::Equal,
            (Dim::Const(_), Dim::Const(_)) => Relation::Different,
            _ if is_never_zero(&(self - other)) => Relation::Different,
            _ => Relation::Undecided,
        }
    }

    /// Applies `f` to two polynomials; unknown if an operand is unknown, or if `f` overflows.
    fn combine(&self, rhs: &Dim, f: impl Fn(&Poly, &Poly) -> Option<Dim>) -> Dim {
        match (self.poly(), rhs.poly()) {
            (Some(a), Some(b)) => f(&a, &b).unwrap_or(Dim::Unknown),
            _ => Dim::Unknown,
        }
    }
}

fn is_never_zero(dim: &Dim) -> bool {
    let Some(poly) = dim.poly() else {
        return false;
    };
    let Bounds { lo, hi } = Bounds::of(dim);
    if lo.is_some_and(|lo| lo > 0) || hi.is_some_and(|hi| hi < 0) {
        return true;
    }
    // `2*a - 4*b + 1`: all coefficients are multiples of a number that does not divide the
    // constant.
    match poly.coefficients_gcd() {
        0 => poly.constant_term() != 0,
        gcd => i128::from(poly.constant_term()) % i128::from(gcd) != 0,
    }
}
