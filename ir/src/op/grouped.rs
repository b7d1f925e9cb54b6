//! Products in which each row has one of a few matrices: the layers of experts.

use super::access::{Access, Library};
use super::batch;
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, Operand, ShapeRule, attr, operand,
};
use crate::algebra::Rule;
use crate::attr::AttrKind;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::shape::Shape;

const GROUPED: OpDef = OpDef {
    kind: Kind::Composite,
    note: "A group out of range is clamped on the evaluator and native targets. Other frameworks \
           leave its rows out.",
    ..BASE
};
const ROWS: Operand = operand("x", Class::Float);
const GROUP: Operand = operand("group", Class::Int).own_dtype();

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "grouped_matmul",
        batch: batch::ROWS,
        noun: "products",
        access: Access::Library(Library::Grouped { outer: false }),
        doc: "The product of each row of `x`, (rows, k), with one of the matrices `w`, (groups, k, \
              n): row i with `w[group[i]]`. Rows need no order.",
        operands: &[ROWS, operand("w", Class::Float), GROUP],
        shape: ShapeRule::Rule(matmul_shape),
        meaning: Meaning::Decompose(|r| {
            let own = r.build("take", &[r.arg(1), r.arg(2)], &[("axis", 0.into())]);
            let products = r.arg(0).widened().expand_dims(&[-1]) * own.widened();
            products.sum(Some(&[1]), false).cast(r.arg(0).dtype())
        }),
        gradient: Gradient::Rule(|r| {
            let (x, w, group) = (r.arg(0), r.arg(1), r.arg(2));
            let groups = w.shape().dims.first().and_then(Dim::as_const).unwrap_or(0);
            let rows = r.build("grouped_matmul", &[r.g(), w.swap_last(), group], &[]);
            let sums = r.build("grouped_outer", &[x, r.g(), group], &[("groups", groups.into())]);
            vec![Some(rows), Some(sums), None]
        }),
        ..GROUPED
    },
    OpDef {
        name: "grouped_outer",
        noun: "sums",
        access: Access::Library(Library::Grouped { outer: true }),
        doc: "For each group, the sum over its rows of the outer products of `x`, (rows, k), and \
              `y`, (rows, n): (groups, k, n). It is the gradient of `grouped_matmul` with respect \
              to `w`.",
        operands: &[ROWS, operand("y", Class::Float), GROUP],
        attrs: &[attr("groups", AttrKind::Int, Default::Required)],
        shape: ShapeRule::Rule(outer_shape),
        meaning: Meaning::Decompose(|r| {
            let (x, y) = (r.arg(0), r.arg(1));
            let products = x.expand_dims(&[-1]) * y.expand_dims(&[1]);
            let mut shape = products.shape();
            if let Some(rows) = shape.dims.first_mut() {
                *rows = Dim::Const(r.int("groups"));
            }
            let zeros = x.scalar(0.0).broadcast_to(shape);
            r.build("scatter_add", &[zeros, r.arg(2), products], &[("axis", 0.into())])
        }),
        gradient: Gradient::Rule(|r: &Rule| {
            let (x, y, group) = (r.arg(0), r.arg(1), r.arg(2));
            let of_x = r.build("grouped_matmul", &[y, r.g().swap_last(), group], &[]);
            let of_y = r.build("grouped_matmul", &[x, r.g(), group], &[]);
            vec![Some(of_x), Some(of_y), None]
        }),
        ..GROUPED
    },
];

fn matmul_shape(cx: &mut Infer) -> Result<Shape> {
    let ([rows, inner], [groups, own, columns]) = (axes(cx, 0)?, axes(cx, 1)?);
    if groups.as_const().is_none_or(|groups| groups < 1) {
        return cx.mismatch(format!(
            "the number of matrices must be known and at least 1, got {groups}"
        ));
    }
    check_groups(cx, &rows)?;
    cx.unify(&inner, &own, "the widths of the rows and the heights of the matrices")?;
    Ok(Shape::new([rows, columns]))
}

fn outer_shape(cx: &mut Infer) -> Result<Shape> {
    let ([rows, height], [own, width]) = (axes(cx, 0)?, axes(cx, 1)?);
    check_groups(cx, &rows)?;
    cx.unify(&rows, &own, "the numbers of rows")?;
    match cx.int("groups") {
        groups @ 1.. => Ok(Shape::new([Dim::Const(groups), height, width])),
        groups => cx.mismatch(format!("`groups` must be at least 1, got {groups}")),
    }
}

/// Checks that each row has a group.
fn check_groups(cx: &mut Infer, rows: &Dim) -> Result<()> {
    let [groups] = axes(cx, 2)?;
    cx.unify(rows, &groups, "the numbers of rows and of their groups").map(drop)
}

/// The dims of an operand of this rank.
fn axes<const RANK: usize>(cx: &Infer, operand: usize) -> Result<[Dim; RANK]> {
    let shape = cx.shape(operand);
    shape.need_rank()?;
    match <[Dim; RANK]>::try_from(shape.dims.to_vec()) {
        Ok(dims) => Ok(dims),
        Err(_) => cx.mismatch(format!("operand {operand} must have {RANK} axes, got {shape}")),
    }
}
