//! Factorisations into orthogonal matrices. All take leading batch axes. Each operation gives one
//! part of the result; parts of the same operand are computed at once.

use super::access::{Access, Library, Matrix};
use super::batch::Batch;
use super::linear_algebra::{MATRIX, X, part, square};
use super::{AttrDef, BASE, Default, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, attr};
use crate::algebra::{Rule, Var};
use crate::attr::AttrKind;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::eval::orthogonal;
use crate::shape::Shape;

const OF: &[AttrDef] = &[attr("of", AttrKind::Int, Default::Required)];

/// A factorisation of matrices of any shape.
const FACTORS: OpDef = OpDef {
    kind: Kind::Matrix,
    operands: &[X],
    attrs: OF,
    noun: "factor",
    batch: Batch::Broadcast,
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "qr",
        access: Access::Library(Library::Matrix(Matrix::Qr)),
        doc: "The factors of `x = q @ r` with orthonormal columns of `q` (`of` is 0) and upper \
              triangular `r` (`of` is 1). They have as many columns or rows as the shorter side of \
              `x`. Signs are those of LAPACK.",
        shape: ShapeRule::Rule(|cx| {
            let [rows, columns, size] = sides(cx, 2)?;
            match cx.int("of") {
                0 => with_last(cx, &[rows, size]),
                _ => with_last(cx, &[size, columns]),
            }
        }),
        meaning: Meaning::Kernel(|i| orthogonal::qr(i.arg(0), i.int("of"))),
        gradient: Gradient::Rule(|r| vec![Some(qr_gradient(r))]),
        note: "Matrices with more columns than rows need independent first columns for a gradient. \
               JAX refuses to differentiate them. Frameworks differ for matrices that are not \
               finite.",
        ..FACTORS
    },
    OpDef {
        name: "eigh",
        noun: "eigen",
        access: Access::Library(Library::Matrix(Matrix::Eigen)),
        doc: "The eigenvalues of symmetric matrices in ascending order (`of` is 0), or unit \
              eigenvectors, in columns (`of` is 1), whose signs are arbitrary. Only the lower \
              triangle is read. If it is not finite, the result is NaN. The gradient of \
              eigenvectors is not finite if eigenvalues are equal.",
        shape: ShapeRule::Rule(|cx| {
            part(cx, 2)?;
            let size = square(cx, 0)?;
            match cx.int("of") {
                0 => with_last(cx, &[size]),
                _ => Ok(cx.shape(0).clone()),
            }
        }),
        meaning: Meaning::Kernel(|i| orthogonal::eigh(i.arg(0), i.int("of"))),
        gradient: Gradient::Rule(|r| vec![Some(eigen_gradient(r))]),
        note: "JAX reads the mean of both triangles, and may give finite vectors for infinities. \
               The gradient is symmetric. Frameworks choose other signs of eigenvectors.",
        ..FACTORS
    },
    OpDef {
        name: "eigvalsh",
        noun: "eigenvalues",
        doc: "The eigenvalues of symmetric matrices in ascending order. Only the lower triangle is \
              read. If it is not finite, the result is NaN.",
        kind: Kind::Composite,
        shape: ShapeRule::Rule(|cx| {
            let size = square(cx, 0)?;
            with_last(cx, &[size])
        }),
        meaning: Meaning::Decompose(|r| r.arg(0).unary("eigh", &[("of", 0.into())])),
        note: "JAX reads the mean of both triangles. The gradient is symmetric.",
        ..MATRIX
    },
    OpDef {
        name: "svd",
        noun: "singular",
        access: Access::Library(Library::Matrix(Matrix::Singular)),
        doc: "The factors of `x = u @ diag(s) @ vh`: left singular vectors in columns (`of` is 0), \
              singular values in descending order (`of` is 1), and right singular vectors in rows \
              (`of` is 2). There are as many as the shorter side of `x`. Signs of pairs of vectors \
              are arbitrary. If a matrix is not finite, the result is NaN. The gradient of the \
              vectors is not finite if singular values are equal, or 0.",
        note: "Frameworks choose other signs of singular vectors. JAX may give finite vectors for \
               infinities.",
        shape: ShapeRule::Rule(|cx| {
            let [rows, columns, size] = sides(cx, 3)?;
            match cx.int("of") {
                0 => with_last(cx, &[rows, size]),
                1 => with_last(cx, &[size]),
                _ => with_last(cx, &[size, columns]),
            }
        }),
        meaning: Meaning::Kernel(|i| orthogonal::svd(i.arg(0), i.int("of"))),
        gradient: Gradient::Rule(|r| vec![Some(singular_gradient(r))]),
        ..FACTORS
    },
];

/// The last two dims of the operand, and the lesser of them. Checks that `of` is the number of one of
/// `count` results.
fn sides(cx: &Infer, count: i64) -> Result<[Dim; 3]> {
    part(cx, count)?;
    let last = cx.shape(0).need_trailing(2)?;
    let (rows, columns) = (last[0].clone(), last[1].clone());
    let size = rows.min(&columns);
    Ok([rows, columns, size])
}

/// The operand's shape with these dims in the place of the last two.
fn with_last(cx: &Infer, dims: &[Dim]) -> Result<Shape> {
    let mut shape = cx.shape(0).clone();
    let count = shape.dims.len();
    shape.dims.truncate(count - 2);
    shape.dims.extend(dims.iter().cloned());
    Ok(shape)
}

/// Part `of` of the result whose gradient is computed.
fn result<'a>(r: &Rule<'a>, of: i64) -> Var<'a> {
    if of == r.int("of") { r.y() } else { r.arg(0).unary(r.op.0.name, &[("of", of.into())]) }
}

/// Columns of a matrix from dim `from` to dim `to`.
fn columns<'a>(x: Var<'a>, from: Dim, to: Dim) -> Var<'a> {
    let attrs = [
        ("axes", [-1][..].into()),
        ("starts", Shape::new([from]).into()),
        ("limits", Shape::new([to]).into()),
    ];
    x.unary("slice", &attrs)
}

/// `(q̄ + q s) r⁻ᵀ` for `x` with at least as many rows as columns, where `s` is the symmetric matrix
/// with the upper triangle of `r̄ rᵀ - qᵀ q̄`. Otherwise this is the gradient of the first columns, and
/// those of `r` behind them are `qᵀ` times those of `x` (Roberts & Roberts, "QR and LQ decomposition
/// matrix backpropagation algorithms", 2020).
fn qr_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let (q, upper, g) = (result(r, 0), result(r, 1), r.g());
    let shape = r.arg(0).shape();
    let (rows, count) = (&shape.dims[shape.dims.len() - 2], &shape.dims[shape.dims.len() - 1]);
    let size = rows.min(count);
    if size == *count {
        return match r.int("of") {
            0 => square_gradient(q, upper, -q.swap_last().matmul(g), Some(g)),
            _ => square_gradient(q, upper, g.matmul(upper.swap_last()), None),
        };
    }
    let zero = Dim::Const(0);
    let part = |x: Var<'a>| columns(x, zero.clone(), size.clone());
    let rest = |x: Var<'a>| columns(x, size.clone(), count.clone());
    let x = r.arg(0);
    if r.int("of") == 0 {
        let own = square_gradient(q, part(upper), -q.swap_last().matmul(g), Some(g));
        let none = rest(x).full_like(0.0);
        return r.build("concat", &[own, none], &[("axis", (-1).into())]).reshape(shape.clone());
    }
    let behind = rest(g);
    let of_q = rest(x).matmul(behind.swap_last());
    let inner = part(g).matmul(part(upper).swap_last()) - q.swap_last().matmul(of_q);
    let own = square_gradient(q, part(upper), inner, Some(of_q));
    r.build("concat", &[own, q.matmul(behind)], &[("axis", (-1).into())]).reshape(shape.clone())
}

/// `(q̄ + q s) r⁻ᵀ`, where `s` is the symmetric matrix with the upper triangle of `inner`.
fn square_gradient<'a>(
    q: Var<'a>,
    upper: Var<'a>,
    inner: Var<'a>,
    of_q: Option<Var<'a>>,
) -> Var<'a> {
    let above = inner.unary("triu", &[("diagonal", 1.into())]);
    let symmetric = inner.unary("triu", &[]) + above.swap_last();
    let product = q.matmul(symmetric);
    let sum = of_q.map_or(product, |own| own + product);
    // sum r⁻ᵀ is the transpose of r⁻¹ sumᵀ.
    let attrs = [("lower", false.into())];
    let operands = [upper, sum.swap_last()];
    crate::algebra::build(q.builder, "triangular_solve", &operands, &attrs).swap_last()
}

/// Differences `values[j] - values[i]` off the diagonal, and ones on it.
fn gaps<'a>(r: &Rule<'a>, values: Var<'a>) -> Var<'a> {
    let differences = values.expand_dims(&[-2]) - values.expand_dims(&[-1]);
    differences + identity(r, differences)
}

fn identity<'a>(r: &Rule<'a>, like: Var<'a>) -> Var<'a> {
    let shape = like.shape();
    let square = Shape::new(shape.dims[shape.dims.len().saturating_sub(2)..].iter().cloned());
    r.build("eye", &[], &[("shape", square.into()), ("dtype", like.dtype().into())])
}

/// `x - xᵀ`.
fn skew(x: Var<'_>) -> Var<'_> {
    x - x.swap_last()
}

/// `v (diag(l̄) + skew(vᵀ v̄) / 2 / gaps) vᵀ` (Giles, "Collected matrix derivative results for forward
/// and reverse mode algorithmic differentiation", 2008).
fn eigen_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let (vectors, g) = (result(r, 1), r.g());
    if r.int("of") == 0 {
        return (vectors * g.expand_dims(&[-2])).matmul(vectors.swap_last());
    }
    let inner = skew(vectors.swap_last().matmul(g)) * 0.5 / gaps(r, result(r, 0));
    vectors.matmul(inner).matmul(vectors.swap_last())
}

/// The gradient of each part, as PyTorch computes it (Townsend, "Differentiating the singular value
/// decomposition", 2016).
fn singular_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let (u, s, vh, g) = (result(r, 0), result(r, 1), result(r, 2), r.g());
    let (row, column) = (s.expand_dims(&[-2]), s.expand_dims(&[-1]));
    if r.int("of") == 1 {
        return (u * g.expand_dims(&[-2])).matmul(vh);
    }
    let gaps = gaps(r, s * s);
    let is_left = r.int("of") == 0;
    let inner = match is_left {
        true => skew(u.swap_last().matmul(g)) / gaps * row,
        false => skew(vh.matmul(g.swap_last())) / gaps * column,
    };
    let own = u.matmul(inner).matmul(vh);
    let [.., rows, columns] = &r.arg(0).shape().dims[..] else {
        return own;
    };
    let (side, other) = if is_left { (rows, columns) } else { (columns, rows) };
    if *side == side.min(other) {
        return own;
    }
    // The part of the gradient that is orthogonal to the vectors, for the longer side.
    match is_left {
        true => {
            let rest = g - u.matmul(u.swap_last().matmul(g));
            own + (rest / row).matmul(vh)
        }
        false => {
            let rest = g - g.matmul(vh.swap_last()).matmul(vh);
            own + (u / row).matmul(rest)
        }
    }
}
