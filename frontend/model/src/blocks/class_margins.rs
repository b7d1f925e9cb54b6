//! Losses of margins between the scores of classes.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::op::Class;

use super::cross_entropy::{WEIGHTS, weights};
use super::elementwise::done;
use super::loss_terms::pair;
use super::losses::{LOSS, SCORE, TARGET};
use super::parameter::{Range, with};
use super::{Default, Entry, Input, Kind, Parameter, Value, data, gives};
use crate::lower::Cx;

const MARGIN: Parameter = with("margin", Kind::Float(Range::Finite), Default::Float(1.0))
    .doc("the difference from which on there is no loss");

/// Integer targets.
const fn labels(doc: &'static str) -> [Input; 2] {
    [SCORE, data("target", Class::Int).own_dtype().doc(doc)]
}

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "where(target != -1, input, 0) + where(target != 1, maximum(0, margin - input), 0)",
        example: gives(&["[0.5, 2, 0.25]", "[1, -1, -1]"], "[0.5  0.   0.75]"),
        parameters: &[MARGIN],
        inputs: &[SCORE, TARGET.doc("1 or -1")],
        ..LOSS.row(
            "HingeEmbedding",
            "`input` where `target` is 1, `max(0, margin - input)` where it is -1: the loss of a \
             distance between samples that are alike, or not.",
            |cx| {
                let (input, target) = pair(cx)?;
                let zero = input.scalar(0.0);
                let near = target.binary("ne", target.scalar(-1.0)).select(input, zero);
                let far = (-input + cx.float("margin")).unary("relu", &[]);
                done(near + target.binary("ne", target.scalar(1.0)).select(far, zero))
            },
        )
    },
    Entry {
        example: gives(&["[[0.25, 0.5, 0], [2, 0, 0]]", "[1, 0]"], "[0.4167 0.    ]"),
        parameters: &[
            with("p", Kind::Float(Range::Positive), Default::Float(1.0))
                .doc("the exponent of each term"),
            MARGIN,
            WEIGHTS,
        ],
        inputs: &labels("the class of each sample"),
        same_dtype: true,
        ..LOSS.row(
            "MultiMargin",
            "The mean over classes of `max(0, margin - input[target] + input[i])^p`, for all \
             classes i but the target, along the last axis, times the weight of the target, as in \
             `torch.nn.MultiMarginLoss`.",
            multi_margin,
        )
    },
    Entry {
        formula: "mean(target * log1p(exp(-input)) + (1 - target) * log1p(exp(input)), -1)",
        example: gives(&["[[0, 2], [-1, 0]]", "[[1, 1], [0, 1]]"], "[0.41   0.5032]"),
        parameters: &[WEIGHTS],
        ..LOSS.row(
            "MultiLabelSoftMargin",
            "The mean of `BinaryCrossEntropy` of logits over the labels, the last axis, each times \
             the weight of its label.",
            |cx| {
                let (x, target) = pair(cx)?;
                if x.shape().rank() == Some(0) {
                    return no_classes(cx);
                }
                let each = (-x).unary("softplus", &[]) * target
                    + x.unary("softplus", &[]) * (-target + 1.0);
                let each = weights(cx, x, -1)?.map_or(each, |weights| each * weights);
                done(each.reduce("mean", Some(&[-1]), false))
            },
        )
    },
    Entry {
        example: gives(&["[[0.1, 0.2, 0.4, 0.8]]", "[[3, 0, -1, 1]]"], "[0.85]"),
        inputs: &labels(
            "the labels of each sample, of the shape of `input`; those from the first negative one \
             on do not count",
        ),
        ..LOSS.row(
            "MultiLabelMargin",
            "The mean over classes of `max(0, 1 - (input[j] - input[i]))`, summed over all labels j \
             in `target` and all classes i that are no label, along the last axis, as in \
             `torch.nn.MultiLabelMarginLoss`.",
            multi_label,
        )
    },
];

fn no_classes<T>(cx: &Cx) -> Result<T> {
    Diagnostic::of(ErrorKind::Shapes, "`input` has no axis of classes")
        .got(cx.var("input").shape())
        .expected("(…, classes)")
        .err()
}

fn multi_margin(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target, p) = (cx.var("input"), cx.var("target"), cx.float("p"));
    let shape = x.shape();
    if shape.need_rank()? == 0 {
        return no_classes(cx);
    }
    let target = target.expand_dims(&[-1]);
    let own = cx.op("take_along", &[x, target], &[("axis", (-1).into())]);
    let mut term = (x - own + cx.float("margin")).unary("relu", &[]);
    if p == 2.0 {
        term = term * term;
    } else if p != 1.0 {
        term = term.binary("pow", term.scalar(p));
    }
    cx.builder.check()?;
    let classes = cx.iota(shape.clone(), shape.dims.len() as i64 - 1, target.dtype());
    let others = classes.binary("ne", target).select(term, term.scalar(0.0));
    let mean = others.reduce("mean", Some(&[-1]), false);
    done(weights(cx, x, -1)?.map_or(mean, |weights| {
        mean * cx.op("take", &[weights, cx.var("target")], &[("axis", 0.into())])
    }))
}

fn multi_label(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target) = (cx.var("input"), cx.var("target"));
    let (shape, own) = (x.shape(), target.shape());
    if shape.need_rank()? == 0 {
        return no_classes(cx);
    }
    if own.need_rank()? != shape.dims.len() {
        return super::loss_terms::other_shape("input", "target", &shape);
    }
    let zero = target.scalar(0.0);
    // Labels count up to the first negative one.
    let some = target.binary("ge", zero).cast(target.dtype());
    let counted = cx.op("cumprod", &[some], &[("axis", (-1).into())]).binary("gt", zero);
    let label = counted.select(target, zero);
    let scores = cx.op("take_along", &[x, label], &[("axis", (-1).into())]);
    cx.builder.check()?;
    // Pairs of a label and a class.
    let mut pairs = shape.clone();
    pairs.dims.insert(shape.dims.len() - 1, own.dims[shape.dims.len() - 1].clone());
    let classes = cx.iota(pairs.clone(), shape.dims.len() as i64, target.dtype());
    let same = classes.binary("eq", label.expand_dims(&[-1]));
    let counted = counted.expand_dims(&[-1]);
    let hit = same.binary("and", counted).reduce("any", Some(&[-2]), true);
    let term = (x.expand_dims(&[-2]) - scores.expand_dims(&[-1]) + 1.0).unary("relu", &[]);
    let none = term.scalar(0.0);
    let term = counted.select(hit.select(none, term), none);
    done(term.sum(Some(&[-2]), false).reduce("mean", Some(&[-1]), false))
}
