//! Enumerates the results: the rows and columns that each task computes, tile by tile.
//!
//! All schemes use this enumeration, so it defines which results the code writes. [`Plan::boxes`]
//! runs the same enumeration on plain integers, for tests.

use std::ops::Range;

use mithril_ir::dim::Dim;

use super::{Plan, Rows, Scheme, div_ceil};
use crate::builder::Builder;
use crate::code::{Binary, V};
use crate::contract::{Contraction, task};

/// The arithmetic of the enumeration, which either emits code or computes with plain integers.
pub(in crate::contract) trait Arithmetic: Sized {
    type Number: Copy;

    fn number(&mut self, x: i64) -> Self::Number;
    fn known(&self, x: Self::Number) -> Option<i64>;
    fn binary(&mut self, op: Binary, x: Self::Number, y: Self::Number) -> Self::Number;

    /// Runs `body` for each step in `from..to`.
    fn span(
        &mut self,
        from: Self::Number,
        to: Self::Number,
        step: i64,
        body: impl FnMut(&mut Self, Self::Number),
    );

    fn offset(&mut self, x: Self::Number, by: i64) -> Self::Number {
        let by = self.number(by);
        self.binary(Binary::Add, x, by)
    }

    fn times(&mut self, x: Self::Number, by: i64) -> Self::Number {
        let by = self.number(by);
        self.binary(Binary::Mul, x, by)
    }

    /// `min(size, extent - from)`.
    fn part_size(&mut self, extent: Self::Number, from: Self::Number, size: i64) -> Self::Number {
        let rest = self.binary(Binary::Sub, extent, from);
        let size = self.number(size);
        self.binary(Binary::Min, rest, size)
    }
}

impl Arithmetic for Builder {
    type Number = V;

    fn number(&mut self, x: i64) -> V {
        self.index(x)
    }

    fn known(&self, x: V) -> Option<i64> {
        self.constant(x)
    }

    fn binary(&mut self, op: Binary, x: V, y: V) -> V {
        Builder::binary(self, op, x, y)
    }

    fn span(&mut self, from: V, to: V, step: i64, body: impl FnMut(&mut Builder, V)) {
        task::span(self, from, to, step, body);
    }
}

/// Computes with plain integers.
struct Integers;

impl Arithmetic for Integers {
    type Number = i64;

    fn number(&mut self, x: i64) -> i64 {
        x
    }

    fn known(&self, x: i64) -> Option<i64> {
        Some(x)
    }

    fn binary(&mut self, op: Binary, x: i64, y: i64) -> i64 {
        match op {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Rem => x % y,
            Binary::Min => x.min(y),
            Binary::Max => x.max(y),
            Binary::And => x & y,
            Binary::Or => x | y,
            Binary::Xor => x ^ y,
            Binary::Shl => x << y,
            Binary::Shr => x >> y,
        }
    }

    fn span(&mut self, from: i64, to: i64, step: i64, mut body: impl FnMut(&mut Integers, i64)) {
        (from..to).step_by(step as usize).for_each(|at| body(self, at));
    }
}

/// The number of blocks along an axis of the results: a constant, or the extent divided by the
/// block size and rounded up.
enum Blocks {
    Count(i64),
    Size(i64),
}

impl Blocks {
    fn emit(&self, b: &mut Builder, extent: V) -> V {
        match *self {
            Blocks::Count(count) => b.index(count),
            Blocks::Size(size) => task::block_count(b, extent, size),
        }
    }

    fn dim(&self, extent: &Dim) -> Dim {
        match *self {
            Blocks::Count(count) => Dim::from(count),
            Blocks::Size(size) => extent.ceil_div(&Dim::from(size)),
        }
    }

    fn count(&self, extent: i64) -> i64 {
        match *self {
            Blocks::Count(count) => count,
            Blocks::Size(size) => div_ceil(extent, size),
        }
    }
}

/// The tasks of a contraction.
pub(in crate::contract) struct Walk<'a> {
    plan: &'a Plan,
    c: &'a Contraction,
    /// The extents of the batch axes, the number of blocks of columns, and, if there may be
    /// several, the number of blocks of rows.
    pub extents: Vec<V>,
}

/// A task: a block of rows and a block of columns of the results, at one batch index.
pub(in crate::contract) struct Task<'a> {
    pub batch: &'a [V],
    /// The index of the block of columns.
    pub block: V,
    pub results: Results<'a, V>,
}

impl<'a> Walk<'a> {
    pub fn new(b: &mut Builder, c: &'a Contraction, plan: &'a Plan) -> Walk<'a> {
        let mut extents = c.batch.clone();
        extents.push(plan.column_blocks().emit(b, c.n));
        if plan.splits_rows() {
            extents.push(plan.row_blocks().emit(b, c.m));
        }
        Walk { plan, c, extents }
    }

    /// Runs `body` for the tasks `first..last`. `carried` are values that each task passes to the
    /// next.
    pub fn each_task(
        &self,
        b: &mut Builder,
        carried: &[V],
        body: impl FnOnce(&mut Builder, &Task, &[V]) -> Vec<V>,
    ) {
        let &Walk { plan, c, .. } = self;
        task::each(b, &self.extents, carried, |b, indices, carried| {
            let (batch, own) = indices.split_at(c.batch.len());
            let block = own[0];
            let rows = match plan.splits_rows() {
                true => own[1],
                false => b.index(0),
            };
            let results = Results { plan, rows, block, m: c.m, n: c.n };
            body(b, &Task { batch, block, results }, carried)
        });
    }
}

/// The results of a task, divided into tiles.
#[derive(Clone, Copy)]
pub(in crate::contract) struct Results<'a, N> {
    plan: &'a Plan,
    /// The indices of the task's block of rows and block of columns.
    rows: N,
    block: N,
    m: N,
    n: N,
}

/// The rows of a tile.
#[derive(Clone, Copy)]
pub(in crate::contract) struct TileRows<N> {
    pub row: N,
    /// The maximum number of rows.
    pub height: u32,
    /// The end of the rows, if there may be fewer than `height`.
    end: Option<N>,
}

/// The columns of a task, divided into strips.
#[derive(Clone, Copy)]
pub(in crate::contract) struct Strips<N> {
    /// The first column, and the number of columns. The number is `None` if a single strip has all
    /// columns.
    pub first: N,
    count: Option<N>,
    width: i64,
}

impl<N: Copy> TileRows<N> {
    /// The number of rows of the tile.
    pub fn count<E: Arithmetic<Number = N>>(&self, e: &mut E) -> N {
        let whole = e.number(self.height as i64);
        match self.end {
            None => whole,
            Some(end) => e.part_size(end, self.row, self.height as i64),
        }
    }
}

impl<N: Copy> Results<'_, N> {
    /// Runs `body` for each tile of rows, from the first row on.
    pub fn each_tile<E: Arithmetic<Number = N>>(
        &self,
        e: &mut E,
        mut body: impl FnMut(&mut E, TileRows<N>),
    ) {
        let plan = self.plan;
        let known = e.known(self.m);
        self.each_height(e, |e, height, from, to| {
            let short = match plan.rows {
                Rows::Steps(height) => known.is_none_or(|m| m % height as i64 != 0),
                Rows::Balanced { .. } | Rows::Greedy(_) => false,
            };
            let end = short.then_some(to);
            e.span(from, to, height as i64, |e, row| body(e, TileRows { row, height, end }));
        });
    }

    /// Runs `body` once for each tile height, with the rows `from..to` of the tiles of that height.
    fn each_height<E: Arithmetic<Number = N>>(
        &self,
        e: &mut E,
        mut body: impl FnMut(&mut E, u32, N, N),
    ) {
        let tiles = self.plan.task_tiles();
        match &self.plan.rows {
            Rows::Balanced { height, tall, tiles: all } => {
                let first = e.times(self.rows, tiles);
                let (last, all) = (e.offset(first, tiles), e.number(*all));
                let last = e.binary(Binary::Min, last, all);
                let tall_tiles = e.number(*tall);
                let from = row(e, first, *height, *tall);
                let to = row(e, last, *height, *tall);
                if e.known(tall_tiles) == e.known(all) {
                    return body(e, *height, from, to);
                }
                let middle = e.number(tall * *height as i64);
                let middle = e.binary(Binary::Max, middle, from);
                let middle = e.binary(Binary::Min, middle, to);
                body(e, *height, from, middle);
                body(e, *height - 1, middle, to);
            }
            Rows::Steps(height) => {
                let (from, end) = self.span_of_rows(e);
                body(e, *height, from, end);
            }
            Rows::Greedy(heights) => {
                let (mut from, end) = self.span_of_rows(e);
                for &height in heights {
                    let rest = e.binary(Binary::Sub, end, from);
                    let size = e.number(height as i64);
                    let remainder = e.binary(Binary::Rem, rest, size);
                    let to = e.binary(Binary::Sub, end, remainder);
                    body(e, height, from, to);
                    from = to;
                }
            }
        }
    }

    /// The rows of a task.
    fn span_of_rows<E: Arithmetic<Number = N>>(&self, e: &mut E) -> (N, N) {
        let from = self.first_row(e);
        let end = e.offset(from, self.plan.task_tiles() * self.plan.height());
        (from, e.binary(Binary::Min, end, self.m))
    }

    pub fn first_row<E: Arithmetic<Number = N>>(&self, e: &mut E) -> N {
        let tile = e.times(self.rows, self.plan.task_tiles());
        match &self.plan.rows {
            Rows::Balanced { height, tall, .. } => row(e, tile, *height, *tall),
            Rows::Greedy(_) | Rows::Steps(_) => e.times(tile, self.plan.height()),
        }
    }

    pub fn first_column<E: Arithmetic<Number = N>>(&self, e: &mut E) -> N {
        e.times(self.block, self.plan.task_columns())
    }

    /// The strips of a task whose first column is `first`.
    pub fn strips<E: Arithmetic<Number = N>>(&self, e: &mut E, first: N) -> Strips<N> {
        let size = self.plan.task_columns();
        let count = match self.plan.scheme {
            Scheme::Direct | Scheme::Dots => None,
            Scheme::Panels | Scheme::Sweep { .. } => Some(e.part_size(self.n, first, size)),
        };
        Strips { first, count, width: self.plan.strip() }
    }
}

impl<N: Copy> Strips<N> {
    /// Runs `body` for each strip. Passes the distance of the strip from the first column.
    pub fn each<E: Arithmetic<Number = N>>(&self, e: &mut E, mut body: impl FnMut(&mut E, N)) {
        let zero = e.number(0);
        match self.count {
            None => body(e, zero),
            Some(count) => e.span(zero, count, self.width, body),
        }
    }

    /// The number of columns.
    ///
    /// Panics if the scheme's tasks are single strips.
    pub fn columns(&self) -> N {
        self.count.expect("a block of strips")
    }
}

/// The first row of a tile.
fn row<E: Arithmetic>(e: &mut E, tile: E::Number, height: u32, tall: i64) -> E::Number {
    let low = e.times(tile, height as i64 - 1);
    let tall = e.number(tall);
    let higher = e.binary(Binary::Min, tile, tall);
    e.binary(Binary::Add, low, higher)
}

impl Plan {
    /// Whether the rows are divided among several tasks.
    fn splits_rows(&self) -> bool {
        match self.scheme {
            Scheme::Panels => true,
            Scheme::Direct | Scheme::Sweep { .. } | Scheme::Dots => false,
        }
    }

    /// The number of tiles of rows in a task.
    fn task_tiles(&self) -> i64 {
        match self.splits_rows() {
            true => self.block_tiles,
            false => i32::MAX as i64,
        }
    }

    /// The number of columns in a task.
    pub(in crate::contract) fn task_columns(&self) -> i64 {
        match self.scheme {
            Scheme::Direct | Scheme::Dots => self.strip(),
            Scheme::Panels | Scheme::Sweep { .. } => self.block_cols,
        }
    }

    fn row_blocks(&self) -> Blocks {
        match &self.rows {
            _ if !self.splits_rows() => Blocks::Count(1),
            Rows::Balanced { tiles, .. } => Blocks::Count(div_ceil(*tiles, self.block_tiles)),
            Rows::Greedy(_) | Rows::Steps(_) => Blocks::Size(self.block_tiles * self.height()),
        }
    }

    fn column_blocks(&self) -> Blocks {
        Blocks::Size(self.task_columns())
    }

    /// The number of tasks.
    pub fn tasks(&self, batch: &[Dim], m: &Dim, n: &Dim) -> Dim {
        let (m, n) = if self.swapped { (n, m) } else { (m, n) };
        let all = self.row_blocks().dim(m) * self.column_blocks().dim(n);
        batch.iter().fold(all, |tasks, extent| tasks * extent.clone())
    }

    /// Returns the boxes of results that the code writes, by task and tile, for one batch index and
    /// these extents. A box is a range of rows and a range of columns.
    pub fn boxes(&self, m: i64, n: i64) -> Vec<[Range<i64>; 2]> {
        let (m, n) = if self.swapped { (n, m) } else { (m, n) };
        let mut boxes = Vec::new();
        for block in 0..self.column_blocks().count(n) {
            for rows in 0..self.row_blocks().count(m) {
                let results = Results { plan: self, rows, block, m, n };
                let first = results.first_column(&mut Integers);
                let strips = results.strips(&mut Integers, first);
                results.each_tile(&mut Integers, |e, tile| {
                    let rows = tile.row..tile.row + tile.count(e);
                    strips.each(e, |_, strip| {
                        let from = first + strip;
                        let columns = from..n.min(from + self.strip());
                        boxes.push(match self.swapped {
                            true => [columns, rows.clone()],
                            false => [rows.clone(), columns],
                        });
                    });
                });
            }
        }
        boxes
    }
}
