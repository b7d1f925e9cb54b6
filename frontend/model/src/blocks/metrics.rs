//! Metrics for evaluating a model, as defined by scikit-learn. They have no gradient.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::loss_terms::without;
use super::metric_terms::{actual, counting, holds_classes, over, ratio};
use super::parameter::{Range, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Parameter, Value, auc, data, gives};
use crate::lower::Cx;

const PAIR: &[Input] = &[
    data("input", Class::Number),
    data("target", Class::Number).own_dtype().following(|cx| {
        let input = cx.var("input");
        match holds_classes(cx, input) {
            true => without(&input.shape(), -1),
            false => Ok(input.shape()),
        }
    }),
];
const THRESHOLD: Parameter = with("threshold", Kind::Float(Range::Ordered), Default::Float(0.5))
    .doc("the score above which the class is 1, if there are two classes");
const AVERAGED: &[Parameter] = &[
    with("average", Kind::OneOf(&["macro", "micro", "weighted", "binary"]), Default::Str("macro"))
        .doc("how the scores of the classes are averaged"),
    THRESHOLD,
    with("classes", Kind::Count, Default::None)
        .doc("the number of classes, if `input` holds classes"),
];

const METRIC: Entry = Entry { group: Group::Metric, parameters: AVERAGED, inputs: PAIR, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "mean(argmax(input, -1) == target)",
        example: gives(&["[[2, 0], [0, 1], [3, 1]]", "np.array([0, 1, 1])"], "0.6666667"),
        parameters: &[
            with("binary", Kind::Bool, Default::Bool(false)).doc("`input` holds scores of class 1"),
            THRESHOLD,
        ],
        ..METRIC.row(
            "Accuracy",
            "The fraction of samples whose class is `target`. The class is that of the highest \
             score along the last axis of `input`; with `binary` it is 1 if the score is above \
             `threshold`; integers are classes themselves. A float `target` with as many dims as \
             `input` also holds one score for each class.",
            |cx| {
                let labels = Labels::of(cx, cx.flag("binary"))?;
                ratio(cx, labels.is_correct().reduce("mean", None, false))
            },
        )
    },
    Entry {
        example: gives(&["[[2, 0], [0, 1], [3, 1]]", "np.array([0, 1, 1])"], "0.75"),
        ..METRIC.row(
            "Precision",
            "True positives over predicted positives of each class, 0 if there are none. \
             `average` is over the classes that occur (\"macro\"), weighted by how often they do \
             (\"weighted\"), over all samples (\"micro\"), or of class 1 alone (\"binary\"). \
             Classes are determined as in `Accuracy`; if `input` holds classes, `classes` is \
             their number.",
            |cx| averaged(cx, |c| over(c.hits, c.predicted)),
        )
    },
    Entry {
        example: gives(&["[[2, 0], [0, 1], [3, 1]]", "np.array([0, 1, 1])"], "0.75"),
        ..METRIC.row(
            "Recall",
            "True positives over actual positives of each class, 0 if there are none; averaged as \
             in `Precision`.",
            |cx| averaged(cx, |c| over(c.hits, c.actual)),
        )
    },
    Entry {
        example: gives(&["[[2, 0], [0, 1], [3, 1]]", "np.array([0, 1, 1])"], "0.6666667"),
        ..METRIC.row(
            "F1",
            "`2 true positives / (predicted + actual positives)` of each class, the harmonic mean \
             of precision and recall (van Rijsbergen 1979), 0 if there are none; averaged as in \
             `Precision`.",
            |cx| averaged(cx, |c| over(c.hits * 2.0, c.predicted + c.actual)),
        )
    },
    Entry {
        example: gives(&["[0.1, 0.4, 0.35, 0.8]", "np.array([0, 0, 1, 1])"], "0.75")
            .with_settings("average=\"binary\""),
        parameters: &[with(
            "average",
            Kind::OneOf(&["macro", "weighted", "binary"]),
            Default::Str("macro"),
        )
        .doc("how the areas of the classes are averaged")],
        ..METRIC.row(
            "AUC",
            "The area under the curve of true over false positives (Hanley & McNeil 1982), \
             computed exactly by trapezoids over the sorted scores, with equal scores in one \
             step. With \"binary\" `input` scores class 1; otherwise each class, along the last \
             axis, is scored against the rest, and `average` is over the classes that have \
             positive and negative samples. 0 if there is no such class.",
            auc::lower,
        )
    },
];

/// The predicted and the actual class indices.
struct Labels<'a> {
    predicted: Var<'a>,
    actual: Var<'a>,
    dtype: DType,
}

impl<'a> Labels<'a> {
    fn of(cx: &Cx<'a>, binary: bool) -> Result<Labels<'a>> {
        let input = cx.var("input");
        let predicted = match (input.dtype().is_float(), binary) {
            (true, true) => {
                let threshold = input.scalar(cx.float("threshold"));
                input.binary("gt", threshold).cast(DType::I64)
            }
            (true, false) => input.unary("argmax", &[("axis", (-1).into())]),
            (false, _) => input.cast(DType::I64),
        };
        Ok(Labels { predicted, actual: actual(cx)?, dtype: counting(cx) })
    }

    /// 1 where the prediction is correct, otherwise 0.
    fn is_correct(&self) -> Var<'a> {
        self.predicted.binary("eq", self.actual).cast(self.dtype)
    }
}

/// The counts for each class, or totals.
#[derive(Clone, Copy)]
struct Counts<'a> {
    hits: Var<'a>,
    predicted: Var<'a>,
    actual: Var<'a>,
}

fn averaged<'a>(cx: &Cx<'a>, score: fn(Counts<'a>) -> Var<'a>) -> Result<Vec<Value>> {
    let average = cx.text("average");
    let labels = Labels::of(cx, average == "binary")?;
    let total = |v: Var<'a>| v.sum(None, false);
    let is_correct = labels.is_correct();
    let value = match average {
        "binary" => {
            let one = |v: Var<'a>| v.binary("eq", v.scalar(1.0)).cast(labels.dtype);
            let (predicted, actual) = (one(labels.predicted), one(labels.actual));
            score(Counts {
                hits: total(predicted * actual),
                predicted: total(predicted),
                actual: total(actual),
            })
        }
        // Each sample has one prediction and one class, so both counts equal the number of samples.
        "micro" => {
            let all = is_correct.count(None);
            score(Counts { hits: total(is_correct), predicted: all, actual: all })
        }
        _ => {
            let counts = each(cx, &labels, is_correct)?;
            let weight = match average {
                "weighted" => counts.actual,
                _ => {
                    let any = counts.predicted + counts.actual;
                    any.binary("gt", any.scalar(0.0)).cast(labels.dtype)
                }
            };
            over(total(score(counts) * weight), total(weight))
        }
    };
    ratio(cx, value)
}

/// The counts for each class, accumulated by scatter-add, so that neither the number of samples nor
/// their rank needs to be known. Errors: the number of classes is not known.
fn each<'a>(cx: &Cx<'a>, labels: &Labels<'a>, is_correct: Var<'a>) -> Result<Counts<'a>> {
    let classes = match (cx.var("input").dtype().is_float(), cx.settings.int("classes")) {
        (true, _) => cx.last_dim("input")?,
        (false, Some(count)) => Dim::Const(count),
        (false, None) => {
            return Diagnostic::new("the number of classes cannot be inferred from class indices")
                .got(cx.var("input").ty())
                .expected("scores along the last axis, or `classes`")
                .err();
        }
    };
    let zeros = is_correct.scalar(0.0).broadcast_to(Shape::new([classes]));
    let ones = is_correct.full_like(1.0);
    let count = |classes: Var<'a>, what: Var<'a>| {
        cx.op("scatter_add", &[zeros, classes, what], &[("axis", 0.into())])
    };
    Ok(Counts {
        hits: count(labels.actual, is_correct),
        predicted: count(labels.predicted, ones),
        actual: count(labels.actual, ones),
    })
}
