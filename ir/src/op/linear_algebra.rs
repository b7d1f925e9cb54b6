//! Factorisations of matrices, and what is computed by them. All take leading batch axes.

use super::access::{Access, Library, Matrix};
use super::batch::Batch;
use super::reduce::without_axes;
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, Operand, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::Name;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::eval::{linear_algebra, triangular};
use crate::message;
use crate::shape::Shape;

pub(super) const X: Operand = operand("x", Class::Wide);
const SYSTEM: &[Operand] = &[operand("a", Class::Wide), operand("b", Class::Wide)];

/// A function of square matrices that has its own library kernel.
pub(super) const MATRIX: OpDef = OpDef {
    kind: Kind::Matrix,
    operands: &[X],
    shape: ShapeRule::Rule(|cx| {
        square(cx, 0)?;
        Ok(cx.shape(0).clone())
    }),
    batch: Batch::Broadcast,
    ..BASE
};

/// A function of square matrices with one number as the result.
const DETERMINANT: OpDef = OpDef {
    shape: ShapeRule::Rule(|cx| {
        square(cx, 0)?;
        without_axes(cx.shape(0), Some(&[-1, -2]), false)
    }),
    ..MATRIX
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "cholesky",
        noun: "factor",
        access: Access::Library(Library::Matrix(Matrix::Cholesky)),
        doc: "The lower triangular `L` with a positive diagonal for which `L @ L.T` is `x`. `x` \
              must be symmetric; only its lower triangle is read. If it is not positive definite, \
              the lower triangle of the result is NaN.",
        meaning: Meaning::Kernel(|i| linear_algebra::cholesky(i.arg(0))),
        gradient: Gradient::Rule(|r| vec![Some(cholesky_gradient(r))]),
        note: "JAX reads the mean of both triangles. The gradient is symmetric; that of \
               frameworks may lie in one triangle.",
        ..MATRIX
    },
    OpDef {
        name: "triangular_solve",
        noun: "solution",
        access: Access::Library(Library::Matrix(Matrix::TriangularSolve)),
        doc: "The `x` for which `a @ x` (or `a.T @ x`, if `transposed`) is `b`. Of `a` only the \
              `lower` (or upper) triangle is read, and if `unit_diagonal` not its diagonal, which \
              counts as ones. Batch axes broadcast. If there is a 0 on the diagonal, the result \
              has infinite elements or NaN.",
        operands: SYSTEM,
        attrs: &[
            attr("lower", AttrKind::Bool, Default::Bool(true)),
            attr("transposed", AttrKind::Bool, Default::Bool(false)),
            attr("unit_diagonal", AttrKind::Bool, Default::Bool(false)),
        ],
        shape: ShapeRule::Rule(system),
        meaning: Meaning::Kernel(|i| {
            let flags = ["lower", "transposed", "unit_diagonal"].map(|name| i.bool(name));
            triangular::solve(i.arg(0), i.arg(1), flags)
        }),
        gradient: Gradient::Rule(triangular_gradient),
        ..MATRIX
    },
    OpDef {
        name: "solve",
        noun: "solution",
        access: Access::Library(Library::Matrix(Matrix::Solve)),
        doc: "The `x` for which `a @ x` is `b`, by elimination with partial pivoting. Batch axes \
              broadcast. If `a` is singular, the result has infinite elements or NaN.",
        operands: SYSTEM,
        shape: ShapeRule::Rule(system),
        meaning: Meaning::Kernel(|i| linear_algebra::solve(i.arg(0), i.arg(1))),
        gradient: Gradient::Rule(|r| {
            let (a, b) = (r.arg(0), r.arg(1));
            let db = r.build("solve", &[a.swap_last(), r.g()], &[]);
            let da = -db.matmul(r.y().swap_last());
            vec![Some(da.sum_to(a.shape())), Some(db.sum_to(b.shape()))]
        }),
        ..MATRIX
    },
    OpDef {
        name: "inverse",
        doc: "The inverse of each matrix. If it is singular, the result has infinite elements or \
              NaN.",
        kind: Kind::Composite,
        meaning: Meaning::Decompose(|r| r.build("solve", &[r.arg(0), identity(r, r.arg(0))], &[])),
        gradient: Gradient::Rule(|r| {
            let transposed = r.y().swap_last();
            vec![Some(-transposed.matmul(r.g()).matmul(transposed))]
        }),
        ..MATRIX
    },
    OpDef {
        name: "det",
        noun: "determinant",
        access: Access::Library(Library::Matrix(Matrix::Determinant)),
        doc: "The determinant of each matrix. The gradient of a singular matrix is not finite.",
        meaning: Meaning::Kernel(|i| linear_algebra::determinant(i.arg(0))),
        gradient: Gradient::Rule(|r| {
            let inverse = r.arg(0).unary("inverse", &[]).swap_last();
            vec![Some((r.g() * r.y()).expand_dims(&[-2, -1]) * inverse)]
        }),
        note: "torch and JAX have a finite gradient for some singular matrices.",
        ..DETERMINANT
    },
    OpDef {
        name: "slogdet",
        access: Access::Library(Library::Matrix(Matrix::LogDeterminant)),
        doc: "The sign of the determinant of each matrix (`of` is 0), or the logarithm of its \
              magnitude (`of` is 1), which does not overflow. They are 0 and -inf for a singular \
              matrix. The sign has no gradient.",
        attrs: &[attr("of", AttrKind::Int, Default::Required)],
        shape: ShapeRule::Rule(|cx| {
            part(cx, 2)?;
            square(cx, 0)?;
            without_axes(cx.shape(0), Some(&[-1, -2]), false)
        }),
        meaning: Meaning::Kernel(|i| linear_algebra::log_determinant(i.arg(0), i.int("of"))),
        gradient: Gradient::Rule(|r| {
            if r.int("of") == 0 {
                return vec![None];
            }
            let inverse = r.arg(0).unary("inverse", &[]).swap_last();
            vec![Some(r.g().expand_dims(&[-2, -1]) * inverse)]
        }),
        ..DETERMINANT
    },
    OpDef {
        name: "logdet",
        noun: "log_determinant",
        doc: "The logarithm of the determinant of each matrix: -inf if it is 0, NaN if it is \
              negative.",
        kind: Kind::Composite,
        meaning: Meaning::Decompose(|r| {
            let [sign, log] = [0, 1].map(|of| r.arg(0).unary("slogdet", &[("of", of.into())]));
            let negative = sign.binary("lt", sign.scalar(0.0));
            negative.select(log.scalar(f64::NAN), log)
        }),
        ..DETERMINANT
    },
    OpDef {
        name: "matrix_power",
        noun: "power",
        doc: "The product of `n` copies of each matrix, by repeated squaring; the identity if `n` \
              is 0.",
        kind: Kind::Composite,
        attrs: &[attr("n", AttrKind::Int, Default::Required)],
        shape: ShapeRule::Rule(|cx| {
            if cx.int("n") < 0 {
                return cx.mismatch(format!("`n` must be at least 0, got {}", cx.int("n")));
            }
            square(cx, 0)?;
            Ok(cx.shape(0).clone())
        }),
        meaning: Meaning::Decompose(matrix_power),
        ..MATRIX
    },
];

/// Checks that the last two dims of an operand are equal, and returns one of them.
pub(super) fn square(cx: &mut Infer, i: usize) -> Result<Dim> {
    let last = cx.shape(i).need_trailing(2)?.to_vec();
    let what = message!["the last two dims of ", Name::Operand(cx.op.operands[i].name)];
    cx.unify(&last[0], &last[1], what)
}

/// Checks that the attribute `of` is the number of one of `count` results.
pub(super) fn part(cx: &Infer, count: i64) -> Result<()> {
    match (0..count).contains(&cx.int("of")) {
        true => Ok(()),
        false => cx.mismatch(format!("`of` must be from 0 to {}, got {}", count - 1, cx.int("of"))),
    }
}

/// The shape of the solution of a system of equations.
fn system(cx: &mut Infer) -> Result<Shape> {
    let size = square(cx, 0)?;
    let right = cx.shape(1).need_trailing(2)?.to_vec();
    let (a, b) = (Name::Operand("a"), Name::Operand("b"));
    let rows = cx.unify(&size, &right[0], message!["the rows of ", a, " and ", b])?;
    let batch = |shape: &Shape| without_axes(shape, Some(&[-1, -2]), false);
    let (left, own) = (batch(cx.shape(0))?, batch(cx.shape(1))?);
    let mut shape = cx.broadcast(&left, &own)?;
    shape.dims.extend([rows, right[1].clone()]);
    Ok(shape)
}

/// An identity matrix of the shape of `like`.
fn identity<'a>(r: &Rule<'a>, like: Var<'a>) -> Var<'a> {
    let shape = like.shape();
    let square = Shape::new(shape.dims[shape.dims.len().saturating_sub(2)..].iter().cloned());
    let attrs = [("shape", square.into()), ("dtype", like.dtype().into())];
    r.build("eye", &[], &attrs).broadcast_to(shape)
}

/// `L⁻ᵀ Φ L⁻¹`, where Φ is half of the lower triangle of `Lᵀ g` plus its transpose, as PyTorch
/// computes it (Murray, "Differentiation of the Cholesky decomposition", 2016).
fn cholesky_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let factor = r.y();
    let product = factor.swap_last().matmul(r.g());
    let below = product.unary("tril", &[("diagonal", (-1).into())]);
    let both = (product.unary("tril", &[]) + below.swap_last()) * 0.5;
    let transposed = [("transposed", true.into())];
    let solve = |b: Var<'a>| r.build("triangular_solve", &[factor, b], &transposed);
    solve(solve(both).swap_last())
}

fn triangular_gradient<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let (a, b, solution) = (r.arg(0), r.arg(1), r.y());
    let (lower, transposed) = (r.bool("lower"), r.bool("transposed"));
    let unit = r.bool("unit_diagonal");
    let attrs: [(&str, Attr); 3] = [
        ("lower", lower.into()),
        ("transposed", (!transposed).into()),
        ("unit_diagonal", unit.into()),
    ];
    let db = r.build("triangular_solve", &[a, r.g()], &attrs);
    let da = match transposed {
        false => -db.matmul(solution.swap_last()),
        true => -solution.matmul(db.swap_last()),
    };
    let diagonal = match (unit, lower) {
        (false, _) => 0,
        (true, true) => -1,
        (true, false) => 1,
    };
    let triangle = if lower { "tril" } else { "triu" };
    let da = da.sum_to(a.shape()).unary(triangle, &[("diagonal", diagonal.into())]);
    vec![Some(da), Some(db.sum_to(b.shape()))]
}

fn matrix_power<'a>(r: &Rule<'a>) -> Var<'a> {
    let (mut left, mut square) = (r.int("n"), r.arg(0));
    let mut product: Option<Var<'a>> = None;
    while left > 0 {
        if left % 2 == 1 {
            product = Some(product.map_or(square, |own| own.matmul(square)));
        }
        left /= 2;
        if left > 0 {
            square = square.matmul(square);
        }
    }
    product.unwrap_or_else(|| identity(r, r.arg(0)))
}
