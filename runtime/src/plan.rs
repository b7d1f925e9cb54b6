//! Places temporaries in the arena: those whose lifetimes do not overlap may share bytes.

use crate::align::ALIGN;
use crate::program::{Place, Program};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The number of further orders of placement that are tried while gaps remain.
const ATTEMPTS: usize = 16;
/// The maximum number of requests for which further orders are tried: the time of each attempt
/// grows with the square of the number of requests, and is about 3 ms for this many.
const MAX_REQUESTS: usize = 2048;

/// One temporary: its size in bytes and its lifetime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    pub bytes: usize,
    /// The indices of the first and the last launch that use it.
    pub first: usize,
    pub last: usize,
}

/// An arena that holds all requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The size of the arena in bytes.
    pub bytes: usize,
    /// The offset of each request in the arena, in bytes: a multiple of 64.
    pub offsets: Vec<usize>,
}

impl Plan {
    /// Places all requests so that no two that are live at the same time overlap; none if the sum
    /// of their sizes overflows. Requests of 0 bytes are not placed.
    pub fn of(requests: &[Request]) -> Option<Plan> {
        let mut total = 0usize;
        for request in requests {
            total = total.checked_add(request.bytes.checked_next_multiple_of(ALIGN)?)?;
        }
        // The order of first use is best for similar sizes, largest first for different ones.
        let mut best = Plan::by_first_use(requests);
        if requests.len() > MAX_REQUESTS {
            return Some(best);
        }
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|i| Reverse(requests[*i].bytes));
        let lower_bound = peak_live_bytes(requests);
        for _ in 0..ATTEMPTS {
            if best.bytes <= lower_bound {
                break;
            }
            let plan = Plan::in_order(requests, &order);
            // The largest request that ends above the lower bound is placed first next time.
            let high =
                |at: &usize| plan.offsets[order[*at]] + requests[order[*at]].bytes > lower_bound;
            let found = (0..order.len()).filter(high).max_by_key(|at| requests[order[*at]].bytes);
            if let Some(at) = found {
                order[..=at].rotate_right(1);
            }
            if plan.bytes < best.bytes {
                best = plan;
            }
        }
        Some(best)
    }

    /// Places requests in the order of their first use, each into the tightest gap that is free at
    /// that time (best fit).
    fn by_first_use(requests: &[Request]) -> Plan {
        let mut plan = Plan { bytes: 0, offsets: vec![0; requests.len()] };
        let mut order: Vec<usize> =
            (0..requests.len()).filter(|i| requests[*i].bytes > 0).collect();
        order.sort_by_key(|i| (requests[*i].first, Reverse(requests[*i].bytes)));
        let mut gaps = Gaps::default();
        // The last launches of live requests, earliest first, and the bytes that then become free.
        let mut live = BinaryHeap::new();
        for index in order {
            let request = &requests[index];
            let bytes = request.bytes.next_multiple_of(ALIGN);
            while let Some(Reverse((last, start, end))) = live.peek().copied()
                && last < request.first
            {
                live.pop();
                gaps.free(start, end);
            }
            let start = gaps.take(bytes);
            live.push(Reverse((request.last, start, start + bytes)));
            plan.offsets[index] = start;
            plan.bytes = plan.bytes.max(start + bytes);
        }
        plan
    }

    /// Places requests in `order`, each into the tightest gap between the placed requests that are
    /// live at the same time.
    fn in_order(requests: &[Request], order: &[usize]) -> Plan {
        let mut plan = Plan { bytes: 0, offsets: vec![0; requests.len()] };
        // The indices of placed requests, sorted by offset.
        let mut placed: Vec<usize> = Vec::new();
        for &index in order.iter().filter(|i| requests[**i].bytes > 0) {
            let request = &requests[index];
            let bytes = request.bytes.next_multiple_of(ALIGN);
            let (mut end, mut best) = (0, None);
            for &other in placed.iter().filter(|o| requests[**o].overlaps(request)) {
                let start = plan.offsets[other];
                if start >= end + bytes && best.is_none_or(|(gap, _)| start - end < gap) {
                    best = Some((start - end, end));
                }
                end = end.max(start + requests[other].bytes.next_multiple_of(ALIGN));
            }
            let offset = best.map_or(end, |(_, offset)| offset);
            plan.offsets[index] = offset;
            plan.bytes = plan.bytes.max(offset + bytes);
            let at = placed.partition_point(|other| plan.offsets[*other] <= offset);
            placed.insert(at, index);
        }
        plan
    }
}

/// The free bytes below `end`. All bytes above it are free, too.
#[derive(Default)]
struct Gaps {
    end: usize,
    /// The end of each gap, by its start. No two gaps touch.
    ends: BTreeMap<usize, usize>,
    /// The size and start of each gap.
    sizes: BTreeSet<(usize, usize)>,
}

impl Gaps {
    /// Takes bytes from the start of the tightest gap, or above `end`; returns their offset.
    fn take(&mut self, bytes: usize) -> usize {
        let Some(&(size, start)) = self.sizes.range((bytes, 0)..).next() else {
            self.end += bytes;
            return self.end - bytes;
        };
        let end = start + size;
        self.remove(start, end);
        if size > bytes {
            self.insert(start + bytes, end);
        }
        start
    }

    /// Frees taken bytes, and joins them with the gaps next to them.
    fn free(&mut self, mut start: usize, mut end: usize) {
        if let Some((&before, &touches)) = self.ends.range(..start).next_back()
            && touches == start
        {
            self.remove(before, touches);
            start = before;
        }
        if let Some(&after) = self.ends.get(&end) {
            self.remove(end, after);
            end = after;
        }
        match end == self.end {
            true => self.end = start,
            false => self.insert(start, end),
        }
    }

    fn insert(&mut self, start: usize, end: usize) {
        self.ends.insert(start, end);
        self.sizes.insert((end - start, start));
    }

    fn remove(&mut self, start: usize, end: usize) {
        self.ends.remove(&start);
        self.sizes.remove(&(end - start, start));
    }
}

/// The maximum number of bytes that are live at one time, with each request rounded up: a lower
/// bound on the arena.
fn peak_live_bytes(requests: &[Request]) -> usize {
    let mut changes = Vec::with_capacity(2 * requests.len());
    for request in requests {
        let bytes = request.bytes.next_multiple_of(ALIGN) as i128;
        changes.extend([(request.first, bytes), (request.last + 1, -bytes)]);
    }
    changes.sort_unstable();
    let live = changes.iter().scan(0, |live, (_, change)| {
        *live += change;
        Some(*live)
    });
    live.max().unwrap_or(0) as usize
}

impl Request {
    fn overlaps(&self, other: &Request) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The root of each buffer: the buffer that an alias or a row lies in, otherwise the buffer itself.
///
/// Assumes that an alias or a row is of a buffer with a smaller index.
pub fn roots(program: &Program) -> Vec<usize> {
    let mut roots = Vec::with_capacity(program.buffers.len());
    for (index, buffer) in program.buffers.iter().enumerate() {
        roots.push(match &buffer.place {
            Place::Alias { of, .. } | Place::Row { of, .. } => roots[*of],
            Place::Argument(_) | Place::Result(_) | Place::Temporary | Place::Constant(_) => index,
        });
    }
    roots
}

/// The lifetime of each buffer: the first and the last launch that use it or a part of it. None if
/// no launch does, and for aliases and rows. The whole program if `separate` is set.
pub fn lifetimes(program: &Program) -> Vec<Option<(usize, usize)>> {
    let roots = roots(program);
    let mut lives = vec![None; program.buffers.len()];
    for (at, launch) in program.launches.iter().enumerate() {
        for buffer in &launch.buffers {
            let life = &mut lives[roots[*buffer]];
            *life = Some(match program.separate {
                true => (0, program.launches.len()),
                false => life.map_or((at, at), |(first, _)| (first, at)),
            });
        }
    }
    // A buffer that is live into or out of a loop is live in all of it. `rev` visits inner loops
    // first.
    for loop_ in program.loops.iter().rev().filter(|loop_| !loop_.launches.is_empty()) {
        let (start, end) = (loop_.launches.start, loop_.launches.end - 1);
        if let Some((first, last)) =
            loop_.condition.and_then(|own| lives[roots[own.buffer]].as_mut())
        {
            (*first, *last) = (start.min(*first), start.max(*last));
        }
        for (first, last) in lives.iter_mut().flatten() {
            let (meets, contained) =
                (*first <= end && start <= *last, start <= *first && *last <= end);
            if meets && !contained {
                (*first, *last) = (start.min(*first), end.max(*last));
            }
        }
    }
    lives
}
