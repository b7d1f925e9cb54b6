//! Attention as one kernel: the scores of a block of queries are never all there at once.
//!
//! Everything is transposed: lanes are queries, so that greatest scores, sums and rescaling are
//! plain vector arithmetic, and keys and values are read where they lie, an element at a time. For
//! a block of queries and a block of keys, in the manner of Milakov & Gimelshein 2018 (online
//! softmax) and Dao et al. 2022 (FlashAttention):
//!
//! scores = K·Qᵀ; m' = max(m, scores); P = 2^(scores - m'); l = l·2^(m - m') + ΣP; O = O·2^(m - m') + Vᵀ·P

mod keys;
mod values;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation};
use mithril_passes::outline::strides::{Strided, strided};

use super::fold::product;
use super::index::Ix;
use super::nest::Nest;
use super::{Isa, Lowered};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::contract::lanes::transpose;

/// Keys or elements of a head that are worked at once, and how many steps of a sum are written out.
const ROWS: i64 = 4;
const STEPS: i64 = 4;
/// Less than any score; infinite ones would give NaN where they are subtracted.
const LEAST: f64 = -1e30;

/// Which keys of a block a query sees.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    All,
    /// Those that there are.
    Present,
    /// Those that come no later than it.
    Earlier,
}

/// An operand, at the head that is worked.
#[derive(Clone, Copy)]
struct Head {
    mem: Mem,
    /// Where it begins.
    at: V,
    /// From one query, key or value to the next.
    stride: V,
}

struct Attention<'f> {
    nest: Nest<'f>,
    lanes: u32,
    /// Vectors of a block of queries.
    vectors: i64,
    /// Elements of a head of queries and keys, and of values.
    width: i64,
    value_width: i64,
    queries: V,
    keys: V,
    /// Qᵀ times scale, scores and then P, Oᵀ, the greatest scores before and now, the sums.
    turned: Mem,
    scores: Mem,
    out: Mem,
    before: Mem,
    now: Mem,
    sums: Mem,
}

pub fn lower(function: &Function, op: &Operation, isa: &Isa) -> Result<Lowered> {
    let lanes = isa.bytes / 4;
    let mut nest = Nest::new(function, isa);
    let sides: Option<Vec<Strided>> =
        op.operands.iter().map(|&v| strided(function, &nest.definitions, v)).collect();
    let Some(sides) = sides else {
        return Diagnostic::new("the operands of attention do not lie in steps").err();
    };
    let dims: Vec<Vec<Dim>> = op.operands.iter().map(|&v| nest.dims(v).to_vec()).collect();
    let rank = dims[0].len();
    let fixed = |dim: &Dim| dim.as_const().unwrap_or(0);
    let (width, value_width) = (fixed(&dims[0][rank - 1]), fixed(&dims[2][rank - 1]));
    let vectors: i64 = if isa.registers >= 32 { 4 } else { 2 };
    let block = vectors * i64::from(lanes);
    let mut offset = 0;
    let mut room = |nest: &mut Nest, rows: i64| {
        let at = nest.b.index(offset * 4);
        offset += rows * block;
        nest.b.scratch(DType::F32, at)
    };
    let [turned, scores, out] = [width, block, value_width].map(|rows| room(&mut nest, rows));
    let [before, now, sums] = [1; 3].map(|rows| room(&mut nest, rows));
    let (queries, keys) = (nest.dim(&dims[0][rank - 2]), nest.dim(&dims[1][rank - 2]));
    let mut own = Attention {
        nest,
        lanes,
        vectors,
        width,
        value_width,
        queries,
        keys,
        turned,
        scores,
        out,
        before,
        now,
        sums,
    };
    let heads = dims[0][..rank - 2].to_vec();
    own.kernel(op, &sides, &dims, &heads);
    let (tasks, scratch) = (product(&heads), Dim::from(offset * 4 + 64));
    Ok(Lowered { code: own.nest.b.finish(), tasks, grain: 1, scratch, partials: vec![] })
}

impl Attention<'_> {
    /// A task for each head.
    fn kernel(&mut self, op: &Operation, sides: &[Strided], dims: &[Vec<Dim>], heads: &[Dim]) {
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        let (task, _) = self.nest.b.open_repeat(&[]);
        self.nest.enter();
        let place = self.nest.unflat(heads, Ix::At(task));
        let place: Vec<V> = place.into_iter().map(|ix| self.nest.position(ix)).collect();
        let grouped = matches!(op.attr("grouped"), Attr::Bool(true));
        let heads: Vec<Head> = (0..3)
            .map(|side| self.head(&sides[side], &dims[side], &dims[0], &place, grouped))
            .collect();
        let result = self.nest.dims(op.result()).len();
        let task_size = self.nest.b.times(self.queries, self.value_width);
        let at = self.nest.b.mul(task, task_size);
        debug_assert_eq!(result, dims[0].len());
        let out =
            Head { mem: self.nest.results[0], at, stride: self.nest.b.index(self.value_width) };
        let scale = match op.attr("scale") {
            Attr::Float(scale) => *scale,
            _ => 1.0 / (self.width as f64).sqrt(),
        };
        let causal = matches!(op.attr("causal"), Attr::Bool(true));
        let (zero, queries) = (self.nest.b.index(0), self.queries);
        let (q0, _) = self.nest.b.open_repeat(&[]);
        self.nest.enter();
        self.block(&heads, out, q0, scale, causal);
        self.nest.leave();
        self.nest.b.close_repeat(zero, queries, self.block_size(), &[], q0, vec![], vec![]);
        self.nest.leave();
        self.nest.b.close_repeat(first, last, 1, &[], task, vec![], vec![]);
    }

    fn block_size(&self) -> i64 {
        self.vectors * i64::from(self.lanes)
    }

    /// Where an operand's part of the head begins. Dims of 1 serve all; with groups a head of keys
    /// serves several of queries.
    fn head(
        &mut self,
        side: &Strided,
        dims: &[Dim],
        all: &[Dim],
        place: &[V],
        grouped: bool,
    ) -> Head {
        let rank = dims.len();
        let mut at = self.nest.dim(&side.offset);
        for (axis, &i) in place.iter().enumerate() {
            let mut i = i;
            if dims[axis].as_const() == Some(1) && all[axis].as_const() != Some(1) {
                continue;
            }
            if grouped && axis == rank - 3 {
                let times = all[axis].as_const().zip(dims[axis].as_const());
                let times = times.map_or(1, |(all, own)| all / own.max(1));
                let times = self.nest.b.index(times);
                i = self.nest.b.div(i, times);
            }
            let stride = self.nest.dim(&side.strides[axis]);
            let step = self.nest.b.mul(i, stride);
            at = self.nest.b.add(at, step);
        }
        let mem = self.nest.arg(side.root).expect("operands of kernels are arguments");
        Head { mem, at, stride: self.nest.dim(&side.strides[rank - 2]) }
    }

    fn ty(&self) -> Ty {
        Ty::vector(DType::F32, self.lanes)
    }

    fn columns(&self, from: i64) -> Vec<i64> {
        (from..self.vectors).map(|v| v * i64::from(self.lanes)).collect()
    }

    /// Element `col` of row `row` of scratch memory.
    fn cell(&mut self, row: V, col: i64) -> V {
        let row = self.nest.b.times(row, self.block_size());
        self.nest.b.offset(row, col)
    }

    fn load(&mut self, mem: Mem, row: V, col: i64) -> V {
        let at = self.cell(row, col);
        self.nest.b.load(mem, at, self.lanes, None)
    }

    fn store(&mut self, mem: Mem, row: V, col: i64, value: V) {
        let at = self.cell(row, col);
        self.nest.b.store(mem, at, value, None);
    }

    fn repeat(
        &mut self,
        from: V,
        to: V,
        step: i64,
        carried: &[V],
        body: impl FnOnce(&mut Self, V, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let (i, inner) = self.nest.b.open_repeat(carried);
        let next = body(self, i, &inner);
        self.nest.b.close_repeat(from, to, step, carried, i, inner, next)
    }

    /// A block of queries against all keys.
    fn block(&mut self, heads: &[Head], out: Head, q0: V, scale: f64, causal: bool) {
        self.turn(heads[0], q0, scale);
        self.clear();
        let (zero, block) = (self.nest.b.index(0), self.block_size());
        if causal {
            self.repeat(zero, q0, block, &[], |own, k0, _| {
                own.keys(heads, q0, k0, Seen::All);
                vec![]
            });
            self.keys(heads, q0, q0, Seen::Earlier);
        } else {
            let size = self.nest.b.index(block);
            let count = self.nest.b.div(self.keys, size);
            let whole = self.nest.b.mul(count, size);
            self.repeat(zero, whole, block, &[], |own, k0, _| {
                own.keys(heads, q0, k0, Seen::All);
                vec![]
            });
            let rest = self.nest.b.compare(Cmp::Lt, whole, self.keys);
            self.nest.b.open_region();
            self.keys(heads, q0, whole, Seen::Present);
            let yes = self.nest.b.close_region(vec![]);
            self.nest.b.open_region();
            let no = self.nest.b.close_region(vec![]);
            self.nest.b.place_choice(rest, yes, no);
        }
        self.finish(out, q0);
    }

    /// Qᵀ times the scale, in units of log₂e; queries beyond the last are the last.
    fn turn(&mut self, queries: Head, q0: V, scale: f64) {
        let factor = self.nest.b.number(self.ty(), scale * std::f64::consts::LOG2_E);
        let last = self.nest.b.offset(self.queries, -1);
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(self.width));
        let lanes = i64::from(self.lanes);
        for col in self.columns(0) {
            self.repeat(zero, width, lanes, &[], |own, d, _| {
                let row = |own: &mut Self, i: i64| {
                    let q = own.nest.b.offset(q0, col + i);
                    let q = own.nest.b.binary(Binary::Min, q, last);
                    let at = own.element(queries, q, d);
                    own.nest.b.load(queries.mem, at, own.lanes, None)
                };
                let rows: Vec<V> = (0..lanes).map(|i| row(own, i)).collect();
                for (i, v) in transpose(&mut own.nest.b, &rows).into_iter().enumerate() {
                    let v = own.nest.b.mul(v, factor);
                    let row = own.nest.b.offset(d, i as i64);
                    own.store(own.turned, row, col, v);
                }
                vec![]
            });
        }
    }

    /// Where element `d` of row `row` of a head lies.
    fn element(&mut self, head: Head, row: V, d: V) -> V {
        let at = self.nest.b.mul(row, head.stride);
        let at = self.nest.b.add(at, d);
        self.nest.b.add(head.at, at)
    }

    fn clear(&mut self) {
        let (zero, none) = (self.nest.b.index(0), self.nest.b.number(self.ty(), 0.0));
        let least = self.nest.b.number(self.ty(), LEAST);
        let width = self.nest.b.index(self.value_width);
        self.repeat(zero, width, 1, &[], |own, d, _| {
            own.columns(0).into_iter().for_each(|col| own.store(own.out, d, col, none));
            vec![]
        });
        for col in self.columns(0) {
            self.store(self.before, zero, col, least);
            self.store(self.now, zero, col, least);
            self.store(self.sums, zero, col, none);
        }
    }

    /// O divided by the sums, turned back and written, for the queries that there are.
    fn finish(&mut self, out: Head, q0: V) {
        let (zero, width) = (self.nest.b.index(0), self.nest.b.index(self.value_width));
        let [one, none] = [1.0, 0.0].map(|x| self.nest.b.number(self.ty(), x));
        let lanes = i64::from(self.lanes);
        for col in self.columns(0) {
            let sum = self.load(self.sums, zero, col);
            let inverse = self.nest.b.div(one, sum);
            let empty = self.nest.b.compare(Cmp::Eq, sum, none);
            let inverse = self.nest.b.select(empty, none, inverse);
            self.repeat(zero, width, lanes, &[], |own, d, _| {
                let row = |own: &mut Self, i: i64| {
                    let element = own.nest.b.offset(d, i);
                    let v = own.load(own.out, element, col);
                    own.nest.b.mul(v, inverse)
                };
                let rows: Vec<V> = (0..lanes).map(|i| row(own, i)).collect();
                for (i, v) in transpose(&mut own.nest.b, &rows).into_iter().enumerate() {
                    let q = own.nest.b.offset(q0, col + i as i64);
                    let there = own.nest.b.compare(Cmp::Lt, q, own.queries);
                    let at = own.element(out, q, d);
                    own.nest.b.when(there, |b| b.store(out.mem, at, v, None));
                }
                vec![]
            });
        }
    }
}
