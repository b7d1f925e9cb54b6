//! Computes tiles of results in AMX tile registers. A register holds a block of 16 × 16 sums. Up to
//! 2 × 2 blocks are computed together, so that each loaded operand is used twice.

use crate::builder::Builder;
use crate::code::{Cmp, Mem, TILE_ROWS, TileOp, V};
use crate::contract::plan::Plan;
use crate::contract::tile::{Panel, PrefetchShare};
use crate::loops::Loops;

/// A tile of results, consisting of up to 2 × 2 blocks in AMX tile registers. Rows of `x` are
/// contiguous along `k`.
pub struct AmxTile<'a> {
    pub plan: &'a Plan,
    pub x: Panel,
    pub y: Panel,
    /// The cache lines to prefetch as `k` runs.
    pub next: Option<PrefetchShare>,
    /// The memory and the index where the sums are stored. If `resumes` holds, the sums of earlier
    /// panels are loaded from there first.
    pub stored: (Mem, V),
    pub resumes: Option<V>,
}

/// The first tile registers for blocks of `x` and of `y`. The lower registers hold sums.
const X: u8 = 4;
const Y: u8 = 6;

impl AmxTile<'_> {
    /// Adds the products for each `k` below `depth`. The tile has `height` rows, of which `rows`
    /// are used.
    pub fn sum(&self, b: &mut Builder, depth: V, (height, rows): (u32, V)) {
        let depth = self.plan.round_up_depth(b, depth);
        match (height as i64, b.constant(rows)) {
            (_, Some(..=TILE_ROWS)) | (..=TILE_ROWS, _) => self.sum_rows(b, depth, 1),
            (_, Some(_)) => self.sum_rows(b, depth, 2),
            _ => {
                let one = b.index(TILE_ROWS);
                let both = b.compare(Cmp::Gt, rows, one);
                let sum_rows = |high: u8| {
                    move |b: &mut Builder| {
                        self.sum_rows(b, depth, high);
                        vec![]
                    }
                };
                b.choose(both, sum_rows(2), sum_rows(1));
            }
        }
    }

    /// Computes `high` rows of blocks.
    fn sum_rows(&self, b: &mut Builder, depth: V, high: u8) {
        let wide = self.plan.vectors as u8;
        let all = || (0..high).flat_map(|row| (0..wide).map(move |col| (row, col)));
        let sum = |row: u8, col: u8| row * wide + col;
        all().for_each(|(row, col)| b.tile(TileOp::Zero(sum(row, col))));
        let strip = b.index(self.plan.strip());
        let stored = |b: &mut Builder, row: u8, col: u8| {
            let first = row as i64 * self.plan.strip() + col as i64;
            b.offset(self.stored.1, first * TILE_ROWS)
        };
        if let Some(resumes) = self.resumes {
            b.when(resumes, |b| {
                for (row, col) in all() {
                    let (tile, at) = (sum(row, col), stored(b, row, col));
                    b.tile(TileOp::Load { tile, mem: self.stored.0, at, stride: strip });
                }
            });
        }
        let zero = b.index(0);
        b.each(zero, depth, self.plan.unit, |b, k| {
            if let Some(next) = &self.next {
                next.prefetch(b, k);
            }
            self.load(b, k, (high, wide));
            for (row, col) in all() {
                b.tile(TileOp::Dot { sum: sum(row, col), x: X + row, y: Y + col });
            }
        });
        for (row, col) in all() {
            let (tile, at) = (sum(row, col), stored(b, row, col));
            b.tile(TileOp::Store { tile, mem: self.stored.0, at, stride: strip });
        }
    }

    /// Loads `high` blocks of `x` and `wide` blocks of `y` that start at `k`.
    fn load(&self, b: &mut Builder, k: V, (high, wide): (u8, u8)) {
        let (x, y) = (&self.x, &self.y);
        let first = b.add(x.at, k);
        for row in 0..high {
            let across = b.times(x.outer, row as i64 * TILE_ROWS);
            let at = b.add(first, across);
            b.tile(TileOp::Load { tile: X + row, mem: x.mem, at, stride: x.outer });
        }
        let along = b.mul(k, y.k);
        let first = b.add(y.at, along);
        // Each row of an AMX tile of `y` holds one group of neighbours along `k` for each column.
        let stride = b.times(y.k, self.plan.group);
        for col in 0..wide {
            let across = b.times(y.outer, col as i64 * TILE_ROWS);
            let at = b.add(first, across);
            b.tile(TileOp::Load { tile: Y + col, mem: y.mem, at, stride });
        }
    }
}
