//! Attention and its gradients in portable code: the steps of [`forward`](super::forward) and
//! [`backward`](super::backward), with a loop over the queries of a block in the place of vectors,
//! which a C compiler makes vectors of.

mod backward;
mod forward;

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use super::tiles::Head;
use super::{KEY, Mask, QUERY, Site};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::Lowered;
use crate::lower::nest::Nest;
use crate::scalar;
pub use backward::backward;
pub use forward::forward;

/// Queries, and keys, of a block.
const BLOCK: i64 = 32;
/// Elements of a head that are multiplied in one go.
const STEPS: usize = 4;
/// Rows of one number for each query of a block.
fn room(nest: &mut Nest, rows: i64, what: &'static str) -> Mem {
    let mem = nest.b.local(DType::F32, rows * BLOCK);
    nest.b.name(mem, what);
    mem
}

/// The queries of a block: which is the first, how many there are, and which keys they see.
#[derive(Clone, Copy)]
struct Block {
    first: V,
    count: V,
    keys: V,
}

fn lowered(nest: Nest) -> Lowered {
    let (tasks, scratch) = (Dim::Const(1), Dim::Const(0));
    Lowered { code: nest.b.finish(), tasks, grain: 1, scratch, partials: vec![] }
}

impl Site {
    fn count(&self, nest: &mut Nest, side: usize) -> V {
        let dims = &self.dims[side];
        nest.dim(&dims[dims.len() - 2])
    }

    /// A head of a result, or of what has the shape of one.
    fn dense(&self, nest: &mut Nest, mem: Mem, (side, width): (usize, i64), number: V) -> Head {
        let count = self.count(nest, side);
        let size = nest.b.times(count, width);
        Head { mem, at: nest.b.mul(number, size), stride: nest.b.index(width) }
    }

    /// Loops over blocks of queries.
    fn blocks(&self, nest: &mut Nest, body: impl FnOnce(&mut Nest, Block)) {
        let [queries, all] = [QUERY, KEY].map(|side| self.count(nest, side));
        let (zero, size) = (nest.b.index(0), nest.b.index(BLOCK));
        nest.each(zero, queries, BLOCK, |nest, first| {
            let left = nest.b.sub(queries, first);
            let count = nest.b.binary(Binary::Min, left, size);
            let keys = if self.causal { nest.b.add(first, count) } else { all };
            body(nest, Block { first, count, keys });
        });
    }

    /// Rows of queries as columns, times a factor; queries beyond the last are zeros.
    fn turn(
        &self,
        nest: &mut Nest,
        (from, width): (Head, i64),
        block: Block,
        to: Mem,
        factor: Option<f64>,
    ) {
        fill(nest, to, width, 0.0);
        let zero = nest.b.index(0);
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            rows(nest, width, |nest, d| {
                let at = element(nest, from, q, d);
                let mut v = nest.b.load(from.mem, at, 1, None);
                if let Some(factor) = factor {
                    let factor = number(nest, factor);
                    v = nest.b.mul(v, factor);
                }
                let at = cell(nest, d, i);
                nest.b.store(to, at, v, None);
            });
        });
    }

    /// `to[row][i] = Σ over d of from[number][d]·turned[d][i]`
    fn products(
        &self,
        nest: &mut Nest,
        (from, number_of, width): (Head, V, i64),
        turned: Mem,
        (to, row): (Mem, V),
    ) {
        let none = number(nest, 0.0);
        columns(nest, |nest, i| {
            let at = cell(nest, row, i);
            nest.b.store(to, at, none, None);
        });
        let (zero, width) = (nest.b.index(0), nest.b.index(width));
        nest.each(zero, width, STEPS as i64, |nest, d| {
            let steps: [V; STEPS] = std::array::from_fn(|s| nest.b.offset(d, s as i64));
            let elements = steps.map(|d| {
                let at = element(nest, from, number_of, d);
                nest.b.load(from.mem, at, 1, None)
            });
            columns(nest, |nest, i| {
                let at = cell(nest, row, i);
                let mut sum = nest.b.load(to, at, 1, None);
                for (&d, &e) in steps.iter().zip(&elements) {
                    let from = cell(nest, d, i);
                    let v = nest.b.load(turned, from, 1, None);
                    sum = nest.b.mul_add(e, v, sum);
                }
                nest.b.store(to, at, sum, None);
            });
        });
    }

    /// The score of a key and query `i`, -inf where it does not see it.
    fn hidden(&self, nest: &mut Nest, score: V, key: V, block: Block, i: V) -> V {
        if !self.causal {
            return score;
        }
        let q = nest.b.add(block.first, i);
        let (seen, unseen) = (nest.b.compare(Cmp::Le, key, q), number(nest, f64::NEG_INFINITY));
        nest.b.select(seen, score, unseen)
    }
}

/// Masks the scores of a key, which are row `row` of a memory.
fn masked(nest: &mut Nest, mask: Mask, (key, block): (V, Block), (scores, row): (Mem, V)) {
    let (zero, unseen) = (nest.b.index(0), number(nest, f64::NEG_INFINITY));
    let key = nest.b.times(key, mask.step);
    let load = |nest: &mut Nest, row: V| {
        let at = element(nest, mask.head, row, key);
        nest.b.load(mask.head.mem, at, 1, None)
    };
    let shared = mask.shared.then(|| load(nest, zero));
    nest.each(zero, block.count, 1, |nest, i| {
        let q = nest.b.add(block.first, i);
        let own = shared.unwrap_or_else(|| load(nest, q));
        let at = cell(nest, row, i);
        let score = nest.b.load(scores, at, 1, None);
        let score = match mask.added {
            true => nest.b.add(score, own),
            false => nest.b.select(own, score, unseen),
        };
        nest.b.store(scores, at, score, None);
    });
}

fn number(nest: &mut Nest, x: f64) -> V {
    nest.b.number(Ty::scalar(DType::F32), x)
}

/// Number `i` of a row of scratch memory.
fn cell(nest: &mut Nest, row: V, i: V) -> V {
    let row = nest.b.times(row, BLOCK);
    nest.b.add(row, i)
}

fn element(nest: &mut Nest, head: Head, row: V, d: V) -> V {
    let at = nest.b.mul(row, head.stride);
    let at = nest.b.add(head.at, at);
    nest.b.add(at, d)
}

fn columns(nest: &mut Nest, body: impl FnOnce(&mut Nest, V)) {
    let (zero, count) = (nest.b.index(0), nest.b.index(BLOCK));
    nest.each(zero, count, 1, body);
}

fn rows(nest: &mut Nest, count: i64, body: impl FnOnce(&mut Nest, V)) {
    let (zero, count) = (nest.b.index(0), nest.b.index(count));
    nest.each(zero, count, 1, body);
}

fn fill(nest: &mut Nest, mem: Mem, rows: i64, x: f64) {
    let (zero, count, x) = (nest.b.index(0), nest.b.index(rows * BLOCK), number(nest, x));
    nest.each(zero, count, 1, |nest, at| nest.b.store(mem, at, x, None));
}

fn scale(nest: &mut Nest, mem: Mem, at: V, factor: V) {
    let v = nest.b.load(mem, at, 1, None);
    let v = nest.b.mul(v, factor);
    nest.b.store(mem, at, v, None);
}

fn add(nest: &mut Nest, mem: Mem, at: V, more: V) {
    let v = nest.b.load(mem, at, 1, None);
    let v = nest.b.add(v, more);
    nest.b.store(mem, at, v, None);
}

/// e to the power of a score less another.
fn power(nest: &mut Nest, score: V, less: V) -> V {
    let difference = nest.b.sub(score, less);
    scalar::apply(&mut nest.b, Prim::Exp, DType::F32, &[difference], None)
}

/// `to[d][i] += Σ from[key][d]·weights[row][i]` for some pairs of keys and rows.
fn spread(nest: &mut Nest, (from, width): (Head, i64), weights: Mem, pairs: &[(V, V)], to: Mem) {
    rows(nest, width, |nest, d| {
        let elements = pairs.iter().map(|&(key, _)| {
            let at = element(nest, from, key, d);
            nest.b.load(from.mem, at, 1, None)
        });
        let elements: Vec<V> = elements.collect();
        columns(nest, |nest, i| {
            let at = cell(nest, d, i);
            let mut sum = nest.b.load(to, at, 1, None);
            for (&e, &(_, row)) in elements.iter().zip(pairs) {
                let weight = cell(nest, row, i);
                let weight = nest.b.load(weights, weight, 1, None);
                sum = nest.b.mul_add(e, weight, sum);
            }
            nest.b.store(to, at, sum, None);
        });
    });
}

/// `to[key][d] += Σ over the queries of a block of weights[i]·from[q][d]`
fn gather(
    nest: &mut Nest,
    (from, width): (Head, i64),
    block: Block,
    weights: Mem,
    (to, key): (Head, V),
) {
    let zero = nest.b.index(0);
    nest.each(zero, block.count, 1, |nest, i| {
        let q = nest.b.add(block.first, i);
        let weight = nest.b.load(weights, i, 1, None);
        rows(nest, width, |nest, d| {
            let at = element(nest, from, q, d);
            let v = nest.b.load(from.mem, at, 1, None);
            let at = element(nest, to, key, d);
            let sum = nest.b.load(to.mem, at, 1, None);
            let sum = nest.b.mul_add(weight, v, sum);
            nest.b.store(to.mem, at, sum, None);
        });
    });
}
