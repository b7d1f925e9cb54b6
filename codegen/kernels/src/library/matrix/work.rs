//! Matrices in scratch memory, whose rows are padded to whole vectors, and copies of them.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;

use super::Operand;
use crate::builder::Builder;
use crate::code::{Binary, Mem, Region, Ty, V};
use crate::contract::lanes;
use crate::library::standalone::Standalone;
use crate::loops::Loops;

/// A matrix in memory. Element (i, j) is at `at + i·stride + j`.
#[derive(Clone, Copy)]
pub struct Rows {
    pub mem: Mem,
    pub at: V,
    pub stride: V,
}

impl Rows {
    pub fn element(&self, b: &mut Builder, i: V, j: V) -> V {
        let row = b.mul(i, self.stride);
        let row = b.add(self.at, row);
        b.add(row, j)
    }

    pub fn load(&self, b: &mut Builder, i: V, j: V, lanes: u32) -> V {
        let at = self.element(b, i, j);
        b.load(self.mem, at, lanes, None)
    }

    pub fn store(&self, b: &mut Builder, i: V, j: V, v: V) {
        let at = self.element(b, i, j);
        b.store(self.mem, at, v, None);
    }
}

/// Rows of scratch memory are this many elements longer than needed, so that equal columns of
/// many rows do not compete for the same places in the caches.
const PADDING: i64 = 16;

/// The number of columns, rounded up to whole vectors.
pub fn padded(columns: &Dim, lanes: u32) -> Dim {
    let lanes = Dim::Const(i64::from(lanes));
    columns.ceil_div(&lanes) * lanes
}

impl Standalone<'_> {
    pub fn lanes(&self) -> u32 {
        self.nest.lanes
    }

    /// Allocates a matrix in scratch memory, with rows of `columns` elements.
    pub fn allocate(&mut self, dtype: DType, rows: &Dim, columns: &Dim) -> Rows {
        let stride = columns + &Dim::Const(PADDING);
        let offset = self.nest.dim(&self.scratch.clone());
        let mem = self.nest.b.scratch(dtype, offset);
        let bytes = rows * &stride * Dim::Const(dtype.bytes() as i64);
        // Each array begins at a cache line.
        self.scratch = &self.scratch + &(bytes.ceil_div(&Dim::Const(64)) * Dim::Const(64));
        Rows { mem, at: self.nest.b.index(0), stride: self.nest.dim(&stride) }
    }

    /// The largest multiple of the number of lanes that is at most `v`.
    pub fn whole(&mut self, v: V) -> V {
        let lanes = self.nest.b.index(i64::from(self.nest.lanes));
        let rest = self.nest.b.binary(Binary::Rem, v, lanes);
        self.nest.b.sub(v, rest)
    }

    /// Emits a loop over the vectors of columns from `from` to `to`, a whole number of vectors.
    pub fn each_vector(&mut self, from: V, to: V, body: impl FnOnce(&mut Self, V)) {
        let lanes = i64::from(self.nest.lanes);
        self.each(from, to, lanes, body);
    }

    /// Emits code that runs if a condition holds.
    pub fn when(&mut self, condition: V, yes: impl FnOnce(&mut Self)) {
        let body = |own: &mut Self| {
            yes(own);
            vec![]
        };
        self.choose(condition, body, vec![]);
    }

    /// Emits code that runs if a condition holds, and returns its values, or else the other ones.
    pub fn choose(
        &mut self,
        condition: V,
        yes: impl FnOnce(&mut Self) -> Vec<V>,
        no: Vec<V>,
    ) -> Vec<V> {
        let yes = self.enclosed(yes);
        self.nest.b.open_region();
        let no = self.nest.b.close_region(no);
        self.nest.b.place_choice(condition, yes, no)
    }

    /// Emits code for each value of a condition.
    pub fn either(&mut self, condition: V, body: impl Fn(&mut Self, bool)) {
        let [yes, no] = [true, false].map(|holds| {
            self.enclosed(|own| {
                body(own, holds);
                vec![]
            })
        });
        self.nest.b.place_choice(condition, yes, no);
    }

    fn enclosed(&mut self, body: impl FnOnce(&mut Self) -> Vec<V>) -> Region {
        self.nest.b.open_region();
        self.nest.enter();
        let yields = body(self);
        self.nest.leave();
        self.nest.b.close_region(yields)
    }

    /// Sets the elements of a single row to 0, in a whole number of vectors of columns.
    pub fn clear_vectors(&mut self, to: &Rows, [from, end]: [V; 2]) {
        let dtype = self.nest.b.mem_dtype(to.mem);
        let zero = self.nest.b.number(Ty::vector(dtype, self.nest.lanes), 0.0);
        let first = self.nest.b.index(0);
        self.each_vector(from, end, |own, j| to.store(&mut own.nest.b, first, j, zero));
    }

    /// Sets the elements of `rows` rows to 0, in columns up to `columns`, a whole number of vectors.
    pub fn clear(&mut self, to: &Rows, rows: V, columns: V) {
        let dtype = self.nest.b.mem_dtype(to.mem);
        let zero = self.nest.b.number(Ty::vector(dtype, self.nest.lanes), 0.0);
        let first = self.nest.b.index(0);
        self.each(first, rows, 1, |own, i| {
            own.each_vector(first, columns, |own, j| to.store(&mut own.nest.b, i, j, zero));
        });
    }

    /// Copies a matrix of `rows` by `columns` to scratch memory. The padding of the last vector of
    /// each row is set to 0.
    pub fn fetch(&mut self, from: &Operand, to: &Rows, [rows, columns]: [V; 2]) {
        self.each_row(rows, columns, |own, i, j, lanes, mask| {
            let v = from.load(own, i, j, lanes, mask);
            to.store(&mut own.nest.b, i, j, v);
        });
    }

    /// Copies a matrix of `rows` by `columns` from scratch memory.
    pub fn put(&mut self, from: &Rows, to: &Rows, [rows, columns]: [V; 2]) {
        self.each_row(rows, columns, |own, i, j, lanes, mask| {
            let b = &mut own.nest.b;
            let v = from.load(b, i, j, lanes);
            let at = to.element(b, i, j);
            b.store(to.mem, at, v, mask);
        });
    }

    /// Emits a loop over rows and the vectors of their columns. The last vector has a mask.
    fn each_row(&mut self, rows: V, columns: V, body: impl Fn(&mut Self, V, V, u32, Option<V>)) {
        let (zero, whole) = (self.nest.b.index(0), self.whole(columns));
        let (lanes, rest) = (self.nest.lanes, self.nest.b.sub(columns, whole));
        self.each(zero, rows, 1, |own, i| {
            own.each_vector(zero, whole, |own, j| body(own, i, j, lanes, None));
            if lanes > 1 && own.nest.b.constant(rest) != Some(0) {
                own.each(whole, columns, i64::from(lanes), |own, j| {
                    let mask = lanes::below(&mut own.nest.b, rest, lanes);
                    body(own, i, j, lanes, mask);
                });
            }
        });
    }

    /// Copies the transpose of an operand's matrix to scratch memory, or only that of its lower
    /// triangle, with whole blocks along the diagonal.
    pub fn fetch_lower(&mut self, from: &Operand, to: &Rows, size: V) {
        if let Some(rows) = &from.memory {
            return self.transpose(rows, to, size, true);
        }
        let zero = self.nest.b.index(0);
        self.each(zero, size, 1, |own, i| {
            let end = own.nest.b.offset(i, 1);
            own.each(zero, end, 1, |own, j| {
                let v = from.load(own, i, j, 1, None);
                to.store(&mut own.nest.b, j, i, v);
            });
        });
    }

    /// Copies the transpose of a matrix of `size` by `size`, of which only the lower triangle (with
    /// whole blocks along the diagonal) if `lower`.
    pub fn transpose(&mut self, from: &Rows, to: &Rows, size: V, lower: bool) {
        let (zero, lanes) = (self.nest.b.index(0), self.nest.lanes);
        let whole = if lanes > 1 { self.whole(size) } else { zero };
        let one = |own: &mut Self, i: V, j: V| {
            let v = from.load(&mut own.nest.b, i, j, 1);
            to.store(&mut own.nest.b, j, i, v);
        };
        if lanes > 1 {
            self.each_vector(zero, whole, |own, i| {
                let end = if lower { own.nest.b.offset(i, i64::from(lanes)) } else { whole };
                own.each_vector(zero, end, |own, j| own.transpose_block(from, to, i, j));
                if !lower {
                    own.each(whole, size, 1, |own, j| {
                        let end = own.nest.b.offset(i, i64::from(lanes));
                        own.each(i, end, 1, |own, i| one(own, i, j));
                    });
                }
            });
        }
        self.each(whole, size, 1, |own, i| {
            let end = if lower { own.nest.b.offset(i, 1) } else { size };
            own.each(zero, end, 1, |own, j| one(own, i, j));
        });
    }

    fn transpose_block(&mut self, from: &Rows, to: &Rows, i: V, j: V) {
        let (b, lanes) = (&mut self.nest.b, self.nest.lanes);
        let mut block = Vec::new();
        for step in 0..lanes {
            let row = b.offset(i, i64::from(step));
            block.push(from.load(b, row, j, lanes));
        }
        for (step, v) in lanes::transpose(b, &block).into_iter().enumerate() {
            let row = b.offset(j, step as i64);
            to.store(b, row, i, v);
        }
    }
}
