//! Sums in AMX tile registers: squares of 16 rows and 16 columns, up to 2×2 of which share their
//! operands.

use crate::builder::Builder;
use crate::code::{Cmp, Mem, TILE_ROWS, TileOp, V};
use crate::contract::plan::Plan;
use crate::contract::tile::{Panel, Share};
use crate::loops::Loops;

/// A tile of results that is summed up in AMX tiles. Rows of `x` lie along `k`.
pub struct Squares<'a> {
    pub plan: &'a Plan,
    pub x: Panel,
    pub y: Panel,
    /// The cache lines to prefetch as `k` runs.
    pub next: Option<Share>,
    /// The memory and index at which the sums are stored. They are loaded from there first if
    /// `later` holds.
    pub kept: (Mem, V),
    pub later: Option<V>,
}

/// The first tile registers for rows of `x` and columns of `y`. The registers below them hold sums.
const X: u8 = 4;
const Y: u8 = 6;

impl Squares<'_> {
    /// Adds the products for each `k` below `depth`. The tile has room for `height` rows, of which
    /// `rows` are used.
    pub fn sum(&self, b: &mut Builder, depth: V, (height, rows): (u32, V)) {
        let depth = self.plan.filled(b, depth);
        match (height as i64, b.constant(rows)) {
            (_, Some(..=TILE_ROWS)) | (..=TILE_ROWS, _) => self.squares(b, depth, 1),
            (_, Some(_)) => self.squares(b, depth, 2),
            _ => {
                let one = b.index(TILE_ROWS);
                let both = b.compare(Cmp::Gt, rows, one);
                let squares = |high: u8| {
                    move |b: &mut Builder| {
                        self.squares(b, depth, high);
                        vec![]
                    }
                };
                b.choose(both, squares(2), squares(1));
            }
        }
    }

    /// Sums up `high` rows of squares.
    fn squares(&self, b: &mut Builder, depth: V, high: u8) {
        let wide = self.plan.vectors as u8;
        let all = || (0..high).flat_map(|row| (0..wide).map(move |col| (row, col)));
        let sum = |row: u8, col: u8| row * wide + col;
        all().for_each(|(row, col)| b.tile(TileOp::Zero(sum(row, col))));
        let strip = b.index(self.plan.strip());
        let kept = |b: &mut Builder, row: u8, col: u8| {
            let first = row as i64 * self.plan.strip() + col as i64;
            b.offset(self.kept.1, first * TILE_ROWS)
        };
        if let Some(later) = self.later {
            b.when(later, |b| {
                for (row, col) in all() {
                    let (tile, at) = (sum(row, col), kept(b, row, col));
                    b.tile(TileOp::Load { tile, mem: self.kept.0, at, stride: strip });
                }
            });
        }
        let zero = b.index(0);
        b.each(zero, depth, self.plan.unit, |b, k| {
            if let Some(next) = &self.next {
                next.ask(b, k);
            }
            self.load(b, k, (high, wide));
            for (row, col) in all() {
                b.tile(TileOp::Dot { sum: sum(row, col), x: X + row, y: Y + col });
            }
        });
        for (row, col) in all() {
            let (tile, at) = (sum(row, col), kept(b, row, col));
            b.tile(TileOp::Store { tile, mem: self.kept.0, at, stride: strip });
        }
    }

    /// Loads the `high` squares of `x` and the `wide` squares of `y` that start at `k`.
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
        // Each row of an AMX tile holds one group of `k` for each column.
        let stride = b.times(y.k, self.plan.group);
        for col in 0..wide {
            let across = b.times(y.outer, col as i64 * TILE_ROWS);
            let at = b.add(first, across);
            b.tile(TileOp::Load { tile: Y + col, mem: y.mem, at, stride });
        }
    }
}
