//! Attention and its gradients in portable code: the steps of [`forward`](super::forward) and
//! [`backward`](super::backward), with a loop over the queries of a block in the place of vectors,
//! which a C compiler makes vectors of.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Operation;
use mithril_ir::op::access::Access;
use mithril_ir::scalar::Prim;

use super::tiles::Head;
use super::{KEY, QUERY, Site, VALUE};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::Lowered;
use crate::lower::index::Ix;
use crate::lower::nest::Nest;
use crate::scalar;

/// Queries, and keys, of a block.
const BLOCK: i64 = 32;
/// Elements of a head that are multiplied in one go.
const STEPS: usize = 4;
/// Less than any score; infinite ones would give NaN where they are subtracted.
const LEAST: f64 = -1e30;

const OUTPUT: usize = 3;
const LOGS: usize = 4;
const GRADIENT: usize = 5;

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

pub fn forward(mut nest: Nest, site: &Site) -> Lowered {
    let output = site.result(&nest, |op| op.op.access == Access::Attention);
    let logs = site.result(&nest, |op| op.op.access == Access::AttentionLogSumExp);
    let n = &mut nest;
    let own = Forward {
        site,
        turned: room(n, site.width, "turned"),
        scores: room(n, BLOCK + STEPS as i64, "scores"),
        out: room(n, site.value_width, "sums"),
        greatest: room(n, 1, "greatest"),
        total: room(n, 1, "total"),
        factors: room(n, 1, "factors"),
    };
    let (place, axes) = nest.open_axes(site.heads(QUERY));
    let number = match nest.flat(site.heads(QUERY), &place) {
        Ix::At(v) | Ix::Lanes(v) | Ix::Many(v) => v,
    };
    let place: Vec<V> = place.into_iter().map(|ix| nest.position(ix)).collect();
    let heads = [QUERY, KEY, VALUE].map(|side| site.head(&mut nest, side, &place));
    let output =
        output.map(|(mem, _)| site.dense(&mut nest, mem, (QUERY, site.value_width), number));
    let logs = logs.map(|(mem, _)| site.dense(&mut nest, mem, (QUERY, 1), number));
    site.blocks(&mut nest, |nest, block| {
        own.begin(nest, heads[QUERY], block);
        let (zero, size) = (nest.b.index(0), nest.b.index(BLOCK));
        nest.each(zero, block.keys, BLOCK, |nest, first| {
            let left = nest.b.sub(block.keys, first);
            let count = nest.b.binary(Binary::Min, left, size);
            own.keys(nest, &heads, block, (first, count));
        });
        own.finish(nest, output, logs, block);
    });
    nest.close_axes(axes);
    lowered(nest)
}

struct Forward<'s> {
    site: &'s Site,
    /// Qᵀ times scale, scores and then P, Oᵀ, the greatest scores, the sums of P, what O shrinks by.
    turned: Mem,
    scores: Mem,
    out: Mem,
    greatest: Mem,
    total: Mem,
    factors: Mem,
}

impl Forward<'_> {
    fn begin(&self, nest: &mut Nest, query: Head, block: Block) {
        let site = self.site;
        site.turn(nest, (query, site.width), block, self.turned, Some(site.scale));
        fill(nest, self.out, site.value_width, 0.0);
        fill(nest, self.greatest, 1, LEAST);
        fill(nest, self.total, 1, 0.0);
    }

    /// A block of keys: scores, their greatest, P, and what the values add.
    fn keys(&self, nest: &mut Nest, heads: &[Head; 3], block: Block, (first, count): (V, V)) {
        let site = self.site;
        let zero = nest.b.index(0);
        columns(nest, |nest, i| {
            let v = nest.b.load(self.greatest, i, 1, None);
            nest.b.store(self.factors, i, v, None);
        });
        nest.each(zero, count, 1, |nest, k| {
            let key = nest.b.add(first, k);
            site.products(nest, (heads[KEY], key, site.width), self.turned, (self.scores, k));
            columns(nest, |nest, i| {
                let at = cell(nest, k, i);
                let score = nest.b.load(self.scores, at, 1, None);
                let score = site.hidden(nest, score, key, block, i);
                nest.b.store(self.scores, at, score, None);
                let so_far = nest.b.load(self.greatest, i, 1, None);
                let most = nest.b.binary(Binary::Max, score, so_far);
                nest.b.store(self.greatest, i, most, None);
            });
        });
        columns(nest, |nest, i| {
            let before = nest.b.load(self.factors, i, 1, None);
            let now = nest.b.load(self.greatest, i, 1, None);
            let factor = power(nest, before, now);
            nest.b.store(self.factors, i, factor, None);
            scale(nest, self.total, i, factor);
        });
        rows(nest, site.value_width, |nest, d| {
            columns(nest, |nest, i| {
                let factor = nest.b.load(self.factors, i, 1, None);
                let at = cell(nest, d, i);
                scale(nest, self.out, at, factor);
            });
        });
        nest.each(zero, count, 1, |nest, k| {
            columns(nest, |nest, i| {
                let at = cell(nest, k, i);
                let score = nest.b.load(self.scores, at, 1, None);
                let most = nest.b.load(self.greatest, i, 1, None);
                let p = power(nest, score, most);
                nest.b.store(self.scores, at, p, None);
                add(nest, self.total, i, p);
            });
        });
        // Weights of keys that are not there.
        let end = nest.b.offset(count, STEPS as i64 - 1);
        let none = number(nest, 0.0);
        nest.each(count, end, 1, |nest, k| {
            columns(nest, |nest, i| {
                let at = cell(nest, k, i);
                nest.b.store(self.scores, at, none, None);
            });
        });
        let last = nest.b.offset(block.keys, -1);
        nest.each(zero, count, STEPS as i64, |nest, k| {
            let numbers: [(V, V); STEPS] = std::array::from_fn(|s| {
                let k = nest.b.offset(k, s as i64);
                let key = nest.b.add(first, k);
                (nest.b.binary(Binary::Min, key, last), k)
            });
            spread(nest, (heads[VALUE], site.value_width), self.scores, &numbers, self.out);
        });
    }

    fn finish(&self, nest: &mut Nest, output: Option<Head>, logs: Option<Head>, block: Block) {
        let zero = nest.b.index(0);
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            let total = nest.b.load(self.total, i, 1, None);
            if let Some(output) = output {
                let (one, none) = (number(nest, 1.0), number(nest, 0.0));
                let empty = nest.b.compare(Cmp::Eq, total, none);
                let inverse = nest.b.div(one, total);
                let inverse = nest.b.select(empty, none, inverse);
                rows(nest, self.site.value_width, |nest, d| {
                    let at = cell(nest, d, i);
                    let v = nest.b.load(self.out, at, 1, None);
                    let v = nest.b.mul(v, inverse);
                    let to = element(nest, output, q, d);
                    nest.b.store(output.mem, to, v, None);
                });
            }
            if let Some(logs) = logs {
                let log = scalar::apply(&mut nest.b, Prim::Log, DType::F32, &[total], None);
                let most = nest.b.load(self.greatest, i, 1, None);
                let log = nest.b.add(most, log);
                let to = nest.b.add(logs.at, q);
                nest.b.store(logs.mem, to, log, None);
            }
        });
    }
}

pub fn backward(mut nest: Nest, site: &Site) -> Lowered {
    let results = [QUERY, KEY, VALUE].map(|of| {
        let is = |op: &Operation| *op.attr("of") == Attr::Int(of as i64);
        site.result(&nest, is).map(|(mem, _)| mem)
    });
    let n = &mut nest;
    let own = Backward {
        site,
        turned: room(n, site.width, "turned"),
        turned_gradient: room(n, site.value_width, "turned_gradient"),
        out: room(n, site.width, "sums"),
        powers: room(n, 1, "powers"),
        inner: room(n, 1, "inner"),
        logs: room(n, 1, "logs"),
        common: room(n, 1, "common"),
    };
    let (place, axes) = nest.open_axes(site.heads(KEY));
    let head = match nest.flat(site.heads(KEY), &place) {
        Ix::At(v) | Ix::Lanes(v) | Ix::Many(v) => v,
    };
    let of_key = results[KEY].map(|mem| site.dense(&mut nest, mem, (KEY, site.width), head));
    let of_value =
        results[VALUE].map(|mem| site.dense(&mut nest, mem, (KEY, site.value_width), head));
    let keys = site.count(&mut nest, KEY);
    for (of, width) in [(of_key, site.width), (of_value, site.value_width)] {
        let Some(of) = of else { continue };
        let (zero, none) = (nest.b.index(0), number(&mut nest, 0.0));
        nest.each(zero, keys, 1, |nest, key| {
            rows(nest, width, |nest, d| {
                let at = element(nest, of, key, d);
                nest.b.store(of.mem, at, none, None);
            });
        });
    }
    let (zero, times) = (nest.b.index(0), nest.b.index(site.times()));
    let one_each = site.times() == 1;
    nest.each(zero, times, 1, |nest, group| {
        let first = nest.b.mul(head, times);
        let number = if one_each { head } else { nest.b.add(first, group) };
        let place = match one_each {
            true => place.clone(),
            false => nest.unflat(site.heads(QUERY), Ix::At(number)),
        };
        let place: Vec<V> = place.into_iter().map(|ix| nest.position(ix)).collect();
        let sides = [QUERY, KEY, VALUE, OUTPUT, LOGS, GRADIENT];
        let sides = sides.map(|side| site.head(nest, side, &place));
        let of_query = results[QUERY].map(|mem| site.dense(nest, mem, (QUERY, site.width), number));
        let heads = Heads { sides, of_query, of_key, of_value };
        site.blocks(nest, |nest, block| own.block(nest, &heads, block));
    });
    nest.close_axes(axes);
    lowered(nest)
}

/// What is read, and the gradients that somebody asks for.
struct Heads {
    sides: [Head; 6],
    of_query: Option<Head>,
    of_key: Option<Head>,
    of_value: Option<Head>,
}

struct Backward<'s> {
    site: &'s Site,
    /// Qᵀ times scale, dOᵀ and dQᵀ; of one key P and dS; log Σ and D.
    turned: Mem,
    turned_gradient: Mem,
    out: Mem,
    powers: Mem,
    inner: Mem,
    logs: Mem,
    common: Mem,
}

impl Backward<'_> {
    /// A block of queries against all keys, one after the other.
    fn block(&self, nest: &mut Nest, heads: &Heads, block: Block) {
        let site = self.site;
        let (query, gradient) = (heads.sides[QUERY], heads.sides[GRADIENT]);
        site.turn(nest, (query, site.width), block, self.turned, Some(site.scale));
        let wide = (gradient, site.value_width);
        site.turn(nest, wide, block, self.turned_gradient, None);
        self.queries(nest, heads, block);
        fill(nest, self.out, site.width, 0.0);
        let zero = nest.b.index(0);
        nest.each(zero, block.keys, 1, |nest, key| {
            self.key(nest, heads, block, key);
            if let Some(to) = heads.of_value {
                gather(nest, (gradient, site.value_width), block, self.powers, (to, key));
            }
            if let Some(to) = heads.of_key {
                gather(nest, (query, site.width), block, self.inner, (to, key));
            }
            if heads.of_query.is_some() {
                let from = (heads.sides[KEY], site.width);
                spread(nest, from, self.inner, &[(key, zero)], self.out);
            }
        });
        let Some(of_query) = heads.of_query else { return };
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            rows(nest, site.width, |nest, d| {
                let at = cell(nest, d, i);
                let v = nest.b.load(self.out, at, 1, None);
                let to = element(nest, of_query, q, d);
                nest.b.store(of_query.mem, to, v, None);
            });
        });
    }

    /// log Σ and D. Queries beyond the last have an infinite one: their P is 0.
    fn queries(&self, nest: &mut Nest, heads: &Heads, block: Block) {
        fill(nest, self.logs, 1, f64::INFINITY);
        fill(nest, self.common, 1, 0.0);
        let [output, logs, gradient] = [OUTPUT, LOGS, GRADIENT].map(|side| heads.sides[side]);
        let (zero, none) = (nest.b.index(0), number(nest, 0.0));
        let width = nest.b.index(self.site.value_width);
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            let at = nest.b.add(logs.at, q);
            let log = nest.b.load(logs.mem, at, 1, None);
            nest.b.store(self.logs, i, log, None);
            let sum = nest.repeat(zero, width, 1, &[none], |nest, d, sum| {
                let [o, g] = [output, gradient].map(|head| {
                    let at = element(nest, head, q, d);
                    nest.b.load(head.mem, at, 1, None)
                });
                vec![nest.b.mul_add(o, g, sum[0])]
            });
            nest.b.store(self.common, i, sum[0], None);
        });
    }

    /// P and dS of a key.
    fn key(&self, nest: &mut Nest, heads: &Heads, block: Block, key: V) {
        let site = self.site;
        let zero = nest.b.index(0);
        let row = (heads.sides[KEY], key, site.width);
        site.products(nest, row, self.turned, (self.powers, zero));
        let row = (heads.sides[VALUE], key, site.value_width);
        site.products(nest, row, self.turned_gradient, (self.inner, zero));
        let factor = number(nest, site.scale);
        columns(nest, |nest, i| {
            let score = nest.b.load(self.powers, i, 1, None);
            let score = site.hidden(nest, score, key, block, i);
            let log = nest.b.load(self.logs, i, 1, None);
            let p = power(nest, score, log);
            nest.b.store(self.powers, i, p, None);
            let product = nest.b.load(self.inner, i, 1, None);
            let common = nest.b.load(self.common, i, 1, None);
            let less = nest.b.sub(product, common);
            let p = nest.b.mul(p, factor);
            let inner = nest.b.mul(less, p);
            nest.b.store(self.inner, i, inner, None);
        });
    }
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
