//! Contractions of few rows of `x` with a large `y` whose columns are contiguous. Reads `y` once,
//! several rows at a time from end to end, because memory is fastest in that order. The sums stay
//! in the first-level cache.
//!
//! A task is a block of columns.

use crate::builder::Builder;
use crate::code::{Binary, Mem, Ty, V};
use crate::contract::plan::Plan;
use crate::contract::plan::walk::{Results, TileRows, Walk};
use crate::contract::tile::{self, Columns, Panel, Tile};
use crate::contract::{Contraction, Epilogue, task};

/// The number of rows of `y` that are read at the same time.
const ROWS: i64 = 8;

/// Emits the contraction for `rows` rows of `x`.
pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, rows: i64, epilogue: Epilogue) {
    let walk = Walk::new(b, c, plan);
    walk.each_task(b, &[], |b, task, _| {
        let (x, y) = (task::start(b, &c.x, task.batch), task::start(b, &c.y, task.batch));
        let x = Panel { mem: c.x.mem, at: x, outer: c.x.outer, k: c.x.k };
        let y = Panel { mem: c.y.mem, at: y, outer: c.y.outer, k: c.y.k };
        let first = task.results.first_column(b);
        let sweep = Sweep { plan, height: rows, n: c.n, x, y, first, results: task.results };
        sweep.clear(b);
        let (zero, rows) = (b.index(0), b.index(ROWS));
        let remainder = b.binary(Binary::Rem, c.k, rows);
        let whole = b.sub(c.k, remainder);
        task::span(b, zero, whole, ROWS, |b, k| sweep.rows(b, k, ROWS));
        task::span(b, whole, c.k, 1, |b, k| sweep.rows(b, k, 1));
        sweep.each_tile(b, |b, stored, rows, columns| {
            let at = (task.batch, rows.row, rows.count(b));
            tile::pass_stored_to_epilogue(b, plan, stored, at, columns, &mut *epilogue);
        });
        vec![]
    });
}

/// A block of columns.
struct Sweep<'a> {
    /// The number of rows of `x`.
    height: i64,
    plan: &'a Plan,
    n: V,
    x: Panel,
    y: Panel,
    first: V,
    results: Results<'a, V>,
}

impl Sweep<'_> {
    /// Runs `body` for each tile, strip by strip. Passes the address of the tile's sums, its rows
    /// and its columns.
    fn each_tile(
        &self,
        b: &mut Builder,
        mut body: impl FnMut(&mut Builder, (Mem, V), TileRows<V>, &Columns),
    ) {
        let plan = self.plan;
        let stored = plan.scratch(b, plan.results_offset());
        self.results.strips(b, self.first).each(b, |b, strip| {
            let at = b.times(strip, self.height);
            let first = b.add(self.first, strip);
            let columns = Columns::new(b, plan, first, self.n);
            self.results.each_tile(b, |b, rows| {
                let above = b.times(rows.row, plan.strip());
                let at = b.add(at, above);
                body(b, (stored, at), rows, &columns);
            });
        });
    }

    fn clear(&self, b: &mut Builder) {
        let plan = self.plan;
        let zero = b.number(Ty::vector(plan.work, plan.lanes), 0.0);
        self.each_tile(b, |b, stored, rows, _| {
            let zeros = vec![zero; (rows.height * plan.vectors) as usize];
            tile::store_sums(b, plan, stored, &zeros);
        });
    }

    /// Adds the products of `count` rows of `y`.
    fn rows(&self, b: &mut Builder, k: V, count: i64) {
        let (plan, depth) = (self.plan, b.index(count));
        let along = b.mul(k, self.x.k);
        let x_at = b.add(self.x.at, along);
        let along = b.mul(k, self.y.k);
        let y_at = b.add(self.y.at, along);
        self.each_tile(b, |b, stored, rows, columns| {
            let height = rows.height;
            let across = b.mul(rows.row, self.x.outer);
            let x = Panel { at: b.add(x_at, across), ..self.x };
            let y = Panel { at: b.add(y_at, columns.first), ..self.y };
            let tile = Tile { plan, height, x, y, masks: &columns.masks, next: None };
            let sums = tile::load_sums(b, plan, stored, (height * plan.vectors) as usize, None);
            let sums = tile.sum(b, depth, sums);
            tile::store_sums(b, plan, stored, &sums);
        });
    }
}
