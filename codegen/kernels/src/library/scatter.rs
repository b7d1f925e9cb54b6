//! Scatters: updates are added at given indices, or combined by another operator. Each element of
//! the result is computed by one task, in the order of the updates and in the accumulator's dtype,
//! so results do not depend on the division of tasks among threads.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::op::access::{Access, Fold, Scatter};
use mithril_ir::scalar::Prim;
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::{Nest, register_dtype};
use crate::lower::reduce::product;
use crate::scalar;

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel::plain("scatter"),
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::scatter),
};

/// The minimum number of elements per thread. With fewer, starting a thread does not pay.
const MIN_THREAD_ELEMENTS: i64 = 1 << 14;
/// Vectors of a row that are accumulated together.
const UNROLL: i64 = 4;

/// The operands, and the axes of the result before and after the indexed one.
struct ScatterShape<'f> {
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
    shape: &'a ScatterShape<'f>,
    /// The index of the row along the outer axes.
    outer: &'a [Ix],
    number: V,
    /// The updates of the row: `order` holds update numbers, and `updates` is the range of the
    /// row's numbers in it.
    order: Mem,
    updates: (V, V),
}

impl Standalone<'_> {
    fn scatter(&mut self) -> Dim {
        let (x, axis) = (self.op.operands[0], self.axis());
        let dims = self.nest.dims(x);
        let scatter = ScatterShape {
            x,
            indices: self.op.operands[1],
            updates: self.op.operands[2],
            outer: &dims[..axis],
            rows: dims[axis].clone(),
            inner: &dims[axis + 1..],
        };
        match self.op.op.access {
            Access::Scatter(Scatter::Along(fold)) => self.scatter_lines(&scatter, true, prim(fold)),
            _ if product(scatter.inner).as_const() == Some(1) => {
                self.scatter_lines(&scatter, false, Prim::Add)
            }
            _ => self.scatter_rows(&scatter),
        }
    }

    /// Each line along the axis is a task. Its elements are accumulated in scratch memory, one by
    /// one.
    fn scatter_lines(&mut self, scatter: &ScatterShape, along: bool, prim: Prim) -> Dim {
        let ScatterShape { x, indices, updates, ref rows, .. } = *scatter;
        let dtype = register_dtype(self.nest.dtype(x));
        // Leaves extra space, because updates load and store there even if the axis is empty.
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
            own.each_index(lengths, |own, i| {
                let mut from: Index = place[..axis].into();
                from.extend_from_slice(i);
                from.extend_from_slice(&place[axis + 1..]);
                let target = if along { &from[..] } else { i };
                let target = own.nest.resolve_index(indices, target, rows);
                let target = own.nest.as_value(target);
                let update = own.nest.pull(updates, &from);
                let old = own.nest.b.load(sums, target, 1, None);
                let sum = own.nest.combined(prim, dtype, old, update);
                own.nest.b.store(sums, target, sum, None);
            });
            own.each(zero, size, 1, |own, i| {
                let sum = own.nest.b.load(sums, i, 1, None);
                own.write(&at(Ix::Uniform(i)), sum);
            });
        })
    }

    /// Each row is a task. A call first sorts the updates of its rows by row (counting sort). Then
    /// it computes each row as `x` plus the row's updates.
    fn scatter_rows(&mut self, scatter: &ScatterShape) -> Dim {
        let rows = &scatter.rows;
        let count = product(self.nest.dims(scatter.indices));
        self.scratch = &(&(rows + &count) + &Dim::Const(1)) * &Dim::Const(8);
        let size = self.nest.dim(rows);
        if self.nest.b.source().all_tasks {
            let zero = self.nest.b.index(0);
            self.each_index(scatter.outer, |own, outer| own.block(scatter, outer, zero, size));
            return Dim::Const(1);
        }
        if let Some(elements) = product(scatter.inner).as_const() {
            self.grain = (MIN_THREAD_ELEMENTS / elements.max(1)).max(1);
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

    /// Computes the rows `low..high` at one index along the outer axes.
    fn block(&mut self, scatter: &ScatterShape, outer: &[Ix], low: V, high: V) {
        let (zero, one) = (self.nest.b.index(0), self.nest.b.index(1));
        let ends = self.nest.b.scratch(DType::I64, zero);
        let order_offset = self.nest.dim(&(&(&scatter.rows + &Dim::Const(1)) * &Dim::Const(8)));
        let order = self.nest.b.scratch(DType::I64, order_offset);
        let lengths = self.nest.dims(scatter.indices);
        let count = self.nest.dim(&product(lengths));
        let size = self.nest.b.sub(high, low);
        let next = self.nest.b.offset(size, 1);
        self.each(zero, next, 1, |own, i| own.nest.b.store(ends, i, zero, None));
        // Counting sort: counts the updates of each row, turns the counts into offsets, then places
        // the updates.
        self.each(zero, count, 1, |own, i| {
            own.row_of(scatter, i, low, high, |nest, row| {
                let next = nest.b.offset(row, 1);
                add_to_element(nest, ends, next, one);
            });
        });
        self.repeat(zero, size, 1, &[zero], |own, i, sum| {
            let next = own.nest.b.offset(i, 1);
            let sum = add_to_element(&mut own.nest, ends, next, sum[0]);
            vec![sum]
        });
        self.each(zero, count, 1, |own, i| {
            own.row_of(scatter, i, low, high, |nest, row| {
                let next = add_to_element(nest, ends, row, one);
                let at = nest.b.offset(next, -1);
                nest.b.store(order, at, i, None);
            });
        });
        self.repeat(zero, size, 1, &[zero], |own, i, from| {
            let row = own.nest.b.add(low, i);
            let to = own.nest.b.load(ends, i, 1, None);
            let updates = (from[0], to);
            own.nest.scatter_row(&Row { shape: scatter, outer, number: row, order, updates });
            vec![to]
        });
    }

    /// Emits `body` for the row of update number `i`, if this call computes the row.
    fn row_of(
        &mut self,
        scatter: &ScatterShape,
        i: V,
        low: V,
        high: V,
        body: impl FnOnce(&mut Nest, V),
    ) {
        let at = self.nest.unravel(self.nest.dims(scatter.indices), Ix::Uniform(i));
        let row = self.nest.resolve_index(scatter.indices, &at, &scatter.rows);
        let row = self.nest.as_value(row);
        let b = &mut self.nest.b;
        let (after_low, before_high) =
            (b.compare(Cmp::Ge, row, low), b.compare(Cmp::Lt, row, high));
        let inside = b.binary(Binary::And, after_low, before_high);
        let row = b.sub(row, low);
        self.nest.emit_if(inside, &[], |nest| {
            body(nest, row);
            vec![]
        });
    }
}

impl Nest<'_> {
    fn combined(&mut self, prim: Prim, dtype: DType, a: V, b: V) -> V {
        let lanes = self.b.ty(a).lanes.max(self.b.ty(b).lanes);
        let [a, b] = [a, b].map(|v| self.splat(v, lanes));
        scalar::apply(&mut self.b, prim, dtype, &[a, b], None)
    }

    /// Computes one row, vector by vector.
    fn scatter_row(&mut self, row: &Row) {
        let lanes = i64::from(self.lanes);
        let zero = self.b.index(0);
        let size = self.dim(&product(row.shape.inner));
        let middle = self.round_down(size, UNROLL * lanes);
        self.each(zero, middle, UNROLL * lanes, |nest, at| nest.scatter_vectors(row, at, UNROLL));
        let end = self.round_down(size, lanes);
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
    fn round_down(&mut self, size: V, of: i64) -> V {
        let of = self.b.index(of);
        let count = self.b.div(size, of);
        self.b.mul(count, of)
    }

    /// Computes `vectors` vectors of a row from `at` on: `x` plus the updates.
    fn scatter_vectors(&mut self, row: &Row, at: V, vectors: i64) {
        let ScatterShape { x, indices, updates, inner, .. } = *row.shape;
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
                nest.combined(Prim::Add, dtype, sum, update)
            });
            all.collect()
        });
        for (place, sum) in places.iter().zip(sums) {
            self.write(self.results[0], self.dims(x), &index(&own, place), sum);
        }
    }
}

/// The operator that combines an element with an update.
fn prim(fold: Fold) -> Prim {
    match fold {
        Fold::Sum => Prim::Add,
        Fold::Product => Prim::Mul,
        Fold::Max => Prim::Max,
        Fold::Min => Prim::Min,
        Fold::Any => Prim::Or,
        Fold::All => Prim::And,
    }
}

/// Adds to an element in memory. Returns the new value.
fn add_to_element(nest: &mut Nest, mem: Mem, at: V, by: V) -> V {
    let old = nest.b.load(mem, at, 1, None);
    let new = nest.b.add(old, by);
    nest.b.store(mem, at, new, None);
    new
}
