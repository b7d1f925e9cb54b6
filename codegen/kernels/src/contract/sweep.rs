//! Few rows of `x` and a large `y` that lies along its columns: `y` is read once, some of its rows
//! at a time from end to end, as memory likes it. The sums stay in the first-level cache.
//!
//! A task is a block of columns.

use crate::builder::Builder;
use crate::code::{Binary, Ty, V};
use crate::contract::plan::Plan;
use crate::contract::tile::{self, Columns, Panel, Tile};
use crate::contract::{Contraction, Epilogue, task};

/// Rows of `y` that are read side by side.
const ROWS: i64 = 8;

pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    let cols = task::blocks(b, c.n, plan.block_cols);
    let extents = [&c.batch[..], &[cols]].concat();
    task::each(b, &extents, &[], |b, digits, _| {
        let (&block, batch) = digits.split_last().expect("the block");
        let (x, y) = (task::start(b, &c.x, batch), task::start(b, &c.y, batch));
        let x = Panel { mem: c.x.mem, at: x, outer: c.x.outer, k: c.x.k };
        let y = Panel { mem: c.y.mem, at: y, outer: c.y.outer, k: c.y.k };
        let sweep = Sweep { plan, n: c.n, x, y, first: b.times(block, plan.block_cols) };
        sweep.clear(b);
        let (zero, rows) = (b.index(0), b.index(ROWS));
        let over = b.binary(Binary::Rem, c.k, rows);
        let whole = b.sub(c.k, over);
        task::span(b, zero, whole, ROWS, |b, k| sweep.rows(b, k, ROWS));
        task::span(b, whole, c.k, 1, |b, k| sweep.rows(b, k, 1));
        sweep.strips(b, |b, kept, columns| {
            let at = (batch, zero, b.index(sweep.height() as i64));
            tile::finish_kept(b, plan, kept, at, columns, &mut *epilogue);
        });
        vec![]
    });
}

/// A block of columns.
struct Sweep<'a> {
    plan: &'a Plan,
    n: V,
    x: Panel,
    y: Panel,
    first: V,
}

impl Sweep<'_> {
    fn height(&self) -> u32 {
        self.plan.height() as u32
    }

    /// Each strip: where its sums are kept, its columns.
    fn strips(
        &self,
        b: &mut Builder,
        body: impl FnOnce(&mut Builder, (crate::code::Mem, V), &Columns),
    ) {
        let plan = self.plan;
        let kept = plan.scratch(b, plan.results_at());
        let (zero, count) = (b.index(0), task::part(b, self.n, self.first, plan.block_cols));
        task::span(b, zero, count, plan.strip(), |b, strip| {
            let at = b.times(strip, plan.height());
            let first = b.add(self.first, strip);
            let columns = Columns::new(b, plan, first, self.n);
            body(b, (kept, at), &columns);
        });
    }

    fn clear(&self, b: &mut Builder) {
        let plan = self.plan;
        let zero = b.number(Ty::vector(plan.work, plan.lanes), 0.0);
        let zeros = vec![zero; (self.height() * plan.vectors) as usize];
        self.strips(b, |b, kept, _| tile::store(b, plan, kept, &zeros));
    }

    /// Adds the products of some rows of `y`.
    fn rows(&self, b: &mut Builder, k: V, count: i64) {
        let (plan, depth) = (self.plan, b.index(count));
        let along = b.mul(k, self.x.k);
        let x = Panel { at: b.add(self.x.at, along), ..self.x };
        let along = b.mul(k, self.y.k);
        let at = b.add(self.y.at, along);
        self.strips(b, |b, kept, columns| {
            let y = Panel { at: b.add(at, columns.first), ..self.y };
            let height = self.height();
            let tile = Tile { plan, height, x, y, masks: &columns.masks, next: None };
            let sums = tile::load(b, plan, kept, (height * plan.vectors) as usize, None);
            let sums = tile.sum(b, depth, sums);
            tile::store(b, plan, kept, &sums);
        });
    }
}
