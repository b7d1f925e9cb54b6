//! Emits loop code that computes dims, tensor indices and memory addresses.

use std::convert::Infallible;

use mithril_ir::dim::{Dim, Operator, Symbol, Translator};
use smallvec::SmallVec;

pub use super::ix::{Address, Index, Ix};
use super::nest::Nest;
use crate::code::{Binary, Cmp, Ty, V};
use crate::loops::Loops;

/// Emits the arithmetic of dims.
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

    /// Emits a floor division or a modulo by a non-negative divisor. The loop code's division
    /// truncates, so the result is corrected where the dividend may be negative.
    fn divide(&mut self, op: Operator, dividend: &Dim, x: V, y: V) -> Result<V, Infallible> {
        if dividend.lower_bound().is_some_and(|lowest| lowest >= 0) {
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
        Ix::Uniform(self.b.index(0))
    }

    fn wide(&self) -> Ty {
        Ty { lanes: self.lanes, ..Ty::INDEX }
    }

    /// Converts an index to a vector, one index per lane.
    pub fn as_vector(&mut self, ix: Ix) -> V {
        match ix {
            Ix::Ascending(v) | Ix::Descending(v) if self.lanes == 1 => v,
            Ix::Uniform(v) => self.b.splat(v, self.lanes),
            Ix::Ascending(v) => {
                let (base, ramp) = (self.b.splat(v, self.lanes), self.b.iota(self.wide()));
                self.b.add(base, ramp)
            }
            Ix::Descending(v) => {
                let (base, ramp) = (self.b.splat(v, self.lanes), self.b.iota(self.wide()));
                self.b.sub(base, ramp)
            }
            Ix::Scattered(v) => v,
        }
    }

    /// Converts an index to a scalar if all lanes share it, otherwise to a vector.
    pub fn as_value(&mut self, ix: Ix) -> V {
        match ix {
            Ix::Uniform(v) => v,
            _ => self.as_vector(ix),
        }
    }

    pub fn ix(&self, v: V) -> Ix {
        if self.b.ty(v).lanes == 1 { Ix::Uniform(v) } else { Ix::Scattered(v) }
    }

    /// Whether an index is known to be a multiple of the number of lanes.
    pub fn is_multiple(&self, v: V) -> bool {
        self.b.form(v).is_multiple(self.lanes.into(), |v| self.multiples.contains(&v))
    }

    /// Emits an operation on indices. The result is `Ascending` or `Descending` if its normal form
    /// shows that, otherwise `Scattered`.
    pub fn arithmetic(&mut self, op: Binary, x: Ix, y: Ix) -> Ix {
        match (op, x, y) {
            (_, Ix::Uniform(a), Ix::Uniform(b)) => Ix::Uniform(self.b.binary(op, a, b)),
            (Binary::Add, Ix::Ascending(a), Ix::Uniform(b))
            | (Binary::Add, Ix::Uniform(a), Ix::Ascending(b)) => Ix::Ascending(self.b.add(a, b)),
            (Binary::Sub, Ix::Ascending(a), Ix::Uniform(b)) => Ix::Ascending(self.b.sub(a, b)),
            (Binary::Add, Ix::Descending(a), Ix::Uniform(b))
            | (Binary::Add, Ix::Uniform(a), Ix::Descending(b)) => Ix::Descending(self.b.add(a, b)),
            (Binary::Sub, Ix::Uniform(a), Ix::Ascending(b)) => Ix::Descending(self.b.sub(a, b)),
            (Binary::Sub, Ix::Uniform(a), Ix::Descending(b)) => Ix::Ascending(self.b.sub(a, b)),
            (Binary::Mul | Binary::Div, x, Ix::Uniform(b)) if self.b.constant(b) == Some(1) => x,
            _ => {
                let (a, b) = (self.as_vector(x), self.as_vector(y));
                let v = self.b.binary(op, a, b);
                match self.b.lane_base(v) {
                    Some((base, true)) => Ix::Ascending(base),
                    Some((base, false)) => Ix::Descending(base),
                    None => Ix::Scattered(v),
                }
            }
        }
    }

    pub fn ix_const(&mut self, x: i64) -> Ix {
        Ix::Uniform(self.b.index(x))
    }

    /// Returns the row-major flat index of an element.
    pub fn flat_index(&mut self, dims: &[Dim], index: &[Ix]) -> Ix {
        let mut total = self.zero();
        for (dim, &ix) in dims.iter().zip(index) {
            let size = Ix::Uniform(self.dim(dim));
            total = self.arithmetic(Binary::Mul, total, size);
            total = self.arithmetic(Binary::Add, total, ix);
        }
        total
    }

    /// Splits a row-major flat index into one index per axis.
    pub fn unravel(&mut self, dims: &[Dim], number: Ix) -> Index {
        let mut rest = number;
        let mut index: Index = SmallVec::new();
        for (axis, dim) in dims.iter().enumerate().rev() {
            // The index along an axis of size 1 is always the constant 0, so that lookups of
            // memoized values match. This includes the first axis.
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

    /// Returns the remainder and the quotient of `number` by `dim`. Contiguous lanes stay
    /// contiguous if `dim` and the first lane's index are multiples of the number of lanes.
    fn split(&mut self, number: Ix, dim: &Dim) -> (Ix, Ix) {
        // Divides by 1 instead of 0 for an empty axis: C compilers reject a constant division by 0
        // even in code that never runs.
        let size = if dim.as_const() == Some(0) { self.b.index(1) } else { self.dim(dim) };
        if let Ix::Ascending(base) = number {
            let whole = dim.as_const().is_some_and(|n| n > 0 && n % i64::from(self.lanes) == 0);
            if whole && self.is_multiple(base) {
                let (rest, above) = self.b.div_rem(base, size);
                return (Ix::Ascending(rest), Ix::Uniform(above));
            }
        }
        match number {
            Ix::Uniform(v) => {
                let (rest, above) = self.b.div_rem(v, size);
                (Ix::Uniform(rest), Ix::Uniform(above))
            }
            _ => {
                let (number, size) = (self.as_vector(number), self.b.splat(size, self.lanes));
                let (rest, above) = self.b.div_rem(number, size);
                (Ix::Scattered(rest), Ix::Scattered(above))
            }
        }
    }

    /// Returns the address of an index in dense row-major memory.
    pub fn address(&mut self, dims: &[Dim], index: &[Ix]) -> Address {
        match self.flat_index(dims, index) {
            Ix::Uniform(v) => Address::One(v),
            Ix::Ascending(v) => Address::Ascending(v),
            Ix::Descending(v) => Address::Descending(v),
            Ix::Scattered(v) => Address::Scattered(v),
        }
    }
}

/// Loops that are still open, outermost first. Each has its counter, start and end.
pub struct Axes(Vec<[V; 3]>);

impl Nest<'_> {
    /// Opens a loop for each dim that is not 1. Returns the index inside the loops, and the loops,
    /// which [`Nest::close_axes`] closes.
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
            place.push(Ix::Uniform(i));
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
