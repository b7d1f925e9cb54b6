//! Sums of products.

use smallvec::SmallVec;

use super::access::Access;
use super::batch;
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::AttrKind;
use crate::diagnostic::Name::Operand;
use crate::diagnostic::{Diagnostic, ErrorKind, Result};
use crate::dim::Dim;
use crate::eval::contract;
use crate::message;
use crate::shape::Shape;

const PAIR: OpDef =
    OpDef { operands: &[operand("x", Class::Number), operand("y", Class::Number)], ..BASE };

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "dot_general",
        batch: batch::DOT,
        noun: "product",
        access: Access::Contract,
        doc: "Sums of products over the contracted axes, for each index of the batch axes. The \
              result has the batch axes, then the rest of `x`, then the rest of `y`. Products and \
              sums round to `acc` at each step, which is the operands' dtype or a wider one. By \
              default it is f32 for f16 and bf16 and f64 for other floats; targets may then \
              choose another dtype. Targets may add in another order.",
        kind: Kind::Contraction,
        attrs: &[
            attr("x_batch", AttrKind::Ints, Default::None),
            attr("y_batch", AttrKind::Ints, Default::None),
            attr("x_contract", AttrKind::Ints, Default::Required),
            attr("y_contract", AttrKind::Ints, Default::Required),
            attr("acc", AttrKind::DType, Default::None),
        ],
        shape: ShapeRule::Rule(dot_shape),
        meaning: Meaning::Kernel(|i| {
            let (x, y) = (i.arg(0), i.arg(1));
            let dims = contract::DotDims {
                lhs_batch: i.axes_of("x_batch", 0),
                rhs_batch: i.axes_of("y_batch", 1),
                lhs_contract: i.axes_of("x_contract", 0),
                rhs_contract: i.axes_of("y_contract", 1),
            };
            contract::dot_general(x, y, &dims, i.accumulator(), i.dtype())
        }),
        gradient: Gradient::Rule(dot_gradient),
        ..PAIR
    },
    OpDef {
        name: "matmul",
        batch: batch::MATMUL,
        noun: "product",
        doc: "The matrix product with NumPy's broadcasting of leading axes.",
        kind: Kind::Composite,
        shape: ShapeRule::Rule(matmul_shape),
        meaning: Meaning::Decompose(matmul),
        gradient: Gradient::Rule(matmul_gradient),
        ..PAIR
    },
];

/// Splits a shape into the dims of its batch axes, those of its contracted axes, and the remaining
/// shape. Axes may count from the front only where the rank is known.
fn split(shape: &Shape, batch: &[i64], contract: &[i64]) -> Result<(Vec<Dim>, Vec<Dim>, Shape)> {
    let count = shape.dims.len();
    let mut taken = vec![false; count];
    let mut pick = |axes: &[i64]| -> Result<Vec<Dim>> {
        axes.iter()
            .map(|&axis| {
                let at = count - shape.axis_from_back(axis)?;
                if std::mem::replace(&mut taken[at], true) {
                    return Diagnostic::of(
                        ErrorKind::Shapes,
                        format!("axis {axis} is named twice"),
                    )
                    .got(format!("axes {batch:?} and {contract:?} of {shape}"))
                    .err();
                }
                Ok(shape.dims[at].clone())
            })
            .collect()
    };
    let (batch, contract) = (pick(batch)?, pick(contract)?);
    let rest: SmallVec<[Dim; 4]> =
        shape.dims.iter().zip(&taken).filter(|(_, t)| !**t).map(|(d, _)| d.clone()).collect();
    Ok((batch, contract, Shape { lead: shape.lead.clone(), dims: rest }))
}

fn dot_shape(cx: &mut Infer) -> Result<Shape> {
    cx.accumulates()?;
    let ints = |name| cx.ints(name).unwrap_or(&[]).to_vec();
    let (xb, yb, xc, yc) =
        (ints("x_batch"), ints("y_batch"), ints("x_contract"), ints("y_contract"));
    if xb.len() != yb.len() || xc.len() != yc.len() {
        return cx.mismatch(message![
            Operand("x"),
            " and ",
            Operand("y"),
            " must have equally many batch axes and contracted axes",
        ]);
    }
    let (x_batch, x_contract, x_rest) = split(cx.shape(0), &xb, &xc)?;
    let (y_batch, y_contract, y_rest) = split(cx.shape(1), &yb, &yc)?;
    for (a, b) in x_contract.iter().zip(&y_contract) {
        cx.unify(a, b, "contracted dims")?;
    }
    let mut dims: SmallVec<[Dim; 4]> = SmallVec::new();
    for (a, b) in x_batch.iter().zip(&y_batch) {
        dims.push(cx.unify(a, b, "batch dims")?);
    }
    if y_rest.lead.is_some() || (x_rest.lead.is_some() && !dims.is_empty()) {
        cx.shape(1).need_rank()?;
        cx.shape(0).need_rank()?;
    }
    dims.extend(x_rest.dims);
    dims.extend(y_rest.dims);
    Ok(Shape { lead: x_rest.lead, dims })
}

/// The result's axes are batch, free axes of x, free axes of y. Each gradient contracts the
/// cotangent with the other operand over that operand's free axes, and is transposed to its own
/// operand's axes.
fn dot_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let (x, y, g) = (r.arg(0), r.arg(1), r.g());
    let axes = |name: &str, v: Var<'a>| -> Vec<usize> {
        let shape = v.shape();
        r.ints(name).unwrap_or(&[]).iter().map(|&a| shape.axis(a).unwrap_or(0)).collect()
    };
    let (ranks, gb) = ((x.rank(), y.rank()), axes("x_batch", x).len());
    let (xb, yb) = (axes("x_batch", x), axes("y_batch", y));
    let (xc, yc) = (axes("x_contract", x), axes("y_contract", y));
    let rest = |rank: usize, b: &[usize], c: &[usize]| -> Vec<usize> {
        (0..rank).filter(|a| !b.contains(a) && !c.contains(a)).collect()
    };
    let (xr, yr) = (rest(ranks.0, &xb, &xc), rest(ranks.1, &yb, &yc));
    let g_batch: Vec<usize> = (0..gb).collect();
    let g_x: Vec<usize> = (gb..gb + xr.len()).collect();
    let g_y: Vec<usize> = (gb + xr.len()..gb + xr.len() + yr.len()).collect();
    let dot = |a: Var<'a>, b: Var<'a>, ab: &[usize], bb: &[usize], ac: &[usize], bc: &[usize]| {
        let ints = |axes: &[usize]| crate::attr::Attr::ints(axes.iter().map(|&a| a as i64));
        r.build(
            "dot_general",
            &[a, b],
            &[
                ("x_batch", ints(ab)),
                ("y_batch", ints(bb)),
                ("x_contract", ints(ac)),
                ("y_contract", ints(bc)),
                ("acc", r.attr("acc").clone()),
            ],
        )
    };
    let dx = dot(g, y, &g_batch, &yb, &g_y, &yr);
    let dy = dot(g, x, &g_batch, &xb, &g_x, &xr);
    vec![Some(back(dx, &xb, &xr, &xc, &yc)), Some(back(dy, &yb, &yr, &yc, &xc))]
}

/// Transposes a product in a gradient to the operand's order of axes. The product has the batch
/// axes, the operand's free axes, then the contracted axes, sorted as they are in the other
/// operand.
fn back<'a>(
    product: Var<'a>,
    batch: &[usize],
    rest: &[usize],
    own: &[usize],
    other: &[usize],
) -> Var<'a> {
    let mut order: Vec<usize> = (0..other.len()).collect();
    order.sort_by_key(|&i| other[i]);
    let places: Vec<usize> =
        batch.iter().chain(rest).copied().chain(order.iter().map(|&i| own[i])).collect();
    let mut permutation = vec![0i64; places.len()];
    for (from, to) in places.iter().enumerate() {
        permutation[*to] = from as i64;
    }
    match permutation.iter().enumerate().all(|(i, &p)| i as i64 == p) {
        true => product,
        false => product.transpose(&permutation),
    }
}

fn matmul_shape(cx: &mut Infer) -> Result<Shape> {
    let (x, y) = (cx.shape(0).clone(), cx.shape(1).clone());
    let inner_x = x.need_trailing(1)?[0].clone();
    if y.rank() == Some(1) {
        contracted(cx, &inner_x, &y.dims[0])?;
        return without_axes(&x, &[-1]);
    }
    let y_last = y.need_trailing(2)?.to_vec();
    contracted(cx, &inner_x, &y_last[0])?;
    if x.rank() == Some(1) {
        return without_axes(&y, &[-2]);
    }
    if y.rank() == Some(2) {
        let mut shape = without_axes(&x, &[-1])?;
        shape.dims.push(y_last[1].clone());
        return Ok(shape);
    }
    let rows = x.need_trailing(2)?[0].clone();
    let mut shape = cx.broadcast(&without_axes(&x, &[-1, -2])?, &without_axes(&y, &[-1, -2])?)?;
    shape.dims.extend([rows, y_last[1].clone()]);
    Ok(shape)
}

fn without_axes(shape: &Shape, axes: &[i64]) -> Result<Shape> {
    super::reduce::without_axes(shape, Some(axes), false)
}

fn contracted(cx: &mut Infer, a: &Dim, b: &Dim) -> Result<()> {
    let (x, y) = (Operand("x"), Operand("y"));
    let what = message!["the last dim of ", x, " and the second to last dim of ", y];
    cx.unify(a, b, what).map(drop)
}

fn matmul<'a>(r: &Rule<'a>) -> Var<'a> {
    let (x, y) = (r.arg(0), r.arg(1));
    let dot = |x: Var<'a>, y: Var<'a>, batch: usize, contract: (i64, i64)| {
        let batch = crate::attr::Attr::ints(0..batch as i64);
        r.build(
            "dot_general",
            &[x, y],
            &[
                ("x_batch", batch.clone()),
                ("y_batch", batch),
                ("x_contract", crate::attr::Attr::ints([contract.0])),
                ("y_contract", crate::attr::Attr::ints([contract.1])),
            ],
        )
    };
    match (x.shape().rank(), y.shape().rank()) {
        (_, Some(1 | 2)) => dot(x, y, 0, (-1, 0)),
        (Some(1), Some(_)) => dot(y, x, 0, (-2, 0)),
        _ => {
            let (x_rank, y_rank) = (x.rank(), y.rank());
            let rank = x_rank.max(y_rank);
            let batch = &r.ty.shape.dims[..rank.saturating_sub(2)];
            let full = |v: Var<'a>| {
                let shape = v.shape();
                let tail = shape.dims[shape.dims.len().saturating_sub(2)..].iter().cloned();
                v.broadcast_to(Shape::new(batch.iter().cloned().chain(tail)))
            };
            dot(full(x), full(y), rank.saturating_sub(2), (-1, -2))
        }
    }
}

/// dx = g·yᵀ and dy = xᵀ·g, summed over the axes that broadcasting repeated. Where `y` is one
/// matrix, all leading axes of `x` are contracted as one.
fn matmul_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let (x, y, g) = (r.arg(0), r.arg(1), r.g());
    let (x_shape, y_shape) = (x.shape(), y.shape());
    let (x_flat, y_flat) = (x_shape.rank() == Some(1), y_shape.rank() == Some(1));
    let matrix_x = if x_flat { x.expand_dims(&[0]) } else { x };
    let matrix_y = if y_flat { y.expand_dims(&[1]) } else { y };
    let g = if y_flat { g.expand_dims(&[-1]) } else { g };
    let g = if x_flat { g.expand_dims(&[-2]) } else { g };
    let dx = g.matmul(matrix_y.swap_last());
    let dy = match matrix_y.shape().rank() {
        Some(2) => rows(matrix_x).swap_last().matmul(rows(g)),
        // `y` is a transposed value, so its gradient will be transposed back: computing it
        // transposed lets the two cancel.
        _ if y.is_swapped() => g.swap_last().matmul(matrix_x).swap_last(),
        _ => matrix_x.swap_last().matmul(g),
    };
    let dx =
        if x_flat { dx.sum_to(Shape::new([Dim::Const(1), x_shape.dims[0].clone()])) } else { dx };
    let home = |v: Var<'a>, shape: Shape, flat: bool| {
        if flat { v.reshape(shape) } else { v.sum_to(shape) }
    };
    vec![Some(home(dx, x_shape, x_flat)), Some(home(dy, y_shape, y_flat))]
}

/// Reshapes to a matrix: all axes but the last are merged into one.
fn rows(v: Var<'_>) -> Var<'_> {
    let shape = v.shape();
    if shape.rank() == Some(2) {
        return v;
    }
    let Some((last, front)) = shape.dims.split_last() else {
        return v;
    };
    let count = match shape.lead {
        None => front.iter().cloned().product(),
        Some(_) => Dim::Unknown,
    };
    v.reshape(Shape::new([count, last.clone()]))
}
