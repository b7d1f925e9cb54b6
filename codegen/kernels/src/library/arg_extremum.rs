//! Arg-extremum: the index of the first maximum or minimum along an axis, or of the whole array.
//! The last axis is vectorized, whether it is reduced or not.

use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::access::{Access, Fold, FoldAxes, Library};
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::builder::Builder;
use crate::code::{Binary, Cmp, Ty, Unary, V};
use crate::contract::lanes;
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::register_dtype;
use crate::lower::reduce::{Reducer, product};

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel::plain("arg_extremum"),
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::find),
};

/// Columns per task if the last axis is not reduced.
const COLUMNS: i64 = 256;

/// A search for the index of an extremum.
struct Find {
    /// Whether the extremum is the maximum; otherwise it is the minimum.
    max: bool,
    /// The dtype of the operand's elements, and of their indices during the search.
    dtype: DType,
    index_dtype: DType,
    axes: FoldAxes,
    /// The reduced axes, outermost first, and their lengths.
    reduced_axes: Vec<usize>,
    lengths: Vec<Dim>,
}

impl Standalone<'_> {
    /// Chooses a loop structure. A task computes one element of the result, or a block of columns.
    fn find(&mut self) -> Dim {
        let max = matches!(self.op.op.access, Access::Library(Library::ArgExtremum { max: true }));
        let x = self.op.operands[0];
        let (dims, axes) = (self.nest.dims(x), self.nest.fold_axes(self.op));
        let reduced_axes: Vec<usize> = (0..dims.len()).filter(|&a| axes.folded[a]).collect();
        let lengths: Vec<Dim> = reduced_axes.iter().map(|&a| dims[a].clone()).collect();
        let few = product(&lengths).as_const().is_some_and(|n| n <= i64::from(i32::MAX));
        let (dtype, index_dtype) =
            (register_dtype(self.nest.dtype(x)), if few { DType::I32 } else { DType::I64 });
        let find = Find { max, dtype, index_dtype, axes, reduced_axes, lengths };
        let lanes = i64::from(self.nest.lanes);
        let wide = match dims.last().map(Dim::as_const) {
            None => false,
            Some(size) => lanes > 1 && size.is_none_or(|size| size >= lanes),
        };
        match find.axes.folded.last() {
            _ if !wide || dtype == DType::Bool => self.find_scalar(&find),
            Some(true) => self.find_along_last_axis(&find),
            _ => self.find_per_column(&find),
        }
    }

    /// Emits a scalar search: one element at a time.
    fn find_scalar(&mut self, find: &Find) -> Dim {
        let dims = self.nest.dims(self.op.result()).to_vec();
        self.tasks(&dims, |own, place| {
            let start = own.nest.operand_index(&find.axes, place);
            let (zero, count) = (own.nest.b.index(0), own.nest.dim(&product(&find.lengths)));
            let best = find.initial(own, 1, Ty::INDEX.dtype);
            let best = own.repeat(zero, count, 1, &best, |own, i, best| {
                let mut at = start.clone();
                let places = own.nest.unravel(&find.lengths, Ix::Uniform(i));
                find.reduced_axes.iter().zip(places).for_each(|(&axis, ix)| at[axis] = ix);
                find.step(own, &at, i, best, None)
            });
            own.write(place, best[1]);
        })
    }

    /// Emits a search that vectorizes the last axis, which is reduced. The lanes are reduced at the
    /// end.
    fn find_along_last_axis(&mut self, find: &Find) -> Dim {
        let dims = self.nest.dims(self.op.result()).to_vec();
        let (last, lead) = find.reduced_axes.split_last().expect("the last axis is reduced");
        let (length, lengths) = find.lengths.split_last().expect("each reduced axis has a length");
        let wide = self.nest.lanes;
        self.tasks(&dims, |own, place| {
            let start = own.nest.operand_index(&find.axes, place);
            let (zero, count) = (own.nest.b.index(0), own.nest.dim(&product(lengths)));
            let size = own.nest.dim(length);
            let lanes = own.nest.b.index(i64::from(wide));
            let remainder = own.nest.b.binary(Binary::Rem, size, lanes);
            let whole = own.nest.b.sub(size, remainder);
            let best = find.initial(own, wide, find.index_dtype);
            let best = own.repeat(zero, count, 1, &best, |own, row, best| {
                let mut start = start.clone();
                let places = own.nest.unravel(lengths, Ix::Uniform(row));
                lead.iter().zip(places).for_each(|(&axis, ix)| start[axis] = ix);
                let before = own.nest.b.mul(row, size);
                let step = |own: &mut Self, i: V, best: &[V], mask: Option<V>| {
                    let mut at = start.clone();
                    at[*last] = Ix::Ascending(i);
                    let place = own.nest.b.add(before, i);
                    find.step(own, &at, place, best, mask)
                };
                let best = own.repeat(zero, whole, i64::from(wide), best, |own, i, best| {
                    step(own, i, best, None)
                });
                if own.nest.b.constant(remainder) == Some(0) {
                    return best;
                }
                let mask = lanes::below(&mut own.nest.b, remainder, wide);
                step(own, whole, &best, mask)
            });
            let found = find.reduce_lanes(own, best);
            own.write(place, found);
        })
    }

    /// Emits a search that vectorizes the last axis, which is not reduced. Each lane searches its
    /// own column.
    fn find_per_column(&mut self, find: &Find) -> Dim {
        let mut dims = self.nest.dims(self.op.result()).to_vec();
        let (columns, wide) = (dims.pop().expect("the last axis is not reduced"), self.nest.lanes);
        let blocks = columns.ceil_div(&Dim::from(COLUMNS));
        let outer = [&dims[..], &[blocks]].concat();
        self.tasks(&outer, |own, task| {
            let (block, outer) = task.split_last().expect("the last axis numbers the blocks");
            let block = own.nest.as_value(*block);
            let first = own.nest.b.times(block, COLUMNS);
            let end = own.nest.b.offset(first, COLUMNS);
            let all = own.nest.dim(&columns);
            let end = own.nest.b.binary(Binary::Min, end, all);
            let (zero, count) = (own.nest.b.index(0), own.nest.dim(&product(&find.lengths)));
            own.each(first, end, i64::from(wide), |own, column| {
                let left = own.nest.b.sub(end, column);
                let mask = lanes::below(&mut own.nest.b, left, wide);
                let mut place: Index = outer.into();
                place.push(Ix::Ascending(column));
                let start = own.nest.operand_index(&find.axes, &place);
                let best = find.initial(own, wide, find.index_dtype);
                let best = own.repeat(zero, count, 1, &best, |own, i, best| {
                    let mut at = start.clone();
                    let places = own.nest.unravel(&find.lengths, Ix::Uniform(i));
                    find.reduced_axes.iter().zip(places).for_each(|(&axis, ix)| at[axis] = ix);
                    find.step(own, &at, i, best, mask)
                });
                own.nest.mask = mask;
                own.write(&place, best[1]);
                own.nest.mask = None;
            });
        })
    }
}

impl Find {
    /// The initial extremum and index.
    fn initial(&self, own: &mut Standalone, lanes: u32, index_dtype: DType) -> Vec<V> {
        let fold = if self.max { Fold::Max } else { Fold::Min };
        let b = &mut own.nest.b;
        let initial = Reducer::of(own.op, fold, self.dtype).neutral(b, lanes);
        vec![initial, b.int(Ty { dtype: index_dtype, lanes }, 0)]
    }

    /// Updates the extremum and its index with the elements at `at`. `place` is the flat index of
    /// the first lane's element along the reduced axes.
    fn step(
        &self,
        own: &mut Standalone,
        at: &[Ix],
        place: V,
        best: &[V],
        mask: Option<V>,
    ) -> Vec<V> {
        own.nest.mask = mask;
        let element = own.nest.pull(own.op.operands[0], at);
        own.nest.mask = None;
        let b = &mut own.nest.b;
        let ty = b.ty(best[1]);
        let element = b.splat(element, ty.lanes);
        let better = self.replaces(own, element, best[0]);
        let b = &mut own.nest.b;
        let better = mask.map_or(better, |mask| b.binary(Binary::And, better, mask));
        let place = b.convert(place, ty.dtype);
        let mut place = b.splat(place, ty.lanes);
        if at.iter().any(|ix| !ix.is_uniform()) && self.axes.folded.last() == Some(&true) {
            let ramp = b.iota(ty);
            place = b.add(place, ramp);
        }
        vec![b.select(better, element, best[0]), b.select(better, place, best[1])]
    }

    /// Whether an element replaces the extremum so far. NaN replaces everything except NaN.
    fn replaces(&self, own: &mut Standalone, x: V, best: V) -> V {
        let b = &mut own.nest.b;
        if !self.dtype.is_float() {
            return b.compare(if self.max { Cmp::Gt } else { Cmp::Lt }, x, best);
        }
        let worse = b.compare(if self.max { Cmp::Le } else { Cmp::Ge }, x, best);
        let better = b.unary(Unary::Not, worse);
        let not_nan = b.compare(Cmp::Eq, best, best);
        b.binary(Binary::And, better, not_nan)
    }

    /// Reduces the lanes to the index of the first extremum.
    fn reduce_lanes(&self, own: &mut Standalone, best: Vec<V>) -> V {
        let (mut best, mut place) = (best[0], best[1]);
        let mut width = own.nest.lanes / 2;
        while width > 0 {
            let b = &mut own.nest.b;
            let halves = |b: &mut Builder, v: V| {
                [0, width].map(|from| match width {
                    1 => b.extract(v, from),
                    _ => b.shuffle(v, v, &(from..from + width).collect::<Vec<u32>>()),
                })
            };
            let [x, y] = halves(b, best);
            let [i, j] = halves(b, place);
            let (second, first) = (self.replaces(own, y, x), self.replaces(own, x, y));
            let b = &mut own.nest.b;
            let earlier = b.compare(Cmp::Lt, j, i);
            let worse = b.unary(Unary::Not, first);
            let tied = b.binary(Binary::And, earlier, worse);
            let second = b.binary(Binary::Or, second, tied);
            (best, place) = (b.select(second, y, x), b.select(second, j, i));
            width /= 2;
        }
        own.nest.b.convert(place, Ty::INDEX.dtype)
    }
}
