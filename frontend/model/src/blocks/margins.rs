//! Losses of margins between scores or distances, and of the overlap of masks.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;
use mithril_ir::op::Class;

use super::elementwise::done;
use super::loss_terms::{alike, pair};
use super::losses::LOSS;
use super::parameter::{Range, with};
use super::reduce::{above_zero, norm};
use super::{Default, Entry, Input, Kind, Parameter, Value, data, gives};
use crate::lower::Cx;

const fn margin(default: f64) -> Parameter {
    with("margin", Kind::Float(Range::Finite), Default::Float(default))
        .doc("the difference from which on there is no loss")
}

/// An input of the shape of `left`.
const fn like_left(name: &'static str) -> Input {
    data(name, Class::Float).following(|cx| Ok(cx.var("left").shape()))
}

/// An input of the shape of `anchor`.
const fn like_anchor(name: &'static str) -> Input {
    data(name, Class::Float).following(|cx| Ok(cx.var("anchor").shape()))
}

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "log1p(exp(-target * input))",
        example: gives(&["[2, 0, -3]", "[1, 1, -1]"], "[0.1269 0.6931 0.0486]"),
        ..LOSS.row(
            "SoftMargin",
            "`log(1 + exp(-target input))`, for targets of -1 and 1, computed so that it does not \
             overflow.",
            |cx| {
                let (input, target) = pair(cx)?;
                done((-(target * input)).unary("softplus", &[]))
            },
        )
    },
    Entry {
        formula: "maximum(0, -target * (left - right) + margin)",
        example: gives(&["[1, 2, 4]", "[2, 1, 0]", "[1, 1, -1]"], "[1. 0. 4.]"),
        parameters: &[margin(0.0)],
        inputs: &[
            data("left", Class::Float),
            like_left("right"),
            like_left("target").doc("1 where `left` should be larger, -1 where `right` should"),
        ],
        ..LOSS.row(
            "MarginRanking",
            "`max(0, -target (left - right) + margin)`: the loss of two scores in the wrong order.",
            |cx| {
                let (left, right) = alike(cx, "left", "right")?;
                let (_, target) = alike(cx, "left", "target")?;
                let loss = -(target * (left - right)) + cx.float("margin");
                done(loss.unary("relu", &[]))
            },
        )
    },
    Entry {
        formula: "maximum(0, sum(abs(anchor - positive + eps) ** p, -1) ** (1 / p) - \
                  sum(abs(anchor - negative + eps) ** p, -1) ** (1 / p) + margin)",
        example: gives(&["[[0, 0]]", "[[3, 4]]", "[[0, 2]]"], "[4.]"),
        parameters: &[
            margin(1.0),
            with("p", Kind::Float(Range::Ordered), Default::Float(2.0))
                .doc("the order of the norm that measures distances"),
            with("eps", Kind::Float(Range::Finite), Default::Float(1e-6))
                .doc("added to each difference"),
            with("swap", Kind::Bool, Default::Bool(false)).doc(
                "measure the distance of `negative` from `positive` where that is the smaller one",
            ),
        ],
        inputs: &[
            data("anchor", Class::Float),
            like_anchor("positive").doc("vectors that should be near"),
            like_anchor("negative").doc("vectors that should be far"),
        ],
        ..LOSS.row(
            "TripletMargin",
            "`max(0, |anchor - positive| - |anchor - negative| + margin)` along the last axis, \
             where `|x|` is the norm of order `p` (Balntas et al. 2016).",
            triplet,
        )
    },
    Entry {
        formula: "(alpha * target + (1 - alpha) * (1 - target)) * (expit(-input) * target + \
                  expit(input) * (1 - target)) ** gamma * (target * log1p(exp(-input)) + (1 - \
                  target) * log1p(exp(input)))",
        example: gives(&["[2, 0, -3]", "[1, 1, 0]"], "[4.5089e-04 4.3322e-02 8.1962e-05]"),
        parameters: &[
            with("gamma", Kind::Float(Range::NotNegative), Default::Float(2.0))
                .doc("how much less samples count that are classified well"),
            with("alpha", Kind::Float(Range::Finite), Default::Float(0.25)).doc(
                "the weight of targets of 1, those of 0 having the rest; a negative one weighs \
                 none",
            ),
        ],
        ..LOSS.row(
            "FocalLoss",
            "`BinaryCrossEntropy` of logits, times `(1 - p)^gamma` for the probability p of the \
             target, times `alpha` where the target is 1 and `1 - alpha` where it is 0 (Lin et \
             al. 2017). It is torchvision's `sigmoid_focal_loss`.",
            focal,
        )
    },
    Entry {
        formula: "1 - (2 * sum(input * target, -1) + smooth) / (sum(input, -1) + sum(target, -1) \
                  + smooth)",
        example: gives(&["[[0.5, 1], [0, 0]]", "[[1, 1], [0, 0]]"], "[0.1111 0.    ]"),
        parameters: &[
            with("smooth", Kind::Float(Range::NotNegative), Default::Float(1.0))
                .doc("added to both sums, so that the loss of two empty masks is 0"),
            with("axis", Kind::INTS, Default::None)
                .doc("the axes of a mask; all but the first if omitted"),
        ],
        ..LOSS.row(
            "Dice",
            "`1 - (2 sum(input target) + smooth) / (sum(input) + sum(target) + smooth)` over the \
             axes of a mask, by default those of each sample, where `input` is probabilities \
             (Sudre et al. 2017).",
            dice,
        )
    },
];

fn triplet(cx: &Cx) -> Result<Vec<Value>> {
    let (anchor, positive) = alike(cx, "anchor", "positive")?;
    let (_, negative) = alike(cx, "anchor", "negative")?;
    let (p, eps) = (cx.float("p"), cx.float("eps"));
    let distance = |x: Var, y: Var| {
        let distance = norm(cx.builder.var((x - y).value) + eps, p, Some(&[-1]), false);
        cx.builder.var(distance.value)
    };
    let near = distance(anchor, positive);
    let mut far = distance(anchor, negative);
    if cx.flag("swap") {
        far = far.binary("minimum", distance(positive, negative));
    }
    done((near - far + cx.float("margin")).unary("relu", &[]))
}

fn focal(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target) = pair(cx)?;
    let (gamma, alpha) = (cx.float("gamma"), cx.float("alpha"));
    let rest = -target + 1.0;
    let mut loss = target * (-x).unary("softplus", &[]) + rest * x.unary("softplus", &[]);
    if gamma != 0.0 {
        // 1 - p without cancellation.
        let wrong = target * (-x).unary("sigmoid", &[]) + rest * x.unary("sigmoid", &[]);
        loss = loss * above_zero(wrong, |v| v.binary("pow", v.scalar(gamma)));
    }
    if alpha >= 0.0 {
        loss = loss * (target * alpha + rest * (1.0 - alpha));
    }
    done(loss)
}

fn dice(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target) = pair(cx)?;
    let axes = match cx.settings.ints("axis") {
        Some(axes) => axes,
        None => (1..x.shape().need_rank()? as i64).collect(),
    };
    // Sums over a mask exceed the precision of f16 easily.
    let total = |v: Var| cx.builder.var(v.widened().sum(Some(&axes), false).value);
    let smooth = cx.float("smooth");
    // The product has the shape of both operands, if one of them broadcasts.
    let both = x * target;
    let each = x + target;
    let overlap = (total(both) * 2.0 + smooth) / (total(each) + smooth);
    done((-overlap + 1.0).cast(x.dtype()))
}
