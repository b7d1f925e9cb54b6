//! The building blocks of the attention kernels, for a block of queries and a block of keys. A row
//! of scratch memory holds one number per query.

use crate::loops::Loops;
use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use super::{Site, Window};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::contract::lanes::{below, transpose};
use crate::isa::Isa;
use crate::lower::nest::Nest;
use crate::scalar::{self, exp2_nonpositive};

/// Unroll factors: the number of keys (or elements of a row) that are computed together, and the
/// number of terms of a sum.
pub const ROWS: i64 = 4;
pub const STEPS: i64 = 4;

/// The keys of a block that a query sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum VisibleKeys {
    All,
    /// The keys in range; the block may reach past the last key.
    InRange,
    /// The keys up to the query's own position.
    Causal,
    /// The keys in range that are also in the query's window.
    Window,
}

/// A range of keys in a block, and the first vector of queries that sees any of them.
#[derive(Clone, Copy)]
pub struct Strip {
    pub from: i64,
    pub to: i64,
    pub vector: i64,
}

/// One head of an operand or a result.
#[derive(Clone, Copy)]
pub struct Head {
    pub mem: Mem,
    /// The offset of the head.
    pub at: V,
    /// The stride between queries, keys or values.
    pub stride: V,
}

/// An attention kernel whose code is being emitted, and its block sizes.
pub struct Tiles<'f> {
    pub nest: Nest<'f>,
    pub lanes: u32,
    /// The number of vectors in a block of queries.
    pub vectors: i64,
    pub queries: V,
    pub keys: V,
    /// Whether scores are exponents of e instead of 2. This is so if there is a mask: it may
    /// contain the lowest finite number, which would overflow when scaled by log₂ e.
    natural_exponents: bool,
    window: Window,
    /// The bytes of scratch memory allocated so far.
    pub scratch: i64,
}

impl<'f> Loops for Tiles<'f> {
    type Inner = Nest<'f>;

    fn inner(&mut self) -> &mut Nest<'f> {
        &mut self.nest
    }
}

impl<'f> Tiles<'f> {
    pub fn new(mut nest: Nest<'f>, site: &Site, isa: &Isa) -> Tiles<'f> {
        let count = |side: usize| &site.dims[side][site.dims[side].len() - 2];
        let (queries, keys) = (nest.dim(count(super::QUERY)), nest.dim(count(super::KEY)));
        let vectors = if isa.registers >= 32 { 4 } else { 2 };
        let natural_exponents = site.mask.is_some();
        let (lanes, window) = (isa.bytes / 4, site.window);
        Tiles { nest, lanes, vectors, queries, keys, natural_exponents, window, scratch: 0 }
    }

    /// Allocates rows of scratch memory, with one number per query of a block.
    pub fn allocate(&mut self, rows: i64) -> Mem {
        let at = self.nest.b.index(self.scratch);
        self.scratch += rows * self.block() * 4;
        self.nest.b.scratch(DType::F32, at)
    }

    /// The number of queries in a block, which is also the number of keys in a block.
    pub fn block(&self) -> i64 {
        self.vectors * i64::from(self.lanes)
    }

    pub fn ty(&self) -> Ty {
        Ty::vector(DType::F32, self.lanes)
    }

    pub fn number(&mut self, x: f64) -> V {
        self.nest.b.number(self.ty(), x)
    }

    /// The column offsets of the vectors of a row from vector `from` on.
    pub fn columns(&self, from: i64) -> Vec<i64> {
        (from..self.vectors).map(|v| v * i64::from(self.lanes)).collect()
    }

    /// Divides a block of keys into strips. In a block on the diagonal, only queries at or after a
    /// strip see it. Such a block is divided into just two strips, because the code is repeated for
    /// each strip.
    pub fn strips(&self, seen: VisibleKeys) -> Vec<Strip> {
        let half = self.block() / 2;
        let strip = |from: i64, to: i64| Strip { from, to, vector: from / i64::from(self.lanes) };
        match seen {
            VisibleKeys::Causal => vec![strip(0, half), strip(half, 2 * half)],
            _ => vec![strip(0, 2 * half)],
        }
    }

    /// The factor that converts a product to a score: log₂ e if scores are exponents of 2,
    /// otherwise 1.
    pub fn score_factor(&self) -> f64 {
        if self.natural_exponents { 1.0 } else { std::f64::consts::LOG2_E }
    }

    /// Returns `score - other` as an exponent of 2.
    pub fn difference(&mut self, score: V, other: V) -> V {
        let less = self.nest.b.sub(score, other);
        if !self.natural_exponents {
            return less;
        }
        let unit = self.number(std::f64::consts::LOG2_E);
        self.nest.b.mul(less, unit)
    }

    /// Returns `2^(score - current_max)`, or `e^(score - current_max)` with natural exponents.
    /// `current_max` is not less than `score`.
    pub fn power(&mut self, score: V, current_max: V) -> V {
        let less = self.difference(score, current_max);
        exp2_nonpositive(&mut self.nest.b, less)
    }

    /// The address of column `col` of a row of scratch memory.
    pub fn cell(&mut self, row: V, col: i64) -> V {
        let row = self.nest.b.times(row, self.block());
        self.nest.b.offset(row, col)
    }

    pub fn cell_at(&mut self, row: V, col: V) -> V {
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

    /// The address of element `d` of a row of a head.
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

    /// Loops over the column offsets of the vectors of a row, without unrolling.
    pub fn each_column(&mut self, body: impl FnOnce(&mut Self, V)) {
        let (zero, block) = (self.nest.b.index(0), self.nest.b.index(self.block()));
        self.each(zero, block, i64::from(self.lanes), body);
    }

    /// Stores one number for each query in range. `body` computes a vector of numbers for a column
    /// offset.
    pub fn store_per_query(&mut self, to: Head, q0: V, body: impl FnOnce(&mut Self, V) -> V) {
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
    pub fn key_blocks(
        &mut self,
        q0: V,
        window: Window,
        mut body: impl FnMut(&mut Self, V, VisibleKeys),
    ) {
        let (zero, block) = (self.nest.b.index(0), self.block());
        match window {
            Window::All => {}
            Window::Causal => {
                self.each(zero, q0, block, |own, k0| body(own, k0, VisibleKeys::All));
                return body(self, q0, VisibleKeys::Causal);
            }
            Window::Band { left, right } => {
                let [from, to] = self.band(q0, left, right);
                return self.each(from, to, block, |own, k0| body(own, k0, VisibleKeys::Window));
            }
        }
        let size = self.nest.b.index(block);
        let count = self.nest.b.div(self.keys, size);
        let whole = self.nest.b.mul(count, size);
        self.each(zero, whole, block, |own, k0| body(own, k0, VisibleKeys::All));
        let rest = self.nest.b.compare(Cmp::Lt, whole, self.keys);
        self.nest.b.open_region();
        body(self, whole, VisibleKeys::InRange);
        let yes = self.nest.b.close_region(vec![]);
        self.nest.b.open_region();
        let no = self.nest.b.close_region(vec![]);
        self.nest.b.place_choice(rest, yes, no);
    }

    /// The range of keys in the windows of the block of queries from `q0` on. It starts at a whole
    /// block.
    fn band(&mut self, q0: V, left: Option<i64>, right: Option<i64>) -> [V; 2] {
        let (block, keys) = (self.block(), self.keys);
        let b = &mut self.nest.b;
        let zero = b.index(0);
        let from = left.map_or(zero, |left| {
            let first = b.offset(q0, -left);
            let first = b.binary(Binary::Max, first, zero);
            let size = b.index(block);
            let number = b.div(first, size);
            b.mul(number, size)
        });
        let to = right.map_or(keys, |right| {
            let end = b.offset(q0, block + right);
            b.binary(Binary::Min, end, keys)
        });
        [from, to]
    }

    /// Bounds scores to ±`softcap`, if it is given. Returns the derivatives of the bounded scores
    /// with respect to the scores if `wants_slopes`.
    pub fn cap(&mut self, softcap: Option<f64>, scores: &mut [V], wants_slopes: bool) -> Vec<V> {
        let Some(cap) = softcap else { return vec![] };
        let cap = cap * self.score_factor();
        let (unit, inverse, one) = (self.number(cap), self.number(1.0 / cap), self.number(1.0));
        let mut slopes = Vec::new();
        for score in scores {
            let b = &mut self.nest.b;
            let part = b.mul(*score, inverse);
            let bounded = scalar::apply(b, Prim::Tanh, DType::F32, &[part], None);
            *score = b.mul(bounded, unit);
            if wants_slopes {
                let square = b.mul(bounded, bounded);
                slopes.push(b.sub(one, square));
            }
        }
        slopes
    }

    /// Transposes rows of queries to columns, and multiplies them by a factor. Queries past the end
    /// are clamped to the last query.
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

    /// Transposes rows of queries to columns. `read` loads the rows: for each given query, a vector
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
                    let at = own.cell_at(row, col);
                    own.nest.b.store(to, at, v, None);
                }
            });
        });
    }

    /// Transposes columns back to rows, multiplies each by the query's factor, and stores the rows
    /// of the queries in range.
    pub fn transpose_back(&mut self, from: Mem, width: i64, to: Head, q0: V, factors: Option<Mem>) {
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(width));
        let lanes = i64::from(self.lanes);
        self.each_column(|own, col| {
            let first = own.nest.b.add(q0, col);
            let factor = factors.map(|mem| own.nest.b.load(mem, col, own.lanes, None));
            own.each(zero, width, lanes, |own, d| {
                let row = |own: &mut Self, i: i64| {
                    let element = own.nest.b.offset(d, i);
                    let at = own.cell_at(element, col);
                    let row = own.nest.b.load(from, at, own.lanes, None);
                    factor.map_or(row, |factor| own.nest.b.mul(row, factor))
                };
                let rows: Vec<V> = (0..lanes).map(|i| row(own, i)).collect();
                for (i, v) in transpose(&mut own.nest.b, &rows).into_iter().enumerate() {
                    let q = own.nest.b.offset(first, i as i64);
                    let in_range = own.nest.b.compare(Cmp::Lt, q, own.queries);
                    let at = own.element(to, q, d);
                    own.nest.b.when(in_range, |b| b.store(to.mem, at, v, None));
                }
            });
        });
    }

    /// Returns the dot products of the keys `numbers` and the transposed queries at `cols`.
    pub fn products(
        &mut self,
        head: Head,
        numbers: &[V],
        (transposed, width): (Mem, i64),
        cols: &[i64],
        seen: VisibleKeys,
    ) -> Vec<V> {
        let last = self.nest.b.offset(self.keys, -1);
        let rows: Vec<V> = match seen {
            VisibleKeys::All => numbers.to_vec(),
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

    /// `out[d][q] += Σ over a strip of keys of head[key][d]·from[key][q]`. First multiplies the old
    /// `out` by the factors `rescale`.
    pub fn add_weighted_keys(
        &mut self,
        (head, k0): (Head, V),
        strip: Strip,
        from: Mem,
        (out, width): (Mem, i64),
        rescale: Option<&[V]>,
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
                    start.push(match rescale {
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

    /// Multiplies each broadcast element with each vector, and adds the products to the sums, which
    /// are ordered by element.
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

    /// Returns the scores of a key and the queries from `col` on, with -inf for queries that do not
    /// see the key.
    pub fn mask_score(
        &mut self,
        score: V,
        key: V,
        (q0, col): (V, i64),
        seen: VisibleKeys,
        strip: Strip,
    ) -> V {
        let minus_infinity = self.number(f64::NEG_INFINITY);
        let b = &mut self.nest.b;
        match seen {
            VisibleKeys::All => score,
            VisibleKeys::InRange => {
                let present = b.compare(Cmp::Lt, key, self.keys);
                let seen = b.splat(present, self.lanes);
                b.select(seen, score, minus_infinity)
            }
            // Queries after the strip see all of its keys. Keys past the end are after every query,
            // so they need no test.
            VisibleKeys::Causal if col >= strip.to => score,
            VisibleKeys::Causal => {
                let from = b.offset(q0, col);
                let first_visible = b.sub(key, from);
                let first_visible = b.convert(first_visible, DType::I32);
                let first_visible = b.splat(first_visible, self.lanes);
                let lane = b.iota(Ty::vector(DType::I32, self.lanes));
                let seen = b.compare(Cmp::Ge, lane, first_visible);
                b.select(seen, score, minus_infinity)
            }
            VisibleKeys::Window => self.mask_outside_window(score, key, (q0, col)),
        }
    }

    /// Returns the scores with -inf for queries whose window does not hold the key.
    fn mask_outside_window(&mut self, score: V, key: V, (q0, col): (V, i64)) -> V {
        let Window::Band { left, right } = self.window else { return score };
        let (ty, lanes, keys) = (Ty::vector(DType::I32, self.lanes), self.lanes, self.keys);
        let minus_infinity = self.number(f64::NEG_INFINITY);
        let b = &mut self.nest.b;
        let present = b.compare(Cmp::Lt, key, keys);
        let present = b.splat(present, lanes);
        let mut score = b.select(present, score, minus_infinity);
        let from = b.offset(q0, col);
        let position = b.sub(key, from);
        let lane = b.iota(ty);
        let bounds = [(Cmp::Ge, right.map(|right| -right)), (Cmp::Le, left)];
        for (compare, distance) in bounds {
            let Some(distance) = distance else { continue };
            let bound = b.offset(position, distance);
            let bound = b.convert(bound, DType::I32);
            let bound = b.splat(bound, lanes);
            let seen = b.compare(compare, lane, bound);
            score = b.select(seen, score, minus_infinity);
        }
        score
    }
}
