//! Losses: the distance of `input` from `target`, per element or per sample. The reduction to a
//! scalar is done by the reduce steps of the training.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;

use super::elementwise::{ROBUST, done};
use super::loss_terms::{pair, times_finite, times_log, without};
use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Value, cross_entropy, data, gives};
use crate::lower::Cx;

pub(super) const SCORE: Input = data("input", Class::Float);
/// A target for an elementwise comparison. If no shape is given, it has that of `input`.
pub(super) const TARGET: Input =
    data("target", Class::Float).following(|cx| Ok(cx.var("input").shape()));

pub(super) const LOSS: Entry =
    Entry { group: Group::Loss, inputs: &[SCORE, TARGET], same_dtype: true, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "(input - target) ** 2",
        example: gives(&["[1, 2, 4]", "[1, 3, 0]"], "[ 0.  1. 16.]"),
        ..LOSS.row("SquaredError", "`(input - target)^2`.", |cx| {
            let error = error(cx)?;
            done(error * error)
        })
    },
    Entry {
        formula: "abs(input - target)",
        example: gives(&["[1, 2, 4]", "[1, 3, 0]"], "[0. 1. 4.]"),
        ..LOSS.row("AbsoluteError", "`|input - target|`.", |cx| done(error(cx)?.unary("abs", &[])))
    },
    Entry {
        formula: "where(abs(input - target) <= delta, (input - target) ** 2 / 2, \
                  delta * (abs(input - target) - delta / 2))",
        example: gives(&["[1, 2, 4]", "[1, 3, 0]"], "[0.  0.5 3.5]"),
        parameters: &[with("delta", Kind::Float(Range::Positive), Default::Float(1.0))
            .doc("the error above which the loss is linear")],
        ..LOSS.row(
            "Huber",
            "`e^2 / 2` where `|e| <= delta`, else `delta (|e| - delta / 2)`, for `e = input - \
             target` (Huber 1964).",
            |cx| {
                let size = error(cx)?.unary("abs", &[]);
                let delta = cx.float("delta");
                // A single formula for both cases has no branch whose gradient could be infinite.
                let near = size.binary("minimum", size.scalar(delta));
                done(near * (size - near * 0.5))
            },
        )
    },
    Entry {
        formula: "log(cosh(input - target))",
        example: gives(&["[1, 2, 4]", "[1, 3, 0]"], "[0.     0.4338 3.3072]"),
        ..LOSS.row(
            "LogCosh",
            "`log(cosh(input - target))`: half the squared error near 0, and far from it the absolute \
             error less `log(2)`.",
            |cx| {
                let error = error(cx)?;
                let size = error.unary("abs", &[]);
                let number = |x: f64| error.scalar(x);
                // Near 0 the other formula would cancel, and far from it this one would overflow.
                let near = error.binary("maximum", number(-1.0)).binary("minimum", number(1.0));
                let near = near.unary("sinh", &[]);
                let near = (near * near).unary("log1p", &[]) * 0.5;
                let far = size + (size * -2.0).unary("softplus", &[]) - 2f64.ln();
                done(size.binary("lt", number(1.0)).select(near, far))
            },
        )
    },
    Entry {
        formula: "maximum(0, 1 - input * target)",
        example: gives(&["[0.5, 2, -1]", "[1, 1, 1]"], "[0.5 0.  2. ]"),
        ..LOSS.row(
            "HingeLoss",
            "`max(0, 1 - input target)`, for targets of -1 and 1 (Rosasco et al. 2004).",
            |cx| done(hinge(cx)?),
        )
    },
    Entry {
        formula: "maximum(0, 1 - input * target) ** 2",
        example: gives(&["[0.5, 2, -1]", "[1, 1, 1]"], "[0.25 0.   4.  ]"),
        ..LOSS.row(
            "QuadHingeLoss",
            "`max(0, 1 - input target)^2`, for targets of -1 and 1 (Rosasco et al. 2004).",
            |cx| {
                let hinge = hinge(cx)?;
                done(hinge * hinge)
            },
        )
    },
    Entry {
        formula: "maximum(q * (target - input), (q - 1) * (target - input))",
        example: gives(&["[1, 2, 4]", "[1, 3, 0]"], "[0.  0.9 0.4]").with_settings("q=0.9"),
        parameters: &[required("q", Kind::Float(Range::Unit)).doc("the quantile")],
        ..LOSS.row(
            "QuantileLoss",
            "`max(q e, (q - 1) e)` for `e = target - input` (Koenker & Bassett 1978).",
            |cx| {
                let (error, q) = (-error(cx)?, cx.float("q"));
                done((error * q).binary("maximum", error * (q - 1.0)))
            },
        )
    },
    Entry {
        formula: "-take_along_axis(log_softmax(input, -1), target[..., None], -1)[..., 0]",
        example: gives(&["[[2, 0], [0, 1]]", "[0, -100]"], "[0.1269 0.    ] [1. 0.]")
            .with_settings("ignore_index=-100"),
        parameters: cross_entropy::OF_CLASSES,
        inputs: cross_entropy::CLASSES,
        outputs: cross_entropy::OUTPUTS,
        ..LOSS.row(
            "CrossEntropy",
            "`-log p(target)`. The classes are along `axis` of `input`, by default the last one; \
             torch has them at `axis=1`. An integer `target` has the shape of `input` without \
             that axis; a float one has the shape of `input` and holds the probability of each \
             class. `weights` must have one number for each class. With `label_smoothing` a share \
             of each target is spread evenly over the classes (Szegedy et al. 2016). The loss of \
             a target that is `ignore_index` is 0. With `robust` the logarithm of a probability \
             of 0 stays finite. With `weights` or `ignore_index` the second output `weight` is \
             the weight of each target: that of its class, 0 if it is ignored, 1 for \
             probabilities. torch's mean is `sum(output) / sum(weight)`: `TrainModel` computes it \
             if a reduce step is `Mean`, and `LossMean` computes it anywhere; a plain `Mean` \
             divides by the number of all targets.",
            cross_entropy::of_classes,
        )
    },
    Entry {
        formula: "pos_weight * target * log1p(exp(-input)) + (1 - target) * \
                  log1p(exp(input))",
        example: gives(&["[2, 0, -3]", "[1, 1, 0]"], "[0.1269 0.6931 0.0486]"),
        parameters: cross_entropy::OF_TWO,
        ..LOSS.row(
            "BinaryCrossEntropy",
            "`-(pos_weight target log p + (1 - target) log(1 - p))`, where `input` is p, or for \
             logits `p = sigmoid(input)`, computed with softplus so that it does not overflow. \
             With `robust` the logarithm of a probability of 0 stays finite. A mean divides by \
             the number of all targets for any `pos_weight`, as in torch.",
            cross_entropy::of_two,
        )
    },
    Entry {
        formula: "target * (log(target) - log(input))",
        example: gives(&["[0.5, 0.5]", "[0.25, 0.75]"], "[-0.1733  0.3041]"),
        parameters: &[
            with("input_type", Kind::OneOf(&["probs", "log_probs"]), Default::Str("probs"))
                .doc("the meaning of `input`: probabilities or their logarithms"),
            ROBUST,
            with("target_type", Kind::OneOf(&["probs", "log_probs"]), Default::Str("probs"))
                .doc("the meaning of `target`: probabilities or their logarithms"),
        ],
        ..LOSS.row(
            "KLDivergence",
            "`target (log target - log input)`, 0 where `target` is 0; its sum is the divergence \
             of `input` from `target` (Kullback & Leibler 1951). With `robust` the logarithm of a \
             probability of 0 stays finite.",
            |cx| {
                let (input, target) = pair(cx)?;
                let (target, own) = match cx.text("target_type") {
                    "probs" => (target, times_log(target, target, false)),
                    _ => {
                        let chance = target.unary("exp", &[]);
                        (chance, times_finite(chance, target))
                    }
                };
                let cross = match cx.text("input_type") {
                    "probs" => times_log(target, input, cx.flag("robust")),
                    _ => times_finite(target, input),
                };
                done(own - cross)
            },
        )
    },
    Entry {
        formula: "1 - sum(input * target, -1) / sqrt(sum(input**2, -1) * \
                  sum(target**2, -1))",
        example: gives(&["[[1, 0], [1, 1]]", "[[1, 0], [1, -1]]"], "[0. 1.]"),
        parameters: &[with("margin", Kind::Float(Range::Finite), Default::Float(0.0))
            .doc("the cosine below which vectors of label -1 have no loss")],
        inputs: &[
            SCORE,
            TARGET,
            data("label", Class::Float)
                .following(|cx| without(&cx.var("input").shape(), -1))
                .optional()
                .doc("1 or -1 for each sample; defaults to 1"),
        ],
        ..LOSS.row(
            "CosineEmbedding",
            "`1 - cos(input, target)` along the last axis; where `label` is -1, `max(0, \
             cos(input, target) - margin)` (Hadsell et al. 2006, with cosines as in torch).",
            cosine_embedding,
        )
    },
];

fn error<'a>(cx: &Cx<'a>) -> Result<Var<'a>> {
    let (input, target) = pair(cx)?;
    Ok(input - target)
}

fn hinge<'a>(cx: &Cx<'a>) -> Result<Var<'a>> {
    let (input, target) = pair(cx)?;
    Ok((-(input * target) + 1.0).unary("relu", &[]))
}

fn cosine_embedding(cx: &Cx) -> Result<Vec<Value>> {
    let (input, target) = pair(cx)?;
    let total = |v: Var| cx.builder.var(v.sum(Some(&[-1]), false).value);
    // PyTorch's constant (for f16 a larger one): the cosine of a zero vector is 0, its gradient
    // finite.
    let least = if input.dtype() == DType::F16 { 1e-6 } else { 1e-12 };
    let lengths = (total(input * input) + least) * (total(target * target) + least);
    let cosine = total(input * target) / lengths.sqrt();
    let loss_of_pair = -cosine + 1.0;
    let Some(label) = cx.optional("label") else {
        return done(loss_of_pair);
    };
    let different = (cosine - cx.float("margin")).unary("relu", &[]);
    done(label.binary("gt", label.scalar(0.0)).select(loss_of_pair, different))
}
