//! Computes tiles directly from both operands. Used for few rows, where packing would not pay.
//!
//! A task is a strip of columns.

use crate::builder::Builder;
use crate::code::{Ty, V};
use crate::contract::plan::Plan;
use crate::contract::plan::walk::{TileRows, Walk};
use crate::contract::tile::{self, Columns, Panel, Tile};
use crate::contract::{Contraction, Epilogue, task};

/// Tiles of up to this many vectors are passed to the epilogue in registers. The sums of larger
/// tiles are stored in scratch memory first.
const MAX_IN_REGISTERS: u32 = 16;

pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    let walk = Walk::new(b, c, plan);
    walk.each_task(b, &[], |b, task, _| {
        let (x, y) = (task::start(b, &c.x, task.batch), task::start(b, &c.y, task.batch));
        let first = task.results.first_column(b);
        let strips = task.results.strips(b, first);
        strips.each(b, |b, strip| {
            let col = b.add(first, strip);
            let across = b.mul(col, c.y.outer);
            let y = Panel { mem: c.y.mem, at: b.add(y, across), outer: c.y.outer, k: c.y.k };
            let columns = Columns::new(b, plan, col, c.n);
            task.results.each_tile(b, |b, rows| {
                let across = b.mul(rows.row, c.x.outer);
                let x = Panel { mem: c.x.mem, at: b.add(x, across), outer: c.x.outer, k: c.x.k };
                let masks = &columns.masks;
                let tile = Tile { plan, height: rows.height, x, y, masks, next: None };
                emit_tile(b, &tile, c.k, (task.batch, rows), &columns, &mut *epilogue);
            });
        });
        vec![]
    });
}

fn emit_tile(
    b: &mut Builder,
    tile: &Tile,
    depth: V,
    (batch, rows): (&[V], TileRows<V>),
    columns: &Columns,
    epilogue: Epilogue,
) {
    let (plan, zero) = (tile.plan, b.index(0));
    let start = b.number(Ty::vector(plan.work, plan.lanes), 0.0);
    let count = tile.height * plan.vectors;
    let sums = tile.sum(b, depth, vec![start; count as usize]);
    if count <= MAX_IN_REGISTERS {
        return tile::pass_to_epilogue(b, plan, &sums, (batch, rows.row), columns, epilogue);
    }
    let stored = (plan.scratch(b, plan.results_offset()), zero);
    tile::store_sums(b, plan, stored, &sums);
    let height = rows.count(b);
    tile::pass_stored_to_epilogue(b, plan, stored, (batch, rows.row, height), columns, epilogue);
}
