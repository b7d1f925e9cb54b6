//! Scatters: updates are added at given indices. One task sums up each element of the result, in
//! the order of the updates and in the accumulator's dtype. So results do not depend on how tasks
//! are shared among threads.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::op::access::{Access, Scatter};
use mithril_ir::scalar::Prim;
use mithril_passes::library::LibraryKernel;

use super::Entry;
use super::standalone::{self, Standalone};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::{Nest, register_dtype};
use crate::lower::reduce::product;
use crate::scalar;

pub const ENTRY: Entry = Entry {
    fusion: LibraryKernel::plain("scatter"),
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::scatter),
};

/// Elements of the result that are worth another thread.
const WORTH: i64 = 1 << 14;
/// Vectors of a row that are accumulated together.
const UNROLL: i64 = 4;

/// The operands, and the axes of the result before and after the indexed one.
struct ScatterLoops<'f> {
    x: Value,
    indices: Value,
    updates: Value,
    outer: &'f [Dim],
    /// The length of the indexed axis, which is the number of rows.
    rows: Dim,
    inner: &'f [Dim],
}

/// A row of the result.
struct Row<'a, 'f> {
    of: &'a ScatterLoops<'f>,
    /// Its position along the outer axes.
    outer: &'a [Ix],
    number: V,
    /// Its updates: a range of the update numbers in memory `order`.
    order: Mem,
    updates: (V, V),
}

impl Standalone<'_> {
    fn scatter(&mut self) -> Dim {
        let (x, axis) = (self.op.operands[0], self.axis());
        let dims = self.nest.dims(x);
        let scatter = ScatterLoops {
            x,
            indices: self.op.operands[1],
            updates: self.op.operands[2],
            outer: &dims[..axis],
            rows: dims[axis].clone(),
            inner: &dims[axis + 1..],
        };
        let along = matches!(self.op.op.access, Access::Scatter(Scatter::Along));
        match along || product(scatter.inner).as_const() == Some(1) {
            true => self.scatter_lines(&scatter, along),
            false => self.scatter_rows(&scatter),
        }
    }

    /// A task for each line along the axis, accumulated in scratch memory, element by element.
    fn scatter_lines(&mut self, scatter: &ScatterLoops, along: bool) -> Dim {
        let ScatterLoops { x, indices, updates, ref rows, .. } = *scatter;
        let dtype = register_dtype(self.nest.dtype(x));
        // Extra space: if the axis is empty, updates still load and store there.
        self.scratch = &(rows + &Dim::Const(8)) * &Dim::Const(8);
        let zero = self.nest.b.index(0);
        let sums = self.nest.b.scratch(dtype, zero);
        self.lines(|own, place, axis| {
            let size = own.nest.dim(rows);
            let at = |i: Ix| {
                let mut at = place.clone();
                at[axis] = i;
                at
            };
            own.each(zero, size, 1, |own, i| {
                let v = own.nest.pull(x, &at(Ix::Uniform(i)));
                own.nest.b.store(sums, i, v, None);
            });
            let lengths = match along {
                true => &own.nest.dims(indices)[axis..=axis],
                false => own.nest.dims(indices),
            };
            own.every(lengths, |own, i| {
                let mut from: Index = place[..axis].into();
                from.extend_from_slice(i);
                from.extend_from_slice(&place[axis + 1..]);
                let spot = if along { &from[..] } else { i };
                let spot = own.nest.resolve_index(indices, spot, rows);
                let spot = own.nest.as_value(spot);
                let update = own.nest.pull(updates, &from);
                let old = own.nest.b.load(sums, spot, 1, None);
                let sum = own.nest.sum(dtype, old, update);
                own.nest.b.store(sums, spot, sum, None);
            });
            own.each(zero, size, 1, |own, i| {
                let sum = own.nest.b.load(sums, i, 1, None);
                own.write(&at(Ix::Uniform(i)), sum);
            });
        })
    }

    /// A task for each row. The updates of a call's rows are first sorted by row (counting sort);
    /// then each row is computed as `x` plus its updates.
    fn scatter_rows(&mut self, scatter: &ScatterLoops) -> Dim {
        let rows = &scatter.rows;
        let count = product(self.nest.dims(scatter.indices));
        self.scratch = &(&(rows + &count) + &Dim::Const(1)) * &Dim::Const(8);
        let size = self.nest.dim(rows);
        if self.nest.b.source().all_tasks {
            let zero = self.nest.b.index(0);
            self.every(scatter.outer, |own, outer| own.block(scatter, outer, zero, size));
            return Dim::Const(1);
        }
        if let Some(elements) = product(scatter.inner).as_const() {
            self.grain = (WORTH / elements.max(1)).max(1);
        }
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        let from = self.nest.b.div(first, size);
        let to = self.nest.b.offset(last, -1);
        let to = self.nest.b.div(to, size);
        let to = self.nest.b.offset(to, 1);
        self.each(from, to, 1, |own, number| {
            let b = &mut own.nest.b;
            let (start, zero) = (b.mul(number, size), b.index(0));
            let [low, high] = [first, last].map(|end| b.sub(end, start));
            let low = b.binary(Binary::Max, low, zero);
            let high = b.binary(Binary::Min, high, size);
            let outer = own.nest.unravel(scatter.outer, Ix::Uniform(number));
            own.block(scatter, &outer, low, high);
        });
        &product(scatter.outer) * rows
    }

    /// Computes the rows from `low` to `high` at one position of the outer axes.
    fn block(&mut self, scatter: &ScatterLoops, outer: &[Ix], low: V, high: V) {
        let (zero, one) = (self.nest.b.index(0), self.nest.b.index(1));
        let ends = self.nest.b.scratch(DType::I64, zero);
        let behind = self.nest.dim(&(&(&scatter.rows + &Dim::Const(1)) * &Dim::Const(8)));
        let order = self.nest.b.scratch(DType::I64, behind);
        let lengths = self.nest.dims(scatter.indices);
        let count = self.nest.dim(&product(lengths));
        let size = self.nest.b.sub(high, low);
        let next = self.nest.b.offset(size, 1);
        self.each(zero, next, 1, |own, i| own.nest.b.store(ends, i, zero, None));
        // Counting sort: counts the updates of each row, turns the counts into offsets, then places
        // the updates.
        self.each(zero, count, 1, |own, i| {
            own.row_of(scatter, i, low, high, |nest, row| {
                let behind = nest.b.offset(row, 1);
                bump(nest, ends, behind, one);
            });
        });
        self.repeat(zero, size, 1, &[zero], |own, i, sum| {
            let behind = own.nest.b.offset(i, 1);
            let sum = bump(&mut own.nest, ends, behind, sum[0]);
            vec![sum]
        });
        self.each(zero, count, 1, |own, i| {
            own.row_of(scatter, i, low, high, |nest, row| {
                let behind = bump(nest, ends, row, one);
                let at = nest.b.offset(behind, -1);
                nest.b.store(order, at, i, None);
            });
        });
        self.repeat(zero, size, 1, &[zero], |own, i, from| {
            let row = own.nest.b.add(low, i);
            let to = own.nest.b.load(ends, i, 1, None);
            let updates = (from[0], to);
            own.nest.scatter_row(&Row { of: scatter, outer, number: row, order, updates });
            vec![to]
        });
    }

    /// Runs `body` with the row of update number `i`, if the row belongs to this call.
    fn row_of(
        &mut self,
        scatter: &ScatterLoops,
        i: V,
        low: V,
        high: V,
        body: impl FnOnce(&mut Nest, V),
    ) {
        let at = self.nest.unravel(self.nest.dims(scatter.indices), Ix::Uniform(i));
        let row = self.nest.resolve_index(scatter.indices, &at, &scatter.rows);
        let row = self.nest.as_value(row);
        let b = &mut self.nest.b;
        let (behind, before) = (b.compare(Cmp::Ge, row, low), b.compare(Cmp::Lt, row, high));
        let inside = b.binary(Binary::And, behind, before);
        let row = b.sub(row, low);
        self.nest.emit_if(inside, &[], |nest| {
            body(nest, row);
            vec![]
        });
    }
}

impl Nest<'_> {
    fn sum(&mut self, dtype: DType, a: V, b: V) -> V {
        let lanes = self.b.ty(a).lanes.max(self.b.ty(b).lanes);
        let [a, b] = [a, b].map(|v| self.splat(v, lanes));
        scalar::apply(&mut self.b, Prim::Add, dtype, &[a, b], None)
    }

    /// Computes one row, as vectors to which the updates are added.
    fn scatter_row(&mut self, row: &Row) {
        let lanes = i64::from(self.lanes);
        let zero = self.b.index(0);
        let size = self.dim(&product(row.of.inner));
        let middle = self.whole(size, UNROLL * lanes);
        self.each(zero, middle, UNROLL * lanes, |nest, at| nest.scatter_vectors(row, at, UNROLL));
        let end = self.whole(size, lanes);
        self.each(middle, end, lanes, |nest, at| nest.scatter_vectors(row, at, 1));
        if lanes > 1 {
            let rest = self.b.compare(Cmp::Lt, end, size);
            self.emit_if(rest, &[], |nest| {
                let left = nest.b.sub(size, end);
                let left = nest.b.convert(left, DType::I32);
                let left = nest.b.splat(left, nest.lanes);
                let lane = nest.b.iota(Ty::vector(DType::I32, nest.lanes));
                nest.mask = Some(nest.b.compare(Cmp::Lt, lane, left));
                nest.scatter_vectors(row, end, 1);
                nest.mask = None;
                vec![]
            });
        }
    }

    /// Rounds a size down to a multiple of `of`.
    fn whole(&mut self, size: V, of: i64) -> V {
        let of = self.b.index(of);
        let count = self.b.div(size, of);
        self.b.mul(count, of)
    }

    /// Computes some vectors of a row from `at` on: `x` plus the updates there.
    fn scatter_vectors(&mut self, row: &Row, at: V, vectors: i64) {
        let ScatterLoops { x, indices, updates, inner, .. } = *row.of;
        let dtype = register_dtype(self.dtype(x));
        let places: Vec<Index> = (0..vectors)
            .map(|u| {
                let at = self.b.offset(at, u * i64::from(self.lanes));
                self.multiples.insert(at);
                self.unravel(inner, Ix::Ascending(at))
            })
            .collect();
        let index = |middle: &[Ix], place: &Index| -> Index {
            row.outer.iter().chain(middle).chain(place).copied().collect()
        };
        let own = [Ix::Uniform(row.number)];
        let mut first = Vec::new();
        for place in &places {
            let v = self.pull(x, &index(&own, place));
            first.push(self.splat(v, self.lanes));
        }
        let (from, to) = row.updates;
        let sums = self.repeat(from, to, 1, &first, |nest, k, sums| {
            let number = nest.b.load(row.order, k, 1, None);
            let from = nest.unravel(nest.dims(indices), Ix::Uniform(number));
            let all = places.iter().zip(sums).map(|(place, &sum)| {
                let update = nest.pull(updates, &index(&from, place));
                nest.sum(dtype, sum, update)
            });
            all.collect()
        });
        for (place, sum) in places.iter().zip(sums) {
            self.write(self.results[0], self.dims(x), &index(&own, place), sum);
        }
    }
}

/// Adds to an element of memory; returns the new value.
fn bump(nest: &mut Nest, mem: Mem, at: V, by: V) -> V {
    let old = nest.b.load(mem, at, 1, None);
    let new = nest.b.add(old, by);
    nest.b.store(mem, at, new, None);
    new
}
