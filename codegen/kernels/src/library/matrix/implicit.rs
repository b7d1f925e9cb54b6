//! The singular values of a bidiagonal matrix by implicit QR steps (Golub & Van Loan, Matrix
//! Computations, 8.6.2). Its transpose is upper bidiagonal, with the same elements.

use super::bidiagonal::Bidiagonal;
use super::sweeps::{LIMIT, Sweeps, Turned, Turns};
use crate::code::{Binary, Cmp, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;
use mithril_ir::dtype::DType;

/// How often as many sweeps as there is memory for may be taken, times the number of values. Two
/// sweeps for each value are usual. Zeros on the diagonal take one sweep each, of which many may
/// come before the first value.
const ROUNDS: i64 = 3;

/// The matrices that are rotated with the rows and with the columns.
pub struct Vectors {
    pub sweeps: Sweeps,
    pub rows: Turned,
    pub columns: Turned,
}

/// Elements of this magnitude are not told from 0: the squares of smaller ones may be subnormal.
pub fn least(dtype: DType) -> f64 {
    if dtype == DType::F64 { 2f64.powi(-400) } else { 2f64.powi(-40) }
}

impl Bidiagonal {
    /// Replaces the diagonal by the singular values, some of them negative.
    pub fn iterate(&self, own: &mut Standalone, vectors: Option<&Vectors>) {
        let (first, limit) = (own.nest.b.index(0), own.nest.b.index(LIMIT));
        let rounds = own.nest.b.times(self.size, ROUNDS);
        let last = own.nest.b.offset(self.size, -1);
        own.repeat(first, rounds, 1, &[last], |own, _, high| {
            let high = high[0];
            let active = own.nest.b.compare(Cmp::Gt, high, first);
            let round = |own: &mut Standalone| {
                let state = own.repeat(first, limit, 1, &[high, first], |own, _, state| {
                    let state = [state[0], state[1]];
                    let active = own.nest.b.compare(Cmp::Gt, state[0], first);
                    let advance = |own: &mut Standalone| self.advance(own, state, vectors);
                    own.choose(active, advance, state.to_vec())
                });
                if let Some(all) = vectors {
                    all.sweeps.apply(own, state[1], &[all.rows, all.columns]);
                }
                vec![state[0]]
            };
            own.choose(active, round, vec![high])
        });
    }

    /// Takes a step on the block that ends at diagonal element `high`, or finds that this is a
    /// singular value. Returns the end of the next block, and the number of sweeps.
    fn advance(
        &self,
        own: &mut Standalone,
        [high, count]: [V; 2],
        vectors: Option<&Vectors>,
    ) -> Vec<V> {
        let (first, one) = (own.nest.b.index(0), own.nest.b.index(1));
        let dtype = own.dtype();
        let (epsilon, least) = (own.epsilon(), own.nest.b.number(Ty::scalar(dtype), least(dtype)));
        let end = own.nest.b.offset(high, 1);
        // The last negligible element begins the block.
        let start = own.repeat(one, end, 1, &[first], |own, i, start| {
            let before = own.nest.b.offset(i, -1);
            let [off, value, other] =
                [(&self.off, i), (&self.diagonal, i), (&self.diagonal, before)]
                    .map(|(row, at)| self.magnitude(own, row, at));
            let b = &mut own.nest.b;
            let sum = b.add(value, other);
            let limit = b.mul(epsilon, sum);
            let limit = b.binary(Binary::Max, limit, least);
            // Elements that are not numbers end the iterations.
            let is_large = b.compare(Cmp::Gt, off, limit);
            vec![b.select(is_large, start[0], i)]
        });
        let low = start[0];
        let moves = own.nest.b.compare(Cmp::Lt, low, high);
        own.when(moves, |own| {
            let turns = vectors.map(|all| {
                all.sweeps.note(own, count, [low, high]);
                [all.columns.turns, all.rows.turns]
            });
            self.step(own, [low, high], count, turns);
        });
        let b = &mut own.nest.b;
        let (taken, before) = (b.offset(count, 1), b.offset(high, -1));
        vec![b.select(moves, high, before), b.select(moves, taken, count)]
    }

    fn magnitude(&self, own: &mut Standalone, row: &super::work::Rows, at: V) -> V {
        let b = &mut own.nest.b;
        let first = b.index(0);
        let v = row.load(b, first, at, 1);
        b.unary(Unary::Abs, v)
    }

    /// The first rotation of a step on the block from `low` to `high`, as the vector that it turns to
    /// the first axis.
    fn shifted(&self, own: &mut Standalone, [low, high]: [V; 2]) -> [V; 2] {
        let first = own.nest.b.index(0);
        let ty = Ty::scalar(own.dtype());
        let [zero, two] = [0.0, 2.0].map(|v| own.nest.b.number(ty, v));
        let begin = self.magnitude(own, &self.diagonal, low);
        let next = own.nest.b.offset(low, 1);
        let end = own.nest.b.offset(high, 1);
        let extremes = own.repeat(next, end, 1, &[begin, begin], |own, i, found| {
            let value = self.magnitude(own, &self.diagonal, i);
            let off = self.magnitude(own, &self.off, i);
            let b = &mut own.nest.b;
            let least = b.binary(Binary::Min, value, found[0]);
            let most = b.binary(Binary::Max, value, off);
            vec![least, b.binary(Binary::Max, most, found[1])]
        });
        // Everything is computed in multiples of the largest element.
        let scale = extremes[1];
        let epsilon = own.epsilon();
        let b = &mut own.nest.b;
        let before = b.offset(high, -1);
        let mut load = |row: &super::work::Rows, at: V| {
            let v = row.load(b, first, at, 1);
            b.div(v, scale)
        };
        let [top, own_value, other] = [low, high, before].map(|at| load(&self.diagonal, at));
        let [off, upper, side] = [high, before, next].map(|at| load(&self.off, at));
        // The square of the matrix at the end of its diagonal, and its eigenvalue that is closer to
        // the last element (Wilkinson's shift).
        let is_pair = b.compare(Cmp::Eq, before, low);
        let upper = b.select(is_pair, zero, upper);
        let square = b.mul(upper, upper);
        let corner = own.multiply_add(other, other, square);
        let b = &mut own.nest.b;
        let square = b.mul(off, off);
        let last = own.multiply_add(own_value, own_value, square);
        let b = &mut own.nest.b;
        let across = b.mul(other, off);
        let difference = b.sub(corner, last);
        let twice = b.mul(two, across);
        let ratio = b.div(difference, twice);
        let divisor = own.signed_root(ratio);
        let b = &mut own.nest.b;
        let moved = b.div(across, divisor);
        let shift = b.sub(last, moved);
        let part = b.div(shift, top);
        let difference = b.sub(top, part);
        // If the diagonal has a zero, a step without a shift moves it to the end.
        let limit = b.mul(epsilon, scale);
        let shifts = b.compare(Cmp::Gt, extremes[0], limit);
        [b.select(shifts, difference, top), side]
    }

    /// One step on the block from `low` to `high`: moves the element that the first rotation makes
    /// down the diagonals. The rotations of columns come first.
    fn step(&self, own: &mut Standalone, [low, high]: [V; 2], count: V, turns: Option<[Turns; 2]>) {
        let first = own.nest.b.index(0);
        let start = self.shifted(own, [low, high]);
        let note = |own: &mut Standalone, of: usize, i: V, rotation: [V; 2]| {
            if let Some(turns) = &turns {
                turns[of].note(own, [count, i], rotation);
            }
        };
        let end = own.repeat(low, high, 1, &start, |own, i, state| {
            let b = &mut own.nest.b;
            let (next, after) = (b.offset(i, 1), b.offset(i, 2));
            let [value, next_value] = [i, next].map(|at| self.diagonal.load(b, first, at, 1));
            let [off, next_off] = [next, after].map(|at| self.off.load(b, first, at, 1));
            let (r, c, s) = own.rotation_of(state[1], state[0]);
            note(own, 0, i, [c, s]);
            self.off.store(&mut own.nest.b, first, i, r);
            let [f, off] = turned(own, [c, s], [value, off]);
            let b = &mut own.nest.b;
            let (g, next_value) = (b.mul(s, next_value), b.mul(c, next_value));
            let (r, c, s) = own.rotation_of(g, f);
            note(own, 1, i, [c, s]);
            self.diagonal.store(&mut own.nest.b, first, i, r);
            let [f, next_value] = turned(own, [c, s], [off, next_value]);
            let b = &mut own.nest.b;
            let (g, next_off) = (b.mul(s, next_off), b.mul(c, next_off));
            self.diagonal.store(b, first, next, next_value);
            self.off.store(b, first, after, next_off);
            vec![f, g]
        });
        let b = &mut own.nest.b;
        self.off.store(b, first, high, end[0]);
        // The element before the block is negligible.
        let zero = b.number(b.ty(end[0]), 0.0);
        self.off.store(b, first, low, zero);
    }
}

/// The vector `(c x + s y, c y - s x)`.
fn turned(own: &mut Standalone, [c, s]: [V; 2], [x, y]: [V; 2]) -> [V; 2] {
    let b = &mut own.nest.b;
    let (upper, lower, opposite) = (b.mul(c, x), b.mul(c, y), b.unary(Unary::Neg, s));
    let upper = own.multiply_add(s, y, upper);
    [upper, own.multiply_add(opposite, x, lower)]
}
