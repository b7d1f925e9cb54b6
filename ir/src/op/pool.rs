//! Pooling: reductions over windows.

use super::window::{DILATIONS, STRIDES, padding_of, windows, windows_gradient};
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::AttrKind;
use crate::diagnostic::Result;
use crate::shape::Shape;

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "max_pool",
    noun: "highest",
    kind: Kind::Composite,
    operands: &[operand("x", Class::Float)],
    doc: "The maximum of each position of a sliding window; NaN if any element is NaN. Windows \
          cover as many of the last axes as `sizes` has numbers; `low` and `high` elements of \
          -inf are added before and after each axis.",
    attrs: &[
        attr("sizes", AttrKind::Ints, Default::Required),
        STRIDES,
        DILATIONS,
        attr("low", AttrKind::Ints, Default::None),
        attr("high", AttrKind::Ints, Default::None),
    ],
    shape: ShapeRule::Rule(pool_shape),
    meaning: Meaning::Decompose(|r| windows_of(r).reduce("max", Some(&taps(r)), false)),
    gradient: Gradient::Rule(|r| vec![Some(pool_gradient(r))]),
    note: "Ties share the gradient evenly; in torch and JAX the first element gets all of it.",
    ..BASE
}];

fn pool_shape(cx: &mut Infer) -> Result<Shape> {
    let sizes = cx.ints("sizes").unwrap_or(&[]).to_vec();
    cx.count_windows(sizes.len(), &["sizes", "strides", "dilations"])?;
    let mut shape = cx.shape(0).clone();
    let padded = cx.padded(&shape, sizes.len(), None)?;
    let first = shape.dims.len() - sizes.len();
    let own = windows(first..shape.dims.len(), &sizes, cx.ints("strides"), cx.ints("dilations"));
    for (window, dim) in own.into_iter().zip(padded) {
        shape.dims[window.axis] = cx.positions(window, &dim)?;
    }
    Ok(shape)
}

/// The axes of the taps, counted from the back.
fn taps(r: &Rule) -> Vec<i64> {
    (-(r.ints("sizes").unwrap_or(&[]).len() as i64)..0).collect()
}

/// The view of the windows over the operand, padded with -inf.
fn windows_of<'a>(r: &Rule<'a>) -> Var<'a> {
    let x = r.arg(0);
    let attrs = [
        ("axes", taps(r)[..].into()),
        ("sizes", r.attr("sizes").clone()),
        ("strides", r.attr("strides").clone()),
        ("dilations", r.attr("dilations").clone()),
    ];
    padding_of(r, x.rank(), None).with(r, x, f64::NEG_INFINITY).unary("windows", &attrs)
}

/// Divides the cotangent of each position equally among the taps that see its maximum.
fn pool_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let (x, windows_of, taps) = (r.arg(0), windows_of(r), taps(r));
    let spread = |v: Var<'a>| v.expand_dims(&taps).broadcast_to(windows_of.shape());
    let ties = windows_of.binary("eq", spread(r.y())).cast(x.dtype());
    let shares = ties * spread(r.g() / ties.sum(Some(&taps), false));
    let rank = x.rank();
    let axes = rank - taps.len()..rank;
    let sizes = r.ints("sizes").unwrap_or(&[]);
    let windows = windows(axes, sizes, r.ints("strides"), r.ints("dilations"));
    windows_gradient(r, shares, &windows, &x.shape(), &padding_of(r, rank, None))
}
