//! Attention and its gradients in portable code. The steps are those of [`forward`](super::forward)
//! and [`backward`](super::backward), with loops over the queries of a block instead of vectors. A
//! C compiler vectorizes these loops.

mod backward;
mod forward;

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use super::tiles::Head;
use super::{KEY, Mask, QUERY, Site, Window};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;
use crate::scalar;
pub use backward::backward;
pub use forward::forward;

/// The number of queries in a block, and of keys in a block.
const BLOCK: i64 = 32;
/// The unroll factor of both rows and terms of sums. Unrolling both uses each loaded number several
/// times.
const STEPS: usize = 4;

/// Allocates rows with one number per query of a block.
fn allocate(nest: &mut Nest, rows: i64, what: &'static str) -> Mem {
    let mem = nest.b.local(DType::F32, rows * BLOCK);
    nest.b.name(mem, what);
    mem
}

/// A block of queries: the first query, the number of queries, and the range of keys that they see.
#[derive(Clone, Copy)]
struct Block {
    first: V,
    count: V,
    keys: [V; 2],
}

/// A block of keys: the first key, the number of keys, and the last key that the queries see.
#[derive(Clone, Copy)]
struct Keys {
    first: V,
    count: V,
    last: V,
}

impl Keys {
    /// The next keys of the block from `from` on. Keys past the end are clamped to the last key.
    fn numbers(self, nest: &mut Nest, from: V) -> [V; STEPS] {
        next(nest, from).map(|k| {
            let key = nest.b.add(self.first, k);
            match nest.b.constant(self.count) {
                Some(_) => key,
                None => nest.b.binary(Binary::Min, key, self.last),
            }
        })
    }
}

fn finished(nest: Nest) -> Lowered {
    let (tasks, scratch) = (Dim::Const(1), Dim::Const(0));
    Lowered { code: nest.b.finish(), tasks, grain: 1, scratch, partials: vec![] }
}

impl Site {
    fn count(&self, nest: &mut Nest, side: usize) -> V {
        let dims = &self.dims[side];
        nest.dim(&dims[dims.len() - 2])
    }

    /// Returns one head of a result, or of an array with the same shape.
    fn dense(&self, nest: &mut Nest, mem: Mem, (side, width): (usize, i64), number: V) -> Head {
        let count = self.count(nest, side);
        let size = nest.b.times(count, width);
        Head { mem, at: nest.b.mul(number, size), stride: nest.b.index(width) }
    }

    /// Whether the number of queries (or keys) is a multiple of the block size.
    fn has_whole_blocks(&self, side: usize) -> bool {
        let dims = &self.dims[side];
        dims[dims.len() - 2].as_const().is_some_and(|count| count % BLOCK == 0)
    }

    /// The size of the next block if `left` queries (or keys) are left.
    fn size(&self, nest: &mut Nest, side: usize, left: V) -> V {
        let size = nest.b.index(BLOCK);
        if self.has_whole_blocks(side) { size } else { nest.b.binary(Binary::Min, left, size) }
    }

    /// Loops over blocks of queries.
    fn blocks(&self, nest: &mut Nest, body: impl FnOnce(&mut Nest, Block)) {
        let [queries, all] = [QUERY, KEY].map(|side| self.count(nest, side));
        let zero = nest.b.index(0);
        nest.each(zero, queries, BLOCK, |nest, first| {
            let left = nest.b.sub(queries, first);
            let count = self.size(nest, QUERY, left);
            let keys = match self.window {
                Window::All => [zero, all],
                Window::Causal => [zero, nest.b.add(first, count)],
                Window::Band { left, right } => {
                    let from = left.map_or(zero, |left| {
                        let from = nest.b.offset(first, -left);
                        nest.b.binary(Binary::Max, from, zero)
                    });
                    let to = right.map_or(all, |right| {
                        let end = nest.b.add(first, count);
                        let end = nest.b.offset(end, right);
                        nest.b.binary(Binary::Min, end, all)
                    });
                    [from, to]
                }
            };
            body(nest, Block { first, count, keys });
        });
    }

    /// Loops over the blocks of keys that a block of queries sees.
    fn keys(&self, nest: &mut Nest, block: Block, body: impl FnOnce(&mut Nest, Keys)) {
        let [from, to] = block.keys;
        let last = nest.b.offset(to, -1);
        nest.each(from, to, BLOCK, |nest, first| {
            let left = nest.b.sub(to, first);
            let count = match self.window {
                Window::Band { .. } => {
                    let size = nest.b.index(BLOCK);
                    nest.b.binary(Binary::Min, left, size)
                }
                _ => self.size(nest, KEY, left),
            };
            body(nest, Keys { first, count, last });
        });
    }

    /// Transposes rows of queries to columns, and multiplies them by a factor. Queries past the end
    /// are zeros.
    fn transpose(
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
            each_row(nest, width, |nest, d| {
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

    /// `to[k][i] = Σ over d of from[k][d]·transposed[d][i]` for the keys of a block, rounded up to
    /// a multiple of [`STEPS`].
    fn products(
        &self,
        nest: &mut Nest,
        (from, width): (Head, i64),
        keys: Keys,
        transposed: Mem,
        to: Mem,
    ) {
        let (zero, width, none) = (nest.b.index(0), nest.b.index(width), number(nest, 0.0));
        nest.each(zero, keys.count, STEPS as i64, |nest, k| {
            let numbers = keys.numbers(nest, k);
            each_row(nest, STEPS as i64 * BLOCK, |nest, i| {
                let at = cell(nest, k, i);
                nest.b.store(to, at, none, None);
            });
            nest.each(zero, width, STEPS as i64, |nest, d| {
                let steps = next(nest, d);
                let weights = elements(nest, from, &numbers, &steps, false);
                let terms = steps.map(|d| cell(nest, d, zero));
                let sums = next(nest, k).map(|k| cell(nest, k, zero));
                multiply_tile(nest, BLOCK, &weights, (transposed, &terms), (to, &sums));
            });
        });
    }

    /// Allocates memory for the transposed mask of a block, if each query has its own row.
    fn allocate_mask(&self, nest: &mut Nest) -> Option<Mem> {
        self.mask?;
        self.mask_rows().map(|_| allocate(nest, BLOCK, "mask"))
    }

    /// Masks the scores of a block. If each query has its own mask row, first transposes the mask
    /// and converts it to f32.
    fn apply_mask(
        &self,
        nest: &mut Nest,
        (mask, transposed): (Mask, Option<Mem>),
        (block, keys): (Block, Keys),
        scores: Mem,
    ) {
        let (zero, none) = (nest.b.index(0), number(nest, 0.0));
        let (one, minus_infinity) = (number(nest, 1.0), number(nest, f64::NEG_INFINITY));
        let load = |nest: &mut Nest, row: V, k: V| {
            let key = nest.b.add(keys.first, k);
            let key = nest.b.times(key, mask.step);
            let at = element(nest, mask.head, row, key);
            let own = nest.b.load(mask.head.mem, at, 1, None);
            if mask.is_additive { own } else { nest.b.select(own, one, none) }
        };
        if let Some(transposed) = transposed {
            nest.each(zero, block.count, 1, |nest, i| {
                let q = nest.b.add(block.first, i);
                nest.each(zero, keys.count, 1, |nest, k| {
                    let own = load(nest, q, k);
                    let at = cell(nest, k, i);
                    nest.b.store(transposed, at, own, None);
                });
            });
        }
        nest.each(zero, keys.count, 1, |nest, k| {
            let shared = transposed.is_none().then(|| load(nest, zero, k));
            nest.each(zero, block.count, 1, |nest, i| {
                let at = cell(nest, k, i);
                let own =
                    transposed.map(|transposed| nest.b.load(transposed, at, 1, None)).or(shared);
                let score = nest.b.load(scores, at, 1, None);
                let Some(own) = own else { return };
                let score = match mask.is_additive {
                    true => nest.b.add(score, own),
                    false => {
                        let hidden = nest.b.compare(Cmp::Eq, own, none);
                        nest.b.select(hidden, minus_infinity, score)
                    }
                };
                nest.b.store(scores, at, score, None);
            });
        });
    }

    /// Returns the score of a key and query `i`, or -inf if the query does not see the key.
    fn mask_score(&self, nest: &mut Nest, score: V, key: V, block: Block, i: V) -> V {
        let (left, right) = match self.window {
            Window::All => return score,
            Window::Causal => (None, Some(0)),
            Window::Band { left, right } => (left, right),
        };
        let q = nest.b.add(block.first, i);
        let minus_infinity = number(nest, f64::NEG_INFINITY);
        let mut score = score;
        for (compare, distance) in [(Cmp::Le, right), (Cmp::Ge, left.map(|left| -left))] {
            let Some(distance) = distance else { continue };
            let bound = nest.b.offset(q, distance);
            let seen = nest.b.compare(compare, key, bound);
            score = nest.b.select(seen, score, minus_infinity);
        }
        score
    }

    /// Bounds the scores of a block to ±`softcap`, if it is given. Stores the derivatives of the
    /// bounded scores in `slopes`.
    fn cap(&self, nest: &mut Nest, keys: Keys, scores: Mem, slopes: Option<Mem>) {
        let Some(cap) = self.softcap else { return };
        let (zero, one) = (nest.b.index(0), number(nest, 1.0));
        let (unit, inverse) = (number(nest, cap), number(nest, 1.0 / cap));
        nest.each(zero, keys.count, 1, |nest, k| {
            each_query(nest, |nest, i| {
                let at = cell(nest, k, i);
                let score = nest.b.load(scores, at, 1, None);
                let part = nest.b.mul(score, inverse);
                let bounded = scalar::apply(&mut nest.b, Prim::Tanh, DType::F32, &[part], None);
                let score = nest.b.mul(bounded, unit);
                nest.b.store(scores, at, score, None);
                if let Some(slopes) = slopes {
                    let square = nest.b.mul(bounded, bounded);
                    let slope = nest.b.sub(one, square);
                    nest.b.store(slopes, at, slope, None);
                }
            });
        });
    }
}

fn number(nest: &mut Nest, x: f64) -> V {
    nest.b.number(Ty::scalar(DType::F32), x)
}

/// The address of number `i` of a row of scratch memory.
fn cell(nest: &mut Nest, row: V, i: V) -> V {
    let row = nest.b.times(row, BLOCK);
    nest.b.add(row, i)
}

fn element(nest: &mut Nest, head: Head, row: V, d: V) -> V {
    let at = nest.b.mul(row, head.stride);
    let at = nest.b.add(head.at, at);
    nest.b.add(at, d)
}

fn each_query(nest: &mut Nest, body: impl FnOnce(&mut Nest, V)) {
    let (zero, count) = (nest.b.index(0), nest.b.index(BLOCK));
    nest.each(zero, count, 1, body);
}

fn each_row(nest: &mut Nest, count: i64, body: impl FnOnce(&mut Nest, V)) {
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

/// `exp(score - less)`.
fn exp_difference(nest: &mut Nest, score: V, less: V) -> V {
    let difference = nest.b.sub(score, less);
    scalar::apply(&mut nest.b, Prim::Exp, DType::F32, &[difference], None)
}

/// [`STEPS`] consecutive indices.
fn next(nest: &mut Nest, first: V) -> [V; STEPS] {
    std::array::from_fn(|s| nest.b.offset(first, s as i64))
}

/// `to[r][x] += Σ over s of weights[r][s]·from[s][x]`. `terms` and `sums` are the offsets of the
/// rows.
fn multiply_tile(
    nest: &mut Nest,
    length: i64,
    weights: &[Vec<V>],
    (from, terms): (Mem, &[V]),
    (to, sums): (Mem, &[V]),
) {
    each_row(nest, length, |nest, x| {
        let load = |nest: &mut Nest, &begin: &V| {
            let at = nest.b.add(begin, x);
            nest.b.load(from, at, 1, None)
        };
        let terms: Vec<V> = terms.iter().map(|begin| load(nest, begin)).collect();
        for (&begin, weights) in sums.iter().zip(weights) {
            let at = nest.b.add(begin, x);
            let mut sum = nest.b.load(to, at, 1, None);
            for (&weight, &term) in weights.iter().zip(&terms) {
                sum = nest.b.mul_add(weight, term, sum);
            }
            nest.b.store(to, at, sum, None);
        }
    });
}

/// Loads the elements `columns` of some rows of a head, grouped by element index or by row.
fn elements(
    nest: &mut Nest,
    head: Head,
    rows: &[V],
    columns: &[V],
    by_element: bool,
) -> Vec<Vec<V>> {
    let mut load = |row: V, d: V| {
        let at = element(nest, head, row, d);
        nest.b.load(head.mem, at, 1, None)
    };
    match by_element {
        true => columns.iter().map(|&d| rows.iter().map(|&row| load(row, d)).collect()).collect(),
        false => rows.iter().map(|&row| columns.iter().map(|&d| load(row, d)).collect()).collect(),
    }
}

/// Loops over the indices below a count, [`STEPS`] at a time, then one by one.
fn each_unrolled(nest: &mut Nest, count: V, body: &dyn Fn(&mut Nest, &[V])) {
    let (zero, step) = (nest.b.index(0), nest.b.index(STEPS as i64));
    let known = nest.b.constant(count).is_some_and(|count| count % STEPS as i64 == 0);
    let end = if known {
        count
    } else {
        let rest = nest.b.binary(Binary::Rem, count, step);
        nest.b.sub(count, rest)
    };
    nest.each(zero, end, STEPS as i64, |nest, i| {
        let numbers = next(nest, i);
        body(nest, &numbers);
    });
    if !known {
        nest.each(end, count, 1, |nest, i| body(nest, &[i]));
    }
}

/// `to[d][i] += Σ over the keys of a block of from[k][d]·weights[k][i]`
fn add_weighted_keys(
    nest: &mut Nest,
    (from, width): (Head, i64),
    keys: Keys,
    weights: Mem,
    to: Mem,
) {
    let (zero, width, none) = (nest.b.index(0), nest.b.index(width), number(nest, 0.0));
    // Sets the weights of keys past the end to 0.
    let end = nest.b.offset(keys.count, STEPS as i64 - 1);
    nest.each(keys.count, end, 1, |nest, k| {
        each_query(nest, |nest, i| {
            let at = cell(nest, k, i);
            nest.b.store(weights, at, none, None);
        });
    });
    nest.each(zero, keys.count, STEPS as i64, |nest, k| {
        let numbers = keys.numbers(nest, k);
        let terms = next(nest, k).map(|k| cell(nest, k, zero));
        nest.each(zero, width, STEPS as i64, |nest, d| {
            let columns = next(nest, d);
            let values = elements(nest, from, &numbers, &columns, true);
            let sums = columns.map(|d| cell(nest, d, zero));
            multiply_tile(nest, BLOCK, &values, (weights, &terms), (to, &sums));
        });
    });
}

/// `to[k][d] += Σ over the queries of a block of weights[k][i]·from[q][d]`
fn add_weighted_queries(
    nest: &mut Nest,
    (from, width): (Head, i64),
    (block, keys): (Block, Keys),
    weights: Mem,
    to: Head,
) {
    let zero = nest.b.index(0);
    each_unrolled(nest, keys.count, &|nest, own| {
        each_unrolled(nest, block.count, &|nest, queries| {
            let load = |nest: &mut Nest, k: V, i: V| {
                let at = cell(nest, k, i);
                nest.b.load(weights, at, 1, None)
            };
            let weights: Vec<Vec<V>> =
                own.iter().map(|&k| queries.iter().map(|&i| load(nest, k, i)).collect()).collect();
            let begin = |nest: &mut Nest, head: Head, first: V, number: V| {
                let row = nest.b.add(first, number);
                element(nest, head, row, zero)
            };
            let terms: Vec<V> =
                queries.iter().map(|&i| begin(nest, from, block.first, i)).collect();
            let sums: Vec<V> = own.iter().map(|&k| begin(nest, to, keys.first, k)).collect();
            multiply_tile(nest, width, &weights, (from.mem, &terms), (to.mem, &sums));
        });
    });
}
