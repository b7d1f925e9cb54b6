//! Similarities of vectors, and blocks that rearrange or normalise an axis.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::channels::channels;
use super::elementwise::done;
use super::layers::{INIT, LAYER, USE_BIAS};
use super::parameter::{Range, required, with};
use super::reduce::norm;
use super::{Default, Entry, Input, Kind, Parameter, Value, data, gives, param};
use crate::init::Init;
use crate::lower::Cx;

const PAIR: &[Input] = &[data("left", Class::Float), data("right", Class::Float)];
const ORDER: Parameter =
    with("p", Kind::Float(Range::Ordered), Default::Float(2.0)).doc("the order of the norm");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "sum(left * right, axis) / (maximum(sqrt(sum(left**2, axis)), eps) * \
                  maximum(sqrt(sum(right**2, axis)), eps))",
        example: gives(&["[[3, 4], [1, 0]]", "[[4, 3], [0, 1]]"], "[0.96 0.  ]"),
        parameters: &[
            with("axis", Kind::Int, Default::Int(1)).doc("the axis of the vectors"),
            with("eps", Kind::Float(Range::NotNegative), Default::Float(1e-8))
                .doc("the least norm that is divided by"),
        ],
        inputs: PAIR,
        ..LAYER.row(
            "CosineSimilarity",
            "The cosine of the angle between vectors along `axis`: their product, divided by both \
             norms.",
            |cx| {
                let (left, right) = (cx.var("left"), cx.var("right"));
                let product = (left * right).shape();
                cx.builder.check()?;
                let axis = -(product.axis_from_back(cx.int("axis"))? as i64);
                let unit = |x: Var| {
                    let size = norm(cx.builder.var(x.value), 2.0, Some(&[axis]), true);
                    let size = cx.builder.var(size.value);
                    cx.builder.var((x / size.binary("maximum", size.scalar(cx.float("eps")))).value)
                };
                let wide = |x: Var| cx.builder.var(x.broadcast_to(product.clone()).value);
                done((unit(wide(left)) * unit(wide(right))).sum(Some(&[axis]), false))
            },
        )
    },
    Entry {
        formula: "sum(abs(left - right + eps) ** p, -1) ** (1 / p)",
        example: gives(&["[[0, 0], [1, 1]]", "[[3, 4], [1, 2]]"], "[5. 1.]"),
        parameters: &[
            ORDER,
            with("eps", Kind::Float(Range::Finite), Default::Float(1e-6))
                .doc("added to each difference"),
            with("keepdim", Kind::Bool, Default::Bool(false))
                .doc("keep the last axis, with size 1"),
        ],
        inputs: PAIR,
        ..LAYER.row(
            "PairwiseDistance",
            "The norm of `left - right + eps` along the last axis. `DistanceMatrix` compares all \
             pairs of rows.",
            |cx| {
                let difference = cx.var("left") - cx.var("right") + cx.float("eps");
                done(norm(difference, cx.float("p"), Some(&[-1]), cx.flag("keepdim")))
            },
        )
    },
    Entry {
        formula: "array([sum(abs(input[i] - input[j]) ** p) ** (1 / p) for i in range(len(input)) \
                  for j in range(i + 1, len(input))])",
        example: gives(&["[[0, 0], [3, 4], [3, 0]]"], "[5. 3. 4.]"),
        parameters: &[ORDER],
        ..LAYER.row(
            "Pdist",
            "The norms of the differences of all pairs of rows i < j of `input`, (n, features), as a \
             vector: first those of row 0, as in `torch.pdist`. Distances of 0 have a gradient of 0.",
            pairs,
        )
    },
    Entry {
        formula: "input / maximum(sum(abs(input) ** p, axis, keepdims=True) ** (1 / p), eps)",
        example: gives(&["[[3, 4], [0, 2]]"], "[[0.6 0.8]\n [0.  1. ]]"),
        parameters: &[
            ORDER,
            with("axis", Kind::Int, Default::Int(1)).doc("the axis of the vectors"),
            with("eps", Kind::Float(Range::NotNegative), Default::Float(1e-12))
                .doc("the least norm that is divided by"),
        ],
        ..LAYER.row("Normalize", "`input` divided by its norm along `axis`.", |cx| {
            let x = cx.var("input");
            let size = norm(x, cx.float("p"), Some(&[cx.int("axis")]), true);
            done(x / size.binary("maximum", size.scalar(cx.float("eps"))))
        })
    },
    Entry {
        formula: "einsum(\"bi,oij,bj->bo\", left, w, right) + b",
        example: gives(&["[[1, 2]]", "[[3, 4]]"], "[[11.5]]")
            .with_settings("dimension=1")
            .with_params(&["[[[1, 0], [0, 1]]]", "[0.5]"]),
        parameters: &[
            required("dimension", Kind::Count).doc("the width of the output"),
            USE_BIAS,
            INIT,
        ],
        inputs: &[
            data("left", Class::Float),
            data("right", Class::Float),
            param("w", Init::FanIn, |cx| {
                let (left, right) = (cx.last_dim("left")?, cx.last_dim("right")?);
                Ok(Shape::new([Dim::Const(cx.int("dimension")), left, right]))
            })
            .transposed()
            .takes_init()
            .doc("(dimension, last dim of `left`, last dim of `right`)"),
            param("b", Init::FanIn, |cx| Ok(Shape::new([Dim::Const(cx.int("dimension"))])))
                .fan_of("w")
                .when(|settings| settings.flag("use_bias"))
                .doc("(dimension)"),
        ],
        ..LAYER.row(
            "Bilinear",
            "`left @ w[k] @ right + b[k]` for each k up to `dimension`, over the last axes, as in \
             `torch.nn.Bilinear`.",
            bilinear,
        )
    },
    Entry {
        source: "Zhang et al. 2018",
        example: gives(&["[[[1], [2], [3], [4]]]"], "[[[1.]\n  [3.]\n  [2.]\n  [4.]]]")
            .with_settings("groups=2"),
        parameters: &[required("groups", Kind::Count).doc("the number of groups of channels")],
        ..LAYER.row(
            "ChannelShuffle",
            "The channels, axis 1, in another order: the first of each of `groups` groups, then \
             the second of each, and so on.",
            |cx| {
                let (x, groups) = (cx.var("input"), cx.int("groups"));
                let shape = x.shape();
                channels(cx)?;
                let (front, after) = (&shape.dims[..1], &shape.dims[2..]);
                let part = cx.divide(&shape.dims[1], groups, || {
                    let what = format!("channels do not divide into {groups} groups");
                    Diagnostic::of(ErrorKind::Shapes, what).got(&shape.dims[1])
                })?;
                let middle = [Dim::Const(groups), part];
                let split = Shape::new(front.iter().chain(&middle).chain(after).cloned());
                let mut order: Vec<i64> = (0..split.dims.len() as i64).collect();
                order.swap(1, 2);
                done(x.reshape(split).transpose(&order).reshape(shape))
            },
        )
    },
    Entry {
        formula: "reshape(input, input.shape[:axis] + tuple(sizes) + input.shape[axis:][1:])",
        example: gives(&["[[1, 2, 3, 4]]"], "[[[1. 2.]\n  [3. 4.]]]")
            .with_settings("axis=1, sizes=(2, 2)"),
        parameters: &[
            required("axis", Kind::Int).doc("the axis that is cut"),
            required("sizes", Kind::INTS)
                .doc("the sizes of the new axes; one of them may be -1, which follows"),
        ],
        ..LAYER.row(
            "Unflatten",
            "`input` with `axis` as several axes: the reverse of `Flatten`.",
            unflatten,
        )
    },
];

/// The number of the row in which each pair of rows stands, in a triangle without its diagonal of n
/// rows.
fn rows_of_pairs<'a>(cx: &Cx<'a>, rows: &Dim, pairs: &Dim) -> Var<'a> {
    // Every row but the first starts with a mark. The last one is empty.
    let later = (rows + -2).max(&Dim::Const(0));
    let row = cx.iota(Shape::new([later]), 0, cx.index) + 1.0;
    let marks = row.scalar(0.0).broadcast_to(Shape::new([pairs.clone()]));
    let starts = first_of_row(cx, row);
    let ones = row.scalar(1.0).broadcast_to(starts.shape());
    let axis = [("axis", 0.into())];
    cx.op("scatter_add", &[marks, starts, ones], &axis).unary("cumsum", &axis)
}

/// The place of the first pair of each row.
fn first_of_row<'a>(cx: &Cx<'a>, row: Var<'a>) -> Var<'a> {
    let count = cx.var("input").dim(0).cast(row.dtype());
    (row * (count * 2.0 - row - 1.0)).binary("floor_div", row.scalar(2.0))
}

fn pairs(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let shape = x.shape();
    cx.need_rank(x, 2, || {
        Diagnostic::of(ErrorKind::Shapes, "`Pdist` takes rows of a matrix")
            .got(&shape)
            .expected("(n, features)")
    })?;
    let rows = &shape.dims[0];
    let count = (rows * &(rows + -1)).floor_div(&Dim::Const(2));
    let first = rows_of_pairs(cx, rows, &count);
    let place = cx.iota(Shape::new([count]), 0, cx.index);
    let second = place - first_of_row(cx, first) + first + 1.0;
    let row = |index: Var| {
        let own = cx.builder.var(index.value);
        cx.builder.var(cx.op("take", &[x, own], &[("axis", 0.into())]).value)
    };
    let (mut difference, p) = (row(first) - row(second), cx.float("p"));
    if p != 2.0 {
        // Frameworks differ in the slope of the magnitude at 0. This one is 0, as in PyTorch.
        difference = difference * difference.unary("sign", &[]).stop_gradient();
    }
    done(norm(difference, p, Some(&[-1]), false))
}

fn bilinear(cx: &Cx) -> Result<Vec<Value>> {
    let (left, right, w) = (cx.var("left"), cx.var("right"), cx.var("w"));
    // (…, dimension, right) = (…, left) @ (left, dimension * right)
    let weights = w.shape();
    let [dimension, first, second] = &weights.dims[..] else {
        return Diagnostic::of(ErrorKind::Shapes, "`w` of `Bilinear` has three axes")
            .got(&weights)
            .err();
    };
    let flat = Shape::new([first.clone(), dimension * second]);
    let rows = left.matmul(w.transpose(&[1, 0, 2]).reshape(flat));
    cx.builder.check()?;
    let mut split = rows.shape();
    split.need_rank()?;
    split.dims.pop();
    split.dims.extend([dimension.clone(), second.clone()]);
    let product = (rows.reshape(split) * right.expand_dims(&[-2])).sum(Some(&[-1]), false);
    done(cx.optional("b").map_or(product, |b| product + b))
}

fn unflatten(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let shape = x.shape();
    let at = shape.need_rank()? - shape.axis_from_back(cx.int("axis"))?;
    let dim = shape.dims[at].clone();
    let sizes = cx.settings.ints("sizes").unwrap_or_default();
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`sizes` do not make up the axis")
            .got(format!("an axis of {dim}, and sizes {sizes:?}"))
            .expected("sizes whose product is the axis, one of which may be -1")
    };
    let known: i64 = sizes.iter().filter(|size| **size >= 0).product();
    let open = sizes.iter().filter(|size| **size < 0).count();
    if sizes.is_empty() || open > 1 || sizes.iter().any(|size| *size < -1) {
        return wrong().err();
    }
    let rest = match open {
        0 => {
            cx.need_equal(&dim, known, wrong)?;
            None
        }
        _ if known == 0 => return wrong().err(),
        _ => Some(cx.divide(&dim, known, wrong)?),
    };
    let parts = sizes.iter().map(|size| match (*size, &rest) {
        (-1, Some(rest)) => rest.clone(),
        (size, _) => Dim::Const(size),
    });
    let parts: Vec<Dim> = parts.collect();
    let (before, after) = (&shape.dims[..at], &shape.dims[at + 1..]);
    let shape = Shape::new(before.iter().chain(&parts).chain(after).cloned());
    done(x.reshape(shape))
}
