//! Pooling: reductions over windows.

use super::batch::Batch;
use super::window::{DILATIONS, Padding, STRIDES, Window, padding_of, windows, windows_gradient};
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::AttrKind;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::shape::Shape;

const POOL: OpDef = OpDef {
    kind: Kind::Composite,
    operands: &[operand("x", Class::Float)],
    shape: ShapeRule::Rule(pool_shape),
    batch: Batch::Leading,
    ..BASE
};
const SIZES: super::AttrDef = attr("sizes", AttrKind::Ints, Default::Required);
const LOW: super::AttrDef = attr("low", AttrKind::Ints, Default::None);
const HIGH: super::AttrDef = attr("high", AttrKind::Ints, Default::None);

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "max_pool",
        noun: "highest",
        doc: "The maximum of each position of a sliding window; NaN if any element is NaN. \
              Windows cover as many of the last axes as `sizes` has numbers; `low` and `high` \
              elements of -inf are added before and after each axis.",
        attrs: &[SIZES, STRIDES, DILATIONS, LOW, HIGH],
        meaning: Meaning::Decompose(|r| {
            Pool::of(r).windows_of(r, f64::NEG_INFINITY).reduce("max", Some(&taps(r)), false)
        }),
        gradient: Gradient::Rule(|r| vec![Some(max_gradient(r))]),
        note: "Ties share the gradient evenly; in torch and JAX the first element gets all of it. \
               With `autodiff=\"mithril\"` on JAX, XLA's code for the CPU may compute the \
               operand twice and round it differently; the gradient then misses the maximum.",
        ..POOL
    },
    OpDef {
        name: "sum_pool",
        noun: "total",
        doc: "The sum of each position of a sliding window. Windows cover as many of the last axes \
              as `sizes` has numbers; `low` and `high` zeros are added before and after each axis.",
        attrs: &[SIZES, STRIDES, LOW, HIGH],
        meaning: Meaning::Decompose(|r| Pool::of(r).windows_of(r, 0.0).sum(Some(&taps(r)), false)),
        gradient: Gradient::Rule(|r| {
            let own = Pool::of(r);
            vec![Some(own.gradient(r, own.spread(r, r.g())))]
        }),
        ..POOL
    },
    OpDef {
        name: "avg_pool",
        noun: "average",
        doc: "The mean of each position of a sliding window. Windows cover as many of the last \
              axes as `sizes` has numbers; `low` and `high` zeros are added before and after each \
              axis. With `count_pad`, the mean counts these zeros, except the last `uncounted` of \
              each axis; without, only elements of `x`.",
        attrs: &[
            SIZES,
            STRIDES,
            LOW,
            HIGH,
            attr("uncounted", AttrKind::Ints, Default::None),
            attr("count_pad", AttrKind::Bool, Default::Bool(true)),
        ],
        meaning: Meaning::Decompose(average),
        note: "f16 and bf16 are computed in f32 and rounded once.",
        ..POOL
    },
];

fn pool_shape(cx: &mut Infer) -> Result<Shape> {
    let sizes = cx.ints("sizes").unwrap_or(&[]).to_vec();
    cx.count_windows(sizes.len(), &["sizes", "strides"])?;
    let dilations = cx.op.attr_index("dilations").and_then(|_| cx.ints("dilations"));
    if dilations.is_some() {
        cx.count_windows(sizes.len(), &["dilations"])?;
    }
    let mut shape = cx.shape(0).clone();
    let padded = cx.padded(&shape, sizes.len(), None)?;
    if cx.op.attr_index("uncounted").is_some()
        && cx.ints("uncounted").is_some_and(|list| list.len() != sizes.len())
    {
        return cx.mismatch(format!("`uncounted` must have {} numbers", sizes.len()));
    }
    let first = shape.dims.len() - sizes.len();
    let own = windows(first..shape.dims.len(), &sizes, cx.ints("strides"), dilations);
    for (window, dim) in own.into_iter().zip(padded) {
        shape.dims[window.axis] = cx.positions(window, &dim)?;
    }
    Ok(shape)
}

/// The axes of the taps, counted from the back.
fn taps(r: &Rule) -> Vec<i64> {
    (-(r.ints("sizes").unwrap_or(&[]).len() as i64)..0).collect()
}

/// The windows and the padding of a pooling operation.
struct Pool {
    windows: Vec<Window>,
    padding: Padding,
}

impl Pool {
    fn of(r: &Rule) -> Pool {
        let (rank, sizes) = (r.arg(0).rank(), r.ints("sizes").unwrap_or(&[]));
        let dilations = r.op.attr_index("dilations").and_then(|_| r.ints("dilations"));
        Pool {
            windows: windows(
                rank.saturating_sub(sizes.len())..rank,
                sizes,
                r.ints("strides"),
                dilations,
            ),
            padding: padding_of(r, rank, None),
        }
    }

    /// The view of the windows over the operand, padded with `value`.
    fn windows_of<'a>(&self, r: &Rule<'a>, value: f64) -> Var<'a> {
        let mut attrs = vec![
            ("axes", taps(r)[..].into()),
            ("sizes", r.attr("sizes").clone()),
            ("strides", r.attr("strides").clone()),
        ];
        if r.op.attr_index("dilations").is_some() {
            attrs.push(("dilations", r.attr("dilations").clone()));
        }
        self.padding.with(r, r.arg(0), value).unary("windows", &attrs)
    }

    /// A value per position, repeated for each tap.
    fn spread<'a>(&self, r: &Rule<'a>, v: Var<'a>) -> Var<'a> {
        let sizes = self.windows.iter().map(|window| Dim::Const(window.size));
        let shape = Shape::new(v.shape().dims.into_iter().chain(sizes));
        v.expand_dims(&taps(r)).broadcast_to(shape)
    }

    /// The gradient of the operand, from the cotangents of the windows' elements.
    fn gradient<'a>(&self, r: &Rule<'a>, g: Var<'a>) -> Var<'a> {
        windows_gradient(r, g, &self.windows, &r.arg(0).shape(), &self.padding)
    }
}

/// Divides the cotangent of each position equally among the taps that see its maximum.
fn max_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let own = Pool::of(r);
    let highest = own.spread(r, r.y());
    let ties = own.windows_of(r, f64::NEG_INFINITY).binary("eq", highest).cast(r.ty.dtype);
    let share = r.g() / ties.sum(Some(&taps(r)), false);
    own.gradient(r, ties * own.spread(r, share))
}

fn average<'a>(r: &Rule<'a>) -> Var<'a> {
    let own = Pool::of(r);
    let attrs = ["sizes", "strides", "low", "high"].map(|name| (name, r.attr(name).clone()));
    let total = r.arg(0).widened().unary("sum_pool", &attrs);
    let mean = match counts(r, &own, total) {
        Some(counts) => total / counts,
        None => total / own.windows.iter().map(|w| w.size).product::<i64>() as f64,
    };
    mean.cast(r.ty.dtype)
}

/// The number of counted elements of each position, in a shape that broadcasts. `None`: every
/// position counts all of its window.
fn counts<'a>(r: &Rule<'a>, own: &Pool, total: Var<'a>) -> Option<Var<'a>> {
    let all = matches!(r.attr("count_pad"), crate::attr::Attr::Bool(true));
    let zeros = vec![0; own.windows.len()];
    let uncounted = r.ints("uncounted").unwrap_or(&zeros);
    let padding = |w: &Window| (own.padding.low[w.axis], own.padding.high[w.axis]);
    let whole = |(w, rest): (&Window, &i64)| (all || padding(w) == (0, 0)) && *rest == 0;
    if own.windows.iter().zip(uncounted).all(whole) {
        return None;
    }
    let rank = total.rank();
    if rank != r.arg(0).rank() {
        return None;
    }
    let one = |(window, rest): (&Window, &i64)| {
        let (low, high) = padding(window);
        let (first, after) = if all { (0, low + high - rest) } else { (low, low) };
        let positions = Shape::new([total.shape().dims[window.axis].clone()]);
        let attrs = [("shape", positions.into()), ("dtype", DType::I64.into())];
        let start = r.build("iota", &[], &attrs) * window.stride as f64;
        let limit = r.arg(0).dim(window.axis as i64) + after as f64;
        let end = (start + window.size as f64).binary("minimum", limit);
        let count = end - start.binary("maximum", start.scalar(first as f64));
        let some = count.binary("maximum", count.scalar(1.0)).cast(total.dtype());
        let later: Vec<i64> = (1..(rank - window.axis) as i64).collect();
        if later.is_empty() { some } else { some.expand_dims(&later) }
    };
    own.windows.iter().zip(uncounted).map(one).reduce(|a, b| a * b)
}
