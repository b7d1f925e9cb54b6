//! Blocks of queries against blocks of keys. Rows of scratch memory are vectors of queries.

use crate::loops::Loops;
use mithril_ir::dtype::DType;

use super::Site;
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::contract::lanes::{below, transpose};
use crate::isa::Isa;
use crate::lower::nest::Nest;
use crate::scalar::exp2_nonpositive;

/// Unroll factors: keys (or elements of a row) computed together, and terms of a sum.
pub const ROWS: i64 = 4;
pub const STEPS: i64 = 4;

/// Which keys of a block a query sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    All,
    /// Those in range.
    Present,
    /// Those up to its own position (causal).
    Earlier,
}

/// A range of keys in a block, and the first vector of queries that sees any of them.
#[derive(Clone, Copy)]
pub struct Strip {
    pub from: i64,
    pub to: i64,
    pub vector: i64,
}

/// An operand or a result, restricted to one head.
#[derive(Clone, Copy)]
pub struct Head {
    pub mem: Mem,
    /// The offset of the head.
    pub at: V,
    /// The stride between queries, keys or values.
    pub stride: V,
}

/// A kernel's code under construction, and its block sizes.
pub struct Tiles<'f> {
    pub nest: Nest<'f>,
    pub lanes: u32,
    /// Vectors in a block of queries.
    pub vectors: i64,
    pub queries: V,
    pub keys: V,
    /// Whether scores are exponents of e instead of 2. Masks may contain the smallest finite
    /// number, which would overflow when scaled by log₂ e.
    natural: bool,
    /// Bytes of scratch memory allocated so far.
    pub scratch: i64,
}

impl<'f> Loops for Tiles<'f> {
    type Through = Nest<'f>;

    fn through(&mut self) -> &mut Nest<'f> {
        &mut self.nest
    }
}

impl<'f> Tiles<'f> {
    pub fn new(mut nest: Nest<'f>, site: &Site, isa: &Isa) -> Tiles<'f> {
        let count = |side: usize| &site.dims[side][site.dims[side].len() - 2];
        let (queries, keys) = (nest.dim(count(super::QUERY)), nest.dim(count(super::KEY)));
        let vectors = if isa.registers >= 32 { 4 } else { 2 };
        let natural = site.mask.is_some();
        Tiles { nest, lanes: isa.bytes / 4, vectors, queries, keys, natural, scratch: 0 }
    }

    /// Allocates scratch memory: this many rows, with one number for each query of a block.
    pub fn room(&mut self, rows: i64) -> Mem {
        let at = self.nest.b.index(self.scratch);
        self.scratch += rows * self.block() * 4;
        self.nest.b.scratch(DType::F32, at)
    }

    /// The number of queries in a block, and of keys.
    pub fn block(&self) -> i64 {
        self.vectors * i64::from(self.lanes)
    }

    pub fn ty(&self) -> Ty {
        Ty::vector(DType::F32, self.lanes)
    }

    pub fn number(&mut self, x: f64) -> V {
        self.nest.b.number(self.ty(), x)
    }

    /// The column offsets of the vectors of a row, from vector `from` on.
    pub fn columns(&self, from: i64) -> Vec<i64> {
        (from..self.vectors).map(|v| v * i64::from(self.lanes)).collect()
    }

    /// The strips of a block of keys. On the diagonal a strip is only seen by the queries from its
    /// own position on. The block is split in just two halves, as each strip has its own code.
    pub fn strips(&self, seen: Seen) -> Vec<Strip> {
        let half = self.block() / 2;
        let strip = |from: i64, to: i64| Strip { from, to, vector: from / i64::from(self.lanes) };
        match seen {
            Seen::Earlier => vec![strip(0, half), strip(half, 2 * half)],
            _ => vec![strip(0, 2 * half)],
        }
    }

    /// The factor that converts a product to a score: log₂ e if scores are exponents of 2.
    pub fn unit(&self) -> f64 {
        if self.natural { 1.0 } else { std::f64::consts::LOG2_E }
    }

    /// `score - other`, as an exponent of 2.
    pub fn less(&mut self, score: V, other: V) -> V {
        let less = self.nest.b.sub(score, other);
        if !self.natural {
            return less;
        }
        let unit = self.number(std::f64::consts::LOG2_E);
        self.nest.b.mul(less, unit)
    }

    /// `2^(score - most)`, where `most` is not less than `score`.
    pub fn power(&mut self, score: V, most: V) -> V {
        let less = self.less(score, most);
        exp2_nonpositive(&mut self.nest.b, less)
    }

    /// The index of column `col` in row `row` of scratch memory.
    pub fn cell(&mut self, row: V, col: i64) -> V {
        let row = self.nest.b.times(row, self.block());
        self.nest.b.offset(row, col)
    }

    pub fn place(&mut self, row: V, col: V) -> V {
        let row = self.nest.b.times(row, self.block());
        self.nest.b.add(row, col)
    }

    pub fn load(&mut self, mem: Mem, row: V, col: i64) -> V {
        let at = self.cell(row, col);
        self.nest.b.load(mem, at, self.lanes, None)
    }

    pub fn store(&mut self, mem: Mem, row: V, col: i64, value: V) {
        let at = self.cell(row, col);
        self.nest.b.store(mem, at, value, None);
    }

    /// The index of element `d` of row `row` of a head.
    pub fn element(&mut self, head: Head, row: V, d: V) -> V {
        let at = self.nest.b.mul(row, head.stride);
        let at = self.nest.b.add(at, d);
        self.nest.b.add(head.at, at)
    }

    /// Loops over the tasks, one for each head.
    pub fn tasks(&mut self, body: impl FnOnce(&mut Self, V)) {
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        self.each(first, last, 1, body);
    }

    /// Loops over the column offsets of the vectors of a row; the code is not unrolled.
    pub fn each_column(&mut self, body: impl FnOnce(&mut Self, V)) {
        let (zero, block) = (self.nest.b.index(0), self.nest.b.index(self.block()));
        self.each(zero, block, i64::from(self.lanes), body);
    }

    /// Stores one number for each query in range. `body` computes a vector of them for a column
    /// offset.
    pub fn one_each(&mut self, to: Head, q0: V, body: impl FnOnce(&mut Self, V) -> V) {
        self.each_column(|own, col| {
            let value = body(own, col);
            let q = own.nest.b.add(q0, col);
            let left = own.nest.b.sub(own.queries, q);
            let mask = below(&mut own.nest.b, left, own.lanes);
            let at = own.nest.b.add(to.at, q);
            own.nest.b.store(to.mem, at, value, mask);
        });
    }

    /// Loops over the blocks of keys that the block of queries from `q0` on sees.
    pub fn key_blocks(&mut self, q0: V, causal: bool, mut body: impl FnMut(&mut Self, V, Seen)) {
        let (zero, block) = (self.nest.b.index(0), self.block());
        if causal {
            self.each(zero, q0, block, |own, k0| body(own, k0, Seen::All));
            return body(self, q0, Seen::Earlier);
        }
        let size = self.nest.b.index(block);
        let count = self.nest.b.div(self.keys, size);
        let whole = self.nest.b.mul(count, size);
        self.each(zero, whole, block, |own, k0| body(own, k0, Seen::All));
        let rest = self.nest.b.compare(Cmp::Lt, whole, self.keys);
        self.nest.b.open_region();
        body(self, whole, Seen::Present);
        let yes = self.nest.b.close_region(vec![]);
        self.nest.b.open_region();
        let no = self.nest.b.close_region(vec![]);
        self.nest.b.place_choice(rest, yes, no);
    }

    /// Transposes rows of queries to columns, times a factor; past the end the last query is
    /// repeated.
    pub fn transpose(&mut self, from: Head, q0: V, width: i64, to: Mem, factor: Option<V>) {
        self.transpose_rows(q0, width, to, |own, rows, d| {
            let load = |&row: &V| {
                let at = own.element(from, row, d);
                let v = own.nest.b.load(from.mem, at, own.lanes, None);
                factor.map_or(v, |factor| own.nest.b.mul(v, factor))
            };
            rows.iter().map(load).collect()
        });
    }

    /// Transposes to columns: `read` returns, for as many queries as a vector has lanes, a vector
    /// of elements from an index on.
    pub fn transpose_rows(
        &mut self,
        q0: V,
        width: i64,
        to: Mem,
        read: impl Fn(&mut Self, &[V], V) -> Vec<V>,
    ) {
        let last = self.nest.b.offset(self.queries, -1);
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(width));
        let lanes = i64::from(self.lanes);
        self.each_column(|own, col| {
            let first = own.nest.b.add(q0, col);
            own.each(zero, width, lanes, |own, d| {
                let row = |i: i64| {
                    let q = own.nest.b.offset(first, i);
                    own.nest.b.binary(Binary::Min, q, last)
                };
                let rows: Vec<V> = (0..lanes).map(row).collect();
                let rows = read(own, &rows, d);
                for (i, v) in transpose(&mut own.nest.b, &rows).into_iter().enumerate() {
                    let row = own.nest.b.offset(d, i as i64);
                    let at = own.place(row, col);
                    own.nest.b.store(to, at, v, None);
                }
            });
        });
    }

    /// Transposes columns back to rows, times a factor for each query; stores the queries in range.
    pub fn transpose_back(&mut self, from: Mem, width: i64, to: Head, q0: V, factors: Option<Mem>) {
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(width));
        let lanes = i64::from(self.lanes);
        self.each_column(|own, col| {
            let first = own.nest.b.add(q0, col);
            let factor = factors.map(|mem| own.nest.b.load(mem, col, own.lanes, None));
            own.each(zero, width, lanes, |own, d| {
                let row = |own: &mut Self, i: i64| {
                    let element = own.nest.b.offset(d, i);
                    let at = own.place(element, col);
                    let row = own.nest.b.load(from, at, own.lanes, None);
                    factor.map_or(row, |factor| own.nest.b.mul(row, factor))
                };
                let rows: Vec<V> = (0..lanes).map(|i| row(own, i)).collect();
                for (i, v) in transpose(&mut own.nest.b, &rows).into_iter().enumerate() {
                    let q = own.nest.b.offset(first, i as i64);
                    let there = own.nest.b.compare(Cmp::Lt, q, own.queries);
                    let at = own.element(to, q, d);
                    own.nest.b.when(there, |b| b.store(to.mem, at, v, None));
                }
            });
        });
    }

    /// Products of the keys `numbers` and the transposed queries, summed over elements, for each
    /// vector of queries at `cols`.
    pub fn products(
        &mut self,
        head: Head,
        numbers: &[V],
        (transposed, width): (Mem, i64),
        cols: &[i64],
        seen: Seen,
    ) -> Vec<V> {
        let last = self.nest.b.offset(self.keys, -1);
        let rows: Vec<V> = match seen {
            Seen::All => numbers.to_vec(),
            _ => numbers.iter().map(|&k| self.nest.b.binary(Binary::Min, k, last)).collect(),
        };
        let (zero, width, none) =
            (self.nest.b.index(0), self.nest.b.index(width), self.number(0.0));
        let start = vec![none; cols.len() * rows.len()];
        self.repeat(zero, width, STEPS, &start, |own, d, sums| {
            let mut sums = sums.to_vec();
            for step in 0..STEPS {
                let d = own.nest.b.offset(d, step);
                let q: Vec<V> = cols.iter().map(|&c| own.load(transposed, d, c)).collect();
                let elements: Vec<V> = rows.iter().map(|&row| own.element(head, row, d)).collect();
                own.multiply(head.mem, &elements, &q, &mut sums);
            }
            sums
        })
    }

    /// `out[d][q] += Σ over a strip of keys of head[key][d]·from[key][q]`; the old `out` is
    /// multiplied by `shrink` first.
    pub fn across(
        &mut self,
        (head, k0): (Head, V),
        strip: Strip,
        from: Mem,
        (out, width): (Mem, i64),
        shrink: Option<&[V]>,
    ) {
        let cols = self.columns(strip.vector);
        let [first, end] = [strip.from, strip.to].map(|i| self.nest.b.index(i));
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(width));
        let last = self.nest.b.offset(self.keys, -1);
        self.each(zero, width, ROWS, |own, d| {
            let elements: Vec<V> = (0..ROWS).map(|i| own.nest.b.offset(d, i)).collect();
            let mut start = Vec::new();
            for &element in &elements {
                for (j, &col) in cols.iter().enumerate() {
                    let so_far = own.load(out, element, col);
                    start.push(match shrink {
                        Some(factors) => own.nest.b.mul(so_far, factors[j]),
                        None => so_far,
                    });
                }
            }
            let sums = own.repeat(first, end, STEPS, &start, |own, key, sums| {
                let mut sums = sums.to_vec();
                for step in 0..STEPS {
                    let key = own.nest.b.offset(key, step);
                    let row = own.nest.b.add(k0, key);
                    let row = own.nest.b.binary(Binary::Min, row, last);
                    let p: Vec<V> = cols.iter().map(|&c| own.load(from, key, c)).collect();
                    let elements: Vec<V> =
                        elements.iter().map(|&d| own.element(head, row, d)).collect();
                    own.multiply(head.mem, &elements, &p, &mut sums);
                }
                sums
            });
            for (i, &element) in elements.iter().enumerate() {
                for (j, &col) in cols.iter().enumerate() {
                    own.store(out, element, col, sums[i * cols.len() + j]);
                }
            }
        });
    }

    /// Multiplies each broadcast element with each vector and adds it to its sum, ordered by
    /// element.
    pub fn multiply(&mut self, mem: Mem, elements: &[V], vectors: &[V], sums: &mut [V]) {
        for (i, &at) in elements.iter().enumerate() {
            let element = self.nest.b.load(mem, at, 1, None);
            let element = self.nest.b.splat(element, self.lanes);
            for (j, &v) in vectors.iter().enumerate() {
                let sum = &mut sums[i * vectors.len() + j];
                *sum = self.nest.b.fma(element, v, *sum);
            }
        }
    }

    /// The scores of a key of a strip and the queries from `col` on; -inf where a query does not
    /// see it.
    pub fn hidden(&mut self, score: V, key: V, (q0, col): (V, i64), seen: Seen, strip: Strip) -> V {
        let unseen = self.number(f64::NEG_INFINITY);
        let b = &mut self.nest.b;
        match seen {
            Seen::All => score,
            Seen::Present => {
                let present = b.compare(Cmp::Lt, key, self.keys);
                let seen = b.splat(present, self.lanes);
                b.select(seen, score, unseen)
            }
            // Queries after the strip see all of it. Keys past the end come later than every query.
            Seen::Earlier if col >= strip.to => score,
            Seen::Earlier => {
                let from = b.offset(q0, col);
                let ahead = b.sub(key, from);
                let ahead = b.convert(ahead, DType::I32);
                let ahead = b.splat(ahead, self.lanes);
                let lane = b.iota(Ty::vector(DType::I32, self.lanes));
                let seen = b.compare(Cmp::Ge, lane, ahead);
                b.select(seen, score, unseen)
            }
        }
    }
}
