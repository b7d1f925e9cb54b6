//! The gradients of attention, after Dao et al. 2022 (FlashAttention), appendix B.4. For each block
//! of queries and block of keys:
//!
//! - P = 2^(scores - log Σ), where the scores are K·Qᵀ, masked
//! - dV += P·dO
//! - dS = P∘(V·dOᵀ - D), where D = Σ dO∘O over the elements of a query's result (`delta`)
//! - dK += dS·Q
//! - dQᵀ += Kᵀ·dS

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::Operation;

use super::masks::{self, BlockMask};
use super::tiles::{Head, ROWS, STEPS, Strip, Tiles, VisibleKeys};
use super::{GRADIENT, KEY, LOGS, OUTPUT, QUERY, ROW_MAX, Site, VALUE, place};
use crate::code::{Binary, Cmp, Mem, V};
use crate::contract::lanes;
use crate::isa::Isa;
use crate::loops::Loops;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;
use crate::lower::reduce::product;
use crate::scalar::exp2_nonpositive;

struct Backward<'s> {
    site: &'s Site,
    /// Qᵀ times scale.
    transposed: Mem,
    /// dOᵀ.
    transposed_gradient: Mem,
    /// P.
    powers: Mem,
    /// dS.
    score_gradient: Mem,
    /// The derivatives of bounded scores, with a softcap.
    slopes: Option<Mem>,
    /// dQᵀ.
    out: Mem,
    /// log₂ Σ of each query. With a mask it does not include the row maximum.
    logs: Mem,
    /// D of each query.
    delta: Mem,
    /// The row maximum of each query, if there is a mask.
    row_max: Option<Mem>,
}

/// The operands and results for one head of queries. A gradient is `None` if it is not needed.
struct Heads {
    query: Head,
    key: Head,
    value: Head,
    output: Head,
    logs: Head,
    gradient: Head,
    mask: Option<BlockMask>,
    row_max: Option<Head>,
    query_gradient: Option<Head>,
    key_gradient: Option<Head>,
    value_gradient: Option<Head>,
}

impl Heads {
    fn read(t: &mut Tiles, site: &Site, place: &[V], mask_memory: Option<Mem>) -> Heads {
        let mut side = |side: usize| site.head(&mut t.nest, side, place);
        let [query, key, value] = [QUERY, KEY, VALUE].map(&mut side);
        let [output, logs, gradient] = [OUTPUT, LOGS, GRADIENT].map(&mut side);
        let row_max = site.mask.map(|_| side(ROW_MAX));
        let mask = site.mask(&mut t.nest, place).map(|mask| BlockMask::new(mask, mask_memory));
        let [query_gradient, key_gradient, value_gradient] = [None; 3];
        Heads {
            query,
            key,
            value,
            output,
            logs,
            gradient,
            mask,
            row_max,
            query_gradient,
            key_gradient,
            value_gradient,
        }
    }
}

/// Lowers the gradients. Each head of keys is a task.
pub fn lower(nest: Nest, site: &Site, isa: &Isa) -> Lowered {
    let gradient = |of: usize| {
        let is = |op: &Operation| *op.attr("of") == Attr::Int(of as i64);
        site.result(&nest, is).map(|(mem, _)| mem)
    };
    let results = [QUERY, KEY, VALUE].map(gradient);
    let mut tiles = Tiles::new(nest, site, isa);
    let t = &mut tiles;
    let block = t.block();
    let [transposed, transposed_gradient] =
        [site.width, site.value_width].map(|rows| t.allocate(rows));
    let [powers, score_gradient, out] = [block, block, site.width].map(|rows| t.allocate(rows));
    let [logs, delta] = [1; 2].map(|rows| t.allocate(rows));
    let row_max = site.mask.map(|_| t.allocate(1));
    let slopes = site.softcap.map(|_| t.allocate(block));
    let mask_memory = masks::allocate(t, site);
    let own = Backward {
        site,
        transposed,
        transposed_gradient,
        powers,
        score_gradient,
        slopes,
        out,
        logs,
        delta,
        row_max,
    };
    t.tasks(|t, task| {
        let result = |t: &mut Tiles, (of, width): (usize, i64), number: V| {
            let mem = results[of]?;
            let rows = if of == QUERY { t.queries } else { t.keys };
            let size = t.nest.b.times(rows, width);
            Some(Head { mem, at: t.nest.b.mul(number, size), stride: t.nest.b.index(width) })
        };
        let key_gradient = result(t, (KEY, site.width), task);
        let value_gradient = result(t, (VALUE, site.value_width), task);
        for (head, width) in [(key_gradient, site.width), (value_gradient, site.value_width)] {
            head.into_iter().for_each(|head| store_zeros(t, head, width));
        }
        let (zero, times) = (t.nest.b.index(0), t.nest.b.index(site.group_size()));
        t.each(zero, times, 1, |t, group| {
            let first = t.nest.b.mul(task, times);
            let number = t.nest.b.add(first, group);
            let place = place(&mut t.nest, site.heads(QUERY), number);
            let query_gradient = result(t, (QUERY, site.width), number);
            let read = Heads::read(t, site, &place, mask_memory);
            let heads = Heads { query_gradient, key_gradient, value_gradient, ..read };
            let queries = t.queries;
            t.each(zero, queries, block, |t, q0| own.block(t, &heads, q0));
        });
    });
    let tasks = product(site.heads(KEY));
    let scratch = Dim::from(tiles.scratch + 64);
    Lowered { code: tiles.nest.b.finish(), tasks, grain: 1, scratch, partials: vec![] }
}

/// Stores zeros for all keys or values of a head.
fn store_zeros(t: &mut Tiles, head: Head, width: i64) {
    let (zero, keys, none) = (t.nest.b.index(0), t.keys, t.number(0.0));
    t.each(zero, keys, 1, |t, key| {
        for d in (0..width).step_by(t.lanes as usize) {
            let d = t.nest.b.index(d);
            let at = t.element(head, key, d);
            t.nest.b.store(head.mem, at, none, None);
        }
    });
}

impl Backward<'_> {
    /// Processes one block of queries with all keys.
    fn block(&self, t: &mut Tiles, heads: &Heads, q0: V) {
        let (width, value_width) = (self.site.width, self.site.value_width);
        let factor = t.number(self.site.scale * t.score_factor());
        t.transpose(heads.query, q0, width, self.transposed, Some(factor));
        t.transpose(heads.gradient, q0, value_width, self.transposed_gradient, None);
        self.load_queries(t, heads, q0);
        let (zero, none, rows) = (t.nest.b.index(0), t.number(0.0), t.nest.b.index(width));
        t.each(zero, rows, 1, |t, d| {
            t.columns(0).into_iter().for_each(|col| t.store(self.out, d, col, none));
        });
        t.key_blocks(q0, self.site.window, |t, k0, seen| {
            if let Some(mask) = heads.mask {
                mask.transpose(t, (q0, k0), seen);
            }
            self.keys(t, heads, (q0, k0), seen);
        });
        if let Some(query_gradient) = heads.query_gradient {
            t.transpose_back(self.out, width, query_gradient, q0, None);
        }
    }

    /// Loads log₂ Σ and the row maximum, and computes D. Queries past the end and queries that see
    /// no key get an infinite log₂ Σ, so that their P is zero.
    fn load_queries(&self, t: &mut Tiles, heads: &Heads, q0: V) {
        let (zero, last) = (t.nest.b.index(0), t.nest.b.offset(t.queries, -1));
        let (none, unit) = (t.number(0.0), t.number(std::f64::consts::LOG2_E));
        let [infinite, minus_infinity] = [f64::INFINITY, f64::NEG_INFINITY].map(|x| t.number(x));
        let lanes = i64::from(t.lanes);
        let width = t.nest.b.index(self.site.value_width);
        t.each_column(|t, col| {
            let q = t.nest.b.add(q0, col);
            let left = t.nest.b.sub(t.queries, q);
            let mask = lanes::below(&mut t.nest.b, left, t.lanes);
            let load_per_query = |t: &mut Tiles, head: Head| {
                let at = t.nest.b.add(head.at, q);
                t.nest.b.load(head.mem, at, t.lanes, mask)
            };
            let logs = load_per_query(t, heads.logs);
            let logs = t.nest.b.mul(logs, unit);
            let empty = t.nest.b.compare(Cmp::Eq, logs, minus_infinity);
            let logs = t.nest.b.select(empty, infinite, logs);
            let logs = mask.map_or(logs, |mask| t.nest.b.select(mask, logs, infinite));
            t.nest.b.store(self.logs, col, logs, None);
            if let Some((to, head)) = self.row_max.zip(heads.row_max) {
                let row_max = load_per_query(t, head);
                t.nest.b.store(to, col, row_max, None);
            }
            let rows: Vec<V> = (0..lanes)
                .map(|i| {
                    let q = t.nest.b.offset(q, i);
                    t.nest.b.binary(Binary::Min, q, last)
                })
                .collect();
            let start = vec![none; rows.len()];
            let sums = t.repeat(zero, width, lanes, &start, |t, d, sums| {
                let mut load = |head: Head, row: V| {
                    let at = t.element(head, row, d);
                    t.nest.b.load(head.mem, at, t.lanes, None)
                };
                let pairs: Vec<[V; 2]> = rows
                    .iter()
                    .map(|&row| [load(heads.gradient, row), load(heads.output, row)])
                    .collect();
                pairs.iter().zip(sums).map(|(&[g, o], &sum)| t.nest.b.fma(g, o, sum)).collect()
            });
            let delta = lanes::sums(&mut t.nest.b, &sums);
            t.nest.b.store(self.delta, col, delta, None);
        });
    }

    fn keys(&self, t: &mut Tiles, heads: &Heads, (q0, k0): (V, V), seen: VisibleKeys) {
        for strip in t.strips(seen) {
            self.scores(t, heads, (q0, k0), strip, seen);
            if let Some(value_gradient) = heads.value_gradient {
                self.add_weighted_queries(
                    t,
                    (value_gradient, self.site.value_width),
                    heads.gradient,
                    self.powers,
                    (q0, k0),
                    strip,
                );
            }
            if let Some(key_gradient) = heads.key_gradient {
                self.add_weighted_queries(
                    t,
                    (key_gradient, self.site.width),
                    heads.query,
                    self.score_gradient,
                    (q0, k0),
                    strip,
                );
            }
            if heads.query_gradient.is_some() {
                let out = (self.out, self.site.width);
                t.add_weighted_keys((heads.key, k0), strip, self.score_gradient, out, None);
            }
        }
    }

    /// Computes P and dS for a strip of keys.
    fn scores(
        &self,
        t: &mut Tiles,
        heads: &Heads,
        (q0, k0): (V, V),
        strip: Strip,
        seen: VisibleKeys,
    ) {
        let cols = t.columns(strip.vector);
        let [from, to] = [strip.from, strip.to].map(|i| t.nest.b.index(i));
        let needs_score_gradient = heads.query_gradient.or(heads.key_gradient).is_some();
        t.each(from, to, ROWS, |t, key| {
            let first = t.nest.b.add(k0, key);
            let numbers: Vec<V> = (0..ROWS).map(|i| t.nest.b.offset(first, i)).collect();
            let store = |t: &mut Tiles, mem: Mem, at: usize, value: V| {
                let row = t.nest.b.offset(key, (at / cols.len()) as i64);
                t.store(mem, row, cols[at % cols.len()], value);
            };
            let transposed = (self.transposed, self.site.width);
            let mut scores = t.products(heads.key, &numbers, transposed, &cols, seen);
            let slopes = t.cap(self.site.softcap, &mut scores, needs_score_gradient);
            if let Some(mem) = self.slopes {
                slopes.iter().enumerate().for_each(|(at, &v)| store(t, mem, at, v));
            }
            if let Some(mask) = heads.mask {
                mask.apply(t, (key, &numbers), &cols, seen, &mut scores);
            }
            for (at, &score) in scores.iter().enumerate() {
                let (number, col) = (numbers[at / cols.len()], cols[at % cols.len()]);
                let score = t.mask_score(score, number, (q0, col), seen, strip);
                store(t, self.powers, at, score);
            }
            if needs_score_gradient {
                let transposed = (self.transposed_gradient, self.site.value_width);
                let products = t.products(heads.value, &numbers, transposed, &cols, seen);
                products
                    .iter()
                    .enumerate()
                    .for_each(|(at, &v)| store(t, self.score_gradient, at, v));
            }
        });
        self.weigh_scores(t, strip, needs_score_gradient);
    }

    /// Replaces scores by P, and the products of gradients and values by dS.
    fn weigh_scores(&self, t: &mut Tiles, strip: Strip, needs_score_gradient: bool) {
        let cols = t.columns(strip.vector);
        let [from, to] = [strip.from, strip.to].map(|i| t.nest.b.index(i));
        let (zero, scale) = (t.nest.b.index(0), t.number(self.site.scale));
        let mut load_row =
            |mem: Mem| -> Vec<V> { cols.iter().map(|&c| t.load(mem, zero, c)).collect() };
        let (logs, delta, row_max) =
            (load_row(self.logs), load_row(self.delta), self.row_max.map(load_row));
        t.each(from, to, 1, |t, key| {
            for (i, &col) in cols.iter().enumerate() {
                let (logs, delta) = (logs[i], delta[i]);
                let score = t.load(self.powers, key, col);
                let less = match &row_max {
                    Some(row_max) => t.difference(score, row_max[i]),
                    None => score,
                };
                let less = t.nest.b.sub(less, logs);
                let power = exp2_nonpositive(&mut t.nest.b, less);
                t.store(self.powers, key, col, power);
                if needs_score_gradient {
                    let product = t.load(self.score_gradient, key, col);
                    let less = t.nest.b.sub(product, delta);
                    let power = t.nest.b.mul(power, scale);
                    let mut gradient = t.nest.b.mul(less, power);
                    if let Some(slopes) = self.slopes {
                        let slope = t.load(slopes, key, col);
                        gradient = t.nest.b.mul(gradient, slope);
                    }
                    t.store(self.score_gradient, key, col, gradient);
                }
            }
        });
    }

    /// `to[key][d] += Σ over queries of weights[key][q]·rows[q][d]`
    fn add_weighted_queries(
        &self,
        t: &mut Tiles,
        (to, width): (Head, i64),
        rows: Head,
        weights: Mem,
        (q0, k0): (V, V),
        strip: Strip,
    ) {
        let lanes = i64::from(t.lanes);
        let max = t.vectors.min(width / lanes);
        let wide = (1..=max).rev().find(|wide| width / lanes % wide == 0).unwrap_or(1) * lanes;
        let zero = t.nest.b.index(0);
        let [from, end] = [strip.from, strip.to].map(|i| t.nest.b.index(i));
        t.each(from, end, ROWS, |t, key| {
            let keys: Vec<V> = (0..ROWS).map(|i| t.nest.b.offset(key, i)).collect();
            let width = t.nest.b.index(width);
            t.each(zero, width, wide, |t, d| {
                let columns: Vec<V> =
                    (0..wide).step_by(lanes as usize).map(|i| t.nest.b.offset(d, i)).collect();
                let sums = sum_over_queries(t, (&keys, &columns), rows, weights, q0, strip);
                for (sums, &key) in sums.chunks(columns.len()).zip(&keys) {
                    let key = t.nest.b.add(k0, key);
                    let in_range = t.nest.b.compare(Cmp::Lt, key, t.keys);
                    let places: Vec<V> = columns.iter().map(|&d| t.element(to, key, d)).collect();
                    t.nest.b.when(in_range, |b| {
                        for (&sum, &at) in sums.iter().zip(&places) {
                            let lanes = b.ty(sum).lanes;
                            let so_far = b.load(to.mem, at, lanes, None);
                            let sum = b.add(so_far, sum);
                            b.store(to.mem, at, sum, None);
                        }
                    });
                }
            });
        });
    }
}

/// Returns `Σ over queries of weights[key][q]·rows[q][d]` for some keys and vectors of elements,
/// ordered by key. The weights of queries past the end are 0.
fn sum_over_queries(
    t: &mut Tiles,
    (keys, columns): (&[V], &[V]),
    rows: Head,
    weights: Mem,
    q0: V,
    strip: Strip,
) -> Vec<V> {
    let last = t.nest.b.offset(t.queries, -1);
    let left = t.nest.b.sub(t.queries, q0);
    let block = t.nest.b.index(t.block());
    let end = t.nest.b.binary(Binary::Min, left, block);
    let first = t.nest.b.index(strip.vector * i64::from(t.lanes));
    let start = vec![t.number(0.0); columns.len() * keys.len()];
    t.repeat(first, end, STEPS, &start, |t, q, sums| {
        let mut sums = sums.to_vec();
        for step in 0..STEPS {
            let q = t.nest.b.offset(q, step);
            let row = t.nest.b.add(q0, q);
            let row = t.nest.b.binary(Binary::Min, row, last);
            let load = |t: &mut Tiles, d: V| {
                let at = t.element(rows, row, d);
                t.nest.b.load(rows.mem, at, t.lanes, None)
            };
            let vectors: Vec<V> = columns.iter().map(|&d| load(t, d)).collect();
            let cells: Vec<V> = keys.iter().map(|&key| t.cell_at(key, q)).collect();
            t.multiply(weights, &cells, &vectors, &mut sums);
        }
        sums
    })
}
