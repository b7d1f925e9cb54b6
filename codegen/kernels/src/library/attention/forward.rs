//! Attention: for a block of queries and a block of keys, in the manner of Milakov & Gimelshein
//! 2018 (online softmax) and Dao et al. 2022 (FlashAttention):
//!
//! scores = K·Qᵀ, masked; m' = max(m, scores); P = 2^(scores - m'); l = l·2^(m - m') + ΣP; O =
//! O·2^(m - m') + Vᵀ·P

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::access::Attention;
use mithril_ir::scalar::Prim;

use super::fusion::result_of;
use super::masks::{self, Masked};
use super::tiles::{Head, ROWS, Seen, Strip, Tiles};
use super::{KEY, QUERY, Site, VALUE, place};
use crate::code::{Binary, Cmp, Mem, V};
use crate::isa::Isa;
use crate::loops::Loops;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;
use crate::lower::reduce::product;
use crate::scalar;

/// No larger than any score but -inf. As the initial row maximum it avoids -inf - -inf, which is
/// NaN.
pub const LEAST: f64 = f32::MIN as f64;

struct Forward<'s> {
    site: &'s Site,
    /// Qᵀ times scale; scores and then P; Oᵀ; the row maxima before and after a block; the row
    /// sums.
    transposed: Mem,
    scores: Mem,
    out: Mem,
    before: Mem,
    now: Mem,
    sums: Mem,
}

/// The operands for one head of queries.
struct Heads {
    query: Head,
    key: Head,
    value: Head,
    mask: Option<Masked>,
}

/// Lowers attention, with a task for each head.
pub fn lower(nest: Nest, site: &Site, isa: &Isa) -> Lowered {
    let output = site.output(&nest);
    let [logs, row_max] = [Attention::LogSumExp, Attention::RowMax]
        .map(|result| site.result(&nest, |op| result_of(op) == Some(result)));
    let mut tiles = Tiles::new(nest, site, isa);
    let t = &mut tiles;
    let [transposed, scores, out] =
        [site.width, t.block(), site.value_width].map(|rows| t.room(rows));
    let [before, now, sums] = [1; 3].map(|rows| t.room(rows));
    let room = masks::room(t, site);
    let own = Forward { site, transposed, scores, out, before, now, sums };
    t.tasks(|t, task| {
        let place = place(&mut t.nest, site.heads(QUERY), task);
        let sides = [QUERY, KEY, VALUE].map(|side| site.head(&mut t.nest, side, &place));
        let [query, key, value] = sides;
        let mask = site.mask(&mut t.nest, &place).map(|mask| Masked::new(mask, room));
        let heads = Heads { query, key, value, mask };
        let result = |t: &mut Tiles, mem: Mem, width: i64| {
            let size = t.nest.b.times(t.queries, width);
            Head { mem, at: t.nest.b.mul(task, size), stride: t.nest.b.index(width) }
        };
        let output = output.as_ref().map(|output| output.head(&mut t.nest, &place));
        let [logs, row_max] = [logs, row_max].map(|own| own.map(|(mem, _)| result(t, mem, 1)));
        let (zero, queries) = (t.nest.b.index(0), t.queries);
        t.each(zero, queries, t.block(), |t, q0| {
            own.clear(t);
            let factor = t.number(site.scale * t.unit());
            t.transpose(heads.query, q0, site.width, transposed, Some(factor));
            t.key_blocks(q0, site.causal, |t, k0, seen| own.keys(t, &heads, q0, k0, seen));
            if let Some(output) = output {
                own.finish(t, output, q0);
            }
            if let Some(logs) = logs {
                own.log(t, logs, q0);
            }
            if let Some(row_max) = row_max {
                t.one_each(row_max, q0, |t, col| t.nest.b.load(own.now, col, t.lanes, None));
            }
        });
    });
    let tasks = product(site.heads(QUERY));
    let scratch = Dim::from(tiles.scratch + 64);
    Lowered { code: tiles.nest.b.finish(), tasks, grain: 1, scratch, partials: vec![] }
}

impl Forward<'_> {
    fn clear(&self, t: &mut Tiles) {
        let (zero, none, least) = (t.nest.b.index(0), t.number(0.0), t.number(LEAST));
        let width = t.nest.b.index(self.site.value_width);
        t.each(zero, width, 1, |t, d| {
            t.columns(0).into_iter().for_each(|col| t.store(self.out, d, col, none));
        });
        for col in t.columns(0) {
            t.store(self.before, zero, col, least);
            t.store(self.now, zero, col, least);
            t.store(self.sums, zero, col, none);
        }
    }

    /// One block of keys: computes the scores, the row maxima and P, and accumulates Vᵀ·P.
    fn keys(&self, t: &mut Tiles, heads: &Heads, q0: V, k0: V, seen: Seen) {
        let strips = t.strips(seen);
        if let Some(mask) = heads.mask {
            mask.transpose(t, (q0, k0), seen);
        }
        for &strip in &strips {
            self.score(t, heads, (q0, k0), strip, seen);
        }
        let shrink = self.shrink(t);
        for &strip in &strips {
            self.powers(t, strip);
        }
        for (i, &strip) in strips.iter().enumerate() {
            let shrink = if i == 0 { Some(&shrink[..]) } else { None };
            let out = (self.out, self.site.value_width);
            t.across((heads.value, k0), strip, self.scores, out, shrink);
        }
    }

    /// Scores K·Qᵀ for a strip of keys, and the row maxima so far.
    fn score(&self, t: &mut Tiles, heads: &Heads, (q0, k0): (V, V), strip: Strip, seen: Seen) {
        let cols = t.columns(strip.vector);
        let [from, to] = [strip.from, strip.to].map(|i| t.nest.b.index(i));
        let zero = t.nest.b.index(0);
        t.each(from, to, ROWS, |t, key| {
            let first = t.nest.b.add(k0, key);
            let numbers: Vec<V> = (0..ROWS).map(|i| t.nest.b.offset(first, i)).collect();
            let transposed = (self.transposed, self.site.width);
            let mut sums = t.products(heads.key, &numbers, transposed, &cols, seen);
            if let Some(mask) = heads.mask {
                mask.apply(t, (key, &numbers), &cols, seen, &mut sums);
            }
            for (j, &col) in cols.iter().enumerate() {
                let mut row_max = t.load(self.now, zero, col);
                for (i, &number) in numbers.iter().enumerate() {
                    let score = sums[i * cols.len() + j];
                    let score = t.hidden(score, number, (q0, col), seen, strip);
                    let row = t.nest.b.offset(key, i as i64);
                    t.store(self.scores, row, col, score);
                    row_max = t.nest.b.binary(Binary::Max, score, row_max);
                }
                t.store(self.now, zero, col, row_max);
            }
        });
    }

    /// The factors 2^(m - m') that rescale the sums to the new row maxima.
    fn shrink(&self, t: &mut Tiles) -> Vec<V> {
        let zero = t.nest.b.index(0);
        let mut factors = Vec::new();
        for col in t.columns(0) {
            let (before, now) = (t.load(self.before, zero, col), t.load(self.now, zero, col));
            let factor = t.power(before, now);
            t.store(self.before, zero, col, now);
            let sum = t.load(self.sums, zero, col);
            let sum = t.nest.b.mul(sum, factor);
            t.store(self.sums, zero, col, sum);
            factors.push(factor);
        }
        factors
    }

    /// P = 2^(scores - m), and the row sums.
    fn powers(&self, t: &mut Tiles, strip: Strip) {
        let cols = t.columns(strip.vector);
        let zero = t.nest.b.index(0);
        let now: Vec<V> = cols.iter().map(|&c| t.load(self.now, zero, c)).collect();
        let sums: Vec<V> = cols.iter().map(|&c| t.load(self.sums, zero, c)).collect();
        let [from, to] = [strip.from, strip.to].map(|i| t.nest.b.index(i));
        let sums = t.repeat(from, to, 1, &sums, |t, key, sums| {
            let mut next = Vec::new();
            for ((&col, &now), &sum) in cols.iter().zip(&now).zip(sums) {
                let score = t.load(self.scores, key, col);
                let power = t.power(score, now);
                t.store(self.scores, key, col, power);
                next.push(t.nest.b.add(sum, power));
            }
            next
        });
        for (&col, sum) in cols.iter().zip(sums) {
            t.store(self.sums, zero, col, sum);
        }
    }

    /// Divides O by the row sums, transposes it back and stores the rows of queries in range.
    fn finish(&self, t: &mut Tiles, output: Head, q0: V) {
        let (one, none) = (t.number(1.0), t.number(0.0));
        t.each_column(|t, col| {
            let sum = t.nest.b.load(self.sums, col, t.lanes, None);
            let inverse = t.nest.b.div(one, sum);
            let empty = t.nest.b.compare(Cmp::Eq, sum, none);
            let inverse = t.nest.b.select(empty, none, inverse);
            // The old row maxima are no longer needed, so their memory is reused.
            t.nest.b.store(self.before, col, inverse, None);
        });
        t.transpose_back(self.out, self.site.value_width, output, q0, Some(self.before));
    }

    /// log Σ eˢ = (m + log₂ l) log 2. With a mask the result is log l alone, as m is a separate
    /// result.
    fn log(&self, t: &mut Tiles, logs: Head, q0: V) {
        let (unit, masked) = (t.number(std::f64::consts::LN_2), self.site.mask.is_some());
        t.one_each(logs, q0, |t, col| {
            let [sum, now] = [self.sums, self.now].map(|m| t.nest.b.load(m, col, t.lanes, None));
            let log = scalar::apply(&mut t.nest.b, Prim::Log, DType::F32, &[sum], None);
            if masked { log } else { t.nest.b.fma(now, unit, log) }
        });
    }
}
