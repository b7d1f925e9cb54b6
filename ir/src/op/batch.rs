//! Batching: how an operation acts on operands of which some have one more, leading axis.

use super::{AttrDef, Op};
use crate::algebra::{Var, build};
use crate::attr::{Attr, AttrKind};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::infer::{as_ints, find_attr};
use crate::shape::Shape;

/// How the calls of an operation for each index of a batch axis become one operation.
#[derive(Clone, Copy)]
pub enum Batch {
    /// Elementwise operations broadcast, composites are decomposed. For other operations there is no
    /// rule: they are called once for each index.
    Derived,
    /// The operation treats leading axes as independent. Operands without the batch axis are
    /// repeated along it.
    Leading,
    /// Like [`Batch::Leading`], but operands without the batch axis broadcast by themselves.
    Broadcast,
    Rule(BatchRule),
}

/// Builds the batched operation. `None`: there is no rule for these operands.
pub type BatchRule = for<'a> fn(&Batching<'a, '_>) -> Option<Lane<'a>>;

/// A value, and whether it has the batch axis in front.
#[derive(Clone, Copy)]
pub struct Lane<'a> {
    pub var: Var<'a>,
    pub batched: bool,
}

impl<'a> Lane<'a> {
    /// The rank for one index of the batch axis.
    pub fn rank(self) -> usize {
        self.var.rank() - usize::from(self.batched)
    }

    /// The value with the batch axis, along which it is repeated if it has none.
    pub fn repeated(self, size: &Dim) -> Var<'a> {
        if self.batched {
            return self.var;
        }
        let own = self.var.shape();
        self.var.broadcast_to(prefixed(size, &own))
    }

    /// The value with axes of size 1 after the batch axis, so that for each index it has `rank`
    /// axes.
    pub fn aligned(self, rank: usize) -> Var<'a> {
        let missing = rank.saturating_sub(self.rank());
        if !self.batched || missing == 0 {
            return self.var;
        }
        let axes: Vec<i64> = (1..=missing as i64).collect();
        self.var.expand_dims(&axes)
    }
}

/// The arguments of a batch rule. At least one operand has the batch axis.
pub struct Batching<'a, 'r> {
    pub op: Op,
    pub operands: &'r [Lane<'a>],
    pub attrs: &'r [Attr],
    /// The shape of the result for one index.
    pub shape: &'r Shape,
    /// The size of the batch axis.
    pub size: &'r Dim,
}

/// A shape with the batch axis in front.
fn prefixed(size: &Dim, shape: &Shape) -> Shape {
    Shape {
        lead: shape.lead.clone(),
        dims: [size.clone()].into_iter().chain(shape.dims.iter().cloned()).collect(),
    }
}

/// An axis of the operand for one index as an axis of the batched one.
fn shifted(axis: i64) -> i64 {
    if axis < 0 { axis } else { axis + 1 }
}

impl<'a> Batching<'a, '_> {
    /// The batched operation. `None`: it has no rule for these operands.
    pub fn apply(&self) -> Option<Lane<'a>> {
        let ranks = self.operands.iter().map(|own| own.rank());
        let rank = ranks.max().unwrap_or(0);
        let operands: Vec<Var> = match self.op.batch {
            Batch::Derived if !matches!(self.op.meaning, super::Meaning::Scalar(_)) => return None,
            Batch::Derived | Batch::Broadcast => {
                self.operands.iter().map(|own| own.aligned(rank)).collect()
            }
            Batch::Leading => self.operands.iter().map(|own| own.repeated(self.size)).collect(),
            Batch::Rule(rule) => return rule(self),
        };
        let attrs = self.shifted_attrs()?;
        Some(self.batched(self.op.name, &operands, &attrs))
    }

    fn builder(&self) -> &'a crate::builder::Builder {
        self.operands[0].var.builder
    }

    fn attr(&self, name: &str) -> &Attr {
        find_attr(self.op, self.attrs, name)
    }

    fn ints(&self, name: &str) -> &[i64] {
        as_ints(self.attr(name)).unwrap_or(&[])
    }

    fn lane(&self, at: usize) -> Lane<'a> {
        self.operands[at]
    }

    fn is_batched(&self, at: usize) -> bool {
        self.operands.get(at).is_some_and(|own| own.batched)
    }

    fn batched(&self, name: &str, operands: &[Var<'a>], attrs: &[(&str, Attr)]) -> Lane<'a> {
        Lane { var: build(self.builder(), name, operands, attrs), batched: true }
    }

    /// All attributes, with some replaced.
    fn attrs_with<'n>(&self, changed: &[(&'n str, Attr)]) -> Vec<(&'n str, Attr)> {
        let own = self.op.0.attrs.iter().zip(self.attrs);
        own.map(|(own, value)| {
            let new = changed.iter().find(|(name, _)| *name == own.name);
            (own.name, new.map_or(value, |(_, new)| new).clone())
        })
        .collect()
    }

    /// The attributes with axes counted from the batch axis on. `None`: the operation flattens its
    /// operand, because the axis is left out.
    fn shifted_attrs(&self) -> Option<Vec<(&'static str, Attr)>> {
        let own = self.op.0.attrs.iter().zip(self.attrs);
        own.map(|(own, value)| Some((own.name, self.shifted_attr(own, value)?))).collect()
    }

    fn shifted_attr(&self, own: &AttrDef, value: &Attr) -> Option<Attr> {
        if !own.axes {
            return Some(value.clone());
        }
        Some(match value {
            Attr::Int(axis) => Attr::Int(shifted(*axis)),
            Attr::Ints(axes) => Attr::ints(axes.iter().map(|axis| shifted(*axis))),
            // All axes.
            Attr::None if own.kind == AttrKind::Ints => Attr::ints(1..=self.lane(0).rank() as i64),
            _ => return None,
        })
    }
}

/// Moves an axis to the front.
fn to_front(x: Var<'_>, axis: usize) -> Var<'_> {
    if axis == 0 {
        return x;
    }
    let rest = (0..x.rank() as i64).filter(|own| *own != axis as i64);
    let permutation: Vec<i64> = std::iter::once(axis as i64).chain(rest).collect();
    x.transpose(&permutation)
}

/// Moves the first axis to `axis`.
fn from_front(x: Var<'_>, axis: usize) -> Var<'_> {
    if axis == 0 {
        return x;
    }
    let mut permutation: Vec<i64> = (1..x.rank() as i64).collect();
    permutation.insert(axis, 0);
    x.transpose(&permutation)
}

/// Only the first operand has the batch axis, and the others broadcast to its last axes.
pub(super) const FIRST: Batch = Batch::Rule(|b| {
    let rest = b.operands.iter().skip(1).any(|own| own.batched);
    if rest {
        return None;
    }
    let operands: Vec<Var> = b.operands.iter().map(|own| own.var).collect();
    Some(b.batched(b.op.name, &operands, &b.shifted_attrs()?))
});

/// A number that depends on the shape alone is the same for each index.
pub(super) const OF_SHAPE: Batch = Batch::Rule(|b| {
    let var = build(b.builder(), b.op.name, &[b.lane(0).var], &b.shifted_attrs()?);
    Some(Lane { var, batched: false })
});

/// The result is the first operand.
pub(super) const BARRIER: Batch = Batch::Rule(|b| {
    let operands: Vec<Var> = b.operands.iter().map(|own| own.var).collect();
    let var = build(b.builder(), b.op.name, &operands, &[]);
    Some(Lane { var, batched: b.is_batched(0) })
});

pub(super) const BROADCAST: Batch = Batch::Rule(|b| {
    let shape = b.attr("shape").as_shape();
    shape.need_rank().ok()?;
    let (rank, own) = (shape.dims.len() as i64, b.lane(0).rank() as i64);
    let axes: Vec<i64> = match as_ints(b.attr("axes")) {
        Some(axes) => axes.iter().map(|axis| axis.rem_euclid(rank.max(1))).collect(),
        None => (rank - own..rank).collect(),
    };
    let axes = Attr::ints([0].into_iter().chain(axes.into_iter().map(|axis| axis + 1)));
    let attrs = [("shape", prefixed(b.size, shape).into()), ("axes", axes)];
    Some(b.batched(b.op.name, &[b.lane(0).var], &attrs))
});

/// The shape of the result has no `?`, which an empty batch would leave undecided.
pub(super) const RESHAPE: Batch = Batch::Rule(|b| {
    let attrs = [("shape", prefixed(b.size, b.shape).into())];
    Some(b.batched(b.op.name, &[b.lane(0).var], &attrs))
});

/// Axes that the target shape lacks are summed.
pub(super) const SUM_TO: Batch = Batch::Rule(|b| {
    let shape = b.attr("shape").as_shape();
    shape.need_rank().ok()?;
    let ones = b.lane(0).rank().checked_sub(shape.dims.len())?;
    let dims = std::iter::repeat_n(Dim::Const(1), ones).chain(shape.dims.iter().cloned());
    let all = prefixed(b.size, &Shape::new(dims));
    let total = b.lane(0).var.unary("sum_to", &[("shape", all.into())]);
    Some(Lane { var: total.reshape(prefixed(b.size, shape)), batched: true })
});

pub(super) const TRANSPOSE: Batch = Batch::Rule(|b| {
    let own = b.ints("permutation");
    let rank = own.len().max(1) as i64;
    let permutation: Vec<i64> =
        [0].into_iter().chain(own.iter().map(|axis| axis.rem_euclid(rank) + 1)).collect();
    Some(Lane { var: b.lane(0).var.transpose(&permutation), batched: true })
});

/// Pads no element along the batch axis.
pub(super) const PAD: Batch = Batch::Rule(|b| {
    if b.is_batched(1) {
        return None;
    }
    let longer = |name: &'static str| {
        let own = as_ints(b.attr(name));
        (name, own.map_or(Attr::None, |own| Attr::ints([0].into_iter().chain(own.iter().copied()))))
    };
    let attrs = ["low", "high", "interior"].map(longer);
    Some(b.batched(b.op.name, &[b.lane(0).var, b.lane(1).var], &attrs))
});

/// An axis of `size` arrays as one axis in front, over which indices of all arrays run.
struct Joined<'a> {
    /// [size * count, rest …].
    rows: Var<'a>,
    /// The shape of [size, count, rest …].
    parts: Shape,
    /// The axis, counted without the batch axis.
    axis: usize,
    /// The indices, each in the part of its own array.
    places: Var<'a>,
    /// The number of axes of the indices of one array.
    count: usize,
}

impl<'a> Joined<'a> {
    fn of(b: &Batching<'a, '_>, x: Var<'a>, indices: Lane<'a>, axis: usize) -> Joined<'a> {
        let moved = from_front(to_front(x, axis + 1), 1);
        let parts = moved.shape();
        let joined = parts.dims[0].clone() * parts.dims[1].clone();
        let rest = parts.dims[2..].iter().cloned();
        let rows = moved.reshape(Shape::new([joined].into_iter().chain(rest)));
        let places = places(b, moved, indices.var);
        Joined { rows, parts, axis, places, count: indices.rank() }
    }

    /// The permutation from [size, before …, indices …, after …] to [size, indices …, before …,
    /// after …].
    fn indices_first(&self, rank: usize) -> Vec<i64> {
        let (axis, count) = (self.axis as i64, self.count as i64);
        let moved = (1 + axis..1 + axis + count).chain(1..1 + axis);
        [0].into_iter().chain(moved).chain(1 + axis + count..rank as i64).collect()
    }
}

/// Indices into `x`, [size, count, …], as indices into its first two axes as one. Those out of range
/// are clamped, so that they stay in their part.
fn places<'a>(b: &Batching<'a, '_>, x: Var<'a>, indices: Var<'a>) -> Var<'a> {
    // Small integers do not hold the indices of all parts.
    let small = indices.dtype().bits() < 32;
    let indices = if small { indices.cast(DType::I32) } else { indices };
    let dtype = indices.dtype();
    let count = x.dim(1).cast(dtype);
    let zero = indices.scalar(0.0);
    let from_start = indices.binary("lt", zero).select(indices + count, indices);
    let inside = from_start.binary("maximum", zero).binary("minimum", count - 1.0);
    let shape = Shape::new([b.size.clone()]);
    let attrs = [("shape", shape.into()), ("axis", 0.into()), ("dtype", dtype.into())];
    let number = build(b.builder(), "iota", &[], &attrs);
    let ones: Vec<i64> = (1..indices.rank() as i64).collect();
    let number = if ones.is_empty() { number } else { number.expand_dims(&ones) };
    inside + number * count
}

fn permuted<'a>(x: Var<'a>, permutation: &[i64]) -> Var<'a> {
    let same = permutation.iter().enumerate().all(|(at, own)| at as i64 == *own);
    if same { x } else { x.transpose(permutation) }
}

fn inverse(permutation: &[i64]) -> Vec<i64> {
    let mut inverse = vec![0; permutation.len()];
    permutation.iter().enumerate().for_each(|(at, own)| inverse[*own as usize] = at as i64);
    inverse
}

/// The axis of an operation on `x`, counted from the front.
fn own_axis(b: &Batching, x: Lane) -> usize {
    b.attr("axis").as_int().rem_euclid(x.rank().max(1) as i64) as usize
}

pub(super) const TAKE: Batch = Batch::Rule(|b| {
    let (x, indices) = (b.lane(0), b.lane(1));
    let axis = own_axis(b, x);
    if !indices.batched {
        return Some(b.batched(b.op.name, &[x.var, indices.var], &b.shifted_attrs()?));
    }
    if !x.batched {
        let taken = build(b.builder(), b.op.name, &[x.var, indices.var], &b.attrs_with(&[]));
        return Some(Lane { var: to_front(taken, axis), batched: true });
    }
    let joined = Joined::of(b, x.var, indices, axis);
    let operands = [joined.rows, joined.places];
    let taken = build(b.builder(), b.op.name, &operands, &[("axis", 0.into())]);
    let back = inverse(&joined.indices_first(taken.rank()));
    Some(Lane { var: permuted(taken, &back), batched: true })
});

pub(super) const SCATTER: Batch = Batch::Rule(|b| {
    let indices = b.lane(1);
    let [x, updates] = [0, 2].map(|at| b.lane(at).repeated(b.size));
    if !indices.batched {
        return Some(b.batched(b.op.name, &[x, indices.var, updates], &b.shifted_attrs()?));
    }
    let joined = Joined::of(b, x, indices, own_axis(b, b.lane(0)));
    let updates = permuted(updates, &joined.indices_first(updates.rank()));
    let operands = [joined.rows, joined.places, updates];
    let rows = build(b.builder(), b.op.name, &operands, &[("axis", 0.into())]);
    let parts = to_front(rows.reshape(joined.parts), 1);
    // [count, size, rest …].
    let back = from_front(parts, joined.axis + 1);
    Some(Lane { var: back, batched: true })
});

/// Reads or writes a block, whose start is the same for the whole batch, or 0 along the batch axis.
pub(super) const BLOCK: Batch = Batch::Rule(|b| {
    let arrays = usize::from(b.op.attr_index("sizes").is_none()) + 1;
    let (arrays, starts) = b.operands.split_at(arrays);
    if starts.iter().any(|own| own.batched) {
        return None;
    }
    let mut operands: Vec<Var> = arrays.iter().map(|own| own.repeated(b.size)).collect();
    operands.extend(starts.first().map(|first| first.var.scalar(0.0)));
    if starts.is_empty() {
        return None;
    }
    operands.extend(starts.iter().map(|own| own.var));
    let sizes =
        b.op.attr_index("sizes")
            .map(|_| ("sizes", Attr::from(prefixed(b.size, b.attr("sizes").as_shape()))));
    let attrs: Vec<(&str, Attr)> = sizes.into_iter().collect();
    Some(b.batched(b.op.name, &operands, &attrs))
});

/// If both operands have the batch axis, it is a batch axis of the product; else it is one of the
/// rest.
pub(super) const DOT: Batch = Batch::Rule(|b| {
    let (x, y) = (b.lane(0), b.lane(1));
    let axes = |name: &str, own: Lane| {
        let rank = own.rank().max(1) as i64;
        let axes = b.ints(name).iter().map(move |axis| axis.rem_euclid(rank));
        axes.map(|axis| axis + i64::from(own.batched)).collect::<Vec<i64>>()
    };
    let own = [("x_batch", x), ("y_batch", y), ("x_contract", x), ("y_contract", y)];
    let mut changed = own.map(|(name, lane)| (name, axes(name, lane)));
    let shared = changed[0].1.len();
    let place = match (x.batched, y.batched) {
        (true, true) => {
            changed[0].1.insert(0, 0);
            changed[1].1.insert(0, 0);
            0
        }
        (true, false) => shared,
        _ => x.rank() - changed[2].1.len(),
    };
    let changed = changed.map(|(name, axes)| (name, Attr::ints(axes)));
    let product = build(b.builder(), b.op.name, &[x.var, y.var], &b.attrs_with(&changed));
    Some(Lane { var: to_front(product, place), batched: true })
});

/// Products of matrices broadcast; vectors are only taken where that is what they do.
pub(super) const MATMUL: Batch = Batch::Rule(|b| {
    let (x, y) = (b.lane(0), b.lane(1));
    let natural = match (x.rank(), y.rank()) {
        // The rows of one matrix.
        (1, 2) => !y.batched,
        (one, other) => one >= 2 && other >= 2,
    };
    let rank = x.rank().max(y.rank());
    let aligned = |own: Lane<'_>| if own.rank() == 1 { 1 } else { rank };
    let operands = [x.aligned(aligned(x)), y.aligned(aligned(y))];
    natural.then(|| b.batched(b.op.name, &operands, &[]))
});

/// Joins the batch axis with the samples, or, if weights have it too, with the groups.
pub(super) const CONV: Batch = Batch::Rule(|b| {
    let (x, weights) = (b.lane(0), b.lane(1));
    let lead = |x: Var, axes: [usize; 2]| {
        let shape = x.shape();
        let joined = shape.dims[axes[0]].clone() * shape.dims[axes[1]].clone();
        let mut dims: Vec<Dim> = shape.dims.to_vec();
        dims.splice(axes[0]..=axes[1], [joined]);
        Shape::new(dims)
    };
    if !weights.batched {
        let samples = x.var.shape().dims[1].clone();
        let joined = x.var.reshape(lead(x.var, [0, 1]));
        let made = build(b.builder(), b.op.name, &[joined, weights.var], &b.attrs_with(&[]));
        let rest = made.shape().dims.into_iter().skip(1);
        let shape = Shape::new([b.size.clone(), samples].into_iter().chain(rest));
        return Some(Lane { var: made.reshape(shape), batched: true });
    }
    let Dim::Const(size) = b.size else { return None };
    // (samples, batch * channels, …) with batch * groups groups.
    let x = from_front(x.repeated(b.size), 1);
    let joined = x.reshape(lead(x, [1, 2]));
    let filters = weights.var.reshape(lead(weights.var, [0, 1]));
    let groups = Attr::Int(b.attr("groups").as_int().checked_mul(*size)?);
    let attrs = b.attrs_with(&[("groups", groups)]);
    let made = build(b.builder(), b.op.name, &[joined, filters], &attrs);
    let shape = made.shape();
    let own = shape.dims[1].floor_div(b.size);
    let rest = shape.dims[2..].iter().cloned();
    let parts = [shape.dims[0].clone(), b.size.clone(), own].into_iter().chain(rest);
    Some(Lane { var: to_front(made.reshape(Shape::new(parts)), 1), batched: true })
});

/// Rows are independent, if all groups share the matrices.
pub(super) const ROWS: Batch = Batch::Rule(|b| {
    if b.is_batched(1) {
        return None;
    }
    let [x, group] = [0, 2].map(|at| b.lane(at).repeated(b.size));
    let flat = |x: Var<'_>| {
        let shape = x.shape();
        let rows = shape.dims[0].clone() * shape.dims[1].clone();
        Shape::new([rows].into_iter().chain(shape.dims[2..].iter().cloned()))
    };
    let operands = [x.reshape(flat(x)), b.lane(1).var, group.reshape(flat(group))];
    let made = b.batched(b.op.name, &operands, &[]).var;
    let dims = x.shape().dims.into_iter().take(2).chain(made.shape().dims.into_iter().skip(1));
    Some(Lane { var: made.reshape(Shape::new(dims)), batched: true })
});

/// Leading axes are those of separate heads. Sinks differ between heads, so they are decomposed.
pub(super) const ATTENTION: Batch = Batch::Rule(|b| {
    if b.operands.len() > 4 {
        return None;
    }
    let rank = b.operands.iter().map(|own| own.rank()).max().unwrap_or(0);
    let mut operands: Vec<Var> = b.operands.iter().map(|own| own.aligned(rank)).collect();
    // A mask may not have axes that the query lacks.
    let query = Lane { var: b.lane(0).repeated(b.size), batched: true };
    operands[0] = query.aligned(rank);
    Some(b.batched(b.op.name, &operands, &b.shifted_attrs()?))
});
