//! Dot products, for few rows of `x`, if both operands are contiguous along `k`. Vectors run along
//! `k`, and their lanes are summed at the end.
//!
//! A task is a block of columns.

use crate::builder::Builder;
use crate::code::{Binary, Ty, V};
use crate::contract::plan::Plan;
use crate::contract::plan::walk::Walk;
use crate::contract::tile::{self, Columns, multiply_add};
use crate::contract::{Contraction, Epilogue, lanes, operand, task};
use crate::loops::Loops;

/// The number of columns whose dot products are accumulated together.
const COLUMNS: usize = 4;

pub fn emit(b: &mut Builder, c: &Contraction, plan: &Plan, epilogue: Epilogue) {
    let walk = Walk::new(b, c, plan);
    walk.each_task(b, &[], |b, task, _| {
        let (x, y) = (task::start(b, &c.x, task.batch), task::start(b, &c.y, task.batch));
        let first = task.results.first_column(b);
        let strips = task.results.strips(b, first);
        task.results.each_tile(b, |b, rows| {
            let x = starts(b, x, (c.x.outer, c.m), rows.row, rows.height as i64);
            strips.each(b, |b, strip| {
                let col = b.add(first, strip);
                let y = starts(b, y, (c.y.outer, c.n), col, plan.lanes as i64);
                let sums = sums(b, c, plan, (&x, &y));
                let columns = Columns::new(b, plan, col, c.n);
                tile::pass_to_epilogue(
                    b,
                    plan,
                    &sums,
                    (task.batch, rows.row),
                    &columns,
                    &mut *epilogue,
                );
            });
        });
        vec![]
    });
}

/// Returns for each row a vector of its results, one lane per column.
fn sums(b: &mut Builder, c: &Contraction, plan: &Plan, (x, y): (&[V], &[V])) -> Vec<V> {
    // Memory is read fastest in few streams, so only a few columns are read at a time.
    let parts: Vec<Vec<V>> = y.chunks(COLUMNS).map(|y| sum(b, c, plan, x, y)).collect();
    let row = |row: usize| -> Vec<V> {
        let part =
            |part: &Vec<V>| part.chunks(part.len() / x.len()).nth(row).expect("a row").to_vec();
        parts.iter().flat_map(part).collect()
    };
    let rows: Vec<Vec<V>> = (0..x.len()).map(row).collect();
    rows.iter().map(|row| lanes::sums(b, row)).collect()
}

/// Returns the addresses of the vectors at `count` outer indices from `first` on. Indices past the
/// end are clamped to the last one; their results are not used.
fn starts(b: &mut Builder, at: V, (stride, extent): (V, V), first: V, count: i64) -> Vec<V> {
    let last = b.offset(extent, -1);
    let start = |i: i64| {
        let outer = b.offset(first, i);
        let outer = b.binary(Binary::Min, outer, last);
        let across = b.mul(outer, stride);
        b.add(at, across)
    };
    (0..count).map(start).collect()
}

/// Returns a vector for each row and column. The sum of its lanes is the result.
fn sum(b: &mut Builder, c: &Contraction, plan: &Plan, x: &[V], y: &[V]) -> Vec<V> {
    let register = plan.register;
    let step = |b: &mut Builder, k: V, mask: Option<V>, sums: &[V]| {
        let mut load = |mem, start: &[V]| -> Vec<V> {
            let load = |&start: &V| {
                let at = b.add(start, k);
                let value = b.load(mem, at, register, mask);
                operand(b, value, plan.work)
            };
            start.iter().map(load).collect()
        };
        let (x, y) = (load(c.x.mem, x), load(c.y.mem, y));
        let pairs = x.iter().flat_map(|&x| y.iter().map(move |&y| (x, y)));
        pairs.zip(sums).map(|((x, y), &sum)| multiply_add(b, plan, x, y, sum)).collect()
    };
    let (zero, size) = (b.index(0), b.index(register as i64));
    let start = b.number(Ty::vector(plan.work, register), 0.0);
    let remainder = b.binary(Binary::Rem, c.k, size);
    let whole = b.sub(c.k, remainder);
    let start = vec![start; x.len() * y.len()];
    let sums = b.repeat(zero, whole, register as i64, &start, |b, k, sums| step(b, k, None, sums));
    if b.constant(remainder) == Some(0) {
        return sums;
    }
    let mask = lanes::below(b, remainder, register);
    step(b, whole, mask, &sums)
}
