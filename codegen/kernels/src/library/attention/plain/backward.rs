//! The gradients of attention in portable code.

use mithril_ir::attr::Attr;
use mithril_ir::graph::Operation;

use super::super::tiles::Head;
use super::super::{GRADIENT, KEY, LOGS, Mask, OUTPUT, QUERY, ROW_MAX, Site, VALUE};
use super::{
    BLOCK, Block, Keys, STEPS, add_weighted_keys, add_weighted_queries, allocate, cell, each_query,
    each_row, element, exp_difference, fill, finished, number,
};
use crate::code::{Cmp, Mem, V};
use crate::loops::Loops;
use crate::lower::index::Ix;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;

pub fn backward(mut nest: Nest, site: &Site) -> Lowered {
    let results = [QUERY, KEY, VALUE].map(|of| {
        let is = |op: &Operation| *op.attr("of") == Attr::Int(of as i64);
        site.result(&nest, is).map(|(mem, _)| mem)
    });
    let n = &mut nest;
    let own = Backward {
        site,
        transposed: allocate(n, site.width, "transposed"),
        transposed_gradient: allocate(n, site.value_width, "transposed_gradient"),
        out: allocate(n, site.width, "sums"),
        powers: allocate(n, BLOCK + STEPS as i64, "powers"),
        score_gradient: allocate(n, BLOCK + STEPS as i64, "score_gradient"),
        slopes: site.softcap.map(|_| allocate(n, BLOCK + STEPS as i64, "slopes")),
        logs: allocate(n, 1, "logs"),
        delta: allocate(n, 1, "delta"),
        row_max: site.mask.map(|_| allocate(n, 1, "row_max")),
        mask: site.allocate_mask(n),
    };
    let (place, axes) = nest.open_axes(site.heads(KEY));
    let head = match nest.flat_index(site.heads(KEY), &place) {
        Ix::Uniform(v) | Ix::Ascending(v) | Ix::Descending(v) | Ix::Scattered(v) => v,
    };
    let key_gradient = results[KEY].map(|mem| site.dense(&mut nest, mem, (KEY, site.width), head));
    let value_gradient =
        results[VALUE].map(|mem| site.dense(&mut nest, mem, (KEY, site.value_width), head));
    for (of, width) in [(key_gradient, site.width), (value_gradient, site.value_width)] {
        of.into_iter().for_each(|of| store_zeros(&mut nest, site, of, width));
    }
    let (zero, times) = (nest.b.index(0), nest.b.index(site.group_size()));
    let single = site.group_size() == 1;
    nest.each(zero, times, 1, |nest, group| {
        let first = nest.b.mul(head, times);
        let number = if single { head } else { nest.b.add(first, group) };
        let place = match single {
            true => place.clone(),
            false => nest.unravel(site.heads(QUERY), Ix::Uniform(number)),
        };
        let place: Vec<V> = place.into_iter().map(|ix| nest.as_value(ix)).collect();
        let sides = [QUERY, KEY, VALUE, OUTPUT, LOGS, GRADIENT];
        let sides = sides.map(|side| site.head(nest, side, &place));
        let query_gradient =
            results[QUERY].map(|mem| site.dense(nest, mem, (QUERY, site.width), number));
        let mask = site.mask(nest, &place);
        let row_max = site.mask.map(|_| site.head(nest, ROW_MAX, &place));
        let heads = Heads { sides, mask, row_max, query_gradient, key_gradient, value_gradient };
        site.blocks(nest, |nest, block| own.block(nest, &heads, block));
    });
    nest.close_axes(axes);
    finished(nest)
}

/// Stores zeros for all keys or values of a head.
fn store_zeros(nest: &mut Nest, site: &Site, of: Head, width: i64) {
    let keys = site.count(nest, KEY);
    let (zero, none) = (nest.b.index(0), number(nest, 0.0));
    nest.each(zero, keys, 1, |nest, key| {
        each_row(nest, width, |nest, d| {
            let at = element(nest, of, key, d);
            nest.b.store(of.mem, at, none, None);
        });
    });
}

/// The operands for one head, and the gradients that are needed.
struct Heads {
    sides: [Head; 6],
    mask: Option<Mask>,
    row_max: Option<Head>,
    query_gradient: Option<Head>,
    key_gradient: Option<Head>,
    value_gradient: Option<Head>,
}

struct Backward<'s> {
    site: &'s Site,
    /// Qᵀ times scale.
    transposed: Mem,
    /// dOᵀ.
    transposed_gradient: Mem,
    /// dQᵀ.
    out: Mem,
    /// P of a block of keys.
    powers: Mem,
    /// dS of a block of keys.
    score_gradient: Mem,
    /// The derivatives of bounded scores, with a softcap.
    slopes: Option<Mem>,
    /// log Σ of each query. With a mask it does not include the row maximum.
    logs: Mem,
    /// D of each query.
    delta: Mem,
    /// The row maximum of each query, if there is a mask.
    row_max: Option<Mem>,
    /// The transposed mask of a block.
    mask: Option<Mem>,
}

impl Backward<'_> {
    /// Processes one block of queries with all keys, block by block.
    fn block(&self, nest: &mut Nest, heads: &Heads, block: Block) {
        let site = self.site;
        let (query, gradient) = (heads.sides[QUERY], heads.sides[GRADIENT]);
        site.transpose(nest, (query, site.width), block, self.transposed, Some(site.scale));
        let wide = (gradient, site.value_width);
        site.transpose(nest, wide, block, self.transposed_gradient, None);
        self.load_queries(nest, heads, block);
        fill(nest, self.out, site.width, 0.0);
        let zero = nest.b.index(0);
        site.keys(nest, block, |nest, keys| {
            self.keys(nest, heads, (block, keys));
            if let Some(to) = heads.value_gradient {
                add_weighted_queries(
                    nest,
                    (gradient, site.value_width),
                    (block, keys),
                    self.powers,
                    to,
                );
            }
            if let Some(to) = heads.key_gradient {
                add_weighted_queries(
                    nest,
                    (query, site.width),
                    (block, keys),
                    self.score_gradient,
                    to,
                );
            }
            if heads.query_gradient.is_some() {
                add_weighted_keys(
                    nest,
                    (heads.sides[KEY], site.width),
                    keys,
                    self.score_gradient,
                    self.out,
                );
            }
        });
        let Some(query_gradient) = heads.query_gradient else { return };
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            each_row(nest, site.width, |nest, d| {
                let at = cell(nest, d, i);
                let v = nest.b.load(self.out, at, 1, None);
                let to = element(nest, query_gradient, q, d);
                nest.b.store(query_gradient.mem, to, v, None);
            });
        });
    }

    /// Loads log Σ and the row maximum, and computes D. Queries past the end and queries that see
    /// no key get an infinite log Σ, so that their P is zero.
    fn load_queries(&self, nest: &mut Nest, heads: &Heads, block: Block) {
        fill(nest, self.logs, 1, f64::INFINITY);
        fill(nest, self.delta, 1, 0.0);
        self.row_max.into_iter().for_each(|row_max| fill(nest, row_max, 1, 0.0));
        let [infinite, minus_infinity] =
            [f64::INFINITY, f64::NEG_INFINITY].map(|x| number(nest, x));
        let [output, logs, gradient] = [OUTPUT, LOGS, GRADIENT].map(|side| heads.sides[side]);
        let (zero, none) = (nest.b.index(0), number(nest, 0.0));
        let width = nest.b.index(self.site.value_width);
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            let at = nest.b.add(logs.at, q);
            let log = nest.b.load(logs.mem, at, 1, None);
            let empty = nest.b.compare(Cmp::Eq, log, minus_infinity);
            let log = nest.b.select(empty, infinite, log);
            nest.b.store(self.logs, i, log, None);
            if let Some((to, from)) = self.row_max.zip(heads.row_max) {
                let at = nest.b.add(from.at, q);
                let row_max = nest.b.load(from.mem, at, 1, None);
                nest.b.store(to, i, row_max, None);
            }
            let sum = nest.repeat(zero, width, 1, &[none], |nest, d, sum| {
                let [o, g] = [output, gradient].map(|head| {
                    let at = element(nest, head, q, d);
                    nest.b.load(head.mem, at, 1, None)
                });
                vec![nest.b.mul_add(o, g, sum[0])]
            });
            nest.b.store(self.delta, i, sum[0], None);
        });
    }

    /// Computes P and dS of a block of keys.
    fn keys(&self, nest: &mut Nest, heads: &Heads, (block, keys): (Block, Keys)) {
        let site = self.site;
        let (key, value) = (heads.sides[KEY], heads.sides[VALUE]);
        site.products(nest, (key, site.width), keys, self.transposed, self.powers);
        site.cap(nest, keys, self.powers, self.slopes);
        if let Some(mask) = heads.mask {
            site.apply_mask(nest, (mask, self.mask), (block, keys), self.powers);
        }
        site.products(
            nest,
            (value, site.value_width),
            keys,
            self.transposed_gradient,
            self.score_gradient,
        );
        let (zero, factor) = (nest.b.index(0), number(nest, site.scale));
        nest.each(zero, keys.count, 1, |nest, k| {
            let key = nest.b.add(keys.first, k);
            each_query(nest, |nest, i| {
                let at = cell(nest, k, i);
                let score = nest.b.load(self.powers, at, 1, None);
                let mut score = site.mask_score(nest, score, key, block, i);
                if let Some(row_max) = self.row_max {
                    let current_max = nest.b.load(row_max, i, 1, None);
                    score = nest.b.sub(score, current_max);
                }
                let log = nest.b.load(self.logs, i, 1, None);
                let p = exp_difference(nest, score, log);
                nest.b.store(self.powers, at, p, None);
                let product = nest.b.load(self.score_gradient, at, 1, None);
                let delta = nest.b.load(self.delta, i, 1, None);
                let less = nest.b.sub(product, delta);
                let p = nest.b.mul(p, factor);
                let mut gradient = nest.b.mul(less, p);
                if let Some(slopes) = self.slopes {
                    let slope = nest.b.load(slopes, at, 1, None);
                    gradient = nest.b.mul(gradient, slope);
                }
                nest.b.store(self.score_gradient, at, gradient, None);
            });
        });
    }
}
