//! Moves squares of elements between arrays and scratch memory: in arrays, elements of one line are
//! next to each other; in scratch memory, elements of the same index of all lines are. Each vector is
//! loaded and stored once, and transposed in registers. Lines whose distance is a power of 2 would
//! displace each other in caches otherwise.

use super::super::standalone::Standalone;
use super::Lines;
use crate::code::{Binary, Ty, V};
use crate::contract::lanes;
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};

impl Lines<'_> {
    /// The place of each line of a task, if tasks are squares: as many contiguous lines as lanes.
    fn rows(&self, own: &mut Standalone, first: V) -> Option<Vec<Index>> {
        let inner = &self.others[self.axis + 1..];
        let wide = own.nest.lanes > 1 && self.plan.unit == i64::from(own.nest.lanes);
        if !wide || inner.iter().any(|dim| dim.as_const() != Some(1)) {
            return None;
        }
        let last = own.nest.b.offset(self.count, -1);
        let row = |at: i64| {
            let line = own.nest.b.offset(first, at);
            let line = own.nest.b.binary(Binary::Min, line, last);
            own.nest.unravel(&self.others, Ix::Uniform(line))
        };
        Some((0..self.plan.unit).map(row).collect())
    }

    /// The number of elements below `count` in whole vectors.
    fn whole(&self, own: &mut Standalone, count: V) -> V {
        let lanes = own.nest.b.index(self.plan.unit);
        let rest = own.nest.b.binary(Binary::Rem, count, lanes);
        own.nest.b.sub(count, rest)
    }

    /// Loads squares of elements. Returns the index of the first element that remains.
    pub(super) fn load_squares(&self, own: &mut Standalone, first: V, count: V) -> V {
        let zero = own.nest.b.index(0);
        let Some(rows) = self.rows(own, first) else { return zero };
        let whole = self.whole(own, count);
        let (unit, parts) = (self.plan.unit, self.parts());
        own.each(zero, whole, unit, |own, i| {
            let operands = own.op.operands.clone();
            for (part, mem) in parts.into_iter().enumerate() {
                let columns = match operands.get(part) {
                    Some(&value) => {
                        let row = |place: &Index| {
                            let mut place = place.clone();
                            place[self.axis] = Ix::Ascending(i);
                            let v = own.nest.pull(value, &place);
                            own.nest.splat(v, unit as u32)
                        };
                        let rows: Vec<V> = rows.iter().map(row).collect();
                        lanes::transpose(&mut own.nest.b, &rows)
                    }
                    None => {
                        let ty = Ty { dtype: self.plan.dtype, lanes: unit as u32 };
                        vec![own.nest.b.number(ty, 0.0); unit as usize]
                    }
                };
                for (j, column) in columns.into_iter().enumerate() {
                    let at = own.nest.b.offset(i, j as i64);
                    let at = own.nest.b.times(at, unit);
                    own.nest.b.store(mem, at, column, None);
                }
            }
        });
        whole
    }

    /// Stores squares of the parts that are results. Returns the index of the first element that
    /// remains.
    pub(super) fn store_squares(
        &self,
        own: &mut Standalone,
        first: V,
        source: V,
        count: V,
        (results, scale): (&[(usize, usize)], Option<V>),
    ) -> V {
        let zero = own.nest.b.index(0);
        let Some(rows) = self.rows(own, first) else { return zero };
        let whole = self.whole(own, count);
        let (unit, parts) = (self.plan.unit, self.parts());
        let dims = own.nest.dims(own.op.result());
        own.each(zero, whole, unit, |own, k| {
            for &(result, part) in results {
                let mut columns = Vec::new();
                for j in 0..unit {
                    let at = own.nest.b.offset(k, j);
                    let at = own.nest.b.times(at, unit);
                    let at = own.nest.b.add(at, source);
                    let mut v = own.nest.b.load(parts[part], at, unit as u32, None);
                    if let Some(scale) = scale {
                        let scale = own.nest.splat(scale, unit as u32);
                        v = own.nest.b.mul(v, scale);
                    }
                    columns.push(v);
                }
                let lines = lanes::transpose(&mut own.nest.b, &columns);
                for (place, v) in rows.iter().zip(lines) {
                    let mut place = place.clone();
                    place[self.axis] = Ix::Ascending(k);
                    own.nest.write(own.nest.results[result], dims, &place, v);
                }
            }
        });
        whole
    }
}
