//! Attention in portable code.

use mithril_ir::dtype::DType;
use mithril_ir::op::access::Attention;
use mithril_ir::scalar::Prim;

use super::super::forward::LOWEST_SCORE;
use super::super::fusion::attention_result;
use super::super::tiles::Head;
use super::super::{KEY, Mask, QUERY, Site, VALUE, Window};
use super::{
    BLOCK, Block, Keys, STEPS, add, add_weighted_keys, allocate, cell, each_query, each_row,
    element, exp_difference, fill, finished, number, scale,
};
use crate::code::{Binary, Cmp, Mem, V};
use crate::loops::Loops;
use crate::lower::index::Ix;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;
use crate::scalar;

pub fn forward(mut nest: Nest, site: &Site) -> Lowered {
    let output = site.output(&nest);
    let [logs, row_max] = [Attention::LogSumExp, Attention::RowMax]
        .map(|result| site.result(&nest, |op| attention_result(op) == Some(result)));
    let n = &mut nest;
    let own = Forward {
        site,
        transposed: allocate(n, site.width, "transposed"),
        scores: allocate(n, BLOCK + STEPS as i64, "scores"),
        out: allocate(n, site.value_width, "sums"),
        row_max: allocate(n, 1, "row_max"),
        total: allocate(n, 1, "total"),
        factors: allocate(n, 1, "factors"),
        mask: site.allocate_mask(n),
    };
    let (place, axes) = nest.open_axes(site.heads(QUERY));
    let number = match nest.flat_index(site.heads(QUERY), &place) {
        Ix::Uniform(v) | Ix::Ascending(v) | Ix::Descending(v) | Ix::Scattered(v) => v,
    };
    let place: Vec<V> = place.into_iter().map(|ix| nest.as_value(ix)).collect();
    let sides = [QUERY, KEY, VALUE].map(|side| site.head(&mut nest, side, &place));
    let mask = site.mask(&mut nest, &place);
    let sink = site.sink(&mut nest, &place);
    let output = output.map(|output| output.head(&mut nest, &place));
    let [logs, row_max] = [logs, row_max]
        .map(|own| own.map(|(mem, _)| site.dense(&mut nest, mem, (QUERY, 1), number)));
    site.blocks(&mut nest, |nest, block| {
        own.begin(nest, (sides[QUERY], sink), block);
        site.keys(nest, block, |nest, keys| own.keys(nest, &sides, mask, (block, keys)));
        own.finish(nest, output, block);
        own.sums(nest, [logs, row_max], block);
    });
    nest.close_axes(axes);
    finished(nest)
}

struct Forward<'s> {
    site: &'s Site,
    /// Qᵀ times scale.
    transposed: Mem,
    /// The scores, later replaced by P.
    scores: Mem,
    /// Oᵀ.
    out: Mem,
    /// The row maxima.
    row_max: Mem,
    /// The row sums of P.
    total: Mem,
    /// The factors that rescale O.
    factors: Mem,
    /// The transposed mask of a block.
    mask: Option<Mem>,
}

impl Forward<'_> {
    /// Starts with no keys, or with a sink, which is a key whose value is 0.
    fn begin(&self, nest: &mut Nest, (query, sink): (Head, Option<V>), block: Block) {
        let site = self.site;
        site.transpose(nest, (query, site.width), block, self.transposed, Some(site.scale));
        fill(nest, self.out, site.value_width, 0.0);
        fill(nest, self.row_max, 1, LOWEST_SCORE);
        fill(nest, self.total, 1, 0.0);
        let Some(sink) = sink else { return };
        let lowest = number(nest, LOWEST_SCORE);
        let row_max = nest.b.binary(Binary::Max, sink, lowest);
        let total = exp_difference(nest, sink, row_max);
        each_query(nest, |nest, i| {
            nest.b.store(self.row_max, i, row_max, None);
            nest.b.store(self.total, i, total, None);
        });
    }

    /// Processes one block of keys: computes the scores, the row maxima and P, and accumulates
    /// Vᵀ·P.
    fn keys(
        &self,
        nest: &mut Nest,
        sides: &[Head; 3],
        mask: Option<Mask>,
        (block, keys): (Block, Keys),
    ) {
        let site = self.site;
        let zero = nest.b.index(0);
        each_query(nest, |nest, i| {
            let v = nest.b.load(self.row_max, i, 1, None);
            nest.b.store(self.factors, i, v, None);
        });
        site.products(nest, (sides[KEY], site.width), keys, self.transposed, self.scores);
        site.cap(nest, keys, self.scores, None);
        if let Some(mask) = mask {
            site.apply_mask(nest, (mask, self.mask), (block, keys), self.scores);
        }
        nest.each(zero, keys.count, 1, |nest, k| {
            let key = nest.b.add(keys.first, k);
            each_query(nest, |nest, i| {
                let at = cell(nest, k, i);
                let mut score = nest.b.load(self.scores, at, 1, None);
                if site.window != Window::All {
                    score = site.mask_score(nest, score, key, block, i);
                    nest.b.store(self.scores, at, score, None);
                }
                let so_far = nest.b.load(self.row_max, i, 1, None);
                let current_max = nest.b.binary(Binary::Max, score, so_far);
                nest.b.store(self.row_max, i, current_max, None);
            });
        });
        self.rescale(nest);
        nest.each(zero, keys.count, 1, |nest, k| self.powers(nest, k));
        add_weighted_keys(nest, (sides[VALUE], site.value_width), keys, self.scores, self.out);
    }

    /// Rescales the sums so far to the new row maxima.
    fn rescale(&self, nest: &mut Nest) {
        each_query(nest, |nest, i| {
            let before = nest.b.load(self.factors, i, 1, None);
            let now = nest.b.load(self.row_max, i, 1, None);
            let factor = exp_difference(nest, before, now);
            nest.b.store(self.factors, i, factor, None);
            scale(nest, self.total, i, factor);
        });
        each_row(nest, self.site.value_width, |nest, d| {
            each_query(nest, |nest, i| {
                let factor = nest.b.load(self.factors, i, 1, None);
                let at = cell(nest, d, i);
                scale(nest, self.out, at, factor);
            });
        });
    }

    /// Computes P of one key, and adds it to the row sums.
    fn powers(&self, nest: &mut Nest, k: V) {
        each_query(nest, |nest, i| {
            let at = cell(nest, k, i);
            let score = nest.b.load(self.scores, at, 1, None);
            let current_max = nest.b.load(self.row_max, i, 1, None);
            let p = exp_difference(nest, score, current_max);
            nest.b.store(self.scores, at, p, None);
            add(nest, self.total, i, p);
        });
    }

    fn finish(&self, nest: &mut Nest, output: Option<Head>, block: Block) {
        let (Some(output), zero) = (output, nest.b.index(0)) else { return };
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            let total = nest.b.load(self.total, i, 1, None);
            let (one, none) = (number(nest, 1.0), number(nest, 0.0));
            let empty = nest.b.compare(Cmp::Eq, total, none);
            let inverse = nest.b.div(one, total);
            let inverse = nest.b.select(empty, none, inverse);
            each_row(nest, self.site.value_width, |nest, d| {
                let at = cell(nest, d, i);
                let v = nest.b.load(self.out, at, 1, None);
                let v = nest.b.mul(v, inverse);
                let to = element(nest, output, q, d);
                nest.b.store(output.mem, to, v, None);
            });
        });
    }

    /// Stores the row maxima and the logarithms of the row sums. Without a mask, the row maxima are
    /// added to the logarithms.
    fn sums(&self, nest: &mut Nest, [logs, row_max]: [Option<Head>; 2], block: Block) {
        if logs.or(row_max).is_none() {
            return;
        }
        let zero = nest.b.index(0);
        nest.each(zero, block.count, 1, |nest, i| {
            let q = nest.b.add(block.first, i);
            let current_max = nest.b.load(self.row_max, i, 1, None);
            if let Some(to) = logs {
                let total = nest.b.load(self.total, i, 1, None);
                let mut log = scalar::apply(&mut nest.b, Prim::Log, DType::F32, &[total], None);
                if self.site.mask.is_none() {
                    log = nest.b.add(current_max, log);
                }
                let at = nest.b.add(to.at, q);
                nest.b.store(to.mem, at, log, None);
            }
            if let Some(to) = row_max {
                let at = nest.b.add(to.at, q);
                nest.b.store(to.mem, at, current_max, None);
            }
        });
    }
}
