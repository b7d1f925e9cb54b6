//! Helpers of losses and metrics: checks of operands, and logarithms that stay finite.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::shape::Shape;

use super::elementwise;
use crate::lower::Cx;

/// `input` and `target`, for an elementwise comparison. Errors: those of [`alike`].
pub(super) fn pair<'a>(cx: &Cx<'a>) -> Result<(Var<'a>, Var<'a>)> {
    alike(cx, "input", "target")
}

/// Two inputs for an elementwise comparison. Errors: those of [`check_alike`].
pub(super) fn alike<'a>(cx: &Cx<'a>, name: &str, other: &str) -> Result<(Var<'a>, Var<'a>)> {
    let (first, second) = (cx.var(name), cx.var(other));
    check_alike((name, &first.shape()), (other, &second.shape()))?;
    Ok((first, second))
}

/// Checks that two inputs can be compared element by element. Errors: different ranks, for which
/// broadcasting would compare all pairs of elements.
pub(super) fn check_alike(
    (name, expected): (&str, &Shape),
    (other, own): (&str, &Shape),
) -> Result<()> {
    let differ = match (expected.rank(), own.rank()) {
        (Some(a), Some(b)) => a != b && b != 0,
        _ => false,
    };
    let mut dims = expected.dims.iter().zip(&own.dims);
    let unequal = |a: Option<i64>, b: Option<i64>| a.is_some() && b.is_some() && a != b;
    let broken = expected.rank() == own.rank()
        && dims.any(|(a, b)| {
            let (a, b) = (a.as_const(), b.as_const());
            unequal(a, b) && a != Some(1) && b != Some(1)
        });
    if differ || broken {
        return other_shape(name, other, expected);
    }
    Ok(())
}

/// The error for an input, such as a target, whose shape does not match that of `name`.
pub(super) fn other_shape<T>(name: &str, other: &str, expected: &Shape) -> Result<T> {
    let what = format!("the shape of `{other}` does not match `{name}`");
    Diagnostic::of(ErrorKind::Shapes, what)
        .expected(format!("{other}: {expected}"))
        .hint("reshape one of them: losses do not broadcast to another number of dims")
        .err()
}

/// The shape without one axis. Errors: the axis is out of range.
pub(super) fn without(shape: &Shape, axis: i64) -> Result<Shape> {
    let mut shape = shape.clone();
    let at = shape.dims.len() - shape.axis_from_back(axis)?;
    shape.dims.remove(at);
    Ok(shape)
}

/// The logarithm. With `robust`, it is continued by its tangent near 0.
pub(super) fn log(x: Var<'_>, robust: bool) -> Var<'_> {
    match robust {
        true => elementwise::robust(x, "robust_log"),
        false => x.log(),
    }
}

/// `weight * log(x)`; 0 with finite gradients where both are 0.
pub(super) fn times_log<'a>(weight: Var<'a>, x: Var<'a>, robust: bool) -> Var<'a> {
    if robust {
        return weight * log(x, true);
    }
    let unused = is_zero(weight).binary("and", is_zero(x));
    weight * unused.select(x.scalar(1.0), x).log()
}

/// `weight * x`; 0 where `weight` is 0, even if `x` is infinite.
pub(super) fn times_finite<'a>(weight: Var<'a>, x: Var<'a>) -> Var<'a> {
    let unused = is_zero(weight).binary("and", x.unary("is_inf", &[]));
    weight * unused.select(x.scalar(0.0), x)
}

fn is_zero(x: Var<'_>) -> Var<'_> {
    x.binary("eq", x.scalar(0.0))
}
