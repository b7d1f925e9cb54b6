//! Products of rows with the matrices of their groups, and the gradients of these matrices. Rows
//! are first sorted by group (counting sort), so that several rows share each loaded element of a
//! matrix. Each tile of columns of the result is a task.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Value;
use mithril_ir::op::access::{Access, Library};
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::code::{Binary, Cmp, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::index::Ix;
use crate::lower::nest::{Nest, register_dtype};

pub const ENTRY: LibraryEntry = LibraryEntry {
    // Transposed matrices are copied, so that rows of vectors are next to each other.
    fusion: LibraryKernel { reads_views: true, ..LibraryKernel::plain("grouped") },
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::grouped),
};

/// The rows of the result, and the vectors of each row, that are accumulated together.
const ROWS: i64 = 4;
const VECTORS: i64 = 4;

/// The operands, and the rows in the order of their groups.
struct Site {
    x: Value,
    /// The matrices, or the second factor of outer products.
    other: Value,
    /// Whether outer products are summed over the rows of a group.
    is_outer: bool,
    rows: Dim,
    groups: Dim,
    /// The width of `x`.
    inner: Dim,
    columns: Dim,
    /// The numbers of the rows, group by group.
    order: Mem,
    /// The end of each group in `order`.
    ends: Mem,
}

/// A group, and the range of its rows in the order of all.
#[derive(Clone, Copy)]
struct Group {
    number: V,
    from: V,
    to: V,
}

impl Standalone<'_> {
    fn grouped(&mut self) -> Dim {
        let [x, other, group] = [0, 1, 2].map(|i| self.op.operands[i]);
        let grouped = Library::Grouped { outer: true };
        let is_outer = matches!(self.op.op.access, Access::Library(own) if own == grouped);
        let result = self.nest.dims(self.op.result());
        let (rows, inner) = (self.nest.dims(x)[0].clone(), self.nest.dims(x)[1].clone());
        let groups = if is_outer { &result[0] } else { &self.nest.dims(other)[0] }.clone();
        let columns = result[result.len() - 1].clone();
        self.scratch = &(&(&rows + &groups) + &Dim::Const(1)) * &Dim::Const(8);
        let zero = self.nest.b.index(0);
        let place = self.nest.dim(&(&(&groups + &Dim::Const(1)) * &Dim::Const(8)));
        let [ends, order] = [zero, place].map(|at| self.nest.b.scratch(DType::I64, at));
        let site = Site { x, other, is_outer, rows, groups, inner, columns, order, ends };
        self.order_rows(&site, group);
        let tile = VECTORS * i64::from(self.nest.lanes);
        let tiles = site.columns.ceil_div(&Dim::Const(tile));
        if self.nest.b.source().all_tasks {
            let count = self.nest.dim(&tiles);
            self.each(zero, count, 1, |own, number| own.nest.grouped_tile(&site, number));
            return Dim::Const(1);
        }
        let (first, last) = (self.nest.b.first(), self.nest.b.last());
        self.each(first, last, 1, |own, number| own.nest.grouped_tile(&site, number));
        tiles
    }

    /// Counts the rows of each group, turns the counts into offsets, then places the rows.
    fn order_rows(&mut self, site: &Site, group: Value) {
        let (zero, one) = (self.nest.b.index(0), self.nest.b.index(1));
        let [rows, groups] = [&site.rows, &site.groups].map(|dim| self.nest.dim(dim));
        let count = self.nest.b.offset(groups, 1);
        self.each(zero, count, 1, |own, i| own.nest.b.store(site.ends, i, zero, None));
        self.each(zero, rows, 1, |own, row| {
            let at = own.nest.group_of(site, group, row);
            let next = own.nest.b.offset(at, 1);
            own.nest.count_up(site.ends, next, one);
        });
        self.repeat(zero, groups, 1, &[zero], |own, i, sum| {
            let next = own.nest.b.offset(i, 1);
            vec![own.nest.count_up(site.ends, next, sum[0])]
        });
        self.each(zero, rows, 1, |own, row| {
            let at = own.nest.group_of(site, group, row);
            let next = own.nest.count_up(site.ends, at, one);
            let place = own.nest.b.offset(next, -1);
            own.nest.b.store(site.order, place, row, None);
        });
    }
}

impl Nest<'_> {
    fn group_of(&mut self, site: &Site, group: Value, row: V) -> V {
        let at = self.resolve_index(group, &[Ix::Uniform(row)], &site.groups);
        self.as_value(at)
    }

    /// Adds to an element in memory. Returns the new value.
    fn count_up(&mut self, mem: Mem, at: V, by: V) -> V {
        let old = self.b.load(mem, at, 1, None);
        let new = self.b.add(old, by);
        self.b.store(mem, at, new, None);
        new
    }

    /// Computes a tile of columns: whole, or vector by vector at the end of the rows.
    fn grouped_tile(&mut self, site: &Site, number: V) {
        let lanes = i64::from(self.lanes);
        let columns = self.dim(&site.columns);
        let start = self.b.times(number, VECTORS * lanes);
        let end = self.b.offset(start, VECTORS * lanes);
        let is_whole = self.b.compare(Cmp::Le, end, columns);
        self.emit_if(is_whole, &[], |nest| {
            nest.grouped_columns(site, start, VECTORS);
            vec![]
        });
        let is_cut = self.b.compare(Cmp::Gt, end, columns);
        self.emit_if(is_cut, &[], |nest| {
            let size = nest.b.index(lanes);
            let count = nest.b.div(columns, size);
            let whole = nest.b.mul(count, size);
            nest.each(start, whole, lanes, |nest, at| nest.grouped_columns(site, at, 1));
            if lanes > 1 {
                nest.grouped_rest(site, whole, columns);
            }
            vec![]
        });
    }

    /// Computes the columns after the last whole vector.
    fn grouped_rest(&mut self, site: &Site, whole: V, columns: V) {
        let rest = self.b.compare(Cmp::Lt, whole, columns);
        self.emit_if(rest, &[], |nest| {
            let left = nest.b.sub(columns, whole);
            let left = nest.b.convert(left, DType::I32);
            let left = nest.b.splat(left, nest.lanes);
            let lane = nest.b.iota(Ty::vector(DType::I32, nest.lanes));
            nest.mask = Some(nest.b.compare(Cmp::Lt, lane, left));
            nest.grouped_columns(site, whole, 1);
            nest.mask = None;
            vec![]
        });
    }

    /// Computes `vectors` vectors of columns from `at` on, of all rows of the result.
    fn grouped_columns(&mut self, site: &Site, at: V, vectors: i64) {
        let columns: Vec<Ix> = (0..vectors)
            .map(|u| {
                let at = self.b.offset(at, u * i64::from(self.lanes));
                self.multiples.insert(at);
                Ix::Ascending(at)
            })
            .collect();
        let (zero, groups) = (self.b.index(0), self.dim(&site.groups));
        self.repeat(zero, groups, 1, &[zero], |nest, number, from| {
            let to = nest.b.load(site.ends, number, 1, None);
            let group = Group { number, from: from[0], to };
            let [first, end] = match site.is_outer {
                true => [zero, nest.dim(&site.inner)],
                false => [group.from, group.to],
            };
            nest.each(first, end, ROWS, |nest, row| {
                let last = nest.b.offset(end, -1);
                let rows: Vec<V> = (0..ROWS)
                    .map(|i| {
                        // Past the end, the last row is computed again.
                        let row = nest.b.offset(row, i);
                        let row = nest.b.binary(Binary::Min, row, last);
                        match site.is_outer {
                            true => row,
                            false => nest.b.load(site.order, row, 1, None),
                        }
                    })
                    .collect();
                nest.grouped_rows(site, group, &rows, &columns);
            });
            vec![to]
        });
    }

    /// Accumulates some rows of the result, and stores them.
    fn grouped_rows(&mut self, site: &Site, group: Group, rows: &[V], columns: &[Ix]) {
        let dtype = register_dtype(self.dtype(site.x));
        let none = self.b.number(Ty::vector(dtype, self.lanes), 0.0);
        let start = vec![none; rows.len() * columns.len()];
        let zero = self.b.index(0);
        let [from, to] = match site.is_outer {
            true => [group.from, group.to],
            false => [zero, self.dim(&site.inner)],
        };
        let sums = self.repeat(from, to, 1, &start, |nest, k, sums| {
            let (step, front) = match site.is_outer {
                true => {
                    let row = nest.b.load(site.order, k, 1, None);
                    (row, vec![Ix::Uniform(row)])
                }
                false => (k, vec![Ix::Uniform(group.number), Ix::Uniform(k)]),
            };
            let vectors: Vec<V> = columns
                .iter()
                .map(|column| {
                    let place: Vec<Ix> = front.iter().chain([column]).copied().collect();
                    let v = nest.pull(site.other, &place);
                    nest.splat(v, nest.lanes)
                })
                .collect();
            let mut next = sums.to_vec();
            for (i, &row) in rows.iter().enumerate() {
                let place = if site.is_outer { [step, row] } else { [row, step] };
                let factor = nest.pull(site.x, &place.map(Ix::Uniform));
                let factor = nest.splat(factor, nest.lanes);
                for (j, &v) in vectors.iter().enumerate() {
                    let sum = &mut next[i * columns.len() + j];
                    *sum = nest.b.fma(factor, v, *sum);
                }
            }
            next
        });
        let dims = self.dims(self.f.results[0].value);
        for (i, &row) in rows.iter().enumerate() {
            for (j, column) in columns.iter().enumerate() {
                let mut place: Vec<Ix> = match site.is_outer {
                    true => vec![Ix::Uniform(group.number)],
                    false => vec![],
                };
                place.extend([Ix::Uniform(row), *column]);
                self.write(self.results[0], dims, &place, sums[i * columns.len() + j]);
            }
        }
    }
}
