//! Indices in a tensor as values of loop code, and their addresses.

use mithril_ir::dim::{Atom, Dim};
use smallvec::SmallVec;

use super::nest::Nest;
pub use super::position::{Address, Index, Ix};
use crate::code::{Binary, Cmp, Ty, V};
use crate::loops::Loops;

impl Nest<'_> {
    /// Emits the value of a dim.
    pub fn dim(&mut self, dim: &Dim) -> V {
        let poly = match dim {
            Dim::Const(value) => return self.b.index(*value),
            Dim::Unknown => unreachable!("kernels have no unknown dims"),
            Dim::Expr(poly) => poly.clone(),
        };
        let mut total = self.b.index(0);
        for (monomial, coefficient) in poly.terms() {
            let mut value = self.b.index(*coefficient);
            for (atom, power) in monomial.factors() {
                let factor = self.atom(atom);
                for _ in 0..*power {
                    value = self.b.mul(value, factor);
                }
            }
            total = self.b.add(total, value);
        }
        total
    }

    fn atom(&mut self, atom: &Atom) -> V {
        let op = match atom {
            Atom::Symbol(symbol) => {
                let number = symbol.as_str()[1..].parse().expect("kernels name symbols d0, d1, …");
                return self.b.dim(number);
            }
            Atom::FloorDiv(of) | Atom::Mod(of)
                if of[0].lower_bound().is_none_or(|least| least < 0) =>
            {
                return self.floored(&of[0], &of[1], matches!(atom, Atom::Mod(_)));
            }
            Atom::FloorDiv(_) => Binary::Div,
            Atom::Mod(_) => Binary::Rem,
            Atom::Min(_) => Binary::Min,
            Atom::Max(_) => Binary::Max,
        };
        let operands: Vec<V> = atom.operands().iter().map(|dim| self.dim(dim)).collect();
        let (first, rest) = operands.split_first().expect("an atom has operands");
        rest.iter().fold(*first, |a, &b| self.b.binary(op, a, b))
    }

    /// The quotient rounded down, or the remainder if `remains`, for a dividend that may be
    /// negative and a divisor that is not.
    fn floored(&mut self, x: &Dim, y: &Dim, remains: bool) -> V {
        let (x, y, zero) = (self.dim(x), self.dim(y), self.b.index(0));
        let rest = self.b.binary(Binary::Rem, x, y);
        let below = self.b.compare(Cmp::Lt, rest, zero);
        if remains {
            let above = self.b.add(rest, y);
            return self.b.select(below, above, rest);
        }
        let (quotient, one) = (self.b.binary(Binary::Div, x, y), self.b.index(1));
        let lower = self.b.binary(Binary::Sub, quotient, one);
        self.b.select(below, lower, quotient)
    }

    pub fn zero(&mut self) -> Ix {
        Ix::At(self.b.index(0))
    }

    fn wide(&self) -> Ty {
        Ty { lanes: self.lanes, ..Ty::INDEX }
    }

    /// An index as a vector.
    pub fn many(&mut self, ix: Ix) -> V {
        match ix {
            Ix::Lanes(v) | Ix::Back(v) if self.lanes == 1 => v,
            Ix::At(v) => self.b.splat(v, self.lanes),
            Ix::Lanes(v) => {
                let (base, ramp) = (self.b.splat(v, self.lanes), self.b.iota(self.wide()));
                self.b.add(base, ramp)
            }
            Ix::Back(v) => {
                let (base, ramp) = (self.b.splat(v, self.lanes), self.b.iota(self.wide()));
                self.b.sub(base, ramp)
            }
            Ix::Many(v) => v,
        }
    }

    /// An index as a value: a scalar if it is the same for all lanes, otherwise a vector.
    pub fn position(&mut self, ix: Ix) -> V {
        match ix {
            Ix::At(v) => v,
            _ => self.many(ix),
        }
    }

    pub fn ix(&self, v: V) -> Ix {
        if self.b.ty(v).lanes == 1 { Ix::At(v) } else { Ix::Many(v) }
    }

    /// Whether an index is known to be a multiple of the number of lanes.
    pub fn is_multiple(&self, v: V) -> bool {
        let constant = self.b.constant(v).is_some_and(|c| c % i64::from(self.lanes) == 0);
        constant || self.multiples.contains(&v)
    }

    /// An operation on indices. Contiguous lanes stay contiguous when a scalar is added.
    pub fn arith(&mut self, op: Binary, x: Ix, y: Ix) -> Ix {
        let result = self.arith_of(op, x, y);
        if let (Ix::At(a) | Ix::Lanes(a), Ix::At(b) | Ix::Lanes(b)) = (x, y) {
            let multiple = match op {
                Binary::Add | Binary::Sub => self.is_multiple(a) && self.is_multiple(b),
                Binary::Mul => self.is_multiple(a) || self.is_multiple(b),
                _ => false,
            };
            if let (true, Ix::At(v) | Ix::Lanes(v)) = (multiple, result) {
                self.multiples.insert(v);
            }
        }
        result
    }

    fn arith_of(&mut self, op: Binary, x: Ix, y: Ix) -> Ix {
        match (op, x, y) {
            (_, Ix::At(a), Ix::At(b)) => Ix::At(self.b.binary(op, a, b)),
            (Binary::Add, Ix::Lanes(a), Ix::At(b)) | (Binary::Add, Ix::At(b), Ix::Lanes(a)) => {
                Ix::Lanes(self.b.add(a, b))
            }
            (Binary::Sub, Ix::Lanes(a), Ix::At(b)) => Ix::Lanes(self.b.sub(a, b)),
            (Binary::Add, Ix::Back(a), Ix::At(b)) | (Binary::Add, Ix::At(b), Ix::Back(a)) => {
                Ix::Back(self.b.add(a, b))
            }
            (Binary::Sub, Ix::At(a), Ix::Lanes(b)) => Ix::Back(self.b.sub(a, b)),
            (Binary::Sub, Ix::At(a), Ix::Back(b)) => Ix::Lanes(self.b.sub(a, b)),
            (Binary::Mul | Binary::Div, x, Ix::At(b)) if self.b.constant(b) == Some(1) => x,
            _ => {
                let (a, b) = (self.many(x), self.many(y));
                Ix::Many(self.b.binary(op, a, b))
            }
        }
    }

    pub fn ix_const(&mut self, x: i64) -> Ix {
        Ix::At(self.b.index(x))
    }

    /// The flat index of an element of a shape, in row-major order.
    pub fn flat(&mut self, dims: &[Dim], index: &[Ix]) -> Ix {
        let mut total = self.zero();
        for (dim, &ix) in dims.iter().zip(index) {
            let size = Ix::At(self.dim(dim));
            total = self.arith(Binary::Mul, total, size);
            total = self.arith(Binary::Add, total, ix);
        }
        total
    }

    /// The index along each axis for a flat index in row-major order.
    pub fn unflat(&mut self, dims: &[Dim], number: Ix) -> Index {
        let mut rest = number;
        let mut index: Index = SmallVec::new();
        for (axis, dim) in dims.iter().enumerate().rev() {
            // This includes the first axis: memoized values are found under index 0 along axes of
            // size 1.
            if dim.as_const() == Some(1) {
                index.push(self.zero());
                continue;
            }
            if axis == 0 {
                index.push(rest);
                break;
            }
            let (ix, above) = self.split(rest, dim);
            index.push(ix);
            rest = above;
        }
        index.reverse();
        index
    }

    /// The remainder and the quotient of `number` by `dim`. Contiguous lanes stay contiguous if the
    /// dim is a multiple of the number of lanes and the first lane is at a multiple.
    fn split(&mut self, number: Ix, dim: &Dim) -> (Ix, Ix) {
        // An axis without elements has no index, and C rejects a division by 0 even if it is never
        // executed.
        let size = if dim.as_const() == Some(0) { self.b.index(1) } else { self.dim(dim) };
        if let Ix::Lanes(base) = number {
            let whole = dim.as_const().is_some_and(|n| n > 0 && n % i64::from(self.lanes) == 0);
            if whole && self.is_multiple(base) {
                let (rest, above) = self.div_rem(base, size);
                self.multiples.insert(rest);
                return (Ix::Lanes(rest), Ix::At(above));
            }
        }
        match number {
            Ix::At(v) => {
                let (rest, above) = self.div_rem(v, size);
                (Ix::At(rest), Ix::At(above))
            }
            _ => {
                let (number, size) = (self.many(number), self.b.splat(size, self.lanes));
                let (rest, above) = self.div_rem(number, size);
                (Ix::Many(rest), Ix::Many(above))
            }
        }
    }

    fn div_rem(&mut self, number: V, size: V) -> (V, V) {
        let above = self.b.div(number, size);
        let back = self.b.mul(above, size);
        (self.b.sub(number, back), above)
    }

    /// Merges the last dims into one where their flat index is known.
    fn undivided(&self, dims: &[Dim], index: &[Ix]) -> Option<(Vec<Dim>, Index)> {
        let found = (0..index.len().saturating_sub(1)).find_map(|from| {
            let (own, number) = self.divided.get(&index[from..])?;
            (own[..] == dims[from..]).then_some((from, *number))
        });
        let (from, number) = found.filter(|(_, number)| !number.is_one())?;
        let size = dims[from..].iter().cloned().product();
        let dims = dims[..from].iter().cloned().chain([size]).collect();
        Some((dims, index[..from].iter().copied().chain([number]).collect()))
    }

    /// The address of an index in dense row-major memory.
    pub fn address(&mut self, dims: &[Dim], index: &[Ix]) -> Address {
        if let Some((dims, index)) = self.undivided(dims, index) {
            return self.address(&dims, &index);
        }
        let last = index.iter().rposition(|ix| !ix.is_one());
        let Some(last) = last else {
            return match self.flat(dims, index) {
                Ix::At(v) => Address::One(v),
                Ix::Lanes(v) | Ix::Back(v) | Ix::Many(v) => Address::Many(v),
            };
        };
        let varying = index.iter().filter(|ix| !ix.is_one()).count();
        let inner = dims[last + 1..].iter().all(|dim| dim.as_const() == Some(1));
        if let (1, true, Ix::Lanes(base) | Ix::Back(base)) = (varying, inner, index[last]) {
            let mut first: Index = index.into();
            first[last] = Ix::At(base);
            if let Ix::At(v) = self.flat(dims, &first) {
                return match index[last] {
                    Ix::Back(_) => Address::Back(v),
                    _ => Address::Row(v),
                };
            }
        }
        let flat = self.flat(dims, index);
        Address::Many(self.many(flat))
    }
}

/// Open loops, from the outermost on. Each has its counter, start and end.
pub struct Axes(Vec<[V; 3]>);

impl Nest<'_> {
    /// Opens a loop for each dim that is not 1. Returns the index of the body, and the loops to
    /// pass to [`Nest::close_axes`].
    pub fn open_axes(&mut self, dims: &[Dim]) -> (Index, Axes) {
        let (mut place, mut axes) = (Index::new(), Vec::new());
        for dim in dims {
            if dim.as_const() == Some(1) {
                place.push(self.zero());
                continue;
            }
            let (from, to) = (self.b.index(0), self.dim(dim));
            let (i, _) = self.b.open_repeat(&[]);
            self.enter();
            place.push(Ix::At(i));
            axes.push([i, from, to]);
        }
        (place, Axes(axes))
    }

    pub fn close_axes(&mut self, axes: Axes) {
        for [i, from, to] in axes.0.into_iter().rev() {
            self.leave();
            self.b.close_repeat(from, to, 1, &[], i, vec![], vec![]);
        }
    }
}
