//! The innermost loop: a tile of results that stays in registers while `k` runs.

use mithril_ir::dtype::DType;

use crate::builder::Builder;
use crate::code::{Binary, Mem, V};
use crate::contract::plan::Plan;
use crate::contract::{Epilogue, Position, lanes, operand, task};
use crate::loops::Loops;

/// Elements of an operand, at `at + outer·outer_stride + k·k_stride` in memory.
#[derive(Clone, Copy)]
pub struct Panel {
    pub mem: Mem,
    pub at: V,
    pub outer: V,
    pub k: V,
}

impl Panel {
    /// The index of the element at a constant outer index and a `k`.
    fn element(&self, b: &mut Builder, outer: i64, k: V) -> V {
        let along = b.mul(k, self.k);
        let across = b.times(self.outer, outer);
        // Adds a constant last, so that it becomes the displacement of the addressing mode.
        match b.constant(across) {
            Some(_) => {
                let at = b.add(self.at, along);
                b.add(at, across)
            }
            None => {
                let at = b.add(self.at, across);
                b.add(at, along)
            }
        }
    }
}

/// A tile of results. Its first row is the first of `x`, its first column the first of `y`.
pub struct Tile<'a> {
    pub plan: &'a Plan,
    pub height: u32,
    pub x: Panel,
    pub y: Panel,
    /// The mask of each vector of `y`.
    pub masks: &'a [Option<V>],
    /// The cache lines to prefetch as `k` runs.
    pub next: Option<PrefetchShare>,
}

/// The part of a later panel that one tile prefetches. Each time `k` advances by a cache line, it
/// prefetches `count` lines at distances of `step`.
pub struct PrefetchShare {
    pub panel: Panel,
    pub step: V,
    pub count: i64,
}

impl PrefetchShare {
    /// Prefetches the lines for `k`.
    pub fn prefetch(&self, b: &mut Builder, k: V) {
        let along = b.mul(k, self.panel.k);
        let from = b.add(self.panel.at, along);
        for i in 0..self.count {
            let across = b.times(self.step, i);
            let at = b.add(from, across);
            b.prefetch(self.panel.mem, at, false);
        }
    }
}

/// Loops along `k` of up to this many steps are unrolled completely.
const MAX_UNROLLED_STEPS: i64 = 16;
/// The unroll factor of loops whose address arithmetic is costly.
const UNROLL: i64 = 4;

impl Tile<'_> {
    /// Adds the products for each `k` below `depth` to the sums `start`. The order of sums is the
    /// vectors of the first row, then those of the next.
    pub fn sum(&self, b: &mut Builder, depth: V, start: Vec<V>) -> Vec<V> {
        let zero = b.index(0);
        let group = self.plan.group;
        let depth = self.plan.round_up_depth(b, depth);
        let steps = |b: &mut Builder, k: V, count: i64, sums: &[V]| {
            (0..count).fold(sums.to_vec(), |sums, step| {
                let k = b.offset(k, step * group);
                self.step(b, k, &sums)
            })
        };
        if let Some(depth @ ..=MAX_UNROLLED_STEPS) = b.constant(depth) {
            return steps(b, zero, depth / group, &start);
        }
        if let Some(next) = &self.next {
            let line = self.plan.line_elements();
            return b.repeat(zero, depth, line, &start, |b, k, sums| {
                next.prefetch(b, k);
                let end = b.offset(k, line);
                let end = b.binary(Binary::Min, end, depth);
                b.repeat(k, end, group, sums, |b, k, sums| self.step(b, k, sums))
            });
        }
        let many_addresses = b.constant(self.x.outer).is_none() || start.len() <= 8;
        let unroll = if many_addresses { UNROLL } else { 1 };
        let width = b.index(unroll * group);
        let remainder = b.binary(Binary::Rem, depth, width);
        let whole_steps = b.sub(depth, remainder);
        let sums = b.repeat(zero, whole_steps, unroll * group, &start, |b, k, sums| {
            steps(b, k, unroll, sums)
        });
        match b.constant(remainder) {
            Some(0) => sums,
            _ => b.repeat(whole_steps, depth, group, &sums, |b, k, sums| self.step(b, k, sums)),
        }
    }

    fn step(&self, b: &mut Builder, k: V, sums: &[V]) -> Vec<V> {
        let (lanes, group) = (self.plan.lanes, self.plan.group as u32);
        let mut columns = Vec::new();
        for (v, &mask) in self.masks.iter().enumerate() {
            let at = self.y.element(b, v as i64 * lanes as i64, k);
            let loaded = b.load(self.y.mem, at, lanes * group, mask);
            columns.push(self.plan.operand(b, loaded));
        }
        let mut next = Vec::new();
        for row in 0..self.height {
            let at = self.x.element(b, row as i64, k);
            let loaded = b.load(self.x.mem, at, group, None);
            let wide = self.plan.broadcast(b, loaded);
            for &column in &columns {
                let sum = sums[next.len()];
                next.push(multiply_add(b, self.plan, wide, column, sum));
            }
        }
        next
    }
}

impl Plan {
    /// Converts a loaded value to the dtype of panels.
    pub(super) fn operand(&self, b: &mut Builder, loaded: V) -> V {
        match self.panel_dtype == b.ty(loaded).dtype {
            true => loaded,
            false => operand(b, loaded, self.panel_dtype),
        }
    }

    /// Broadcasts a group of `x` to all lanes of a vector.
    fn broadcast(&self, b: &mut Builder, loaded: V) -> V {
        if self.group == 1 {
            let scalar = self.operand(b, loaded);
            return b.splat(scalar, self.lanes);
        }
        let pair = b.bitcast(loaded, DType::U32);
        let wide = b.splat(pair, self.lanes);
        b.bitcast(wide, self.panel_dtype)
    }
}

/// Emits `x * y + sum`. If `k` is grouped, adds the products of all elements of a group.
pub fn multiply_add(b: &mut Builder, plan: &Plan, x: V, y: V, sum: V) -> V {
    if plan.group > 1 {
        return b.dot_pairs(x, y, sum);
    }
    if plan.fma {
        return b.fma(x, y, sum);
    }
    let product = b.mul(x, y);
    b.add(product, sum)
}

/// The columns of a tile: the first column, and the masks of the lanes below `n`.
pub struct Columns {
    pub first: V,
    pub masks: Vec<Option<V>>,
    /// The number of columns from each vector on, if known.
    left: Vec<Option<i64>>,
}

impl Columns {
    pub fn new(b: &mut Builder, plan: &Plan, first: V, n: V) -> Columns {
        let whole_steps = plan.whole_strips(b, n);
        let (mut masks, mut left) = (Vec::new(), Vec::new());
        for v in 0..plan.vectors as i64 {
            let from = b.offset(first, v * plan.lanes as i64);
            let rest = b.sub(n, from);
            masks.push(if whole_steps { None } else { lanes::below(b, rest, plan.lanes) });
            left.push(b.constant(rest));
        }
        Columns { first, masks, left }
    }
}

/// Passes a tile's sums to the epilogue, one vector at a time.
pub fn pass_to_epilogue(
    b: &mut Builder,
    plan: &Plan,
    sums: &[V],
    (batch, row): (&[V], V),
    columns: &Columns,
    epilogue: Epilogue,
) {
    for (i, &sum) in sums.iter().enumerate() {
        let (r, v) = (i / columns.masks.len(), i % columns.masks.len());
        // Works around a bug of LLVM 22: it miscompiles a masked store of one lane of a narrow type
        // to a store of a wider type.
        let (sum, mask) = match columns.left[v] {
            Some(..=0) => continue,
            Some(1) if plan.lanes > 1 => (b.extract(sum, 0), None),
            _ => (sum, columns.masks[v]),
        };
        let value = b.convert(sum, plan.acc);
        let row = b.offset(row, r as i64);
        let col = b.offset(columns.first, v as i64 * plan.lanes as i64);
        epilogue(b, &Position { batch, row, col }, value, mask);
    }
}

/// Stores a tile's sums in scratch memory.
pub fn store_sums(b: &mut Builder, plan: &Plan, (mem, from): (Mem, V), sums: &[V]) {
    for (i, &sum) in sums.iter().enumerate() {
        let at = b.offset(from, i as i64 * plan.lanes as i64);
        b.store(mem, at, sum, None);
    }
}

/// Loads `count` stored sums.
pub fn load_sums(
    b: &mut Builder,
    plan: &Plan,
    (mem, from): (Mem, V),
    count: usize,
    mask: Option<V>,
) -> Vec<V> {
    let load = |i: usize| {
        let at = b.offset(from, i as i64 * plan.lanes as i64);
        b.load(mem, at, plan.lanes, mask)
    };
    (0..count).map(load).collect()
}

/// Passes a tile's stored sums to the epilogue, row by row.
pub fn pass_stored_to_epilogue(
    b: &mut Builder,
    plan: &Plan,
    (mem, from): (Mem, V),
    (batch, first, height): (&[V], V, V),
    columns: &Columns,
    epilogue: Epilogue,
) {
    let zero = b.index(0);
    task::span(b, zero, height, 1, |b, row| {
        let along = b.times(row, plan.strip());
        let start = b.add(from, along);
        let sums = load_sums(b, plan, (mem, start), columns.masks.len(), None);
        let row = b.add(first, row);
        pass_to_epilogue(b, plan, &sums, (batch, row), columns, epilogue);
    });
}
