//! Metrics: numbers that judge a model, without gradients.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::parameter::with;
use super::{BASE, Default, Entry, Group, Input, Kind, Meaning, Parameter, Value, data};
use crate::lower::Cx;

const PAIR: &[Input] = &[
    data("input", Class::Float),
    data("target", Class::Int).apart(),
];
const AVERAGE: Parameter = with(
    "average",
    Kind::OneOf(&["macro", "micro", "weighted", "binary"]),
    Default::Str("macro"),
);
const THRESHOLD: Parameter = with("threshold", Kind::Float, Default::Float(0.5));

const fn metric(
    name: &'static str,
    doc: &'static str,
    lower: fn(&Cx) -> Result<Vec<Value>>,
) -> Entry {
    Entry {
        name,
        doc,
        group: Group::Metric,
        parameters: &[AVERAGE, THRESHOLD],
        inputs: PAIR,
        meaning: Meaning::Lower(lower),
        ..BASE
    }
}

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        parameters: &[with("binary", Kind::Bool, Default::Bool(false)), THRESHOLD],
        ..metric(
            "Accuracy",
            "The share of rows whose greatest score is that of the class `target`; with `binary`, \
             of scores on the right side of `threshold`.",
            |cx| {
                let (input, target) = (cx.var("input"), cx.var("target"));
                let hits = match cx.flag("binary") {
                    true => {
                        let yes = input.binary("gt", input.scalar(cx.float("threshold")));
                        yes.cast(target.dtype()).binary("eq", target)
                    }
                    false => {
                        let class = input.unary("argmax", &[("axis", (-1).into())]);
                        class.cast(target.dtype()).binary("eq", target)
                    }
                };
                done(hits.cast(input.dtype()).reduce("mean", None, false))
            },
        )
    },
    metric(
        "Precision",
        "True positives over predicted positives, averaged over classes; 0 for a class never \
         predicted.",
        |cx| averaged(cx, |c| over(c.hits, c.predicted)),
    ),
    metric(
        "Recall",
        "True positives over actual positives, averaged over classes; 0 for a class that does not \
         occur.",
        |cx| averaged(cx, |c| over(c.hits, c.actual)),
    ),
    metric(
        "F1",
        "The harmonic mean of precision and recall, averaged over classes.",
        |cx| averaged(cx, |c| over(c.hits * 2.0, c.predicted + c.actual)),
    ),
];

/// Counts for each class, or one count.
#[derive(Clone, Copy)]
struct Counts<'a> {
    hits: Var<'a>,
    predicted: Var<'a>,
    actual: Var<'a>,
}

/// The quotient, 0 where nothing was counted.
fn over<'a>(part: Var<'a>, whole: Var<'a>) -> Var<'a> {
    let none = whole.binary("eq", whole.scalar(0.0));
    part / none.select(whole.scalar(1.0), whole)
}

fn averaged<'a>(cx: &Cx<'a>, score: fn(Counts<'a>) -> Var<'a>) -> Result<Vec<Value>> {
    let counts = counts(cx)?;
    let total = |v: Var<'a>| v.sum(None, false);
    done(match cx.text("average") {
        "binary" => score(counts),
        "micro" => score(Counts {
            hits: total(counts.hits),
            predicted: total(counts.predicted),
            actual: total(counts.actual),
        }),
        "weighted" => total(score(counts) * counts.actual) / total(counts.actual),
        // Classes that neither occur nor are predicted do not count.
        _ => {
            let any = counts.predicted + counts.actual;
            let any = any.binary("gt", any.scalar(0.0)).cast(any.dtype());
            over(total(score(counts)), total(any))
        }
    })
}

fn counts<'a>(cx: &Cx<'a>) -> Result<Counts<'a>> {
    let (input, target) = (cx.var("input"), cx.var("target"));
    let dtype = input.dtype();
    if cx.text("average") == "binary" {
        let predicted = input
            .binary("gt", input.scalar(cx.float("threshold")))
            .cast(dtype);
        let actual = target.cast(dtype);
        let sum = |v: Var<'a>| v.sum(None, false);
        return Ok(Counts {
            hits: sum(predicted * actual),
            predicted: sum(predicted),
            actual: sum(actual),
        });
    }
    let classes = Shape::new([cx.last_dim("input")?]);
    let ramp = cx.iota(classes.clone(), 0, target.dtype());
    let class = input.unary("argmax", &[("axis", (-1).into())]);
    let each = |v: Var<'a>| {
        v.cast(target.dtype())
            .expand_dims(&[-1])
            .binary("eq", ramp)
            .cast(dtype)
    };
    let (predicted, actual) = (each(class), each(target));
    let sum = |v: Var<'a>| v.sum_to(classes.clone());
    Ok(Counts {
        hits: sum(predicted * actual),
        predicted: sum(predicted),
        actual: sum(actual),
    })
}
