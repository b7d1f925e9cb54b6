//! Attention, and what blocks with several heads share with it.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::done;
use super::layers::LAYER;
use super::parameter::{Range, with};
use super::settings::Settings;
use super::{Default, Entry, Input, KEY, Kind, Meaning, Parameter, data, gives};
use crate::lower::Cx;

pub(super) const MASK: Input = Input {
    mask: true,
    ..data("mask", Class::Any)
        .own_dtype()
        .optional()
        .doc("bool: the keys that each query attends to; float: added to the scores")
};

/// Windows of this size and larger have no end on that side: sequences are shorter.
const UNLIMITED: i64 = 1 << 30;
pub(super) const WINDOW: Parameter = with("window", Kind::INTS, Default::None).doc(
    "how many keys before and after its own position a query attends to: one number, or two where \
     they differ; -1 means all",
);
pub(super) const SOFTCAP: Parameter =
    with("softcap", Kind::Float(Range::Positive), Default::None).doc("the bound of the scores");
pub(super) const DROPOUT: Parameter =
    with("dropout", Kind::Float(Range::Unit), Default::Float(0.0))
        .doc("the rate of dropout of the weights of keys, in training");
/// The key of the dropout.
pub(super) const DROPOUT_KEY: Input = Input { name: "dropout_key", ..KEY }
    .in_training()
    .when(|s| s.float("dropout").is_some_and(|p| p > 0.0));

pub(super) const BLOCKS: &[Entry] = &[Entry {
    name: "ScaledDotProduct",
    doc: "`softmax(query keyᵀ scale + mask) value` over the last two axes (Vaswani et al. \
              2017, eq. 1); `scale` defaults to 1/sqrt(last dim of the query). The `mask` \
              broadcasts to the scores, (…, queries, keys): a bool mask is True where a query \
              attends to a key, a float mask is added to the scores. A query whose mask hides \
              every key gives 0. `is_causal` hides later keys, and `window` those that are \
              farther away (Beltagy et al. 2020). Positions count from the first query and the \
              first key, also where their numbers differ, as in PyTorch. `softcap` bounds scores, \
              before they are masked, to `softcap tanh(scores / softcap)` (Gemma Team 2024). With \
              `sinks`, the weights of a query add up to less than 1 (Xiao et al. 2024). With \
              `grouped`, several heads of the query share each head of key and value (axis -3).",
    formula: "softmax(query @ key.swapaxes(-1, -2) / sqrt(key.shape[-1]), -1) @ value",
    example: gives(&["[[1, 0]]", "[[9, 0], [0, 9]]", "[[1, 2], [3, 4]]"], "[[1.0034 2.0034]]"),
    parameters: &[
        with("is_causal", Kind::Bool, Default::Bool(false))
            .doc("each position attends only to itself and earlier ones"),
        with("scale", Kind::Float(Range::Finite), Default::None)
            .doc("the factor of the scores; defaults to 1/sqrt(last dim of `query`)"),
        with("grouped", Kind::Bool, Default::Bool(false))
            .doc("several heads of `query` share each head of `key` and `value`"),
        WINDOW,
        SOFTCAP,
        DROPOUT,
    ],
    inputs: &[
        data("query", Class::Float),
        data("key", Class::Float),
        data("value", Class::Float),
        MASK,
        data("sinks", Class::Float)
            .optional()
            .doc("one logit per head, (…, heads): a further score, whose value is 0"),
        DROPOUT_KEY,
    ],
    valid: valid_window,
    meaning: Meaning::Lower(|cx| {
        let operands = [cx.var("query"), cx.var("key"), cx.var("value")];
        let (mask, scale) = (cx.optional("mask"), cx.settings.float("scale"));
        let sinks = cx.optional("sinks");
        let is_grouped = cx.flag("grouped");
        let form = Form { is_grouped, scale, is_masked: false, gives_weights: false };
        done(attend(cx, operands, [mask, sinks], &form)?.0)
    }),
    ..LAYER
}];

/// The numbers of keys before and after its own position that a query attends to; `None` means all.
///
/// Errors: more than two numbers, or one below -1.
pub(super) fn window(settings: &Settings) -> Result<[Option<i64>; 2]> {
    let [left, right] = match settings.ints("window").as_deref() {
        None => return Ok([None; 2]),
        Some([both]) => [*both; 2],
        Some([left, right]) => [*left, *right],
        Some(many) => {
            return Diagnostic::of(ErrorKind::Setting, "`window` has too many or too few numbers")
                .got(format!("{} numbers", many.len()))
                .expected("one number, or two: of keys before and after a query's position")
                .err();
        }
    };
    if let Some(low) = [left, right].into_iter().find(|count| *count < -1) {
        return Diagnostic::of(ErrorKind::Setting, "`window` holds a negative number")
            .got(low)
            .expected("numbers of at least 0, or -1 for all keys on that side")
            .err();
    }
    Ok([left, right].map(|count| Some(count).filter(|count| (0..UNLIMITED).contains(count))))
}

pub(super) fn valid_window(settings: &Settings) -> Result<()> {
    window(settings).map(drop)
}

/// What attention computes besides its operands.
pub(super) struct Form {
    /// Whether several heads of the query share each head of keys and values.
    pub is_grouped: bool,
    pub scale: Option<f64>,
    /// Whether the mask hides what `is_causal` and `window` hide, so that attention need not.
    pub is_masked: bool,
    /// Whether the weights of keys are a result.
    pub gives_weights: bool,
}

/// Attention, and the weights of keys if they are asked for.
pub(super) fn attend<'a>(
    cx: &Cx<'a>,
    operands: [Var<'a>; 3],
    [mask, sinks]: [Option<Var<'a>>; 2],
    form: &Form,
) -> Result<(Var<'a>, Option<Var<'a>>)> {
    let [left, right] = match form.is_masked {
        true => [None; 2],
        false => window(cx.settings)?,
    };
    let mut operands = operands.to_vec();
    // A sink follows a mask, which hides nothing here.
    let all_seen = || cx.builder.var(cx.builder.constant(Tensor::scalar(DType::Bool, 1.0)));
    let mask = mask.or_else(|| sinks.map(|_| all_seen()));
    // PyTorch's own attention takes masks with two or more axes.
    operands.extend(mask.map(|mask| match mask.shape().rank() {
        Some(0) => mask.expand_dims(&[-2, -1]),
        Some(1) => mask.expand_dims(&[-2]),
        _ => mask,
    }));
    operands.extend(sinks);
    let attrs: [(&str, Attr); 6] = [
        ("scale", form.scale.into()),
        ("causal", (cx.flag("is_causal") && !form.is_masked).into()),
        ("left", left.into()),
        ("right", right.into()),
        ("softcap", cx.settings.float("softcap").into()),
        ("grouped", form.is_grouped.into()),
    ];
    let key = cx.optional("dropout_key").filter(|_| cx.training() && cx.float("dropout") > 0.0);
    if key.is_none() && !form.gives_weights {
        return Ok((cx.op("attention", &operands, &attrs), None));
    }
    let value = operands.remove(2);
    let weights = cx.op("attention_weights", &operands, &attrs);
    cx.builder.check()?;
    let weights = key.map_or(weights, |key| dropped(cx, weights, key));
    Ok((weighted(weights, value, form.is_grouped)?, Some(weights)))
}

/// Weights of keys, some of which are replaced by 0.
fn dropped<'a>(cx: &Cx<'a>, weights: Var<'a>, key: Var<'a>) -> Var<'a> {
    let rate = cx.float("dropout");
    let drawn = [("shape", weights.shape().into()), ("dtype", DType::F32.into())];
    let draw = key.unary("uniform", &drawn);
    let zero = weights.scalar(0.0);
    let larger = if rate < 1.0 { weights / (1.0 - rate) } else { zero };
    draw.binary("ge", draw.scalar(rate)).select(larger, zero)
}

/// The sums of values with these weights.
fn weighted<'a>(weights: Var<'a>, value: Var<'a>, is_grouped: bool) -> Result<Var<'a>> {
    if !is_grouped {
        return Ok(weights.matmul(value));
    }
    // Each head of the values with its own heads of the query.
    let (whole, shape) = (weights.shape(), value.shape());
    let rank = whole.need_rank()?;
    let (front, own) = whole.dims.split_at(rank - 3);
    let groups = shape.need_trailing(3)?[0].clone();
    let times = own[0].exact_div(&groups).unwrap_or_else(|| own[0].floor_div(&groups));
    let split = [groups, times].into_iter().chain(own[1..].iter().cloned());
    let split = Shape::new(front.iter().cloned().chain(split).collect::<Vec<_>>());
    let product = weights.reshape(split).matmul(value.expand_dims(&[-3]));
    let width = shape.need_trailing(1)?[0].clone();
    let whole = whole.dims[..rank - 1].iter().cloned().chain([width]);
    Ok(product.reshape(Shape::new(whole.collect::<Vec<_>>())))
}
