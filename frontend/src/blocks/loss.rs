//! Losses, element by element, and regularizers.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::{INPUT, ROBUST, done};
use super::parameter::{required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Meaning, Parameter, Value, data};
use crate::lower::Cx;
use crate::setting::Setting;

const PAIR: &[Input] = &[data("input", Class::Float), data("target", Class::Float)];
const INPUT_TYPE: Parameter = with(
    "input_type",
    Kind::OneOf(&["logits", "probs", "log_probs"]),
    Default::Str("logits"),
);

const fn loss(
    name: &'static str,
    doc: &'static str,
    lower: fn(&Cx) -> Result<Vec<Value>>,
) -> Entry {
    Entry {
        name,
        doc,
        group: Group::Loss,
        inputs: PAIR,
        meaning: Meaning::Lower(lower),
        keeps: true,
        ..BASE
    }
}

const fn regularizer(
    name: &'static str,
    doc: &'static str,
    lower: fn(&Cx) -> Result<Vec<Value>>,
) -> Entry {
    Entry {
        inputs: INPUT,
        ..loss(name, doc, lower)
    }
}

pub(super) const BLOCKS: &[Entry] = &[
    loss("SquaredError", "`(input - target)^2`.", |cx| {
        let e = cx.var("input") - cx.var("target");
        done(e * e)
    }),
    loss("AbsoluteError", "`|input - target|`.", |cx| {
        done((cx.var("input") - cx.var("target")).unary("abs", &[]))
    }),
    Entry {
        parameters: &[with("delta", Kind::Float, Default::Float(1.0))],
        ..loss(
            "Huber",
            "`e^2 / 2` where `|e| <= delta`, else `delta (|e| - delta / 2)`, of e = input - target \
             (Huber 1964).",
            |cx| {
                let delta = cx.float("delta");
                let e = cx.var("input") - cx.var("target");
                let size = e.unary("abs", &[]);
                let near = size.binary("le", e.scalar(delta));
                done(near.select(e * e * 0.5, (size - delta / 2.0) * delta))
            },
        )
    },
    loss(
        "HingeLoss",
        "`max(0, 1 - input target)`, for targets of -1 and 1.",
        |cx| done(hinge(cx)),
    ),
    loss("QuadHingeLoss", "The square of `HingeLoss`.", |cx| {
        let hinge = hinge(cx);
        done(hinge * hinge)
    }),
    Entry {
        parameters: &[required("q", Kind::Rate)],
        ..loss(
            "QuantileLoss",
            "`max(q e, (q - 1) e)` of e = target - input.",
            |cx| {
                let (e, q) = (cx.var("target") - cx.var("input"), cx.float("q"));
                done((e * q).binary("maximum", e * (q - 1.0)))
            },
        )
    },
    Entry {
        parameters: &[
            INPUT_TYPE,
            with("weights", Kind::Floats, Default::None),
            with("label_smoothing", Kind::Rate, Default::Float(0.0)),
            with("ignore_index", Kind::Int, Default::None),
            ROBUST,
        ],
        inputs: &[
            data("input", Class::Float),
            data("target", Class::Int).apart(),
        ],
        ..loss(
            "CrossEntropy",
            "Minus the log probability of the class `target` along the last axis of `input`; a \
             float `target` is a distribution over the classes. `weights` of classes, \
             `label_smoothing` and `ignore_index` (whose loss is 0) as in torch.",
            super::cross_entropy::lower,
        )
    },
    Entry {
        parameters: &[
            with(
                "input_type",
                Kind::OneOf(&["logits", "probs"]),
                Default::Str("logits"),
            ),
            with("pos_weight", Kind::Float, Default::Float(1.0)),
            ROBUST,
        ],
        ..loss(
            "BinaryCrossEntropy",
            "`-(pos_weight target log p + (1 - target) log(1 - p))` of the probability p that \
             `input` gives.",
            binary_cross_entropy,
        )
    },
    Entry {
        parameters: &[ROBUST],
        ..loss(
            "KLDivergence",
            "`target (log target - log input)` of two distributions; 0 where `target` is 0.",
            |cx| {
                let (input, target) = (cx.var("input"), cx.var("target"));
                let log = if cx.flag("robust") {
                    "robust_log"
                } else {
                    "log"
                };
                let positive = target.binary("gt", target.scalar(0.0));
                let safe = positive.select(target, target.scalar(1.0));
                let term = target * (safe.log() - input.unary(log, &[]));
                done(positive.select(term, target.scalar(0.0)))
            },
        )
    },
    Entry {
        parameters: &[with("margin", Kind::Float, Default::Float(0.0))],
        inputs: &[
            data("input1", Class::Float),
            data("input2", Class::Float),
            data("target", Class::Float),
        ],
        ..loss(
            "CosineEmbedding",
            "`1 - cos(input1, input2)` where `target` is 1, `max(0, cos - margin)` where it is -1, \
             along the last axis.",
            |cx| {
                let (a, b, target) = (cx.var("input1"), cx.var("input2"), cx.var("target"));
                let dot = |x: Value, y: Value| {
                    (cx.builder.var(x) * cx.builder.var(y)).sum(Some(&[-1]), false)
                };
                let (a, b) = (a.value, b.value);
                let lengths = ((dot(a, a) + 1e-12) * (dot(b, b) + 1e-12)).sqrt();
                let cosine = dot(a, b) / lengths;
                let alike = target.binary("gt", target.scalar(0.0));
                let apart = (cosine - cx.float("margin")).unary("relu", &[]);
                done(alike.select(-cosine + 1.0, apart))
            },
        )
    },
    regularizer("L1", "`sum(|input|)`.", |cx| {
        done(cx.var("input").unary("abs", &[]).sum(None, false))
    }),
    regularizer("L2", "`sum(input^2) / 2`.", |cx| {
        let x = cx.var("input");
        done((x * x).sum(None, false) * 0.5)
    }),
    Entry {
        inputs: &[data("input", Class::Float), data("kernel", Class::Float)],
        ..regularizer(
            "QuadraticForm",
            "`sum(input kernel inputᵀ) / 2` over rows.",
            |cx| {
                let x = cx.var("input");
                done((x * x.matmul(cx.var("kernel"))).sum(None, false) * 0.5)
            },
        )
    },
];

fn hinge<'a>(cx: &Cx<'a>) -> Var<'a> {
    (-(cx.var("input") * cx.var("target")) + 1.0).unary("relu", &[])
}

fn binary_cross_entropy(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target) = (cx.var("input"), cx.var("target"));
    let weight = cx.float("pos_weight");
    if cx.text("input_type") == "logits" {
        let below = (-x).unary("softplus", &[]);
        let scaled = match weight {
            1.0 => below,
            _ => below * (target * (weight - 1.0) + 1.0),
        };
        return done(scaled + (-target + 1.0) * x);
    }
    let log = if cx.flag("robust") {
        "robust_log"
    } else {
        "log"
    };
    let positive = target * x.unary(log, &[]) * weight;
    let negative = (-target + 1.0) * (-x + 1.0).unary(log, &[]);
    done(-(positive + negative))
}

/// Numbers of a list setting as a vector of this dtype; `None` where it is left out.
pub(super) fn vector<'a>(cx: &Cx<'a>, name: &str, like: Var<'a>) -> Result<Option<Var<'a>>> {
    let Some(items) = cx.settings.get(name).as_list() else {
        return Ok(None);
    };
    let numbers = items.iter().filter_map(|s| match s {
        Setting::Float(v) => Some(*v),
        _ => None,
    });
    let numbers: Vec<f64> = numbers.collect();
    let classes = cx.last_dim("input")?;
    if classes
        .as_const()
        .is_some_and(|n| n != numbers.len() as i64)
    {
        return Diagnostic::new(format!(
            "Incompatible shapes during compilation: `{name}` has one number for each class"
        ))
        .got(numbers.len())
        .expected(classes)
        .err();
    }
    let tensor = Tensor::from_f64s(like.dtype(), vec![numbers.len()], &numbers);
    let value = cx.builder.constant(tensor);
    Ok(Some(
        cx.builder
            .var(value)
            .reshape(Shape::new([Dim::from(numbers.len())])),
    ))
}
