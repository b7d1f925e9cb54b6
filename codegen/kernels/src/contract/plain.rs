//! Contractions in portable code: scalar loops that a C compiler can vectorize.
//!
//! The sums of several rows of results are accumulated in an array that fits the first-level cache,
//! so each row of `y` is read once for all of these rows. If the columns of `y` are not contiguous,
//! a block of them is copied first. If both operands are contiguous along `k`, the results are
//! computed as dot products with several partial sums.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use crate::builder::Builder;
use crate::code::{Mem, Ty, V};
use crate::contract::gather::Location;
use crate::contract::{Contraction, Epilogue, Layout, Position, Side, operand, task};
use crate::loops::Loops;
use crate::scalar;

/// The number of rows of results that are computed together, the number of rows of `y` that are
/// added to them in one pass, and the number of columns of a block.
const ROWS: i64 = 4;
const STEPS: i64 = 4;
const COLUMNS: i64 = 256;
/// The number of partial sums of a dot product; a power of two.
const PARTIAL_SUMS: i64 = 8;
/// Up to this many columns are computed as dot products, regardless of the layout of `y`.
const MAX_DOT_COLUMNS: i64 = 4;

/// Emits the loops for all results. Returns the size of the scratch memory in bytes. `k` is the
/// extent `c.k` as a dim.
pub fn emit(b: &mut Builder, c: &Contraction, k: &Dim, epilogue: Epilogue) -> Dim {
    let zero = b.index(0);
    let mut batch = Vec::new();
    for &extent in &c.batch {
        let counter = match b.constant(extent) {
            Some(1) => None,
            _ => Some(b.open_repeat(&[]).0),
        };
        batch.push(counter);
    }
    let place: Vec<V> = batch.iter().map(|counter| counter.unwrap_or(zero)).collect();
    let starts = [&c.x, &c.y].map(|side| side.start(b, &place));
    let plain = Plain { c, batch: &place, starts };
    let scratch = match plain.is_dots(b) {
        true => plain.dots(b, epilogue),
        false => plain.blocks(b, k, epilogue),
    };
    for (counter, &extent) in batch.iter().zip(&c.batch).rev() {
        if let Some(counter) = *counter {
            b.close_repeat(zero, extent, 1, &[], counter, vec![], vec![]);
        }
    }
    scratch
}

struct Plain<'a> {
    c: &'a Contraction,
    batch: &'a [V],
    /// The locations of the first elements of `x` and `y` at this batch index.
    starts: [Location; 2],
}

/// The sums of several rows of results, and the block of `y` whose rows are added to them.
struct Block {
    sums: Mem,
    /// The block of `y`: the memory, its start, and the stride between its rows.
    y: Mem,
    y_at: V,
    y_pitch: V,
    first: V,
    width: V,
}

impl Plain<'_> {
    fn work(&self) -> DType {
        self.c.acc
    }

    fn is_dots(&self, b: &Builder) -> bool {
        let c = self.c;
        if c.x.gather.is_some() || c.y.gather.is_some() {
            return false;
        }
        let small = |v: V, most: i64| b.constant(v).is_some_and(|n| n <= most);
        let along = c.y.layout(b) == Layout::AlongK && c.x.layout(b) == Layout::AlongK;
        small(c.n, MAX_DOT_COLUMNS) || (along && small(c.m, ROWS - 1))
    }

    /// Loads an element of `x` or `y`. `start` and `along` are the contributions of its outer index
    /// and of `k`, in either order.
    fn element(&self, b: &mut Builder, side: &Side, start: &Location, along: &Location) -> V {
        let place = start.plus(b, along);
        let loaded = side.element(b, &place);
        operand(b, loaded, self.work())
    }

    /// The location of the first element of a row of `x` or a column of `y`.
    fn outer(&self, b: &mut Builder, side: usize, number: V) -> Location {
        let own = [&self.c.x, &self.c.y][side].outer(b, number);
        self.starts[side].plus(b, &own)
    }

    fn add_product(&self, b: &mut Builder, sum: V, x: V, y: V) -> V {
        if self.work().is_float() {
            return b.mul_add(x, y, sum);
        }
        let product = scalar::apply(b, Prim::Mul, self.work(), &[x, y], None);
        scalar::apply(b, Prim::Add, self.work(), &[sum, product], None)
    }

    fn dots(&self, b: &mut Builder, epilogue: Epilogue) -> Dim {
        let (c, zero) = (self.c, b.index(0));
        task::span(b, zero, c.m, 1, |b, row| {
            task::span(b, zero, c.n, 1, |b, col| {
                let (x, y) = (self.outer(b, 0, row), self.outer(b, 1, col));
                let sum = self.dot(b, &x, &y);
                b.hint(sum, "sum");
                epilogue(b, &Position { batch: self.batch, row, col }, sum, None);
            });
        });
        Dim::Const(0)
    }

    fn dot(&self, b: &mut Builder, x: &Location, y: &Location) -> V {
        let (c, zero) = (self.c, b.index(0));
        let none = b.int(Ty::scalar(self.work()), 0);
        let step = |b: &mut Builder, k: V, sum: V| {
            let (along_x, along_y) = (c.x.k(b, k), c.y.k(b, k));
            let x = self.element(b, &c.x, x, &along_x);
            let y = self.element(b, &c.y, y, &along_y);
            let sum = self.add_product(b, sum, x, y);
            b.hint(sum, "sum");
            sum
        };
        let whole_steps = round_down(b, c.k, PARTIAL_SUMS);
        let mut sums = vec![none];
        if b.constant(whole_steps) != Some(0) {
            let start = vec![none; PARTIAL_SUMS as usize];
            sums = b.repeat(zero, whole_steps, PARTIAL_SUMS, &start, |b, k, sums| {
                let parts = sums.iter().enumerate();
                let part = |(i, &sum): (usize, &V)| {
                    let k = b.offset(k, i as i64);
                    step(b, k, sum)
                };
                parts.map(part).collect()
            });
        }
        while sums.len() > 1 {
            let add = |pair: &[V]| scalar::apply(b, Prim::Add, self.work(), pair, None);
            sums = sums.chunks(2).map(add).collect();
        }
        if b.constant(whole_steps).is_some() && b.constant(whole_steps) == b.constant(c.k) {
            return sums[0];
        }
        b.repeat(whole_steps, c.k, 1, &sums, |b, k, sums| vec![step(b, k, sums[0])])[0]
    }

    fn blocks(&self, b: &mut Builder, k: &Dim, epilogue: Epilogue) -> Dim {
        let (c, zero) = (self.c, b.index(0));
        let copied = c.y.layout(b) != Layout::AlongOuter || c.dtype != self.work();
        let pitch = b.constant(c.n).map_or(COLUMNS, |n| n.min(COLUMNS));
        let sums = b.local(self.work(), ROWS * pitch);
        let scratch = if copied { Some(b.scratch(self.work(), zero)) } else { None };
        task::span(b, zero, c.n, COLUMNS, |b, first| {
            let width = match b.constant(c.n) {
                Some(n) if n <= COLUMNS => c.n,
                _ => task::part_size(b, c.n, first, COLUMNS),
            };
            b.hint(width, "width");
            let block = match scratch {
                Some(scratch) => {
                    self.copy(b, scratch, first, width, pitch);
                    let y_pitch = b.index(pitch);
                    Block { sums, y: scratch, y_at: zero, y_pitch, first, width }
                }
                None => {
                    let y_at = b.add(self.starts[1].address, first);
                    Block { sums, y: c.y.mem, y_at, y_pitch: c.y.k, first, width }
                }
            };
            let tall = round_down(b, c.m, ROWS);
            task::span(b, zero, tall, ROWS, |b, row| {
                self.rows(b, &block, row, ROWS, pitch, &mut *epilogue);
            });
            task::span(b, tall, c.m, 1, |b, row| {
                self.rows(b, &block, row, 1, pitch, &mut *epilogue);
            });
        });
        match copied {
            true => k * &Dim::from(pitch * self.work().bytes() as i64),
            false => Dim::Const(0),
        }
    }

    /// Copies the block of `y` so that its columns are contiguous.
    fn copy(&self, b: &mut Builder, to: Mem, first: V, width: V, pitch: i64) {
        let (c, zero) = (self.c, b.index(0));
        task::span(b, zero, c.k, 1, |b, k| {
            let along = c.y.k(b, k);
            let along = self.starts[1].plus(b, &along);
            task::span(b, zero, width, 1, |b, j| {
                let col = b.add(first, j);
                let across = c.y.outer(b, col);
                let value = self.element(b, &c.y, &along, &across);
                let row = b.times(k, pitch);
                let at = b.add(row, j);
                b.store(to, at, value, None);
            });
        });
    }

    /// Computes `count` rows of results.
    fn rows(
        &self,
        b: &mut Builder,
        block: &Block,
        row: V,
        count: i64,
        pitch: i64,
        epilogue: Epilogue,
    ) {
        let (c, zero) = (self.c, b.index(0));
        let none = b.int(Ty::scalar(self.work()), 0);
        b.each(zero, block.width, 1, |b, j| {
            for r in 0..count {
                let at = b.offset(j, r * pitch);
                b.store(block.sums, at, none, None);
            }
        });
        let steps = round_down(b, c.k, STEPS);
        task::span(b, zero, steps, STEPS, |b, k| {
            self.steps(b, block, [row, k], [count, STEPS], pitch);
        });
        task::span(b, steps, c.k, 1, |b, k| self.steps(b, block, [row, k], [count, 1], pitch));
        let count = b.index(count);
        task::span(b, zero, count, 1, |b, r| {
            b.each(zero, block.width, 1, |b, j| {
                let at = b.times(r, pitch);
                let at = b.add(at, j);
                let sum = b.load(block.sums, at, 1, None);
                let (row, col) = (b.add(row, r), b.add(block.first, j));
                epilogue(b, &Position { batch: self.batch, row, col }, sum, None);
            });
        });
    }

    /// Adds the products of `count[1]` rows of `y` to `count[0]` rows of sums. `at` is the first
    /// row of `x` and the first row of `y`.
    fn steps(&self, b: &mut Builder, block: &Block, at: [V; 2], count: [i64; 2], pitch: i64) {
        let c = self.c;
        let mut x = Vec::new();
        for r in 0..count[0] {
            for s in 0..count[1] {
                let (row, k) = (b.offset(at[0], r), b.offset(at[1], s));
                let (start, along) = (self.outer(b, 0, row), c.x.k(b, k));
                let element = self.element(b, &c.x, &start, &along);
                b.hint(element, "x");
                x.push(element);
            }
        }
        let starts: Vec<V> = (0..count[1])
            .map(|s| {
                let k = b.offset(at[1], s);
                times_from(b, block.y_at, k, block.y_pitch)
            })
            .collect();
        let zero = b.index(0);
        b.each(zero, block.width, 1, |b, j| {
            let mut y = Vec::new();
            for &start in &starts {
                let at = b.add(start, j);
                let loaded = b.load(block.y, at, 1, None);
                let element = operand(b, loaded, self.work());
                b.hint(element, "y");
                y.push(element);
            }
            for (r, x) in x.chunks(y.len()).enumerate() {
                let at = b.offset(j, r as i64 * pitch);
                let mut sum = b.load(block.sums, at, 1, None);
                for (&x, &y) in x.iter().zip(&y) {
                    sum = self.add_product(b, sum, x, y);
                }
                b.store(block.sums, at, sum, None);
            }
        });
    }
}

/// `start + i * stride`.
fn times_from(b: &mut Builder, start: V, i: V, stride: V) -> V {
    let across = b.mul(i, stride);
    b.add(start, across)
}

/// Rounds `extent` down to a multiple of `step`.
fn round_down(b: &mut Builder, extent: V, step: i64) -> V {
    let step = b.index(step);
    let remainder = b.binary(crate::code::Binary::Rem, extent, step);
    b.sub(extent, remainder)
}
