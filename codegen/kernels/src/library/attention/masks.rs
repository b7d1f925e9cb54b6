//! Applies masks to scores. Queries are the columns of scores, so a mask is transposed first. A
//! mask row that all queries share needs no transposition: its elements are broadcast.

use super::tiles::{Tiles, VisibleKeys};
use super::{Mask, Site};
use crate::code::{Binary, Cmp, Mem, V};
use crate::contract::lanes;

/// The mask of a block of queries and keys.
#[derive(Clone, Copy)]
pub struct BlockMask {
    pub mask: Mask,
    /// The memory of the transposed mask, or `None` if all queries share a row. Boolean masks are
    /// converted to numbers.
    transposed: Option<Mem>,
}

/// The mask's elements for one key: a single one for all queries, or one for each query.
enum Elements {
    Shared(V),
    Transposed(Mem),
}

/// Allocates scratch memory for the mask of a block.
pub fn allocate(t: &mut Tiles, site: &Site) -> Option<Mem> {
    site.mask_rows().map(|_| t.allocate(t.block()))
}

impl BlockMask {
    pub fn new(mask: Mask, mask_memory: Option<Mem>) -> BlockMask {
        BlockMask { mask, transposed: mask_memory }
    }

    /// Transposes the part of the mask for the queries from `q0` on and the keys from `k0` on.
    pub fn transpose(&self, t: &mut Tiles, (q0, k0): (V, V), seen: VisibleKeys) {
        let (Some(transposed), Mask { head, step, is_additive, .. }) = (self.transposed, self.mask)
        else {
            return;
        };
        let block = t.block();
        t.transpose_rows(q0, block, transposed, |t, rows, d| {
            let key = t.nest.b.add(k0, d);
            let left = t.nest.b.sub(t.keys, key);
            let present = match seen {
                VisibleKeys::All => None,
                _ => lanes::below(&mut t.nest.b, left, t.lanes),
            };
            let (one, none) = (t.number(1.0), t.number(0.0));
            let key = t.nest.b.times(key, step);
            let load = |&row: &V| {
                let at = t.element(head, row, key);
                let v = match step {
                    0 => {
                        let v = t.nest.b.load(head.mem, at, 1, None);
                        t.nest.b.splat(v, t.lanes)
                    }
                    _ => t.nest.b.load(head.mem, at, t.lanes, present),
                };
                if is_additive { v } else { t.nest.b.select(v, one, none) }
            };
            rows.iter().map(load).collect()
        });
    }

    /// Masks the scores of some keys, which are stored from `row` on, and of the queries at `cols`.
    pub fn apply(
        &self,
        t: &mut Tiles,
        (row, keys): (V, &[V]),
        cols: &[i64],
        seen: VisibleKeys,
        scores: &mut [V],
    ) {
        let (none, minus_infinity) = (t.number(0.0), t.number(f64::NEG_INFINITY));
        for (i, scores) in scores.chunks_mut(cols.len()).enumerate() {
            let row = t.nest.b.offset(row, i as i64);
            let elements = match self.transposed {
                Some(transposed) => Elements::Transposed(transposed),
                None => Elements::Shared(self.element(t, keys[i], seen)),
            };
            for (score, &col) in scores.iter_mut().zip(cols) {
                let own = match elements {
                    Elements::Shared(own) => own,
                    Elements::Transposed(transposed) => {
                        let v = t.load(transposed, row, col);
                        if self.mask.is_additive { v } else { t.nest.b.compare(Cmp::Ne, v, none) }
                    }
                };
                *score = match self.mask.is_additive {
                    true => t.nest.b.add(*score, own),
                    false => t.nest.b.select(own, *score, minus_infinity),
                };
            }
        }
    }

    /// Loads the mask element of a key, which all queries share.
    fn element(&self, t: &mut Tiles, key: V, seen: VisibleKeys) -> V {
        let last = t.nest.b.offset(t.keys, -1);
        let key = match seen {
            VisibleKeys::All => key,
            _ => t.nest.b.binary(Binary::Min, key, last),
        };
        let at = t.nest.b.times(key, self.mask.step);
        let at = t.nest.b.add(self.mask.head.at, at);
        let v = t.nest.b.load(self.mask.head.mem, at, 1, None);
        t.nest.b.splat(v, t.lanes)
    }
}
