//! Singular values and vectors: reduction to a bidiagonal matrix by reflections, and implicit QR
//! steps.

use mithril_ir::dim::Dim;

use super::bidiagonal::{Bidiagonal, Reflections};
use super::implicit::Vectors;
use super::sweeps::Turned;
use super::work::{Rows, padded};
use crate::code::{Binary, Cmp, Mem, Ty, Unary, V};
use crate::library::standalone::Standalone;
use crate::loops::Loops;
use crate::lower::index::Ix;

/// The number of elements whose products are summed at a time, in rows of at least so many vectors.
/// The sums of shorter rows are those of `FEW` elements, to which rows are padded.
const MANY: u32 = 16;
const FEW: u32 = 4;
const LONG: u32 = 16;

/// The memory of a matrix, and its dims.
struct Singular {
    all: Bidiagonal,
    /// The singular vectors as rows, if they are needed.
    vectors: Option<Vectors>,
}

impl Standalone<'_> {
    pub fn singular(&mut self) -> Dim {
        let (batch, [rows, columns]) = self.split_dims(self.op.operands[0]);
        let (short, long) = (rows.min(&columns), rows.max(&columns));
        let (lanes, dtype, one) = (self.lanes(), self.dtype(), Dim::Const(1));
        let is_long = long.as_const().is_none_or(|length| length >= i64::from(LONG * lanes));
        let unit = lanes.max(if is_long { MANY } else { FEW });
        let (wide, narrow) = (padded(&long, unit), padded(&short, unit));
        let parts = [0, 1, 2].map(|of| self.part(of).map(|(mem, _)| mem));
        let right = self.allocate(dtype, &short, &wide);
        let left = self.allocate(dtype, &short, &narrow);
        let [diagonal, off, products, left_factors, right_factors] =
            [(); 5].map(|()| self.allocate(dtype, &one, &narrow));
        let sums = self.allocate(dtype, &one, &wide);
        let needs_vectors = parts[0].is_some() || parts[2].is_some();
        let memory = needs_vectors.then(|| {
            let vectors = [&narrow, &wide].map(|width| self.allocate(dtype, &short, width));
            let turns = [(); 2].map(|()| self.allocate_turns(&short));
            (vectors, self.allocate_sweeps(), turns)
        });
        self.tasks(&batch.clone(), |own, place| {
            let x = own.operand(0, place);
            let dims = [&rows, &columns, &short, &long, &wide, &narrow];
            let [m, n, size, length, wide, narrow] = dims.map(|dim| own.nest.dim(dim));
            let right = Reflections { vectors: right, factors: right_factors, columns: wide };
            let left = Reflections { vectors: left, factors: left_factors, columns: narrow };
            let rows = [diagonal, off, products, sums];
            let all = Bidiagonal::new([right, left], rows, [size, length], unit / lanes);
            let vectors = memory.map(|([short, long], sweeps, turns)| {
                let columns = Turned { rows: short, columns: narrow, turns: turns[0] };
                let rows = Turned { rows: long, columns: wide, turns: turns[1] };
                Vectors { sweeps, rows, columns }
            });
            let matrix = Singular { all, vectors };
            matrix.run(own, &x, [m, n]);
            matrix.put(own, parts, &batch, place, [m, n]);
        })
    }

    /// Copies the transpose of a matrix of this many rows and columns.
    fn transpose_rows(&mut self, from: &Rows, to: &Rows, [rows, columns]: [V; 2]) {
        let zero = self.nest.b.index(0);
        self.each(zero, columns, 1, |own, j| {
            own.each(zero, rows, 1, |own, i| {
                let b = &mut own.nest.b;
                let v = from.load(b, i, j, 1);
                to.store(b, j, i, v);
            });
        });
    }
}

impl Singular {
    fn run(&self, own: &mut Standalone, x: &super::Operand, dims: [V; 2]) {
        let scale = self.fetch(own, x, dims);
        self.all.reduce(own);
        if let Some(vectors) = &self.vectors {
            self.all.expand(own, &self.all.left, &vectors.columns.rows);
            self.all.expand(own, &self.all.right, &vectors.rows.rows);
        }
        self.all.iterate(own, self.vectors.as_ref());
        self.finish(own, scale);
    }

    /// Copies the matrix, or its transpose if it has more rows than columns, divided by its largest
    /// magnitude. Returns the factor of the singular values: this magnitude, or NaN if the matrix is
    /// not finite.
    fn fetch(&self, own: &mut Standalone, x: &super::Operand, [m, n]: [V; 2]) -> V {
        let w = &self.all.right;
        let first = own.nest.b.index(0);
        let zero = own.nest.b.number(Ty::scalar(own.dtype()), 0.0);
        own.clear(&w.vectors, self.all.size, w.columns);
        // The largest magnitude, and 0, or NaN if an element is not finite.
        let found = own.repeat(first, m, 1, &[zero, zero], |own, i, found| {
            own.repeat(first, n, 1, found, |own, j, found| {
                let v = x.load(own, i, j, 1, None);
                let b = &mut own.nest.b;
                let (magnitude, nothing) = (b.unary(Unary::Abs, v), b.sub(v, v));
                vec![b.binary(Binary::Max, magnitude, found[0]), b.add(found[1], nothing)]
            })
        });
        let scale = own.usable(found[0]);
        let is_wide = is_wide(own, m, n);
        own.each(first, m, 1, |own, i| {
            own.each(first, n, 1, |own, j| {
                let v = x.load(own, i, j, 1, None);
                let b = &mut own.nest.b;
                let v = b.div(v, scale);
                let (row, column) = (b.select(is_wide, i, j), b.select(is_wide, j, i));
                w.vectors.store(b, row, column, v);
            });
        });
        own.nest.b.add(scale, found[1])
    }

    /// Makes the singular values positive, sorts them with their vectors, chooses the signs of the
    /// vectors, and multiplies the values by `scale`.
    fn finish(&self, own: &mut Standalone, scale: V) {
        let (first, values, size) = (own.nest.b.index(0), &self.all.diagonal, self.all.size);
        let zero = own.nest.b.number(Ty::scalar(own.dtype()), 0.0);
        own.each(first, size, 1, |own, i| {
            let b = &mut own.nest.b;
            let value = values.load(b, first, i, 1);
            let magnitude = b.unary(Unary::Abs, value);
            values.store(b, first, i, magnitude);
            if let Some(vectors) = &self.vectors {
                let negative = b.compare(Cmp::Lt, value, zero);
                own.negate_row(negative, (&vectors.rows.rows, i), vectors.rows.columns);
            }
        });
        let pairs = self.vectors.iter().flat_map(|vectors| [vectors.columns, vectors.rows]);
        let pairs: Vec<_> = pairs.map(|matrix| (matrix.rows, matrix.columns)).collect();
        own.sort_rows(values, size, true, &pairs);
        own.each(first, size, 1, |own, i| {
            let b = &mut own.nest.b;
            let value = values.load(b, first, i, 1);
            let scaled = b.mul(value, scale);
            values.store(b, first, i, scaled);
            if let Some(vectors) = &self.vectors {
                let negative = own.has_negative((&vectors.columns.rows, i), size);
                for matrix in [vectors.columns, vectors.rows] {
                    own.negate_row(negative, (&matrix.rows, i), matrix.columns);
                }
            }
        });
    }

    /// Copies the results.
    fn put(
        &self,
        own: &mut Standalone,
        parts: [Option<Mem>; 3],
        batch: &[Dim],
        place: &[Ix],
        [m, n]: [V; 2],
    ) {
        let (size, length) = (self.all.size, self.all.length);
        if let Some(mem) = parts[1] {
            let first = own.nest.b.index(1);
            let result = own.matrix_of(mem, batch, place, [first, size]);
            own.put(&self.all.diagonal, &result, [first, size]);
        }
        let Some(vectors) = &self.vectors else { return };
        let (short, long) = (&vectors.columns.rows, &vectors.rows.rows);
        let is_wide = is_wide(own, m, n);
        if let Some(mem) = parts[0] {
            let result = own.matrix_of(mem, batch, place, [m, size]);
            own.either(is_wide, |own, wide| {
                let (rows, count) = if wide { (short, size) } else { (long, length) };
                own.transpose_rows(rows, &result, [size, count]);
            });
        }
        if let Some(mem) = parts[2] {
            let result = own.matrix_of(mem, batch, place, [size, n]);
            own.either(is_wide, |own, wide| {
                let (rows, count) = if wide { (long, length) } else { (short, size) };
                own.put(rows, &result, [size, count]);
            });
        }
    }
}

/// Whether there are more columns than rows. The difference of equal dims is a constant, which C's
/// compilers accept in a comparison, unlike a number compared with itself.
fn is_wide(own: &mut Standalone, rows: V, columns: V) -> V {
    let (zero, more) = (own.nest.b.index(0), own.nest.b.sub(columns, rows));
    own.nest.b.compare(Cmp::Gt, more, zero)
}
