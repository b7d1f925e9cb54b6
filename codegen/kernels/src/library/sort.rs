//! Sorting along an axis: bottom-up merge sort between two halves of scratch memory.
//!
//! Elements of up to 32 bits are packed in 64-bit words. The high half of a word is an integer in
//! the same order as the element; the low half is the element's index. So an element and its index
//! are compared and moved together. Because all words differ, the sort is stable. Squares of words
//! are sorted with vectors (a sorting network), and pairs of runs are merged from both ends at the
//! same time.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::access::{Access, Library};
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::builder::Builder;
use crate::code::{Binary, Cmp, Mem, Region, Unary, V};
use crate::contract::lanes;
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::layout::int;
use crate::lower::nest::{Nest, register_dtype};
use crate::scalar;

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel::plain("sort"),
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::sort),
};

/// One line to sort.
struct Line<'a> {
    place: &'a Index,
    axis: usize,
    size: V,
    /// The number of leading elements that are needed, or `None` for all (top-k).
    limit: Option<V>,
    descending: bool,
    /// Whether the results are indices instead of values.
    indices: bool,
}

/// Extra elements of scratch memory per line, for padding to whole squares of words.
const PADDING: i64 = 72;

impl Standalone<'_> {
    fn sort(&mut self) -> Dim {
        let indices = matches!(self.op.op.access, Access::Library(Library::Sort { indices: true }));
        let x = self.op.operands[0];
        let axis = self.axis();
        let length = self.nest.dims(x)[axis].clone();
        self.scratch = (&length + &Dim::Const(PADDING)) * Dim::Const(32);
        // Top-k returns the largest elements.
        let descending = self.op.op.attr_index("k").is_some()
            || matches!(self.op.attr("descending"), Attr::Bool(true));
        let dtype = register_dtype(self.nest.dtype(x));
        let fits_word = dtype.bits() <= 32 && self.nest.lanes > 1;
        self.lines(|own, place, axis| {
            let size = own.nest.dim(&length);
            let limit = own.op.op.attr_index("k").map(|_| {
                let limit = own.nest.b.index(int(own.op, "k"));
                own.nest.b.binary(Binary::Min, limit, size)
            });
            let line = Line { place, axis, size, limit, descending, indices };
            match length.as_const() {
                _ if !fits_word => own.sort_pairs(&line),
                Some(length) if length <= i64::from(i32::MAX) => own.sort_words(&line),
                Some(_) => own.sort_pairs(&line),
                None => {
                    let max = own.nest.b.index(i64::from(i32::MAX));
                    let short = own.nest.b.compare(Cmp::Le, size, max);
                    let words = own.region(|own| own.sort_words(&line));
                    let pairs = own.region(|own| own.sort_pairs(&line));
                    own.nest.b.place_choice(short, words, pairs);
                }
            }
        })
    }

    /// Emits `body` as a region.
    fn region(&mut self, body: impl FnOnce(&mut Self)) -> Region {
        self.nest.b.open_region();
        self.nest.enter();
        body(self);
        self.nest.leave();
        self.nest.b.close_region(vec![])
    }

    fn sort_words(&mut self, line: &Line) {
        let lanes = i64::from(self.nest.lanes / 2);
        let zero = self.nest.b.index(0);
        let words = self.nest.b.scratch(DType::I64, zero);
        // Scratch memory: two halves of words, each padded to whole squares, then the elements.
        let square = self.nest.b.index(lanes * lanes);
        let full = self.nest.b.offset(line.size, lanes * lanes - 1);
        let remainder = self.nest.b.binary(Binary::Rem, full, square);
        let total = self.nest.b.sub(full, remainder);
        let elements_offset = self.nest.b.offset(line.size, PADDING);
        let elements_offset = self.nest.b.times(elements_offset, 16);
        let elements = self
            .nest
            .b
            .scratch(register_dtype(self.nest.dtype(self.op.operands[0])), elements_offset);
        self.make_words(line, words, elements, total);
        let b = &mut self.nest.b;
        b.each(zero, total, lanes * lanes, |b, first| sort_square(b, words, first, lanes as u32));
        let (width, rounds) = (b.index(lanes), b.index(63));
        let done = b.repeat(zero, rounds, 1, &[width, zero], |b, _, state| {
            let (width, source) = (state[0], state[1]);
            let more = b.compare(Cmp::Lt, width, total);
            let round = |b: &mut Builder| {
                let target = b.sub(total, source);
                MergePass { words, total, width, source, target, limit: line.limit }.merge(b);
                vec![b.add(width, width), target]
            };
            b.choose(more, round, |_| vec![width, source])
        });
        let limit = line.limit.unwrap_or(line.size);
        self.each(zero, limit, 1, |own, i| {
            let b = &mut own.nest.b;
            let at = b.add(done[1], i);
            let word = b.load(words, at, 1, None);
            let low = b.index(i64::from(u32::MAX));
            let number = b.binary(Binary::And, word, low);
            let value = match line.indices {
                true => number,
                false => b.load(elements, number, 1, None),
            };
            let mut place = line.place.clone();
            place[line.axis] = Ix::Uniform(i);
            own.write(&place, value);
        });
    }

    /// Packs the elements in words. Pads them to whole squares with the largest word.
    fn make_words(&mut self, line: &Line, words: Mem, elements: Mem, total: V) {
        let x = self.op.operands[0];
        let wide = i64::from(self.nest.lanes);
        let inner = self.nest.dims(x)[line.axis + 1..].iter().all(|dim| dim.as_const() == Some(1));
        let zero = self.nest.b.index(0);
        let step = |own: &mut Self, i: V, ix: Ix| {
            let mut place = line.place.clone();
            place[line.axis] = ix;
            let element = own.nest.pull(x, &place);
            let lanes = own.nest.lanes_of(&place);
            let b = &mut own.nest.b;
            let element = b.splat(element, lanes);
            if !line.indices {
                b.store(elements, i, element, None);
            }
            let word = word(b, element, i, line.descending);
            b.store(words, i, word, None);
        };
        let size = self.nest.b.index(wide);
        let remainder = self.nest.b.binary(Binary::Rem, line.size, size);
        let whole = if inner { self.nest.b.sub(line.size, remainder) } else { zero };
        if inner {
            self.each(zero, whole, wide, |own, i| step(own, i, Ix::Ascending(i)));
        }
        self.each(whole, line.size, 1, |own, i| step(own, i, Ix::Uniform(i)));
        let max = self.nest.b.index(i64::MAX);
        self.each(line.size, total, 1, |own, i| own.nest.b.store(words, i, max, None));
    }

    /// Whether `x` sorts before `y`. NaN is last in ascending order and first in descending order.
    fn before(&mut self, x: V, y: V, descending: bool) -> V {
        let b = &mut self.nest.b;
        let (beats, of_x, of_y) = match descending {
            true => (Cmp::Gt, Cmp::Ne, Cmp::Eq),
            false => (Cmp::Lt, Cmp::Eq, Cmp::Ne),
        };
        let beats = b.compare(beats, x, y);
        if !b.ty(x).dtype.is_float() {
            return beats;
        }
        // Also true if exactly one is NaN: `x` in descending order, `y` in ascending order.
        let (x, y) = (b.compare(of_x, x, x), b.compare(of_y, y, y));
        let one_is_nan = b.binary(Binary::And, x, y);
        b.binary(Binary::Or, beats, one_is_nan)
    }

    /// Sorts elements and their indices in two separate arrays.
    fn sort_pairs(&mut self, line: &Line) {
        let &Line { place, axis, size, limit, descending, indices } = line;
        let x = self.op.operands[0];
        let dtype = register_dtype(self.nest.dtype(x));
        let (zero, one) = (self.nest.b.index(0), self.nest.b.index(1));
        let elements = self.nest.b.scratch(dtype, zero);
        let half = self.nest.b.offset(size, 8);
        let half = self.nest.b.times(half, 16);
        let numbers = self.nest.b.scratch(DType::I64, half);
        let at = |nest: &mut Nest, i: V| {
            let mut place = place.clone();
            place[axis] = Ix::Uniform(i);
            nest.pull(x, &place)
        };
        self.nest.each(zero, size, 1, |nest, i| {
            let element = at(nest, i);
            nest.b.store(elements, i, element, None);
            nest.b.store(numbers, i, i, None);
        });
        // Run lengths double until one run covers the line. 63 rounds suffice for any length.
        let rounds = self.nest.b.index(63);
        let done = self.repeat(zero, rounds, 1, &[one, zero], |own, _, state| {
            let (width, source) = (state[0], state[1]);
            let more = own.nest.b.compare(Cmp::Lt, width, size);
            own.nest.b.open_region();
            own.nest.enter();
            let target = own.nest.b.sub(size, source);
            own.merge_all([elements, numbers], size, width, source, target, descending);
            let doubled = own.nest.b.add(width, width);
            own.nest.leave();
            let yes = own.nest.b.close_region(vec![doubled, target]);
            own.nest.b.open_region();
            let no = own.nest.b.close_region(vec![width, source]);
            own.nest.b.place_choice(more, yes, no)
        });
        let source = done[1];
        let from = if indices { numbers } else { elements };
        let limit = limit.unwrap_or(size);
        self.each(zero, limit, 1, |own, i| {
            let at = own.nest.b.add(source, i);
            let value = own.nest.b.load(from, at, 1, None);
            let mut place = place.clone();
            place[axis] = Ix::Uniform(i);
            own.write(&place, value);
        });
    }

    /// Merges runs of `width` at `source` into runs twice as long at `target`.
    fn merge_all(
        &mut self,
        mems: [Mem; 2],
        size: V,
        width: V,
        source: V,
        target: V,
        descending: bool,
    ) {
        let zero = self.nest.b.index(0);
        let (left, right) = (zero, width);
        let (i, now) = self.nest.b.open_repeat(&[left, right, zero]);
        self.nest.enter();
        // After the last element of a pair of runs, continues with the next pair.
        let pair = self.nest.b.add(width, width);
        let start = now[2];
        let remainder = self.nest.b.add(start, pair);
        let next_pair = self.nest.b.compare(Cmp::Ge, i, remainder);
        let start = self.nest.b.select(next_pair, remainder, start);
        let second = self.nest.b.add(start, width);
        let left = self.nest.b.select(next_pair, start, now[0]);
        let right = self.nest.b.select(next_pair, second, now[1]);
        let left_end = self.nest.b.binary(Binary::Min, second, size);
        let right_end = self.nest.b.add(start, pair);
        let right_end = self.nest.b.binary(Binary::Min, right_end, size);
        let has_left = self.nest.b.compare(Cmp::Lt, left, left_end);
        let has_right = self.nest.b.compare(Cmp::Lt, right, right_end);
        let last = self.nest.b.offset(size, -1);
        let read = |nest: &mut Nest, mem, at: V| {
            let at = nest.b.binary(Binary::Min, at, last);
            let at = nest.b.add(at, source);
            nest.b.load(mem, at, 1, None)
        };
        let a = read(&mut self.nest, mems[0], left);
        let c = read(&mut self.nest, mems[0], right);
        let earlier = self.before(c, a, descending);
        let b = &mut self.nest.b;
        let none = b.unary(Unary::Not, has_left);
        let take_right = b.binary(Binary::Or, none, earlier);
        let take_right = b.binary(Binary::And, take_right, has_right);
        let from = b.select(take_right, right, left);
        let goal = b.add(target, i);
        for mem in mems {
            let v = read(&mut self.nest, mem, from);
            self.nest.b.store(mem, goal, v, None);
        }
        let b = &mut self.nest.b;
        let [more_left, more_right] = [left, right].map(|v| b.offset(v, 1));
        let next_left = b.select(take_right, left, more_left);
        let next_right = b.select(take_right, more_right, right);
        self.nest.leave();
        let next = vec![next_left, next_right, start];
        self.nest.b.close_repeat(zero, size, 1, &[zero, width, zero], i, now, next);
    }
}

/// Packs elements in words. `at` is the index of the first element.
fn word(b: &mut Builder, x: V, at: V, descending: bool) -> V {
    let ty = b.ty(x);
    let key = match ty.dtype.is_float() {
        true => {
            // Adding 0 turns -0 into +0, so that both compare equal.
            let zero = b.number(ty, 0.0);
            let x = b.add(x, zero);
            scalar::sort_key(b, x, false)
        }
        false => x,
    };
    let word = ty.with(DType::I64);
    let key = b.convert(key, DType::I64);
    let key = match ty.dtype {
        DType::U32 => {
            let half = b.int(word, 1 << 31);
            b.sub(key, half)
        }
        _ => key,
    };
    let key = if descending { b.unary(Unary::Not, key) } else { key };
    let half = b.int(word, 32);
    let high = b.binary(Binary::Shl, key, half);
    let mut low = b.splat(at, ty.lanes);
    if ty.lanes > 1 {
        let ramp = b.iota(word);
        low = b.add(low, ramp);
    }
    b.binary(Binary::Or, high, low)
}

/// Sorts `lanes` runs of `lanes` words each: sorts the columns of a square of words, then
/// transposes it.
fn sort_square(b: &mut Builder, words: Mem, first: V, lanes: u32) {
    let row = |b: &mut Builder, i: u32| b.offset(first, i64::from(i * lanes));
    let mut rows = Vec::new();
    for i in 0..lanes {
        let at = row(b, i);
        rows.push(b.load(words, at, lanes, None));
    }
    for (i, j) in network(lanes as usize) {
        let (x, y) = (rows[i], rows[j]);
        rows[i] = b.binary(Binary::Min, x, y);
        rows[j] = b.binary(Binary::Max, x, y);
    }
    for (i, run) in lanes::transpose(b, &rows).into_iter().enumerate() {
        let at = row(b, i as u32);
        b.store(words, at, run, None);
    }
}

/// The compare-exchange pairs that sort `count` numbers, a power of two: Batcher's odd-even merge
/// sort (Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M).
fn network(count: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut p = 1;
    while p < count {
        let mut k = p;
        while k > 0 {
            for start in (k % p..count - k).step_by(2 * k) {
                let near = (0..k.min(count - start - k)).map(|i| start + i);
                let same = near.filter(|i| i / (2 * p) == (i + k) / (2 * p));
                pairs.extend(same.map(|i| (i, i + k)));
            }
            k /= 2;
        }
        p *= 2;
    }
    pairs
}

/// One pass of the merge sort: merges runs of `width` words at `source` into runs twice as long at
/// `target`.
struct MergePass {
    words: Mem,
    total: V,
    width: V,
    source: V,
    target: V,
    limit: Option<V>,
}

impl MergePass {
    fn merge(&self, b: &mut Builder) {
        let (zero, pair) = (b.index(0), b.add(self.width, self.width));
        let remainder = b.binary(Binary::Rem, self.total, pair);
        let whole = b.sub(self.total, remainder);
        let pairs = |b: &mut Builder, body: &dyn Fn(&mut Builder, V)| {
            let count = b.div(whole, pair);
            b.each(zero, count, 1, |b, i| {
                let first = b.mul(i, pair);
                body(b, first);
            });
        };
        match self.limit {
            None => pairs(b, &|b, first| self.merge_from_both_ends(b, first)),
            Some(limit) => {
                let front_suffices = b.compare(Cmp::Ge, self.width, limit);
                let ends = |b: &mut Builder| {
                    pairs(b, &|b, first| self.merge_front(b, first, limit));
                    vec![]
                };
                let all = |b: &mut Builder| {
                    pairs(b, &|b, first| self.merge_from_both_ends(b, first));
                    vec![]
                };
                b.choose(front_suffices, ends, all);
            }
        }
        self.merge_remainder(b, whole);
    }

    /// Merges one word at the front: stores the smaller of the next words of both runs.
    fn merge_word(&self, b: &mut Builder, to: V, [left, right]: [V; 2]) -> [V; 2] {
        let (x, y) = (b.load(self.words, left, 1, None), b.load(self.words, right, 1, None));
        let second = b.compare(Cmp::Lt, y, x);
        let smaller = b.binary(Binary::Min, x, y);
        b.store(self.words, to, smaller, None);
        let step = b.convert(second, DType::I64);
        let (next, right) = (b.offset(left, 1), b.add(right, step));
        [b.sub(next, step), right]
    }

    /// Merges one word at the back: stores the larger of the last words of both runs.
    fn merge_word_back(&self, b: &mut Builder, to: V, [left, right]: [V; 2]) -> [V; 2] {
        let (x, y) = (b.load(self.words, left, 1, None), b.load(self.words, right, 1, None));
        let first = b.compare(Cmp::Lt, y, x);
        let larger = b.binary(Binary::Max, x, y);
        b.store(self.words, to, larger, None);
        let step = b.convert(first, DType::I64);
        let (next, left) = (b.offset(right, -1), b.sub(left, step));
        [left, b.add(next, step)]
    }

    /// Merges only the first `count` words of a pair of runs. Each run has at least `count` words.
    fn merge_front(&self, b: &mut Builder, first: V, count: V) {
        let zero = b.index(0);
        let (left, to) = (b.add(self.source, first), b.add(self.target, first));
        let right = b.add(left, self.width);
        b.repeat(zero, count, 1, &[left, right], |b, i, at| {
            let to = b.add(to, i);
            self.merge_word(b, to, [at[0], at[1]]).to_vec()
        });
    }

    /// Merges a pair of runs of equal length, half of the words from each end. Neither run can be
    /// exhausted before that.
    fn merge_from_both_ends(&self, b: &mut Builder, first: V) {
        let zero = b.index(0);
        let (left, to) = (b.add(self.source, first), b.add(self.target, first));
        let (right, middle) = (b.add(left, self.width), b.add(to, self.width));
        let end = b.add(right, self.width);
        let [left_end, right_end] = [right, end].map(|v| b.offset(v, -1));
        let last = b.add(middle, self.width);
        let last = b.offset(last, -1);
        b.repeat(zero, self.width, 1, &[left, right, left_end, right_end], |b, i, at| {
            let (to, back) = (b.add(to, i), b.sub(last, i));
            let front = self.merge_word(b, to, [at[0], at[1]]);
            [front, self.merge_word_back(b, back, [at[2], at[3]])].concat()
        });
    }

    /// Merges the words after the whole pairs: a run or a part of it, and possibly a part of a
    /// second one.
    fn merge_remainder(&self, b: &mut Builder, first: V) {
        let (zero, count) = (b.index(0), b.sub(self.total, first));
        let (left, to) = (b.add(self.source, first), b.add(self.target, first));
        let end = b.add(left, count);
        let middle = b.add(left, self.width);
        let middle = b.binary(Binary::Min, middle, end);
        // Only words up to the limit are needed.
        let needed = self.limit.map_or(count, |limit| b.binary(Binary::Min, limit, count));
        b.repeat(zero, needed, 1, &[left, middle], |b, i, at| {
            let (left, right) = (at[0], at[1]);
            let last = b.offset(end, -1);
            let [x, y] = [left, right].map(|v| {
                let at = b.binary(Binary::Min, v, last);
                b.load(self.words, at, 1, None)
            });
            let (has_left, has_right) =
                (b.compare(Cmp::Lt, left, middle), b.compare(Cmp::Lt, right, end));
            let (less, none) = (b.compare(Cmp::Lt, y, x), b.unary(Unary::Not, has_left));
            let second = b.binary(Binary::Or, none, less);
            let second = b.binary(Binary::And, second, has_right);
            let word = b.select(second, y, x);
            let to = b.add(to, i);
            b.store(self.words, to, word, None);
            let step = b.convert(second, DType::I64);
            let (next, right) = (b.offset(left, 1), b.add(right, step));
            vec![b.sub(next, step), right]
        });
    }
}
