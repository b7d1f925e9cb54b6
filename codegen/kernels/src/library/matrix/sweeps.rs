//! Rotations of neighbouring rows that are applied many sweeps at a time, a few columns after the
//! others: these columns stay in the caches, where a sweep at a time would read all rows from memory.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;

use super::work::Rows;
use crate::code::{Binary, Cmp, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// The number of sweeps that there is memory for.
pub const LIMIT: i64 = 24;
/// The bytes of a row that are rotated at a time.
const BLOCK: i64 = 256;

/// The sweeps that are not applied yet. Sweep `t` has rotations of rows `i` and `i + 1` for each `i`
/// from `from[t]` to `to[t]`.
#[derive(Clone, Copy)]
pub struct Sweeps {
    from: Rows,
    to: Rows,
}

/// The cosines and the sines of the rotations of a matrix, a row for each sweep.
#[derive(Clone, Copy)]
pub struct Turns {
    cosines: Rows,
    sines: Rows,
}

/// A matrix that is rotated, with columns that are a whole number of vectors.
#[derive(Clone, Copy)]
pub struct Turned {
    pub rows: Rows,
    pub columns: V,
    pub turns: Turns,
}

impl Standalone<'_> {
    pub fn allocate_sweeps(&mut self) -> Sweeps {
        let (one, count) = (Dim::Const(1), Dim::Const(LIMIT));
        let [from, to] = [(); 2].map(|()| self.allocate(DType::I64, &one, &count));
        Sweeps { from, to }
    }

    /// Memory for the rotations of a matrix with this number of rows.
    pub fn allocate_turns(&mut self, size: &Dim) -> Turns {
        let (dtype, count) = (self.dtype(), Dim::Const(LIMIT));
        let [cosines, sines] = [(); 2].map(|()| self.allocate(dtype, &count, size));
        Turns { cosines, sines }
    }
}

impl Turns {
    /// Notes that sweep `t` replaces rows `x` and `y` = `i` and `i + 1` by `c x + s y` and
    /// `c y - s x`.
    pub fn note(&self, own: &mut Standalone, [t, i]: [V; 2], [c, s]: [V; 2]) {
        self.cosines.store(&mut own.nest.b, t, i, c);
        self.sines.store(&mut own.nest.b, t, i, s);
    }
}

impl Sweeps {
    /// Notes the rows of sweep `t`.
    pub fn note(&self, own: &mut Standalone, t: V, [from, to]: [V; 2]) {
        let first = own.nest.b.index(0);
        self.from.store(&mut own.nest.b, first, t, from);
        self.to.store(&mut own.nest.b, first, t, to);
    }

    /// Applies the first `count` sweeps to matrices.
    pub fn apply(&self, own: &mut Standalone, count: V, to: &[Turned]) {
        for matrix in to {
            self.apply_to(own, count, matrix);
        }
    }

    fn apply_to(&self, own: &mut Standalone, count: V, to: &Turned) {
        let first = own.nest.b.index(0);
        let width = BLOCK / own.dtype().bytes() as i64;
        let block = own.nest.b.index(width);
        let rest = own.nest.b.binary(Binary::Rem, to.columns, block);
        let whole = own.nest.b.sub(to.columns, rest);
        own.each(first, whole, width, |own, j| {
            let end = own.nest.b.offset(j, width);
            self.apply_to_block(own, count, to, [j, end]);
        });
        if own.nest.b.constant(rest) != Some(0) {
            let some = own.nest.b.compare(Cmp::Gt, rest, first);
            own.when(some, |own| self.apply_to_block(own, count, to, [whole, to.columns]));
        }
    }

    fn apply_to_block(&self, own: &mut Standalone, count: V, to: &Turned, [from, end]: [V; 2]) {
        let (first, lanes) = (own.nest.b.index(0), own.lanes());
        own.each(first, count, 1, |own, t| {
            let [start, stop] =
                [self.from, self.to].map(|row| row.load(&mut own.nest.b, first, t, 1));
            own.each(start, stop, 1, |own, i| {
                let b = &mut own.nest.b;
                let next = b.offset(i, 1);
                let [c, s] = [to.turns.cosines, to.turns.sines].map(|row| {
                    let v = row.load(b, t, i, 1);
                    b.splat(v, lanes)
                });
                let opposite = b.unary(Unary::Neg, s);
                own.each_vector(from, end, |own, j| {
                    let b = &mut own.nest.b;
                    let [x, y] = [i, next].map(|row| to.rows.load(b, row, j, lanes));
                    let [upper, lower] = [x, y].map(|v| b.mul(c, v));
                    let upper = own.multiply_add(s, y, upper);
                    let lower = own.multiply_add(opposite, x, lower);
                    let b = &mut own.nest.b;
                    to.rows.store(b, i, j, upper);
                    to.rows.store(b, next, j, lower);
                });
            });
        });
    }
}
