//! Masks on scores. Scores have queries as columns, so the rows of a mask are transposed like those
//! of queries. A row that all queries share is read one element at a time.

use super::tiles::{Seen, Tiles};
use super::{Mask, Site};
use crate::code::{Binary, Cmp, Mem, V};
use crate::contract::lanes;

/// The mask of a block of queries and keys.
#[derive(Clone, Copy)]
pub struct Masked {
    pub mask: Mask,
    /// Its elements as numbers, transposed; `None` if all queries share a row.
    transposed: Option<Mem>,
}

/// The mask's elements for one key: one that all queries share, or one for each query.
enum Elements {
    Shared(V),
    Transposed(Mem),
}

/// Allocates scratch memory for the mask of a block.
pub fn room(t: &mut Tiles, site: &Site) -> Option<Mem> {
    site.mask_rows().map(|_| t.room(t.block()))
}

impl Masked {
    pub fn new(mask: Mask, room: Option<Mem>) -> Masked {
        Masked { mask, transposed: room }
    }

    /// Transposes the mask of the queries from `q0` on and the keys from `k0` on.
    pub fn transpose(&self, t: &mut Tiles, (q0, k0): (V, V), seen: Seen) {
        let (Some(transposed), Mask { head, step, added, .. }) = (self.transposed, self.mask)
        else {
            return;
        };
        let block = t.block();
        t.transpose_rows(q0, block, transposed, |t, rows, d| {
            let key = t.nest.b.add(k0, d);
            let left = t.nest.b.sub(t.keys, key);
            let present = match seen {
                Seen::All => None,
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
                if added { v } else { t.nest.b.select(v, one, none) }
            };
            rows.iter().map(load).collect()
        });
    }

    /// Masks the scores of some keys, stored from row `row` on, and of the queries at `cols`.
    pub fn apply(
        &self,
        t: &mut Tiles,
        (row, keys): (V, &[V]),
        cols: &[i64],
        seen: Seen,
        scores: &mut [V],
    ) {
        let (none, unseen) = (t.number(0.0), t.number(f64::NEG_INFINITY));
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
                        if self.mask.added { v } else { t.nest.b.compare(Cmp::Ne, v, none) }
                    }
                };
                *score = match self.mask.added {
                    true => t.nest.b.add(*score, own),
                    false => t.nest.b.select(own, *score, unseen),
                };
            }
        }
    }

    /// The mask of a key, which all queries share.
    fn element(&self, t: &mut Tiles, key: V, seen: Seen) -> V {
        let last = t.nest.b.offset(t.keys, -1);
        let key = match seen {
            Seen::All => key,
            _ => t.nest.b.binary(Binary::Min, key, last),
        };
        let at = t.nest.b.times(key, self.mask.step);
        let at = t.nest.b.add(self.mask.head.at, at);
        let v = t.nest.b.load(self.mask.head.mem, at, 1, None);
        t.nest.b.splat(v, t.lanes)
    }
}
