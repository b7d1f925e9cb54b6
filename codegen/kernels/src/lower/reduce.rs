//! Reductions: sums, maxima, minima and tests over axes.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Operation;
use mithril_ir::op::access::{Fold, FoldAxes, fold_axes};
use mithril_ir::scalar::{Prim, round};

use super::index::{Index, Ix};
use super::nest::{Nest, register_dtype};
use crate::builder::Builder;
use crate::code::{self, Binary, Cmp, Ty, V};
use crate::loops::Loops;
use crate::scalar;

/// Emits the arithmetic of one reduction: initial accumulators, accumulation and final result.
#[derive(Clone, Copy, Debug)]
pub struct Reducer {
    fold: Fold,
    /// The dtype of the accumulator.
    pub dtype: DType,
    /// Whether a float maximum or minimum uses the fast form. The fast form also accumulates a sum,
    /// which is NaN if any element is NaN.
    fast: bool,
}

/// The accumulators of a reduction. Most reductions have one. An exact float maximum or minimum has
/// three: the value, a flag for NaN elements, and the combined sign bits. The fast form has two:
/// the value and the sum.
pub type Accumulators = Vec<V>;

impl Reducer {
    pub fn of(op: &Operation, fold: Fold, operand: DType) -> Reducer {
        let acc = match op.op.attr_index("acc").map(|i| &op.attrs[i]) {
            Some(Attr::DType(acc)) => *acc,
            _ => operand,
        };
        Reducer { fold, dtype: register_dtype(acc), fast: false }
    }

    fn is_extreme_of_floats(self) -> bool {
        matches!(self.fold, Fold::Max | Fold::Min) && self.dtype.is_float()
    }

    /// Whether NaN and the signs of zeros must be handled separately from the maximum or minimum.
    pub fn is_float_extreme(self, b: &Builder) -> bool {
        self.is_extreme_of_floats() && !b.source().vectorizes
    }

    /// Returns the same reduction with float maxima and minima in the fast form, whose result must
    /// be checked with [`Reducer::may_be_wrong`].
    pub fn fast(self, b: &Builder) -> Reducer {
        Reducer { fast: self.is_float_extreme(b), ..self }
    }

    /// Emits the test whether the result of a fast maximum or minimum may be wrong. It may be wrong
    /// if the sum is NaN, because an element may be NaN, or if the result is zero, because the fast
    /// form does not track the sign of zeros. `across` are the accumulators after
    /// [`Reducer::reduce_lanes`].
    pub fn may_be_wrong(self, b: &mut Builder, across: &[V]) -> Option<V> {
        self.fast.then(|| {
            let zero = b.number(b.ty(across[0]), 0.0);
            let is_zero = b.compare(Cmp::Eq, across[0], zero);
            let nan = b.compare(Cmp::Ne, across[1], across[1]);
            b.binary(Binary::Or, is_zero, nan)
        })
    }

    /// Whether floats are mapped to integers in the same order and compared as such. C compilers
    /// can vectorize integer comparisons, but not float maxima that handle NaN.
    fn compares_as_integers(self, b: &Builder) -> bool {
        self.is_extreme_of_floats() && b.source().vectorizes
    }

    fn sort_key(self, b: &mut Builder, x: V) -> V {
        scalar::sort_key(b, x, self.fold == Fold::Min)
    }

    fn signs(self) -> DType {
        if self.dtype == DType::F64 { DType::I64 } else { DType::I32 }
    }

    /// The identity of the reduction, which is also its result for no elements.
    pub fn neutral(self, b: &mut Builder, lanes: u32) -> V {
        let ty = Ty { dtype: self.dtype, lanes };
        let float = self.dtype.is_float();
        let range = || round::int_range(self.dtype);
        match self.fold {
            Fold::Sum | Fold::Any => b.int(ty, 0),
            Fold::Product | Fold::All => b.int(ty, 1),
            Fold::Max if float => b.number(ty, f64::NEG_INFINITY),
            Fold::Min if float => b.number(ty, f64::INFINITY),
            Fold::Max => b.int(ty, range().0 as i64),
            Fold::Min => b.int(ty, range().1 as i64),
        }
    }

    pub fn initial(self, b: &mut Builder, lanes: u32) -> Accumulators {
        let first = self.neutral(b, lanes);
        if self.compares_as_integers(b) {
            let infinity = match self.dtype {
                DType::F64 => f64::INFINITY.to_bits() as i64,
                _ => f32::INFINITY.to_bits().into(),
            };
            // The sort key of `-x` is the sort key of `x` with all bits flipped.
            let none = if self.fold == Fold::Max { !infinity } else { infinity };
            return vec![b.int(Ty { dtype: self.signs(), lanes }, none)];
        }
        if !self.is_float_extreme(b) {
            return vec![first];
        }
        if self.fast {
            return vec![first, b.int(Ty { dtype: self.dtype, lanes }, 0)];
        }
        let nan = b.int(Ty { dtype: DType::Bool, lanes }, 0);
        // A maximum of zeros is -0 if all of them are -0; a minimum is -0 if any of them is -0. So
        // sign bits are combined with `and` or `or`.
        let all = if self.fold == Fold::Max { -1 } else { 0 };
        vec![first, nan, b.int(Ty { dtype: self.signs(), lanes }, all)]
    }

    /// Combines an element with the accumulators, in the lanes where `mask` holds.
    pub fn accumulate(self, b: &mut Builder, so_far: &[V], x: V, mask: Option<V>) -> Accumulators {
        let lanes = b.ty(so_far[0]).lanes;
        let x = b.splat(x, lanes);
        let x = b.convert(x, self.dtype);
        let x = match mask {
            Some(mask) if lanes > 1 => {
                let neutral = self.neutral(b, lanes);
                b.select(mask, x, neutral)
            }
            _ => x,
        };
        if self.compares_as_integers(b) {
            let x = self.sort_key(b, x);
            return self.merge(b, &so_far[..1], &[x]);
        }
        if !self.is_float_extreme(b) {
            return vec![self.combine(b, so_far[0], x)];
        }
        let (op, signs) = match self.fold {
            Fold::Max => (Binary::Max, Binary::And),
            _ => (Binary::Min, Binary::Or),
        };
        // `Max` and `Min` return their second operand if the first is NaN, so NaN elements are
        // skipped.
        let value = b.binary(op, x, so_far[0]);
        if self.fast {
            return vec![value, b.add(so_far[1], x)];
        }
        let nan = b.compare(Cmp::Ne, x, x);
        let nan = b.binary(Binary::Or, so_far[1], nan);
        let bits = b.bitcast(x, self.signs());
        vec![value, nan, b.binary(signs, so_far[2], bits)]
    }

    fn combine(self, b: &mut Builder, x: V, y: V) -> V {
        let prim = match self.fold {
            Fold::Sum if b.source().calls => Prim::Add,
            Fold::Sum => return b.add(x, y),
            Fold::Product if b.source().calls => Prim::Mul,
            Fold::Product if self.dtype != DType::Bool => return b.mul(x, y),
            Fold::Product | Fold::All => return b.binary(Binary::And, x, y),
            Fold::Any => return b.binary(Binary::Or, x, y),
            Fold::Max => Prim::Max,
            Fold::Min => Prim::Min,
        };
        scalar::apply(b, prim, self.dtype, &[x, y], None)
    }

    /// Merges two sets of accumulators.
    pub fn merge(self, b: &mut Builder, x: &[V], y: &[V]) -> Accumulators {
        if self.compares_as_integers(b) {
            let op = if self.fold == Fold::Max { Binary::Max } else { Binary::Min };
            return vec![b.binary(op, x[0], y[0])];
        }
        if !self.is_float_extreme(b) {
            return vec![self.combine(b, x[0], y[0])];
        }
        let (op, signs) = match self.fold {
            Fold::Max => (Binary::Max, Binary::And),
            _ => (Binary::Min, Binary::Or),
        };
        let value = b.binary(op, x[0], y[0]);
        if self.fast {
            return vec![value, b.add(x[1], y[1])];
        }
        let nan = b.binary(Binary::Or, x[1], y[1]);
        vec![value, nan, b.binary(signs, x[2], y[2])]
    }

    /// Reduces the lanes of the accumulators to scalars.
    pub fn reduce_lanes(self, b: &mut Builder, so_far: &[V]) -> Accumulators {
        let bool = self.dtype == DType::Bool;
        let fold = match self.fold {
            Fold::Sum if !bool => code::Fold::Add,
            Fold::Product if !bool => code::Fold::Mul,
            Fold::Max if !bool => code::Fold::Max,
            Fold::Min if !bool => code::Fold::Min,
            Fold::Sum | Fold::Any | Fold::Max => code::Fold::Or,
            Fold::Product | Fold::All | Fold::Min => code::Fold::And,
        };
        let value = b.fold(fold, so_far[0]);
        if !self.is_float_extreme(b) {
            return vec![value];
        }
        if self.fast {
            return vec![value, b.fold(code::Fold::Add, so_far[1])];
        }
        let signs = if self.fold == Fold::Max { code::Fold::And } else { code::Fold::Or };
        vec![value, b.fold(code::Fold::Or, so_far[1]), b.fold(signs, so_far[2])]
    }

    /// Returns the result of the reduction in the register dtype of `dtype`.
    pub fn finish(self, b: &mut Builder, so_far: &[V], dtype: DType) -> V {
        let mut value = so_far[0];
        if self.compares_as_integers(b) {
            value = scalar::from_sort_key(b, value);
        }
        if self.is_float_extreme(b) && !self.fast {
            let ty = b.ty(value);
            let zero = b.number(ty, 0.0);
            let is_zero = b.compare(Cmp::Eq, value, zero);
            let none = b.int(b.ty(so_far[2]), 0);
            let minus = b.compare(Cmp::Lt, so_far[2], none);
            let minus_zero = b.number(ty, -0.0);
            let signed = b.select(minus, minus_zero, zero);
            value = b.select(is_zero, signed, value);
            let nan = b.number(ty, f64::NAN);
            value = b.select(so_far[1], nan, value);
        }
        b.convert(value, register_dtype(dtype))
    }
}

impl Nest<'_> {
    pub fn fold_axes(&self, op: &Operation) -> FoldAxes {
        let (from, to) = (self.f.ty(op.operands[0]), self.f.ty(op.result()));
        fold_axes(op.op, &op.attrs, from, to)
    }

    /// Maps an index in a reduction's result to an index in its operand. Reduced axes get index 0.
    pub fn operand_index(&mut self, axes: &FoldAxes, index: &[Ix]) -> Index {
        let place = |place: &Option<usize>| match place {
            Some(at) => index[*at],
            None => self.zero(),
        };
        axes.places.iter().map(place).collect()
    }

    /// Computes the results of a reduction at several indices in one pass over its operand.
    pub fn reduce_at(&mut self, op: &Operation, fold: Fold, at: &[Index]) -> Vec<V> {
        let axes = self.fold_axes(op);
        let reducer = Reducer::of(op, fold, self.dtype(op.operands[0]));
        let mut places: Vec<Index> =
            at.iter().map(|index| self.operand_index(&axes, index)).collect();
        let mut so_far = Vec::new();
        let width = {
            let start = reducer.initial(&mut self.b, 1);
            start.len()
        };
        for index in at {
            let lanes = self.lanes_of(index);
            so_far.extend(reducer.initial(&mut self.b, lanes));
        }
        let open: Vec<usize> = (0..axes.folded.len()).filter(|&a| axes.folded[a]).collect();
        let done = self.reduce_along(op, reducer, &open, &mut places, &so_far, width);
        let dtype = self.dtype(op.result());
        done.chunks(width).map(|one| reducer.finish(&mut self.b, one, dtype)).collect()
    }

    /// Emits loops over the axes in `open`, and accumulates the elements at all `places`.
    fn reduce_along(
        &mut self,
        op: &Operation,
        reducer: Reducer,
        open: &[usize],
        places: &mut [Index],
        so_far: &[V],
        width: usize,
    ) -> Vec<V> {
        let operand = op.operands[0];
        let Some((&axis, inner)) = open.split_first() else {
            let mut next = Vec::with_capacity(so_far.len());
            for (place, so_far) in places.iter().zip(so_far.chunks(width)) {
                let x = self.pull(operand, place);
                next.extend(reducer.accumulate(&mut self.b, so_far, x, None));
            }
            return next;
        };
        let size = self.dim(&self.dims(operand)[axis]);
        let zero = self.b.index(0);
        self.repeat(zero, size, 1, so_far, |nest, i, so_far| {
            places.iter_mut().for_each(|place| place[axis] = Ix::Uniform(i));
            nest.reduce_along(op, reducer, inner, places, so_far, width)
        })
    }

    /// Emits `body` so that it runs only if a scalar condition holds. Yields its values, or
    /// `otherwise`. Values computed in `body` are not reused outside.
    pub fn emit_if(
        &mut self,
        condition: V,
        otherwise: &[V],
        body: impl FnOnce(&mut Self) -> Vec<V>,
    ) -> Vec<V> {
        self.b.open_region();
        let yields = self.scoped(body);
        let yes = self.b.close_region(yields);
        self.b.open_region();
        let no = self.b.close_region(otherwise.to_vec());
        self.b.place_choice(condition, yes, no)
    }
}

pub fn product(dims: &[Dim]) -> Dim {
    dims.iter().cloned().product()
}
