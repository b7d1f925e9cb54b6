//! Tiles straight from both operands: for few rows, where a copy would not pay.
//!
//! A task is a strip of columns.

use crate::builder::Builder;
use crate::code::{Ty, V};
use crate::contract::plan::Plan;
use crate::contract::tile::{self, Columns, Panel, Tile};
use crate::contract::{Contraction, Epilogue, rows, task};

/// Tiles of up to so many vectors are handed to the epilogue from the registers.
const INLINE: u32 = 16;

pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    let strips = task::blocks(b, c.n, plan.strip());
    let extents = [&c.batch[..], &[strips]].concat();
    task::each(b, &extents, &[], |b, digits, _| {
        let (&strip, batch) = digits.split_last().expect("the strip");
        let (x, y) = (task::start(b, &c.x, batch), task::start(b, &c.y, batch));
        let col = b.times(strip, plan.strip());
        let across = b.mul(col, c.y.outer);
        let y = Panel { mem: c.y.mem, at: b.add(y, across), outer: c.y.outer, k: c.y.k };
        let columns = Columns::new(b, plan, col, c.n);
        let zero = b.index(0);
        rows::each_height(b, plan, zero, c.m, |b, height, from, to| {
            task::span(b, from, to, height as i64, |b, row| {
                let across = b.mul(row, c.x.outer);
                let x = Panel { mem: c.x.mem, at: b.add(x, across), outer: c.x.outer, k: c.x.k };
                let tile = Tile { plan, height, x, y, masks: &columns.masks, next: None };
                one(b, &tile, c.k, (batch, row), &columns, &mut *epilogue);
            });
        });
        vec![]
    });
}

fn one(
    b: &mut Builder,
    tile: &Tile,
    depth: V,
    (batch, row): (&[V], V),
    columns: &Columns,
    epilogue: Epilogue,
) {
    let (plan, zero) = (tile.plan, b.index(0));
    let start = b.number(Ty::vector(plan.work, plan.lanes), 0.0);
    let count = tile.height * plan.vectors;
    let sums = tile.sum(b, depth, vec![start; count as usize]);
    if count <= INLINE {
        return tile::finish(b, plan, &sums, (batch, row), columns, epilogue);
    }
    let kept = (plan.scratch(b, plan.results_at()), zero);
    tile::store(b, plan, kept, &sums);
    let height = b.index(tile.height as i64);
    tile::finish_kept(b, plan, kept, (batch, row, height), columns, epilogue);
}
