//! Shape rules and gradients of layout operations.

use smallvec::SmallVec;

use super::super::Infer;
use super::super::reduce::without_axes;
use super::super::view::slice_bounds;
use crate::algebra::{Rule, Var};
use crate::attr::Attr;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::message;
use crate::shape::Shape;

/// The dim of an axis, which may be negative.
pub(in crate::op) fn axis_dim(shape: &Shape, axis: i64) -> Result<&Dim> {
    Ok(&shape.dims[shape.dims.len() - shape.axis_from_back(axis)?])
}

pub(super) fn iota_shape(cx: &mut Infer) -> Result<Shape> {
    let shape = cx.whole_shape("shape")?;
    shape.axis_from_back(cx.int("axis"))?;
    cx.dtype_attr("dtype", |d| d != DType::Bool, "a float or an integer")?;
    Ok(shape)
}

pub(super) fn eye_shape(cx: &mut Infer) -> Result<Shape> {
    let shape = cx.whole_shape("shape")?;
    if shape.rank() == Some(2) {
        return Ok(shape);
    }
    cx.shape_error(message![cx.name(), " needs a shape of two dims"])
        .got(&shape)
        .expected("two dims")
        .err()
}

pub(super) fn broadcast_shape(cx: &mut Infer) -> Result<Shape> {
    let (x, target) = (cx.shape(0).clone(), cx.whole_shape("shape")?);
    let Some(axes) = cx.ints("axes").map(<[i64]>::to_vec) else {
        cx.broadcasts_to(&x, &target)?;
        return Ok(target);
    };
    if x.need_rank()? != axes.len() {
        return cx
            .shape_error(format!("{} axes are given for {x}", axes.len()))
            .got(format!("axes {axes:?}"))
            .expected("one axis for each dim")
            .err();
    }
    for (dim, &axis) in x.dims.iter().zip(&axes) {
        let to = axis_dim(&target, axis)?.clone();
        if dim.as_const() != Some(1) {
            cx.unify(dim, &to, "the dim and the one it broadcasts to")?;
        }
    }
    Ok(target)
}

pub(super) fn broadcast_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let (x, g) = (r.arg(0), r.g());
    let Some(axes) = r.ints("axes") else {
        return vec![Some(g.sum_to(x.shape()))];
    };
    let rank = r.shape_attr("shape").dims.len() as i64;
    let kept: Vec<i64> = axes.iter().map(|a| a.rem_euclid(rank.max(1))).collect();
    let lost: Vec<i64> = (0..rank).filter(|a| !kept.contains(a)).collect();
    let summed = if lost.is_empty() { g } else { g.sum(Some(&lost), false) };
    let mut order: Vec<usize> = (0..kept.len()).collect();
    order.sort_by_key(|&i| kept[i]);
    let mut permutation = vec![0; kept.len()];
    for (from, &to) in order.iter().enumerate() {
        permutation[to] = from as i64;
    }
    let sorted = permutation.iter().enumerate().all(|(i, &p)| i as i64 == p);
    let placed = if sorted { summed } else { summed.transpose(&permutation) };
    vec![Some(placed.sum_to(x.shape()))]
}

/// Infers a `?` in the target from the number of elements, if that is divisible.
pub(super) fn reshape_shape(cx: &mut Infer) -> Result<Shape> {
    let (x, target) = (cx.shape(0).clone(), cx.shape_attr("shape").clone());
    let unknown = target.dims.iter().filter(|d| d.is_unknown()).count();
    if unknown > 1 {
        return cx
            .shape_error(format!("{target} has more than one unknown dim"))
            .got(format!("{unknown} unknown dims"))
            .expected("at most one, which is inferred from the number of elements")
            .err();
    }
    if x.lead == target.lead && x.lead.is_some() && unknown == 0 {
        let count = |s: &Shape| s.dims.iter().cloned().product::<Dim>();
        let (from, to) = (count(&x), count(&target));
        cx.unify(&from, &to, "numbers of elements")?;
        return Ok(target);
    }
    let (Some(have), None) = (x.elements(), &target.lead) else {
        return Ok(target);
    };
    let given: Dim = target.dims.iter().filter(|d| !d.is_unknown()).cloned().product();
    if unknown == 0 {
        if have.is_unknown() {
            return Ok(target);
        }
        let what = format!("{x} does not reshape to {target}: the numbers of elements");
        cx.unify(&have, &given, what)?;
        return Ok(target);
    }
    let missing = match have.exact_div(&given) {
        Some(dim) => dim,
        None if have.is_unknown() => Dim::Unknown,
        None => match (have.as_const(), given.as_const()) {
            (Some(h), Some(g)) => {
                return cx
                    .shape_error(format!("{h} elements do not reshape to {target}"))
                    .got(format!("{h} elements"))
                    .expected(format!("a multiple of {g}"))
                    .err();
            }
            _ => {
                cx.unify(
                    &have.modulo(&given),
                    &Dim::Const(0),
                    "the remainder of the division and \
                                                                0",
                )?;
                have.floor_div(&given)
            }
        },
    };
    let dims = target.dims.iter().map(|d| if d.is_unknown() { missing.clone() } else { d.clone() });
    Ok(Shape::new(dims))
}

pub(super) fn transpose_shape(cx: &mut Infer) -> Result<Shape> {
    let x = cx.shape(0).clone();
    let rank = x.need_rank()?;
    let permutation = cx.ints("permutation").unwrap_or(&[]).to_vec();
    let mut seen = vec![false; rank];
    let mut dims: SmallVec<[Dim; 4]> = SmallVec::new();
    for &axis in &permutation {
        let at = x.axis(axis)?;
        if std::mem::replace(&mut seen[at], true) {
            return cx
                .shape_error(format!("the permutation {permutation:?} names axis {axis} twice"))
                .got(format!("{permutation:?}"))
                .expected(format!("each of {rank} axes once"))
                .err();
        }
        dims.push(x.dims[at].clone());
    }
    if dims.len() != rank {
        return cx
            .shape_error(format!("{permutation:?} is not a permutation of {rank} axes"))
            .got(format!("{permutation:?}"))
            .expected(format!("each of {rank} axes once"))
            .err();
    }
    Ok(Shape { lead: None, dims })
}

pub(super) fn swap_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    let count = shape.dims.len();
    let first = count - shape.axis_from_back(cx.int("first"))?;
    let second = count - shape.axis_from_back(cx.int("second"))?;
    shape.dims.swap(first, second);
    Ok(shape)
}

pub(super) fn expand_shape(cx: &mut Infer) -> Result<Shape> {
    let x = cx.shape(0);
    let axes = cx.ints("axes").unwrap_or(&[]).to_vec();
    if let Some(lead) = &x.lead {
        if axes.iter().any(|&a| a >= 0) {
            x.need_rank()?;
        }
        let mut backs: Vec<usize> = axes.iter().map(|a| a.unsigned_abs() as usize).collect();
        backs.sort_unstable();
        let mut dims: Vec<Dim> = x.dims.to_vec();
        for back in backs {
            let at = (dims.len() + 1).checked_sub(back);
            let Some(at) = at else {
                return Err(x.need_trailing(back - 1).unwrap_err());
            };
            dims.insert(at, Dim::Const(1));
        }
        return Ok(Shape::with_lead(lead.clone(), dims));
    }
    let rank = x.dims.len() + axes.len();
    let mut inserted = vec![false; rank];
    for &axis in &axes {
        let Some(at) = crate::shape::axis_of(axis, rank) else {
            return cx
                .shape_error(format!("axis {axis} is out of range"))
                .got(format!("axis {axis}, inserted into {x}"))
                .expected(format!("an axis from -{rank} to {}", rank - 1))
                .err();
        };
        if std::mem::replace(&mut inserted[at], true) {
            return cx
                .shape_error(format!("axis {axis} is inserted twice"))
                .got(format!("axes {axes:?}"))
                .expected("axes that differ")
                .err();
        }
    }
    let mut own = x.dims.iter().cloned();
    let dims = inserted.iter().map(|&new| {
        if new { Dim::Const(1) } else { own.next().expect("as many old axes as there are gaps") }
    });
    Ok(Shape::new(dims.collect::<Vec<_>>()))
}

pub(super) fn squeeze_shape(cx: &mut Infer) -> Result<Shape> {
    let axes = cx.ints("axes").unwrap_or(&[]).to_vec();
    for &axis in &axes {
        let dim = axis_dim(cx.shape(0), axis)?.clone();
        cx.unify(&dim, &Dim::Const(1), "a squeezed axis and 1")?;
    }
    without_axes(cx.shape(0), Some(&axes), false)
}

/// The number of elements between two bounds: their difference, in a form that is easy to read.
fn slice_length(start: &Dim, limit: &Dim, dim: &Dim) -> Dim {
    let nothing = Dim::Const(0);
    let difference = match (start.as_const(), limit.as_const()) {
        (Some(0..), None) if limit.is_unknown() => dim - start,
        (Some(0..), Some(..0)) => &(dim + limit) - start,
        (Some(..0), Some(..0)) => &(-start).min(dim) + limit,
        _ => {
            let (start, limit) = slice_bounds(start, limit, dim);
            &limit - &start
        }
    };
    difference.max(&nothing)
}

pub(in crate::op) fn slice_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    let axes = cx.ints("axes").unwrap_or(&[]).to_vec();
    let (starts, limits) = (cx.shape_attr("starts").clone(), cx.shape_attr("limits").clone());
    let steps = cx.ints("steps").map_or_else(|| vec![1; axes.len()], <[i64]>::to_vec);
    if [starts.dims.len(), limits.dims.len(), steps.len()].iter().any(|&n| n != axes.len()) {
        return cx.mismatch("`axes`, `starts`, `limits` and `steps` must have the same length");
    }
    for (i, &axis) in axes.iter().enumerate() {
        let at = shape.dims.len() - shape.axis_from_back(axis)?;
        if steps[i] < 1 {
            return Diagnostic::new("the step of a slice must be at least 1")
                .got(steps[i])
                .hint("use `Flip` to go backwards")
                .err();
        }
        let length = slice_length(&starts.dims[i], &limits.dims[i], &shape.dims[at]);
        shape.dims[at] = length.ceil_div(&Dim::Const(steps[i]));
    }
    Ok(shape)
}

pub(super) fn known_slice(cx: &Infer) -> Option<Vec<Dim>> {
    let values = cx.known[0]?;
    let (starts, limits) = (cx.shape_attr("starts"), cx.shape_attr("limits"));
    let (start, limit) = (starts.dims.first()?, limits.dims.first()?);
    let (start, limit) = slice_bounds(start, limit, &Dim::from(values.len()));
    let step = cx.ints("steps").map_or(1, |s| s[0]) as usize;
    let range = start.as_const()? as usize..limit.as_const()? as usize;
    Some(values.get(range)?.iter().step_by(step).cloned().collect())
}

/// The gradient of a slice: pads the cotangent with zeros to the operand's shape.
pub(super) fn slice_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let x = r.arg(0);
    let zeros = x.full_like(0.0);
    let attrs: Vec<(&str, Attr)> =
        ["axes", "starts", "limits", "steps"].map(|name| (name, r.attr(name).clone())).to_vec();
    vec![Some(r.build("slice_update", &[zeros, r.g()], &attrs))]
}

pub(super) fn concat_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    let back = shape.axis_from_back(cx.int("axis"))?;
    for i in 1..cx.operands.len() {
        let next = cx.shape(i).clone();
        if next.dims.len() != shape.dims.len() {
            let what =
                format!("inputs 0 and {i} have {} and {} dims", shape.dims.len(), next.dims.len());
            return cx
                .shape_error(what)
                .got(format!("{shape} and {next}"))
                .expected("the same number of dims")
                .err();
        }
        let at = shape.dims.len() - back;
        for axis in 0..shape.dims.len() {
            shape.dims[axis] = if axis == at {
                &shape.dims[axis] + &next.dims[axis]
            } else {
                let what = format!("dims of inputs 0 and {i} in axis {axis}");
                cx.unify(&shape.dims[axis].clone(), &next.dims[axis], what)?
            };
        }
    }
    Ok(shape)
}

pub(super) fn concat_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let axis = r.int("axis");
    let mut start = Dim::Const(0);
    r.operands
        .iter()
        .map(|x| {
            let shape = x.shape();
            let length = axis_dim(&shape, axis).cloned().unwrap_or(Dim::Unknown);
            let limit = &start + &length;
            let part = r.g().unary(
                "slice",
                &[
                    ("axes", Attr::ints([axis])),
                    ("starts", Shape::new([start.clone()]).into()),
                    ("limits", Shape::new([limit.clone()]).into()),
                ],
            );
            start = limit;
            Some(part)
        })
        .collect()
}

pub(super) fn pad_shape(cx: &mut Infer) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    let rank = shape.need_rank()?;
    if cx.shape(1).rank() != Some(0) {
        return cx.mismatch("the padding value must be a scalar");
    }
    let ints = |name| cx.ints(name).map_or_else(|| vec![0; rank], <[i64]>::to_vec);
    let (low, high, interior) = (ints("low"), ints("high"), ints("interior"));
    if [low.len(), high.len(), interior.len()].iter().any(|&n| n != rank) {
        return cx
            .shape_error(format!("`low`, `high` and `interior` must have {rank} numbers each"))
            .got(format!("{}, {} and {} numbers", low.len(), high.len(), interior.len()))
            .expected(format!("{rank} numbers, one for each axis"))
            .err();
    }
    if interior.iter().any(|&n| n < 0) {
        return cx.mismatch("interior padding must not be negative");
    }
    for (i, dim) in shape.dims.iter_mut().enumerate() {
        let spread = match interior[i] {
            0 => dim.clone(),
            n => &*dim + &(&(&*dim + -1).max(&Dim::Const(0)) * &Dim::Const(n)),
        };
        *dim = &spread + low[i] + high[i];
    }
    Ok(shape)
}

pub(super) fn pad_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let g = r.g();
    let rank = r.arg(0).rank();
    let ints = |name| r.ints(name).map_or_else(|| vec![0; rank], <[i64]>::to_vec);
    let (low, high, interior) = (ints("low"), ints("high"), ints("interior"));
    let negated = |v: &[i64]| Attr::ints(v.iter().map(|n| -n));
    let cropped =
        r.build("pad", &[g, g.scalar(0.0)], &[("low", negated(&low)), ("high", negated(&high))]);
    let mut dx = cropped;
    if interior.iter().any(|&n| n != 0) {
        dx = cropped.unary(
            "slice",
            &[
                ("axes", Attr::ints(0..rank as i64)),
                ("starts", Shape::fixed(&vec![0; rank]).into()),
                ("limits", Shape::new(vec![Dim::Unknown; rank]).into()),
                ("steps", Attr::ints(interior.iter().map(|n| n + 1))),
            ],
        );
    }
    // The shape equals that of `x`, but inference cannot prove it for all symbolic dims.
    let dx = dx.reshape(r.arg(0).shape());
    vec![Some(dx), Some(g.sum(None, false) - dx.sum(None, false))]
}
