//! Attention, after Milakov & Gimelshein 2018 (online softmax) and Dao et al. 2022
//! (FlashAttention). For each block of queries and block of keys:
//!
//! - scores = K·Qᵀ, masked
//! - m' = max(m, scores), the row maxima
//! - P = 2^(scores - m')
//! - l = l·2^(m - m') + ΣP, the row sums
//! - O = O·2^(m - m') + Vᵀ·P

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::access::Attention;
use mithril_ir::scalar::Prim;

use super::fusion::attention_result;
use super::masks::{self, BlockMask};
use super::tiles::{Head, ROWS, Strip, Tiles, VisibleKeys};
use super::{KEY, QUERY, Site, VALUE, place};
use crate::code::{Binary, Cmp, Mem, V};
use crate::isa::Isa;
use crate::loops::Loops;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;
use crate::lower::reduce::product;
use crate::scalar;

/// The initial row maximum: the lowest finite number. It is not -inf, because -inf - -inf is NaN.
pub const LOWEST_SCORE: f64 = f32::MIN as f64;

struct Forward<'s> {
    site: &'s Site,
    /// Qᵀ times scale.
    transposed: Mem,
    /// The scores, later replaced by P.
    scores: Mem,
    /// Oᵀ.
    out: Mem,
    /// The row maxima before the current block of keys.
    before: Mem,
    /// The row maxima after the current block of keys.
    now: Mem,
    /// The row sums.
    sums: Mem,
}

/// The operands for one head of queries.
struct Heads {
    query: Head,
    key: Head,
    value: Head,
    mask: Option<BlockMask>,
}

/// Lowers attention. Each head of queries is a task.
pub fn lower(nest: Nest, site: &Site, isa: &Isa) -> Lowered {
    let output = site.output(&nest);
    let [logs, row_max] = [Attention::LogSumExp, Attention::RowMax]
        .map(|result| site.result(&nest, |op| attention_result(op) == Some(result)));
    let mut tiles = Tiles::new(nest, site, isa);
    let t = &mut tiles;
    let [transposed, scores, out] =
        [site.width, t.block(), site.value_width].map(|rows| t.allocate(rows));
    let [before, now, sums] = [1; 3].map(|rows| t.allocate(rows));
    let mask_memory = masks::allocate(t, site);
    let own = Forward { site, transposed, scores, out, before, now, sums };
    t.tasks(|t, task| {
        let place = place(&mut t.nest, site.heads(QUERY), task);
        let sides = [QUERY, KEY, VALUE].map(|side| site.head(&mut t.nest, side, &place));
        let [query, key, value] = sides;
        let mask = site.mask(&mut t.nest, &place).map(|mask| BlockMask::new(mask, mask_memory));
        let heads = Heads { query, key, value, mask };
        let sink = site.sink(&mut t.nest, &place);
        let result = |t: &mut Tiles, mem: Mem, width: i64| {
            let size = t.nest.b.times(t.queries, width);
            Head { mem, at: t.nest.b.mul(task, size), stride: t.nest.b.index(width) }
        };
        let output = output.as_ref().map(|output| output.head(&mut t.nest, &place));
        let [logs, row_max] = [logs, row_max].map(|own| own.map(|(mem, _)| result(t, mem, 1)));
        let (zero, queries) = (t.nest.b.index(0), t.queries);
        t.each(zero, queries, t.block(), |t, q0| {
            own.initialize(t, sink);
            let factor = t.number(site.scale * t.score_factor());
            t.transpose(heads.query, q0, site.width, transposed, Some(factor));
            t.key_blocks(q0, site.window, |t, k0, seen| own.keys(t, &heads, q0, k0, seen));
            if let Some(output) = output {
                own.store_output(t, output, q0);
            }
            if let Some(logs) = logs {
                own.store_log(t, logs, q0);
            }
            if let Some(row_max) = row_max {
                t.store_per_query(row_max, q0, |t, col| t.nest.b.load(own.now, col, t.lanes, None));
            }
        });
    });
    let tasks = product(site.heads(QUERY));
    let scratch = Dim::from(tiles.scratch + 64);
    Lowered { code: tiles.nest.b.finish(), tasks, grain: 1, scratch, partials: vec![] }
}

impl Forward<'_> {
    /// Starts with no keys, or with a sink, which is a key whose value is 0.
    fn initialize(&self, t: &mut Tiles, sink: Option<V>) {
        let (zero, none, lowest) = (t.nest.b.index(0), t.number(0.0), t.number(LOWEST_SCORE));
        let width = t.nest.b.index(self.site.value_width);
        t.each(zero, width, 1, |t, d| {
            t.columns(0).into_iter().for_each(|col| t.store(self.out, d, col, none));
        });
        let (mut row_max, mut sum) = (lowest, none);
        if let Some(sink) = sink {
            let sink = t.nest.b.splat(sink, t.lanes);
            row_max = t.nest.b.binary(Binary::Max, sink, lowest);
            sum = t.power(sink, row_max);
        }
        for col in t.columns(0) {
            t.store(self.before, zero, col, row_max);
            t.store(self.now, zero, col, row_max);
            t.store(self.sums, zero, col, sum);
        }
    }

    /// Processes one block of keys: computes the scores, the row maxima and P, and accumulates
    /// Vᵀ·P.
    fn keys(&self, t: &mut Tiles, heads: &Heads, q0: V, k0: V, seen: VisibleKeys) {
        let strips = t.strips(seen);
        if let Some(mask) = heads.mask {
            mask.transpose(t, (q0, k0), seen);
        }
        for &strip in &strips {
            self.score(t, heads, (q0, k0), strip, seen);
        }
        let rescale = self.rescale(t);
        for &strip in &strips {
            self.powers(t, strip);
        }
        for (i, &strip) in strips.iter().enumerate() {
            let rescale = if i == 0 { Some(&rescale[..]) } else { None };
            let out = (self.out, self.site.value_width);
            t.add_weighted_keys((heads.value, k0), strip, self.scores, out, rescale);
        }
    }

    /// Computes the scores K·Qᵀ of a strip of keys, and updates the row maxima.
    fn score(
        &self,
        t: &mut Tiles,
        heads: &Heads,
        (q0, k0): (V, V),
        strip: Strip,
        seen: VisibleKeys,
    ) {
        let cols = t.columns(strip.vector);
        let [from, to] = [strip.from, strip.to].map(|i| t.nest.b.index(i));
        let zero = t.nest.b.index(0);
        t.each(from, to, ROWS, |t, key| {
            let first = t.nest.b.add(k0, key);
            let numbers: Vec<V> = (0..ROWS).map(|i| t.nest.b.offset(first, i)).collect();
            let transposed = (self.transposed, self.site.width);
            let mut sums = t.products(heads.key, &numbers, transposed, &cols, seen);
            t.cap(self.site.softcap, &mut sums, false);
            if let Some(mask) = heads.mask {
                mask.apply(t, (key, &numbers), &cols, seen, &mut sums);
            }
            for (j, &col) in cols.iter().enumerate() {
                let mut row_max = t.load(self.now, zero, col);
                for (i, &number) in numbers.iter().enumerate() {
                    let score = sums[i * cols.len() + j];
                    let score = t.mask_score(score, number, (q0, col), seen, strip);
                    let row = t.nest.b.offset(key, i as i64);
                    t.store(self.scores, row, col, score);
                    row_max = t.nest.b.binary(Binary::Max, score, row_max);
                }
                t.store(self.now, zero, col, row_max);
            }
        });
    }

    /// Rescales the row sums to the new row maxima. Returns the factors 2^(m - m').
    fn rescale(&self, t: &mut Tiles) -> Vec<V> {
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

    /// Computes P = 2^(scores - m), and adds it to the row sums.
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

    /// Divides O by the row sums, transposes it back, and stores the rows of the queries in range.
    fn store_output(&self, t: &mut Tiles, output: Head, q0: V) {
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

    /// Stores log Σ eˢ = (m + log₂ l) log 2. With a mask, stores log l alone, because m is a
    /// separate result.
    fn store_log(&self, t: &mut Tiles, logs: Head, q0: V) {
        let (unit, masked) = (t.number(std::f64::consts::LN_2), self.site.mask.is_some());
        t.store_per_query(logs, q0, |t, col| {
            let [sum, now] = [self.sums, self.now].map(|m| t.nest.b.load(m, col, t.lanes, None));
            let log = scalar::apply(&mut t.nest.b, Prim::Log, DType::F32, &[sum], None);
            if masked { log } else { t.nest.b.fma(now, unit, log) }
        });
    }
}
