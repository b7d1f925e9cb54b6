//! Simplifies index arithmetic with a normal form, in which terms cancel.
//!
//! For example, the index of a reshaped array is split into axes and recombined for its address:
//! `i / 8 * 8 + i % 8`. The normal form of this sum is `i`.

use mithril_ir::dtype::DType;
use smallvec::{SmallVec, smallvec};

use super::Builder;
use crate::code::{Binary, Inst, Ty, V};

/// The maximum number of terms of a form, and of factors in a term. Larger forms are replaced by an
/// atom, which bounds compile time.
const MAX_TERMS: usize = 12;
const MAX_FACTORS: usize = 6;

/// A 64-bit integer as a polynomial over other values. Arithmetic wraps, so values with equal forms
/// have equal bits. In the form of a vector, a scalar stands for its broadcast.
#[derive(Clone, Default, Debug)]
pub struct Form {
    /// Distinct products of values with non-zero coefficients, in the order of their first use.
    terms: SmallVec<[(Product, i64); 2]>,
    constant: i64,
}

/// The factors of a term, sorted.
type Product = SmallVec<[V; 2]>;

impl Form {
    fn constant(constant: i64) -> Form {
        Form { constant, ..Form::default() }
    }

    fn atom(v: V) -> Form {
        Form { terms: smallvec![(smallvec![v], 1)], constant: 0 }
    }

    fn scaled(&self, by: i64) -> Form {
        let terms =
            self.terms.iter().map(|(of, coefficient)| (of.clone(), coefficient.wrapping_mul(by)));
        let terms = terms.filter(|(_, coefficient)| *coefficient != 0);
        Form { terms: terms.collect(), constant: self.constant.wrapping_mul(by) }
    }

    /// Adds a term. Returns whether it cancels an existing term.
    fn add_term(&mut self, of: &Product, coefficient: i64) -> bool {
        match self.terms.iter().position(|(own, _)| own == of) {
            None => self.terms.push((of.clone(), coefficient)),
            Some(at) => {
                self.terms[at].1 = self.terms[at].1.wrapping_add(coefficient);
                if self.terms[at].1 == 0 {
                    self.terms.remove(at);
                    return true;
                }
            }
        }
        false
    }

    /// Returns the sum, and whether terms cancel in it.
    fn plus(&self, other: &Form) -> (Form, bool) {
        let mut sum = self.clone();
        let mut cancels = false;
        for (of, coefficient) in &other.terms {
            cancels |= sum.add_term(of, *coefficient);
        }
        sum.constant = sum.constant.wrapping_add(other.constant);
        (sum, cancels)
    }

    fn times(&self, other: &Form) -> Form {
        let mut product = self.scaled(other.constant);
        product.constant = self.constant.wrapping_mul(other.constant);
        for (right, b) in &other.terms {
            for (left, a) in &self.terms {
                let mut of: Product = left.iter().chain(right).copied().collect();
                of.sort_unstable();
                product.add_term(&of, a.wrapping_mul(*b));
            }
            if self.constant != 0 {
                product.add_term(right, self.constant.wrapping_mul(*b));
            }
        }
        product
    }

    /// Whether the form is a single value.
    fn is_atom(&self) -> bool {
        matches!(&self.terms[..], [(of, 1)] if of.len() == 1) && self.constant == 0
    }

    fn is_small(&self) -> bool {
        self.terms.len() <= MAX_TERMS && self.terms.iter().all(|(of, _)| of.len() <= MAX_FACTORS)
    }

    /// Whether the form is a multiple of `n`, a power of two. `known` says which values are
    /// multiples.
    pub fn is_multiple(&self, n: i64, known: impl Fn(V) -> bool) -> bool {
        let divides = |coefficient: i64| coefficient % n == 0;
        let multiple = |(of, coefficient): &(Product, i64)| {
            divides(*coefficient) || of.iter().any(|v| known(*v))
        };
        divides(self.constant) && self.terms.iter().all(multiple)
    }
}

/// Whether values of this type have a form.
pub(super) fn has_form(ty: Ty) -> bool {
    ty.dtype == DType::I64
}

impl Builder {
    /// The normal form of a 64-bit integer.
    pub fn form(&self, v: V) -> Form {
        match (self.constant(v), self.forms.get(&v)) {
            (Some(constant), _) => Form::constant(constant),
            (None, Some(form)) => form.clone(),
            (None, None) => Form::atom(v),
        }
    }

    /// Folds 64-bit arithmetic on constants. Returns `None` if it cannot be folded.
    pub(super) fn fold_constants(&mut self, op: Binary, x: V, y: V) -> Option<V> {
        let ty = self.ty(x);
        if !has_form(ty) {
            return None;
        }
        let constant = |b: &mut Builder, value: i64| Some(b.int(ty, value));
        match (op, self.constant(x), self.constant(y)) {
            (Binary::Add, Some(a), Some(b)) => constant(self, a.wrapping_add(b)),
            (Binary::Sub, Some(a), Some(b)) => constant(self, a.wrapping_sub(b)),
            (Binary::Mul, Some(a), Some(b)) => constant(self, a.wrapping_mul(b)),
            (Binary::Div, Some(a), Some(b)) if b > 0 && a >= 0 => constant(self, a / b),
            (Binary::Rem, Some(a), Some(b)) if b > 0 && a >= 0 => constant(self, a % b),
            (Binary::Min, Some(a), Some(b)) => constant(self, a.min(b)),
            (Binary::Max, Some(a), Some(b)) => constant(self, a.max(b)),
            (Binary::Add, Some(0), _) | (Binary::Mul, Some(1), _) => Some(y),
            (Binary::Add | Binary::Sub, _, Some(0)) => Some(x),
            (Binary::Mul | Binary::Div, _, Some(1)) => Some(x),
            (Binary::Mul, Some(0), _) => Some(x),
            (Binary::Mul, _, Some(0)) => Some(y),
            (Binary::Div | Binary::Rem, Some(0), _) => Some(x),
            (Binary::Rem, _, Some(1)) => constant(self, 0),
            _ => None,
        }
    }

    /// Emits a sum, difference or product of 64-bit integers, simplified.
    pub(super) fn simplified(&mut self, op: Binary, x: V, y: V) -> V {
        let (a, b) = (self.form(x), self.form(y));
        let (form, cancels) = match op {
            Binary::Add => a.plus(&b),
            Binary::Sub => a.plus(&b.scaled(-1)),
            _ => (a.times(&b), false),
        };
        let ty = self.ty(x);
        let v = match cancels || form.is_atom() {
            true => self.emit(&form, ty),
            false => self.push(ty, Inst::Binary(op, x, y)),
        };
        self.record_form(v, form);
        v
    }

    /// Emits a quotient of 64-bit integers. `x / 3 / 3` becomes `x / 9`.
    pub(super) fn quotient(&mut self, x: V, y: V) -> V {
        let ty = self.ty(x);
        let positive = self.constant(y).filter(|by| *by > 0);
        let nested = self.quotients.get(&x).zip(positive);
        if let Some((&(inner, first), by)) = nested
            && let Some(by) = first.checked_mul(by)
        {
            let by = self.int(ty, by);
            return self.binary(Binary::Div, inner, by);
        }
        let v = self.push(ty, Inst::Binary(Binary::Div, x, y));
        if let Some(by) = positive {
            self.quotients.insert(v, (x, by));
        }
        v
    }

    /// Emits the remainder and the quotient of two non-negative indices. Code for C uses the
    /// remainder operator. Other code computes the remainder from the quotient, because a
    /// multiplication is faster than a second division.
    pub fn div_rem(&mut self, x: V, y: V) -> (V, V) {
        let quotient = self.div(x, y);
        let whole = self.mul(quotient, y);
        let rest = self.sub(x, whole);
        if !self.source().vectorizes || self.constant(rest).is_some() {
            return (rest, quotient);
        }
        let form = self.form(rest);
        let rest = self.binary(Binary::Rem, x, y);
        self.record_form(rest, form);
        (rest, quotient)
    }

    /// Records the form of a value, unless the form is too large.
    pub(super) fn record_form(&mut self, v: V, form: Form) {
        if form.is_small() {
            self.forms.insert(v, form);
        }
    }

    /// If a vector is `base + iota` or `base - iota`, returns `base` and whether the lanes ascend.
    pub fn lane_base(&mut self, v: V) -> Option<(V, bool)> {
        let iota = *self.head_values.get(&super::Head::Iota(self.ty(v)))?;
        let form = self.forms.get(&v)?;
        let is_vector = |of: &Product| of.iter().any(|&factor| self.ty(factor).lanes > 1);
        let mut vectors = form.terms.iter().filter(|(of, _)| is_vector(of));
        let ascends = match (vectors.next(), vectors.next()) {
            (Some((of, 1)), None) if of[..] == [iota] => true,
            (Some((of, -1)), None) if of[..] == [iota] => false,
            _ => return None,
        };
        let mut base = form.clone();
        base.terms.retain(|(of, _)| of[..] != [iota]);
        let v = self.emit(&base, Ty::INDEX);
        self.record_form(v, base);
        Some((v, ascends))
    }

    /// Emits the code that computes a form.
    fn emit(&mut self, form: &Form, ty: Ty) -> V {
        let (scalars, vectors): (Vec<_>, Vec<_>) = form
            .terms
            .iter()
            .cloned()
            .partition(|(of, _)| of.iter().all(|&factor| self.ty(factor).lanes == 1));
        let scalar = self.sum(scalars, form.constant);
        let mut sum = self.splat(scalar, ty.lanes);
        for (of, coefficient) in vectors {
            let (repeated, own): (Product, Product) =
                of.into_iter().partition(|&factor| self.ty(factor).lanes == 1);
            let by = self.sum(vec![(repeated, coefficient)], 0);
            let mut term = self.splat(by, ty.lanes);
            for factor in own {
                term = self.plain(Binary::Mul, factor, term);
            }
            sum = self.plain(Binary::Add, sum, term);
        }
        sum
    }

    /// Emits a sum of scalar terms. Factors out a common factor of several terms.
    fn sum(&mut self, mut terms: Vec<(Product, i64)>, constant: i64) -> V {
        let mut sum = None;
        while let Some(factor) = common_factor(&terms) {
            let (with, without) = terms.into_iter().partition(|(of, _)| of.contains(&factor));
            let with: Vec<(Product, i64)> = with;
            let inner = with.into_iter().map(|(mut of, coefficient)| {
                let at = of.iter().position(|v| *v == factor).unwrap_or(0);
                of.remove(at);
                (of, coefficient)
            });
            let (constants, inner): (Vec<_>, Vec<_>) = inner.partition(|(of, _)| of.is_empty());
            let constant = constants.iter().fold(0i64, |sum, (_, c)| sum.wrapping_add(*c));
            let inner = self.sum(inner, constant);
            let term = self.plain(Binary::Mul, inner, factor);
            sum = Some(self.joined(sum, Binary::Add, term));
            terms = without;
        }
        // Positive terms come first, so that sums rarely begin with a minus sign.
        terms.sort_by_key(|(_, coefficient)| *coefficient < 0);
        for (of, coefficient) in terms {
            let mut factors = of.into_iter();
            let first = factors.next();
            let first = first.unwrap_or_else(|| self.index(1));
            let product = factors.fold(first, |a, b| self.plain(Binary::Mul, a, b));
            let by = self.index(coefficient.wrapping_abs());
            let term = self.plain(Binary::Mul, product, by);
            let op = if coefficient < 0 { Binary::Sub } else { Binary::Add };
            sum = Some(self.joined(sum, op, term));
        }
        let constant = self.index(constant);
        self.joined(sum, Binary::Add, constant)
    }

    fn joined(&mut self, sum: Option<V>, op: Binary, term: V) -> V {
        match (sum, op) {
            (Some(sum), _) => self.plain(op, sum, term),
            (None, Binary::Add) => term,
            (None, _) => {
                let zero = self.index(0);
                self.plain(op, zero, term)
            }
        }
    }

    /// Emits an instruction. Only constants are simplified.
    fn plain(&mut self, op: Binary, x: V, y: V) -> V {
        let known = self.fold_constants(op, x, y);
        known.unwrap_or_else(|| self.push(self.ty(x), Inst::Binary(op, x, y)))
    }
}

/// Returns the value that is a factor of the most terms, if it is a factor of several.
fn common_factor(terms: &[(Product, i64)]) -> Option<V> {
    let count = |v: V| terms.iter().filter(|(of, _)| of.contains(&v)).count();
    let values = terms.iter().flat_map(|(of, _)| of).map(|&v| (count(v), v));
    // Of equally frequent values, takes the first.
    let most = values.reduce(|best, next| if next.0 > best.0 { next } else { best });
    most.filter(|(count, _)| *count > 1).map(|(_, v)| v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn splitting_and_recombining_an_index_gives_the_index() {
        for isa in [Isa::new(32, 16), Isa::PORTABLE] {
            let mut b = Builder::new(0, 2).for_isa(&isa);
            let (x, n, width) = (b.dim(0), b.dim(1), b.index(8));
            for divisor in [width, n] {
                let (rest, quotient) = b.div_rem(x, divisor);
                let whole = b.mul(quotient, divisor);
                assert_eq!(b.add(whole, rest), x);
            }
            // Terms that merge without cancelling are left unchanged.
            let twice = b.add(x, x);
            assert_ne!(twice, x);
            assert_eq!(b.sub(twice, x), x);
        }
    }

    #[test]
    fn nested_quotients_divide_once() {
        let mut b = Builder::new(0, 1);
        let (x, three, four) = (b.dim(0), b.index(3), b.index(4));
        let third = b.div(x, three);
        let nested = b.div(third, four);
        let twelve = b.index(12);
        let code = b.finish();
        let last = code.body.iter().find(|stmt| stmt.results == [nested]).expect("a statement");
        assert!(matches!(last.inst, Inst::Binary(Binary::Div, v, by) if v == x && by == twelve));
    }

    #[test]
    fn contiguous_lanes_are_found_through_arithmetic() {
        let mut b = Builder::new(0, 2);
        let wide = Ty { lanes: 8, ..Ty::INDEX };
        let (base, n) = (b.dim(0), b.dim(1));
        let (start, ramp, size) = (b.splat(base, 8), b.iota(wide), b.splat(n, 8));
        let number = b.add(start, ramp);
        let (rest, quotient) = b.div_rem(number, size);
        assert_eq!(b.lane_base(rest), None);
        let whole = b.mul(quotient, size);
        let again = b.add(whole, rest);
        assert_eq!(b.lane_base(again), Some((base, true)));
        let back = b.sub(start, ramp);
        assert_eq!(b.lane_base(back), Some((base, false)));
    }

    #[test]
    fn forms_know_their_multiples() {
        let mut b = Builder::new(0, 2);
        let (x, y) = (b.dim(0), b.dim(1));
        let row = b.times(x, 32);
        let sum = b.add(row, y);
        assert!(b.form(row).is_multiple(16, |_| false));
        assert!(!b.form(sum).is_multiple(16, |_| false));
        assert!(b.form(sum).is_multiple(16, |v| v == y));
    }
}
