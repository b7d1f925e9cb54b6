//! Packing: copies operands to panels, which hold elements in the order in which tiles read them.

use mithril_ir::dtype::DType;

use crate::builder::Builder;
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::contract::gather::{Gather, Lanes, Location};
use crate::contract::plan::{Layout, Plan};
use crate::contract::tile::Panel;
use crate::contract::{Contraction, Side, lanes, task};
use crate::loops::Loops;

/// Copies `count` outer elements for each `k` below `depth` to strips of `width` outer elements.
pub struct Copy<'a> {
    pub plan: &'a Plan,
    pub layout: Layout,
    pub from: Panel,
    /// The operand, if its elements are gathered.
    pub gathered: Option<Gathered<'a>>,
    pub count: V,
    /// Whether the last strip is known to be full.
    pub whole: bool,
    pub depth: V,
    /// The number of lanes of the vectors that are stored.
    pub lanes: u32,
    pub width: i64,
    /// The number of steps of `k` that a strip is allocated for.
    pub strip_depth: i64,
}

/// A gathered operand. `first` holds the first outer index and the first `k`.
pub struct Gathered<'a> {
    side: &'a Side,
    gather: &'a Gather,
    start: Location,
    first: [V; 2],
}

impl<'a> Gathered<'a> {
    /// Returns `None` if the operand is not gathered.
    pub fn of(b: &mut Builder, side: &'a Side, batch: &[V], first: [V; 2]) -> Option<Gathered<'a>> {
        let gather = side.gather.as_ref()?;
        Some(Gathered { side, gather, start: side.start(b, batch), first })
    }

    /// The elements at an outer index and the following ones, one per lane.
    fn lanes(&self, b: &mut Builder, outer: V, lanes: u32, mask: Option<V>) -> Lanes<'a> {
        let first = b.add(self.first[0], outer);
        let (first, iota) = (b.splat(first, lanes), b.iota(Ty::vector(Ty::INDEX.dtype, lanes)));
        let numbers = b.add(first, iota);
        let own = self.side.outer(b, numbers);
        let place = self.start.plus(b, &own);
        self.gather.lanes(b, &place, mask)
    }

    fn k(&self, b: &mut Builder, k: V) -> Location {
        let k = b.add(self.first[1], k);
        self.side.k(b, k)
    }
}

/// The prefetch distance, in steps of `k`.
const PREFETCH_STEPS: i64 = 8;

impl Copy<'_> {
    /// Copies to strips `[k][width]`. Elements past `count` are undefined; their results are not
    /// used.
    pub fn to_strips(&self, b: &mut Builder, to: (Mem, V)) {
        let zero = b.index(0);
        match self.layout {
            Layout::Gathered => self.gathered_rows(b, to),
            Layout::AlongK => {
                let size = b.index(self.lanes as i64 * self.plan.group);
                let remainder = b.binary(Binary::Rem, self.depth, size);
                let whole = b.sub(self.depth, remainder);
                self.squares(b, whole, to);
                self.rows(b, whole, to);
            }
            Layout::AlongOuter | Layout::Strided | Layout::Packed => self.rows(b, zero, to),
        }
        self.zero_padding(b, to);
    }

    /// Stores zeros from `depth` up to a whole unit of `k`.
    fn zero_padding(&self, b: &mut Builder, (mem, at): (Mem, V)) {
        let group = self.plan.group;
        if self.plan.unit == group {
            return;
        }
        let groups = task::block_count(b, self.depth, group);
        let (first, end) = (b.times(groups, group), self.plan.round_up_depth(b, self.depth));
        let zero = b.index(0);
        let zeros =
            b.number(Ty::vector(self.plan.panel_dtype, self.plan.register_elements() as u32), 0.0);
        task::span(b, zero, self.count, self.width, |b, strip| {
            let before = b.times(strip, self.strip_depth);
            let at = b.add(at, before);
            task::span(b, first, end, group, |b, k| {
                let row = b.times(k, self.width);
                let at = b.add(at, row);
                for start in (0..self.width).step_by(self.lanes as usize) {
                    let to = b.offset(at, start * group);
                    b.store(mem, to, zeros, None);
                }
            });
        });
    }

    /// Runs `body` for each strip, with the masks of its vectors.
    fn strips(
        &self,
        b: &mut Builder,
        masks: &[Option<V>],
        mut body: impl FnMut(&mut Builder, V, &[Option<V>]),
    ) {
        let zero = b.index(0);
        let full = self.full(b);
        let unmasked = vec![None; masks.len()];
        task::span(b, zero, full, self.width, |b, strip| body(b, strip, &unmasked));
        task::span(b, full, self.count, self.width, |b, strip| body(b, strip, masks));
    }

    /// The number of outer elements in full strips.
    fn full(&self, b: &mut Builder) -> V {
        let remainder = self.remainder(b);
        b.sub(self.count, remainder)
    }

    /// The number of outer elements in the last strip if it is not full.
    fn remainder(&self, b: &mut Builder) -> V {
        let width = b.index(self.width);
        match self.whole {
            true => b.index(0),
            false => b.binary(Binary::Rem, self.count, width),
        }
    }

    /// The first lane of each vector of a strip.
    fn starts(&self) -> impl Iterator<Item = i64> + use<> {
        (0..self.width).step_by(self.lanes as usize)
    }

    /// The masks of the last strip's vectors.
    fn masks(&self, b: &mut Builder) -> Vec<Option<V>> {
        let remainder = self.remainder(b);
        let mask = |start: i64| {
            let left = b.offset(remainder, -start);
            lanes::below(b, left, self.lanes)
        };
        self.starts().map(mask).collect()
    }

    /// Runs `body` for each group along `k` from `first` on. Also passes whether the group is
    /// whole.
    fn groups(&self, b: &mut Builder, first: V, mut body: impl FnMut(&mut Builder, V, bool)) {
        let group = self.plan.group;
        let size = b.index(group);
        let odd = b.binary(Binary::Rem, self.depth, size);
        let even = b.sub(self.depth, odd);
        task::span(b, first, even, group, |b, k| body(b, k, true));
        if b.constant(odd) != Some(0) {
            task::span(b, even, self.depth, group, |b, k| body(b, k, false));
        }
    }

    /// Copies from `first` on, one group along `k` after the other.
    fn rows(&self, b: &mut Builder, first: V, (mem, at): (Mem, V)) {
        if first == self.depth {
            return;
        }
        let masks = self.masks(b);
        self.groups(b, first, |b, k, whole_group| {
            let along = b.mul(k, self.from.k);
            let from = b.add(self.from.at, along);
            let row = b.times(k, self.width);
            let to = b.add(at, row);
            self.strips(b, &masks, |b, strip, masks| {
                let before = b.times(strip, self.strip_depth);
                let to = b.add(to, before);
                for (start, &mask) in self.starts().zip(masks) {
                    let col = b.offset(strip, start);
                    let value = self.group(b, from, col, mask, whole_group);
                    let to = b.offset(to, start * self.plan.group);
                    b.store(mem, to, value, None);
                }
            });
        });
    }

    /// Copies a gathered operand, one vector of outer elements after the other. Each is copied
    /// along all of `k`, so that the addresses of its lanes are computed once.
    fn gathered_rows(&self, b: &mut Builder, (mem, at): (Mem, V)) {
        let Some(own) = &self.gathered else { return };
        let masks = self.masks(b);
        self.strips(b, &masks, |b, strip, masks| {
            let before = b.times(strip, self.strip_depth);
            let at = b.add(at, before);
            for (start, &mask) in self.starts().zip(masks) {
                let col = b.offset(strip, start);
                let lanes = own.lanes(b, col, self.lanes, mask);
                let to = b.offset(at, start * self.plan.group);
                let along = |b: &mut Builder, contiguous: bool| {
                    self.gathered_along(b, &lanes, (mem, to), contiguous);
                };
                match lanes.contiguous() {
                    None => along(b, false),
                    Some(condition) => {
                        let with = |contiguous: bool| {
                            move |b: &mut Builder| {
                                along(b, contiguous);
                                vec![]
                            }
                        };
                        b.choose(condition, with(true), with(false));
                    }
                }
            }
        });
    }

    /// Copies one vector of outer elements along `k`.
    fn gathered_along(
        &self,
        b: &mut Builder,
        lanes: &Lanes,
        (mem, to): (Mem, V),
        contiguous: bool,
    ) {
        let Some(own) = &self.gathered else { return };
        let zero = b.index(0);
        self.groups(b, zero, |b, k, whole_group| {
            let load = |b: &mut Builder, k: V| {
                let k = own.k(b, k);
                let value = lanes.load(b, self.from.mem, &k, None, contiguous);
                self.plan.operand(b, value)
            };
            let first = load(b, k);
            let value = match (self.plan.group, whole_group) {
                (1, _) => first,
                (_, true) => {
                    let k = b.offset(k, 1);
                    let second = load(b, k);
                    self.interleave(b, first, second)
                }
                (_, false) => {
                    let none = b.number(b.ty(first), 0.0);
                    self.interleave(b, first, none)
                }
            };
            let row = b.times(k, self.width);
            let to = b.add(to, row);
            b.store(mem, to, value, None);
        });
    }

    /// Loads a vector of neighbouring outer elements for a group along `k`. Unless it is a
    /// `whole_group`, its second element is zero.
    fn group(&self, b: &mut Builder, from: V, col: V, mask: Option<V>, whole_group: bool) -> V {
        let first = self.vector(b, from, col, mask);
        if self.plan.group == 1 {
            return first;
        }
        let second = match whole_group {
            true => {
                let from = b.add(from, self.from.k);
                self.vector(b, from, col, mask)
            }
            false => b.number(b.ty(first), 0.0),
        };
        self.interleave(b, first, second)
    }

    /// Interleaves the lanes of two vectors of 16-bit elements.
    fn interleave(&self, b: &mut Builder, first: V, second: V) -> V {
        let [first, second] = [first, second].map(|v| b.bitcast(v, DType::U16));
        let pairs: Vec<u32> = (0..self.lanes).flat_map(|lane| [lane, lane + self.lanes]).collect();
        let pairs = b.shuffle(first, second, &pairs);
        b.bitcast(pairs, self.plan.panel_dtype)
    }

    /// Loads a vector of neighbouring outer elements for one `k`.
    fn vector(&self, b: &mut Builder, from: V, col: V, mask: Option<V>) -> V {
        let across = b.mul(col, self.from.outer);
        let from = b.add(from, across);
        let mem = self.from.mem;
        let value = match b.constant(self.from.outer) {
            Some(1) => {
                let prefetched = b.times(self.from.k, PREFETCH_STEPS);
                let prefetched = b.add(from, prefetched);
                b.prefetch(mem, prefetched, false);
                b.load(mem, from, self.lanes, mask)
            }
            _ => {
                let iota = b.iota(Ty::vector(Ty::INDEX.dtype, self.lanes));
                let [from, outer] = [from, self.from.outer].map(|v| b.splat(v, self.lanes));
                let across = b.mul(iota, outer);
                let at = b.add(from, across);
                b.gather(mem, at, mask)
            }
        };
        self.plan.operand(b, value)
    }

    /// Copies an operand that is contiguous along `k`: loads squares of elements and transposes
    /// them in registers. Outer indices past the end are clamped to the last one.
    fn squares(&self, b: &mut Builder, whole: V, (mem, at): (Mem, V)) {
        let (zero, size) = (b.index(0), self.lanes as i64);
        let last = b.offset(self.count, -1);
        task::span(b, zero, self.count, self.width, |b, strip| {
            let before = b.times(strip, self.strip_depth);
            let at = b.add(at, before);
            let end = task::part_size(b, self.count, strip, self.width);
            task::span(b, zero, end, size, |b, start| {
                let row = |i: i64| {
                    let outer = b.add(strip, start);
                    let outer = b.offset(outer, i);
                    let outer = b.binary(Binary::Min, outer, last);
                    let across = b.mul(outer, self.from.outer);
                    b.add(self.from.at, across)
                };
                let rows: Vec<V> = (0..size).map(row).collect();
                let before = b.times(start, self.plan.group);
                let to = b.add(at, before);
                task::span(b, zero, whole, size * self.plan.group, |b, k| {
                    self.square(b, &rows, k, (mem, to))
                });
            });
        });
    }

    fn square(&self, b: &mut Builder, rows: &[V], k: V, (mem, at): (Mem, V)) {
        let group = self.plan.group;
        let load = |&row: &V| {
            let at = b.add(row, k);
            let value = b.load(self.from.mem, at, self.lanes * group as u32, None);
            let value = self.plan.operand(b, value);
            // The elements of a group stay together, so they are transposed as one wider element.
            if group > 1 { b.bitcast(value, DType::U32) } else { value }
        };
        let loaded: Vec<V> = rows.iter().map(load).collect();
        let along = b.times(k, self.width);
        let at = b.add(at, along);
        for (i, value) in lanes::transpose(b, &loaded).into_iter().enumerate() {
            let to = b.offset(at, i as i64 * group * self.width);
            let value = b.bitcast(value, self.plan.panel_dtype);
            b.store(mem, to, value, None);
        }
    }

    /// Copies an operand that is contiguous along `k` to rows `[outer][pitch]`.
    pub fn to_rows(&self, b: &mut Builder, pitch: i64, (mem, at): (Mem, V)) {
        let lanes = self.plan.register_elements();
        let (zero, size) = (b.index(0), b.index(lanes));
        let remainder = b.binary(Binary::Rem, self.depth, size);
        let whole = b.sub(self.depth, remainder);
        let mask = lanes::below(b, remainder, lanes as u32);
        b.each(zero, self.count, 1, |b, outer| {
            let across = b.mul(outer, self.from.outer);
            let from = b.add(self.from.at, across);
            let row = b.times(outer, pitch);
            let to = b.add(at, row);
            let copy = |b: &mut Builder, k: V, mask: Option<V>| {
                let (from, to) = (b.add(from, k), b.add(to, k));
                let value = b.load(self.from.mem, from, lanes as u32, mask);
                let value = self.plan.operand(b, value);
                b.store(mem, to, value, None);
            };
            b.each(zero, whole, lanes, |b, k| copy(b, k, None));
            if b.constant(remainder) != Some(0) {
                copy(b, whole, mask);
            }
        });
    }

    /// Copies an operand that is not contiguous along `k` to rows `[outer][pitch]`, with zeros
    /// after `depth`.
    pub fn to_rows_transposed(&self, b: &mut Builder, pitch: i64, (mem, at): (Mem, V)) {
        let (zero, lanes) = (b.index(0), self.lanes as i64);
        let size = b.index(self.plan.register_elements());
        let remainder = b.binary(Binary::Rem, self.depth, size);
        let whole = b.sub(self.depth, remainder);
        b.each(zero, self.count, lanes, |b, outer| {
            let left = b.sub(self.count, outer);
            let mask = lanes::below(b, left, self.lanes);
            let row = b.times(outer, pitch);
            let to = b.add(at, row);
            let square = |b: &mut Builder, k: V, left: Option<V>| {
                let rows = self.transposed_rows(b, outer, k, (mask, left));
                for (i, row) in rows.into_iter().enumerate() {
                    let to = b.offset(to, i as i64 * pitch);
                    let to = b.add(to, k);
                    b.store(mem, to, row, None);
                }
            };
            b.each(zero, whole, self.plan.register_elements(), |b, k| square(b, k, None));
            if b.constant(remainder) != Some(0) {
                square(b, whole, Some(remainder));
            }
        });
    }

    /// Returns one row of neighbours along `k` for each outer element. `left` is the number of
    /// neighbours that exist, or `None` if all do.
    fn transposed_rows(
        &self,
        b: &mut Builder,
        outer: V,
        k: V,
        (mask, left): (Option<V>, Option<V>),
    ) -> Vec<V> {
        let gathered = self.gathered.as_ref();
        let gathered = gathered.map(|own| (own, own.lanes(b, outer, self.lanes, mask)));
        let column = |b: &mut Builder, i: i64| {
            let k = b.offset(k, i);
            let exists = left.map(|left| {
                let i = b.index(i);
                let exists = b.compare(Cmp::Lt, i, left);
                b.splat(exists, self.lanes)
            });
            if let Some((own, lanes)) = &gathered {
                let k = own.k(b, k);
                let value = lanes.load(b, self.from.mem, &k, exists, false);
                return self.plan.operand(b, value);
            }
            let along = b.mul(k, self.from.k);
            let from = b.add(self.from.at, along);
            let mask = match (mask, exists) {
                (Some(mask), Some(exists)) => Some(b.binary(Binary::And, mask, exists)),
                (mask, exists) => mask.or(exists),
            };
            self.vector(b, from, outer, mask)
        };
        let columns: Vec<V> = (0..self.lanes as i64)
            .map(|i| {
                let (first, second) = (column(b, 2 * i), column(b, 2 * i + 1));
                let pairs = self.interleave(b, first, second);
                b.bitcast(pairs, DType::U32)
            })
            .collect();
        let rows = lanes::transpose(b, &columns);
        rows.into_iter().map(|row| b.bitcast(row, self.plan.panel_dtype)).collect()
    }
}

/// Emits code that packs a constant `y` into contiguous strips `[k][columns of a tile]`. A task is
/// a strip of a batch index. Uses only `y`, `n`, `k` and the batch of the contraction.
pub fn pack(b: &mut Builder, c: &Contraction, plan: &Plan, to: &super::Side) {
    let strips = task::block_count(b, c.n, plan.strip());
    let extents = [&c.batch[..], &[strips]].concat();
    task::each(b, &extents, &[], |b, indices, _| {
        let (&strip, batch) = indices.split_last().expect("the strip");
        let (from, at) = (task::start(b, &c.y, batch), task::start(b, to, batch));
        let col = b.times(strip, plan.strip());
        let across = b.mul(col, c.y.outer);
        let from = b.add(from, across);
        let depth = plan.round_up_depth(b, c.k);
        let before = b.mul(col, depth);
        let at = b.add(at, before);
        let copy = Copy {
            plan,
            layout: c.y.layout(b),
            from: Panel { mem: c.y.mem, at: from, outer: c.y.outer, k: c.y.k },
            gathered: None,
            count: task::part_size(b, c.n, col, plan.strip()),
            whole: plan.whole_strips(b, c.n),
            depth: c.k,
            lanes: plan.lanes,
            width: plan.strip(),
            strip_depth: 0,
        };
        copy.to_strips(b, (to.mem, at));
        vec![]
    });
}
