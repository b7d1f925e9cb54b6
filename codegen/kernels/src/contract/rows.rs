//! Which rows a task does, by tiles of which height.

use crate::builder::Builder;
use crate::code::{Binary, V};
use crate::contract::plan::{Plan, Rows, parts};

/// Runs `body` once per height: for the tiles of that height, whose rows are `from..to`.
pub fn each_height(
    b: &mut Builder,
    plan: &Plan,
    task: V,
    m: V,
    mut body: impl FnMut(&mut Builder, u32, V, V),
) {
    let tiles = plan.block_tiles;
    match &plan.rows {
        Rows::Balanced { height, tall, tiles: all } => {
            let first = b.times(task, tiles);
            let (last, all) = (b.offset(first, tiles), b.index(*all));
            let last = b.binary(Binary::Min, last, all);
            let tall_tiles = b.index(*tall);
            let (from, to) = (row(b, first, *height, *tall), row(b, last, *height, *tall));
            if tall_tiles == all {
                return body(b, *height, from, to);
            }
            let middle = b.index(tall * *height as i64);
            let middle = b.binary(Binary::Max, middle, from);
            let middle = b.binary(Binary::Min, middle, to);
            body(b, *height, from, middle);
            body(b, *height - 1, middle, to);
        }
        Rows::Steps(height) => {
            let (from, end) = whole(b, plan, task, m);
            body(b, *height, from, end);
        }
        Rows::Greedy(heights) => {
            let (mut from, end) = whole(b, plan, task, m);
            for &height in heights {
                let rest = b.sub(end, from);
                let height_v = b.index(height as i64);
                let over = b.binary(Binary::Rem, rest, height_v);
                let to = b.sub(end, over);
                body(b, height, from, to);
                from = to;
            }
        }
    }
}

/// The rows of a task whose tiles are of any height.
fn whole(b: &mut Builder, plan: &Plan, task: V, m: V) -> (V, V) {
    let from = first(b, plan, task);
    let end = b.offset(from, plan.block_tiles * plan.height());
    (from, b.binary(Binary::Min, end, m))
}

/// The first row of a task.
pub fn first(b: &mut Builder, plan: &Plan, task: V) -> V {
    let tile = b.times(task, plan.block_tiles);
    match &plan.rows {
        Rows::Balanced { height, tall, .. } => row(b, tile, *height, *tall),
        _ => b.times(tile, plan.height()),
    }
}

/// The first row of a tile.
fn row(b: &mut Builder, tile: V, height: u32, tall: i64) -> V {
    let low = b.times(tile, height as i64 - 1);
    let tall = b.index(tall);
    let higher = b.binary(Binary::Min, tile, tall);
    b.add(low, higher)
}

/// How many tasks the rows are for.
pub fn tasks(b: &mut Builder, plan: &Plan, m: V) -> V {
    match &plan.rows {
        Rows::Balanced { tiles, .. } => b.index(parts(*tiles, plan.block_tiles)),
        _ => super::task::blocks(b, m, plan.block_tiles * plan.height()),
    }
}
