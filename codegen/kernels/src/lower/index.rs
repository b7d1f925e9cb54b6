//! Indices in a tensor as values of loop code, and their addresses.

use std::convert::Infallible;

use mithril_ir::dim::{Dim, Operator, Symbol, Translator};
use smallvec::SmallVec;

use super::nest::Nest;
pub use super::position::{Address, Index, Ix};
use crate::code::{Binary, Cmp, Ty, V};
use crate::loops::Loops;

/// Emits the value of a dim.
impl Translator for Nest<'_> {
    type Value = V;
    type Error = Infallible;

    fn constant(&mut self, value: i64) -> Result<V, Infallible> {
        Ok(self.b.index(value))
    }

    fn symbol(&mut self, symbol: &Symbol) -> Result<V, Infallible> {
        Ok(match symbol.number() {
            Some(number) => self.b.dim(number),
            None => self.no_value(),
        })
    }

    fn unknown(&mut self) -> Result<V, Infallible> {
        Ok(self.no_value())
    }

    fn binary(&mut self, op: Operator, left: V, right: V) -> Result<V, Infallible> {
        let op = match op {
            Operator::Add => Binary::Add,
            Operator::Sub => Binary::Sub,
            Operator::Mul => Binary::Mul,
            Operator::FloorDiv => Binary::Div,
            Operator::Mod => Binary::Rem,
            Operator::Min => Binary::Min,
            Operator::Max => Binary::Max,
        };
        Ok(self.b.binary(op, left, right))
    }

    /// Divisors are not negative. A division truncates, so the quotient of a dividend that may be
    /// negative is corrected.
    fn divide(&mut self, op: Operator, dividend: &Dim, x: V, y: V) -> Result<V, Infallible> {
        if dividend.lower_bound().is_some_and(|least| least >= 0) {
            return self.binary(op, x, y);
        }
        let zero = self.b.index(0);
        let rest = self.b.binary(Binary::Rem, x, y);
        let below = self.b.compare(Cmp::Lt, rest, zero);
        Ok(match op {
            Operator::Mod => {
                let above = self.b.add(rest, y);
                self.b.select(below, above, rest)
            }
            _ => {
                let (quotient, one) = (self.b.binary(Binary::Div, x, y), self.b.index(1));
                let lower = self.b.binary(Binary::Sub, quotient, one);
                self.b.select(below, lower, quotient)
            }
        })
    }
}

impl Nest<'_> {
    /// Emits the value of a dim.
    pub fn dim(&mut self, dim: &Dim) -> V {
        let Ok(value) = dim.translate(self);
        value
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
        self.b.form(v).is_multiple(self.lanes.into(), |v| self.multiples.contains(&v))
    }

    /// An operation on indices. Contiguous lanes stay contiguous where their normal form shows it.
    pub fn arith(&mut self, op: Binary, x: Ix, y: Ix) -> Ix {
        match (op, x, y) {
            (_, Ix::At(a), Ix::At(b)) => Ix::At(self.b.binary(op, a, b)),
            (Binary::Add, Ix::Lanes(a), Ix::At(b)) | (Binary::Add, Ix::At(a), Ix::Lanes(b)) => {
                Ix::Lanes(self.b.add(a, b))
            }
            (Binary::Sub, Ix::Lanes(a), Ix::At(b)) => Ix::Lanes(self.b.sub(a, b)),
            (Binary::Add, Ix::Back(a), Ix::At(b)) | (Binary::Add, Ix::At(a), Ix::Back(b)) => {
                Ix::Back(self.b.add(a, b))
            }
            (Binary::Sub, Ix::At(a), Ix::Lanes(b)) => Ix::Back(self.b.sub(a, b)),
            (Binary::Sub, Ix::At(a), Ix::Back(b)) => Ix::Lanes(self.b.sub(a, b)),
            (Binary::Mul | Binary::Div, x, Ix::At(b)) if self.b.constant(b) == Some(1) => x,
            _ => {
                let (a, b) = (self.many(x), self.many(y));
                let v = self.b.binary(op, a, b);
                match self.b.in_line(v) {
                    Some((base, true)) => Ix::Lanes(base),
                    Some((base, false)) => Ix::Back(base),
                    None => Ix::Many(v),
                }
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
                let (rest, above) = self.b.div_rem(base, size);
                return (Ix::Lanes(rest), Ix::At(above));
            }
        }
        match number {
            Ix::At(v) => {
                let (rest, above) = self.b.div_rem(v, size);
                (Ix::At(rest), Ix::At(above))
            }
            _ => {
                let (number, size) = (self.many(number), self.b.splat(size, self.lanes));
                let (rest, above) = self.b.div_rem(number, size);
                (Ix::Many(rest), Ix::Many(above))
            }
        }
    }

    /// The address of an index in dense row-major memory.
    pub fn address(&mut self, dims: &[Dim], index: &[Ix]) -> Address {
        match self.flat(dims, index) {
            Ix::At(v) => Address::One(v),
            Ix::Lanes(v) => Address::Row(v),
            Ix::Back(v) => Address::Back(v),
            Ix::Many(v) => Address::Many(v),
        }
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
