//! Factorisations of matrices, systems of equations and determinants. All take leading batch axes.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::{INPUT, done};
use super::parameter::{required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Parameter, Value, data, gives, out};
use crate::lower::Cx;

/// A function of square matrices. Halves are computed in single precision.
const MATRIX: Entry = Entry {
    group: Group::Matrix,
    inputs: INPUT,
    same_dtype: true,
    needs: |cx| need_square(cx, "input"),
    ..BASE
};
/// A factorisation of matrices of any shape.
const FACTORS: Entry = Entry { needs: BASE.needs, ..MATRIX };
/// A function of square matrices and of right sides.
const SYSTEMS: Entry = Entry { inputs: SYSTEM, needs: |cx| need_square(cx, "a"), ..MATRIX };
const SYSTEM: &[Input] = &[data("a", Class::Float), data("b", Class::Float)];

const UPPER: Parameter = with("upper", Kind::Bool, Default::Bool(false))
    .doc("return the transposed factor, which is upper triangular");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "linalg.cholesky(input)",
        example: gives(&["[[4, 2], [2, 5]]"], "[[2. 0.]\n [1. 2.]]"),
        parameters: &[UPPER],
        ..MATRIX.row(
            "Cholesky",
            "The lower triangular `L` for which `L @ L.T` is `input`, which must be symmetric: \
             only its lower triangle is read (JAX reads the mean of both). If it is not positive \
             definite, the triangle is NaN on every backend. The gradient is symmetric, as in \
             PyTorch.",
            |cx| {
                let factor = single(cx, "cholesky", &[]);
                done(if cx.flag("upper") { factor.swap_last() } else { factor })
            },
        )
    },
    Entry {
        formula: "linalg.solve(tril(a), b)",
        example: gives(&["[[2, 0], [1, 4]]", "[[2], [9]]"], "[[1.]\n [2.]]"),
        parameters: &[
            with("lower", Kind::Bool, Default::Bool(true))
                .doc("read the lower triangle of `a`; otherwise the upper one"),
            with("transposed", Kind::Bool, Default::Bool(false)).doc("solve with `a.T`"),
            with("unit_diagonal", Kind::Bool, Default::Bool(false))
                .doc("do not read the diagonal of `a`, and take it as ones"),
            with("left", Kind::Bool, Default::Bool(true))
                .doc("solve `a @ output = b`; otherwise `output @ a = b`"),
        ],
        ..SYSTEMS.row(
            "TriangularSolve",
            "The solution of `a @ output = b` for a triangular `a`. Batch axes broadcast. A 0 on \
             the diagonal gives infinite elements or NaN.",
            triangular_solve,
        )
    },
    Entry {
        formula: "linalg.solve(a, b)",
        example: gives(&["[[1, 2], [3, 4]]", "[5, 11]"], "[1. 2.]"),
        ..SYSTEMS.row(
            "Solve",
            "The solution of `a @ output = b`. `b` is a vector, or a vector for each matrix of \
             `a`, or else matrices whose batch axes broadcast, as in `torch.linalg.solve`. A \
             singular `a` gives infinite elements or NaN on every backend.",
            solve,
        )
    },
    Entry {
        formula: "linalg.inv(input)",
        example: gives(&["[[1, 2], [3, 4]]"], "[[-2.   1. ]\n [ 1.5 -0.5]]"),
        ..MATRIX.row(
            "Inverse",
            "The inverse of each matrix. A singular one gives infinite elements or NaN on every \
             backend.",
            |cx| done(single(cx, "inverse", &[])),
        )
    },
    Entry {
        formula: "linalg.det(input)",
        example: gives(&["[[[1, 2], [3, 4]], [[1, 0], [0, 2]]]"], "[-2.  2.]"),
        ..MATRIX.row(
            "Det",
            "The determinant of each matrix. Its gradient is not finite for a singular one, for \
             which PyTorch and JAX have a gradient in some cases.",
            |cx| done(single(cx, "det", &[])),
        )
    },
    Entry {
        formula: "log(linalg.det(input))",
        example: gives(&["[[[2, 0], [0, 2]], [[1, 2], [2, 4]]]"], "[1.3863   -inf]"),
        ..MATRIX.row(
            "LogDet",
            "The logarithm of the determinant of each matrix, without overflow: -inf for a \
             singular one, NaN for a negative determinant.",
            |cx| done(single(cx, "logdet", &[])),
        )
    },
    Entry {
        formula: "linalg.matrix_power(input, n)",
        example: gives(&["[[1, 1], [0, 2]]"], "[[1. 7.]\n [0. 8.]]").with_settings("3"),
        parameters: &[required("n", Kind::Int).doc("the power; of the inverse if negative")],
        ..MATRIX.row(
            "MatrixPower",
            "The product of `n` copies of each matrix, or of its inverse if `n` is negative. The \
             power of 0 is the identity.",
            |cx| {
                let n = cx.int("n");
                let own = cx.var("input");
                let x = own.widened();
                let base = if n < 0 { x.unary("inverse", &[]) } else { x };
                cx.builder.check()?;
                let power = match n.unsigned_abs().min(i64::MAX as u64) as i64 {
                    1 => base,
                    n => base.unary("matrix_power", &[("n", n.into())]),
                };
                done(power.cast(own.dtype()))
            },
        )
    },
    Entry {
        formula: "list(linalg.qr(input))",
        example: gives(
            &["[[3, 1], [4, 3]]"],
            "[[-0.6 -0.8]\n [-0.8  0.6]] [[-5. -3.]\n [ 0.  1.]]",
        ),
        parameters: &[with("mode", Kind::OneOf(&["reduced", "complete"]), Default::Str("reduced"))
            .doc("\"complete\" adds columns to `q` that make it square, and zeros to `r`")],
        outputs: &[out("q"), out("r")],
        ..FACTORS.row(
            "QR",
            "The factors of `input = q @ r`, where the columns of `q` are orthonormal and `r` is \
             upper triangular. They have as many columns or rows as the shorter side of `input`, \
             and LAPACK's signs. The further columns of a complete `q` have no gradient.",
            factors,
        )
    },
    Entry {
        formula: "list(linalg.eigh(input))",
        example: gives(&["[[2, 1], [1, 2]]"], "[1. 3.] [[-0.7071  0.7071]\n [ 0.7071  0.7071]]"),
        outputs: &[out("eigenvalues"), out("eigenvectors")],
        ..MATRIX.row(
            "Eigh",
            "The eigenvalues of symmetric matrices in ascending order, and unit eigenvectors in \
             columns. Only the lower triangle is read (JAX reads the mean of both). The signs of \
             eigenvectors differ between backends, so a loss must not depend on them. If \
             eigenvalues are equal, the gradient of eigenvectors is not finite, as in PyTorch. The \
             gradient is symmetric.",
            |cx| parts(cx, "eigh", 2),
        )
    },
    Entry {
        formula: "linalg.eigvalsh(input)",
        example: gives(&["[[2, 1], [1, 2]]"], "[1. 3.]"),
        ..MATRIX.row(
            "Eigvalsh",
            "The eigenvalues of symmetric matrices in ascending order. Only the lower triangle is \
             read (JAX reads the mean of both). The gradient is symmetric.",
            |cx| done(single(cx, "eigvalsh", &[])),
        )
    },
    Entry {
        formula: "list(linalg.svd(input, full_matrices=False))",
        example: gives(
            &["[[3, 0], [4, 0]]"],
            "[[-0.6 -0.8]\n [-0.8  0.6]] [5. 0.] [[-1. -0.]\n [ 0.  1.]]",
        ),
        parameters: &[with("full_matrices", Kind::Bool, Default::Bool(false))
            .doc("add vectors that make `u` and `vh` square")],
        outputs: &[out("u"), out("s"), out("vh")],
        ..FACTORS.row(
            "SVD",
            "The factors of `input = u @ diag(s) @ vh`: left singular vectors in columns, singular \
             values in descending order, and right singular vectors in rows, as many as the \
             shorter side of `input`. The signs of pairs of vectors differ between backends, so a \
             loss must not depend on them. If singular values are equal, or 0, the gradient of the \
             vectors is not finite, as in PyTorch. The further vectors of `full_matrices` have no \
             gradient.",
            singular,
        )
    },
];

/// The results of an operation on the matrices of `input`, in the input's dtype.
fn parts(cx: &Cx, op: &str, count: i64) -> Result<Vec<Value>> {
    let part = |of: i64| single(cx, op, &[("of", of.into())]).value;
    Ok((0..count).map(part).collect())
}

fn factors(cx: &Cx) -> Result<Vec<Value>> {
    let found = parts(cx, "qr", 2)?;
    if cx.text("mode") != "complete" {
        return Ok(found);
    }
    let [q, r] = [found[0], found[1]].map(|value| cx.builder.var(value));
    let Some(others) = complement(cx, q)? else { return Ok(found) };
    let mut shape = r.shape();
    let (rows, at) = (others.shape().need_trailing(1)?[0].clone(), shape.dims.len() - 2);
    shape.dims[at] = rows;
    let zeros = r.scalar(0.0).broadcast_to(shape);
    let q = cx.op("concat", &[q, others], &[("axis", (-1).into())]);
    let r = cx.op("concat", &[r, zeros], &[("axis", (-2).into())]);
    Ok(vec![q.value, r.value])
}

fn singular(cx: &Cx) -> Result<Vec<Value>> {
    let found = parts(cx, "svd", 3)?;
    if !cx.flag("full_matrices") {
        return Ok(found);
    }
    let [u, vh] = [found[0], found[2]].map(|value| cx.builder.var(value));
    let square = |columns: Var| -> Result<Value> {
        let own = cx.builder.var(columns.value);
        let Some(others) = complement(cx, own)? else { return Ok(own.value) };
        Ok(cx.op("concat", &[own, others], &[("axis", (-1).into())]).value)
    };
    let rows = cx.builder.var(square(vh.swap_last())?).swap_last();
    Ok(vec![square(u)?, found[1], rows.value])
}

/// Columns that make an orthonormal matrix square, without a gradient. `None`: it is square. They
/// are those that a factorisation of the matrix, next to the identity, adds.
fn complement<'a>(cx: &Cx<'a>, columns: Var<'a>) -> Result<Option<Var<'a>>> {
    cx.builder.check()?;
    let shape = columns.shape();
    let last = shape.need_trailing(2)?;
    let (rows, count) = (last[0].clone(), last[1].clone());
    if cx.is_equal(&rows, &count) == Some(true) {
        return Ok(None);
    }
    let wide = columns.stop_gradient().widened();
    let square = Shape::new([rows.clone(), rows.clone()]);
    let eye = cx.op("eye", &[], &[("shape", square.into()), ("dtype", wide.dtype().into())]);
    let mut whole = shape.clone();
    let at = whole.dims.len() - 1;
    whole.dims[at] = rows.clone();
    let both = [wide, eye.broadcast_to(whole)];
    let joined = cx.op("concat", &both, &[("axis", (-1).into())]);
    let attrs = [
        ("axes", Attr::ints([-1])),
        ("starts", Shape::new([count]).into()),
        ("limits", Shape::new([rows]).into()),
    ];
    let others = joined.unary("qr", &[("of", 0.into())]).unary("slice", &attrs);
    cx.builder.check()?;
    Ok(Some(others.stop_gradient().cast(columns.dtype())))
}

/// Errors: the last two dims of an input are known to differ.
fn need_square(cx: &Cx, name: &str) -> Result<()> {
    let shape = cx.var(name).shape();
    let last = shape.need_trailing(2)?;
    match cx.is_equal(&last[0], &last[1]) {
        Some(false) => {
            Diagnostic::of(ErrorKind::Shapes, format!("the matrices of `{name}` are not square"))
                .got(&shape)
                .expected("equal last two dims")
                .err()
        }
        Some(true) | None => Ok(()),
    }
}

/// An operation on the matrices of `input`, with the result in the input's dtype.
fn single<'a>(cx: &Cx<'a>, op: &str, attrs: &[(&str, mithril_ir::attr::Attr)]) -> Var<'a> {
    let x = cx.var("input");
    x.widened().unary(op, attrs).cast(x.dtype())
}

fn triangular_solve(cx: &Cx) -> Result<Vec<Value>> {
    let (a, b) = (cx.var("a"), cx.var("b"));
    b.shape().need_trailing(2)?;
    let left = cx.flag("left");
    // `x @ a = b` is `a.T @ x.T = b.T`.
    let right = if left { b.widened() } else { b.widened().swap_last() };
    let attrs = [
        ("lower", cx.flag("lower").into()),
        ("transposed", (cx.flag("transposed") == left).into()),
        ("unit_diagonal", cx.flag("unit_diagonal").into()),
    ];
    let solution = cx.op("triangular_solve", &[a.widened(), right], &attrs);
    let solution = if left { solution } else { solution.swap_last() };
    done(solution.cast(b.dtype()))
}

fn solve(cx: &Cx) -> Result<Vec<Value>> {
    let (a, b) = (cx.var("a"), cx.var("b"));
    let (matrices, right) = (a.shape(), b.shape());
    let vectors = match (matrices.need_rank()?, right.need_rank()?) {
        (_, 1) => true,
        (own, rank) if own == rank + 1 => {
            let mut pairs = matrices.dims.iter().zip(&right.dims);
            pairs.all(|(x, y)| cx.is_equal(x, y) == Some(true))
        }
        _ => false,
    };
    let columns = if vectors { b.expand_dims(&[-1]) } else { b };
    let solution = cx.op("solve", &[a.widened(), columns.widened()], &[]);
    let solution = if vectors { solution.squeeze(&[-1]) } else { solution };
    done(solution.cast(b.dtype()))
}
