//! Reductions: sums, maxima, minima and tests over axes.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Operation;
use mithril_ir::op::access::{Fold, FoldAxes, fold_axes};
use mithril_ir::scalar::{Prim, round};

use super::index::{Index, Ix};
use super::nest::{Nest, held};
use crate::builder::Builder;
use crate::code::{self, Binary, Cmp, Ty, V};
use crate::loops::Loops;
use crate::scalar;

/// How a reduction combines elements: one of these for each reduction.
#[derive(Clone, Copy, Debug)]
pub struct Folder {
    fold: Fold,
    /// The dtype of the accumulator.
    pub dtype: DType,
    /// Whether a maximum or minimum of floats is computed in the fast form, which also accumulates
    /// a sum: the sum is NaN if any element is.
    quick: bool,
}

/// The accumulators: one value. An exact maximum or minimum of floats also has whether there was a
/// NaN, and the combined signs.
pub type Gathered = Vec<V>;

impl Folder {
    pub fn of(op: &Operation, fold: Fold, operand: DType) -> Folder {
        let acc = match op.op.attr_index("acc").map(|i| &op.attrs[i]) {
            Some(Attr::DType(acc)) => *acc,
            _ => operand,
        };
        Folder { fold, dtype: held(acc), quick: false }
    }

    fn is_extreme_of_floats(self) -> bool {
        matches!(self.fold, Fold::Max | Fold::Min) && self.dtype.is_float()
    }

    /// Whether NaN and the signs of zeros need treatment of their own.
    pub fn is_float_extreme(self, b: &Builder) -> bool {
        self.is_extreme_of_floats() && !b.source().vectorizes
    }

    /// The same reduction, with maxima and minima of floats in the fast form. [`Folder::doubt`]
    /// says whether their results may be wrong.
    pub fn quick(self, b: &Builder) -> Folder {
        Folder { quick: self.is_float_extreme(b), ..self }
    }

    /// Whether the result of a fast maximum or minimum may be wrong, after its lanes have been
    /// reduced. It may be if the sum is NaN, because there may be a NaN, or if the result is zero,
    /// because the sign of a zero is not tracked.
    pub fn doubt(self, b: &mut Builder, across: &[V]) -> Option<V> {
        self.quick.then(|| {
            let zero = b.number(b.ty(across[0]), 0.0);
            let is_zero = b.compare(Cmp::Eq, across[0], zero);
            let nan = b.compare(Cmp::Ne, across[1], across[1]);
            b.binary(Binary::Or, is_zero, nan)
        })
    }

    /// Whether floats are compared as integers of the same order, which C compilers can vectorize.
    fn is_ranked(self, b: &Builder) -> bool {
        self.is_extreme_of_floats() && b.source().vectorizes
    }

    fn rank(self, b: &mut Builder, x: V) -> V {
        scalar::rank(b, x, self.fold == Fold::Min)
    }

    fn signs(self) -> DType {
        if self.dtype == DType::F64 { DType::I64 } else { DType::I32 }
    }

    /// The neutral element: the result for no elements.
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

    pub fn start(self, b: &mut Builder, lanes: u32) -> Gathered {
        let first = self.neutral(b, lanes);
        if self.is_ranked(b) {
            let infinity = match self.dtype {
                DType::F64 => f64::INFINITY.to_bits() as i64,
                _ => f32::INFINITY.to_bits().into(),
            };
            // The integer of `-x` is that of `x` with all bits flipped.
            let none = if self.fold == Fold::Max { !infinity } else { infinity };
            return vec![b.int(Ty { dtype: self.signs(), lanes }, none)];
        }
        if !self.is_float_extreme(b) {
            return vec![first];
        }
        if self.quick {
            return vec![first, b.int(Ty { dtype: self.dtype, lanes }, 0)];
        }
        let nan = b.int(Ty { dtype: DType::Bool, lanes }, 0);
        // A maximum of zeros is -0 if all of them are, a minimum if any of them is.
        let all = if self.fold == Fold::Max { -1 } else { 0 };
        vec![first, nan, b.int(Ty { dtype: self.signs(), lanes }, all)]
    }

    /// Combines an element with the accumulators, in the lanes where `mask` holds.
    pub fn take(self, b: &mut Builder, so_far: &[V], x: V, mask: Option<V>) -> Gathered {
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
        if self.is_ranked(b) {
            let x = self.rank(b, x);
            return self.join(b, &so_far[..1], &[x]);
        }
        if !self.is_float_extreme(b) {
            return vec![self.pair(b, so_far[0], x)];
        }
        let (op, signs) = match self.fold {
            Fold::Max => (Binary::Max, Binary::And),
            _ => (Binary::Min, Binary::Or),
        };
        // The operation returns its second operand where the first is NaN.
        let value = b.binary(op, x, so_far[0]);
        if self.quick {
            return vec![value, b.add(so_far[1], x)];
        }
        let nan = b.compare(Cmp::Ne, x, x);
        let nan = b.binary(Binary::Or, so_far[1], nan);
        let bits = b.bitcast(x, self.signs());
        vec![value, nan, b.binary(signs, so_far[2], bits)]
    }

    fn pair(self, b: &mut Builder, x: V, y: V) -> V {
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

    /// Combines two sets of accumulators.
    pub fn join(self, b: &mut Builder, x: &[V], y: &[V]) -> Gathered {
        if self.is_ranked(b) {
            let op = if self.fold == Fold::Max { Binary::Max } else { Binary::Min };
            return vec![b.binary(op, x[0], y[0])];
        }
        if !self.is_float_extreme(b) {
            return vec![self.pair(b, x[0], y[0])];
        }
        let (op, signs) = match self.fold {
            Fold::Max => (Binary::Max, Binary::And),
            _ => (Binary::Min, Binary::Or),
        };
        let value = b.binary(op, x[0], y[0]);
        if self.quick {
            return vec![value, b.add(x[1], y[1])];
        }
        let nan = b.binary(Binary::Or, x[1], y[1]);
        vec![value, nan, b.binary(signs, x[2], y[2])]
    }

    /// Reduces the lanes to one.
    pub fn across(self, b: &mut Builder, so_far: &[V]) -> Gathered {
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
        if self.quick {
            return vec![value, b.fold(code::Fold::Add, so_far[1])];
        }
        let signs = if self.fold == Fold::Max { code::Fold::And } else { code::Fold::Or };
        vec![value, b.fold(code::Fold::Or, so_far[1]), b.fold(signs, so_far[2])]
    }

    /// The result of the reduction, in the dtype that registers hold for `dtype`.
    pub fn finish(self, b: &mut Builder, so_far: &[V], dtype: DType) -> V {
        let mut value = so_far[0];
        if self.is_ranked(b) {
            value = scalar::of_rank(b, value);
        }
        if self.is_float_extreme(b) && !self.quick {
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
        b.convert(value, held(dtype))
    }
}

impl Nest<'_> {
    pub fn fold_axes(&self, op: &Operation) -> FoldAxes {
        let (from, to) = (self.f.ty(op.operands[0]), self.f.ty(op.result()));
        fold_axes(op.op, &op.attrs, from, to)
    }

    /// The index in a reduction's operand for an index in its result. Reduced axes are at 0.
    pub fn unfolded(&mut self, axes: &FoldAxes, index: &[Ix]) -> Index {
        let place = |place: &Option<usize>| match place {
            Some(at) => index[*at],
            None => self.zero(),
        };
        axes.places.iter().map(place).collect()
    }

    /// The results of a reduction at several indices, computed in one pass over its operand.
    pub fn fold_at(&mut self, op: &Operation, fold: Fold, at: &[Index]) -> Vec<V> {
        let axes = self.fold_axes(op);
        let folder = Folder::of(op, fold, self.dtype(op.operands[0]));
        let mut places: Vec<Index> = at.iter().map(|index| self.unfolded(&axes, index)).collect();
        let mut so_far = Vec::new();
        let width = {
            let start = folder.start(&mut self.b, 1);
            start.len()
        };
        for index in at {
            let lanes = self.lanes_of(index);
            so_far.extend(folder.start(&mut self.b, lanes));
        }
        let open: Vec<usize> = (0..axes.folded.len()).filter(|&a| axes.folded[a]).collect();
        let done = self.fold_along(op, folder, &open, &mut places, &so_far, width);
        let dtype = self.dtype(op.result());
        done.chunks(width).map(|one| folder.finish(&mut self.b, one, dtype)).collect()
    }

    /// Loops over the axes in `open` and accumulates the elements at all of `places`.
    fn fold_along(
        &mut self,
        op: &Operation,
        folder: Folder,
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
                next.extend(folder.take(&mut self.b, so_far, x, None));
            }
            return next;
        };
        let size = self.dim(&self.dims(operand)[axis]);
        let zero = self.b.index(0);
        self.repeat(zero, size, 1, so_far, |nest, i, so_far| {
            places.iter_mut().for_each(|place| place[axis] = Ix::At(i));
            nest.fold_along(op, folder, inner, places, so_far, width)
        })
    }

    /// Runs statements only if a scalar condition holds, in a scope of their own.
    pub fn choose(
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

/// The product of dims.
pub fn product(dims: &[Dim]) -> Dim {
    dims.iter().cloned().product()
}
