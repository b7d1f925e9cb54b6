//! Rotations of pairs of rows, and the order of rows by a number of each.

use super::work::Rows;
use crate::code::{Binary, Cmp, Fold, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// The rotation by an angle with this cosine and sine, of rows of so many columns, a whole number of
/// vectors.
pub struct Rotation {
    pub c: V,
    pub s: V,
    pub columns: V,
}

impl Rotation {
    /// Replaces rows `x` and `y` by `c x - s y` and `c y + s x`.
    pub fn apply(&self, own: &mut Standalone, to: &Rows, [x, y]: [V; 2]) {
        let (zero, lanes) = (own.nest.b.index(0), own.lanes());
        let b = &mut own.nest.b;
        let opposite = b.unary(Unary::Neg, self.s);
        let [c, s, opposite] = [self.c, self.s, opposite].map(|v| b.splat(v, lanes));
        own.each_vector(zero, self.columns, |own, j| {
            let b = &mut own.nest.b;
            let (old, other) = (to.load(b, x, j, lanes), to.load(b, y, j, lanes));
            let (first, second) = (b.mul(c, old), b.mul(c, other));
            let first = own.multiply_add(opposite, other, first);
            let second = own.multiply_add(s, old, second);
            let b = &mut own.nest.b;
            to.store(b, x, j, first);
            to.store(b, y, j, second);
        });
    }
}

impl Standalone<'_> {
    /// The distance of 1 from the next larger number.
    pub fn epsilon(&mut self) -> V {
        let dtype = self.dtype();
        let bits = if dtype == mithril_ir::dtype::DType::F64 { 52 } else { 23 };
        self.nest.b.number(Ty::scalar(dtype), 2f64.powi(-bits))
    }

    /// The rotation that turns (g, f) into (r, 0): the length, the cosine and the sine. The numbers
    /// are divided by the larger one, as their squares may be subnormal.
    pub fn rotation_of(&mut self, f: V, g: V) -> (V, V, V) {
        let b = &mut self.nest.b;
        let ty = b.ty(f);
        let [zero, one] = [0.0, 1.0].map(|v| b.number(ty, v));
        let [height, width] = [f, g].map(|v| b.unary(Unary::Abs, v));
        let largest = b.binary(Binary::Max, height, width);
        let vanishes = b.compare(Cmp::Eq, largest, zero);
        let scale = b.select(vanishes, one, largest);
        let (f, g) = (b.div(f, scale), b.div(g, scale));
        let squares = b.mul(f, f);
        let squares = self.multiply_add(g, g, squares);
        let b = &mut self.nest.b;
        let root = b.unary(Unary::Sqrt, squares);
        let length = b.mul(root, scale);
        let safe = b.select(vanishes, one, root);
        let (cosine, sine) = (b.div(g, safe), b.div(f, safe));
        (length, b.select(vanishes, one, cosine), sine)
    }

    /// `g` plus the root of `g * g + 1` with the sign of `g`.
    pub fn signed_root(&mut self, g: V) -> V {
        let b = &mut self.nest.b;
        let ty = b.ty(g);
        let [zero, one] = [0.0, 1.0].map(|v| b.number(ty, v));
        let square = self.multiply_add(g, g, one);
        let b = &mut self.nest.b;
        let root = b.unary(Unary::Sqrt, square);
        let opposite = b.unary(Unary::Neg, root);
        let negative = b.compare(Cmp::Lt, g, zero);
        let root = b.select(negative, opposite, root);
        b.add(g, root)
    }

    /// The sum of products of the elements of two rows, as `parts` sums of vectors. The columns are
    /// a whole number of so many vectors.
    pub fn dot(&mut self, [x, y]: [(&Rows, V); 2], [from, to]: [V; 2], parts: u32) -> V {
        let lanes = self.lanes();
        let dtype = self.dtype();
        let zero = self.nest.b.number(Ty::vector(dtype, lanes), 0.0);
        let start = vec![zero; parts as usize];
        let sums = self.repeat(from, to, i64::from(lanes * parts), &start, |own, j, sums| {
            let mut next = Vec::with_capacity(sums.len());
            for (part, sum) in (0..).zip(sums) {
                let b = &mut own.nest.b;
                let j = b.offset(j, part * i64::from(lanes));
                let [x, y] = [x, y].map(|(rows, i)| rows.load(b, i, j, lanes));
                // GCC vectorizes sums of products, but not those by fused additions.
                next.push(match b.source().vectorizes {
                    true => {
                        let product = b.mul(x, y);
                        b.add(*sum, product)
                    }
                    false => own.multiply_add(x, y, *sum),
                });
            }
            next
        });
        let b = &mut self.nest.b;
        let sum = sums.into_iter().reduce(|x, y| b.add(x, y)).unwrap_or(zero);
        b.fold(Fold::Add, sum)
    }

    /// Whether the element of largest magnitude of the first `count` elements of a row is negative.
    pub fn has_negative(&mut self, (rows, i): (&Rows, V), count: V) -> V {
        let first = self.nest.b.index(0);
        let zero = self.nest.b.number(Ty::scalar(self.dtype()), 0.0);
        let largest = self.repeat(first, count, 1, &[zero, zero], |own, j, most| {
            let b = &mut own.nest.b;
            let v = rows.load(b, i, j, 1);
            let magnitude = b.unary(Unary::Abs, v);
            let larger = b.compare(Cmp::Gt, magnitude, most[0]);
            vec![b.select(larger, magnitude, most[0]), b.select(larger, v, most[1])]
        });
        self.nest.b.compare(Cmp::Lt, largest[1], zero)
    }

    /// Negates a row of so many columns, a whole number of vectors, if a condition holds.
    pub fn negate_row(&mut self, condition: V, (rows, i): (&Rows, V), columns: V) {
        let (first, lanes) = (self.nest.b.index(0), self.lanes());
        let end = self.nest.b.select(condition, columns, first);
        self.each_vector(first, end, |own, j| {
            let b = &mut own.nest.b;
            let v = rows.load(b, i, j, lanes);
            let v = b.unary(Unary::Neg, v);
            rows.store(b, i, j, v);
        });
    }

    /// Sorts the first `count` elements of a row, with the rows of the same numbers of matrices of
    /// so many columns.
    pub fn sort_rows(&mut self, keys: &Rows, count: V, descending: bool, with: &[(Rows, V)]) {
        let (zero, lanes) = (self.nest.b.index(0), self.lanes());
        self.each(zero, count, 1, |own, i| {
            let next = own.nest.b.offset(i, 1);
            let own_key = keys.load(&mut own.nest.b, zero, i, 1);
            let best = own.repeat(next, count, 1, &[own_key, i], |own, j, best| {
                let b = &mut own.nest.b;
                let key = keys.load(b, zero, j, 1);
                let order = if descending { Cmp::Gt } else { Cmp::Lt };
                let earlier = b.compare(order, key, best[0]);
                vec![b.select(earlier, key, best[0]), b.select(earlier, j, best[1])]
            });
            let b = &mut own.nest.b;
            keys.store(b, zero, best[1], own_key);
            keys.store(b, zero, i, best[0]);
            let moves = b.compare(Cmp::Ne, best[1], i);
            for (rows, columns) in with {
                let end = own.nest.b.select(moves, *columns, zero);
                own.each_vector(zero, end, |own, j| {
                    let b = &mut own.nest.b;
                    let (x, y) = (rows.load(b, i, j, lanes), rows.load(b, best[1], j, lanes));
                    rows.store(b, i, j, y);
                    rows.store(b, best[1], j, x);
                });
            }
        });
    }
}
