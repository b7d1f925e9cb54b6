//! Attention, and the operations that compute its gradient where it is not decomposed.

mod parts;

use super::access::{Access, Attention, Library};
use super::batch;
use super::{
    BASE, Class, Default, Infer, Kind, Meaning, OpDef, Operand, Pullback, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};

use crate::diagnostic::{Diagnostic, Name, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::message;
use crate::shape::{Shape, Type};
use parts::{Parts, row_max, zero_fully_masked};

const QUERY: Operand = operand("query", Class::Float);
const KEY: Operand = operand("key", Class::Float);
const VALUE: Operand = operand("value", Class::Float);
const MASK: Operand = operand("mask", Class::Any).own_dtype();
const SCALE: super::AttrDef = attr("scale", AttrKind::Float, Default::None);
const CAUSAL: super::AttrDef = attr("causal", AttrKind::Bool, Default::Bool(false));
const LEFT: super::AttrDef = attr("left", AttrKind::Int, Default::None);
const RIGHT: super::AttrDef = attr("right", AttrKind::Int, Default::None);
const SOFTCAP: super::AttrDef = attr("softcap", AttrKind::Float, Default::None);
const SINK: Operand = operand("sink", Class::Float);
const GROUPED: super::AttrDef = attr("grouped", AttrKind::Bool, Default::Bool(false));

const NO_KEYS_NOTE: &str = "Frameworks may raise if there are no keys.";

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "attention",
        batch: batch::ATTENTION,
        access: Access::Library(Library::Attention(Attention::Output)),
        doc: "`softmax(query keyᵀ scale + mask) value` over the last two axes (Vaswani et al. \
              2017, eq. 1). `scale` defaults to 1/sqrt(last dim of the query). A bool `mask` is \
              true for the keys that a query attends to; a float one is added. A query whose mask hides \
              every key (false, or -inf) gives 0, and so do its gradients. `causal` hides later \
              keys. With `grouped`, several heads of `query` share each head of `key` and `value` \
              (axis -3).",
        operands: &[QUERY, KEY, VALUE, MASK.optional(), SINK.optional()],
        attrs: &[SCALE, CAUSAL, LEFT, RIGHT, SOFTCAP, GROUPED],
        shape: ShapeRule::Rule(attention_shape),
        meaning: Meaning::Decompose(attention),
        pullback: Some(Pullback {
            by: "attention_gradient",
            wrt: &[0, 1, 2, 4],
            rule: attention_gradients,
        }),
        note: NO_KEYS_NOTE,
        kind: Kind::Composite,
        ..BASE
    },
    OpDef {
        name: "attention_weights",
        doc: "The weights of the keys in `attention` of the same operands: \
              `softmax(query keyᵀ scale + mask)`. With `grouped`, there are those of each head of \
              `query`.",
        operands: &[QUERY, KEY, MASK.optional(), SINK.optional()],
        attrs: &[SCALE, CAUSAL, LEFT, RIGHT, SOFTCAP, GROUPED],
        shape: ShapeRule::Rule(weights_shape),
        meaning: Meaning::Decompose(|r| {
            let (weights, has_key) = Parts::of(r).weights();
            zero_fully_masked(weights, has_key)
        }),
        note: NO_KEYS_NOTE,
        ..BASE
    },
    OpDef {
        name: "attention_logsumexp",
        access: Access::Library(Library::Attention(Attention::LogSumExp)),
        doc: "`log(sum(exp(scores)))` over the keys, for each query of `attention` of the same \
              operands; its gradient recomputes the softmax from it. With a `mask`, \
              `attention_row_max` is subtracted from the scores first: added to a score of -1e9, \
              the logarithm would be lost to rounding.",
        kind: Kind::Composite,
        operands: &[QUERY, KEY, VALUE, MASK.optional(), SINK.optional()],
        attrs: &[SCALE, CAUSAL, LEFT, RIGHT, SOFTCAP, GROUPED],
        shape: ShapeRule::Rule(logsumexp_shape),
        meaning: Meaning::Decompose(|r| {
            let scores = Parts::of(r).scores();
            let less = r.optional(3).map(|_| scores - row_max(scores, true));
            less.unwrap_or(scores).reduce("logsumexp", Some(&[-1]), false)
        }),
        note: NO_KEYS_NOTE,
        ..BASE
    },
    OpDef {
        name: "attention_row_max",
        access: Access::Library(Library::Attention(Attention::RowMax)),
        doc: "The maximum score of each query of `attention` of the same operands, but at least \
              the smallest finite number.",
        kind: Kind::Composite,
        operands: &[QUERY, KEY, VALUE, MASK, SINK.optional()],
        attrs: &[SCALE, CAUSAL, LEFT, RIGHT, SOFTCAP, GROUPED],
        shape: ShapeRule::Rule(logsumexp_shape),
        meaning: Meaning::Decompose(|r| row_max(Parts::of(r).scores(), false)),
        note: NO_KEYS_NOTE,
        ..BASE
    },
    OpDef {
        name: "attention_gradient",
        access: Access::Library(Library::Attention(Attention::Gradient)),
        doc: "The gradient of `attention` with respect to operand number `of`; `gradient` is that \
              of its result `output`. `logsumexp` is `attention_logsumexp` of the same operands \
              (Dao et al. 2022, appendix B.4). With a `mask`, `row_max` is their \
              `attention_row_max`.",
        kind: Kind::Composite,
        operands: &[
            QUERY,
            KEY,
            VALUE,
            operand("output", Class::Float),
            operand("logsumexp", Class::Float),
            operand("gradient", Class::Float),
            MASK.optional(),
            operand("row_max", Class::Float).optional(),
            SINK.optional(),
        ],
        attrs: &[
            attr("of", AttrKind::Int, Default::Required),
            SCALE,
            CAUSAL,
            LEFT,
            RIGHT,
            SOFTCAP,
            GROUPED,
        ],
        shape: ShapeRule::Rule(gradient_shape),
        meaning: Meaning::Decompose(attention_gradient),
        note: "Weights are exponentials of scores: for large scores, the rounding of frameworks \
               differs visibly.",
        ..BASE
    },
];

fn attention_shape(cx: &mut Infer) -> Result<Shape> {
    Ok(shapes(cx)?.0)
}

fn logsumexp_shape(cx: &mut Infer) -> Result<Shape> {
    Ok(shapes(cx)?.1)
}

fn weights_shape(cx: &mut Infer) -> Result<Shape> {
    let queries = shapes(cx)?.1;
    Ok(with_last(&queries, &[&cx.shape(1).need_trailing(2)?[0]]))
}

fn gradient_shape(cx: &mut Infer) -> Result<Shape> {
    let of = match cx.int("of") {
        of @ 0..=2 => of as usize,
        of => return cx.mismatch(format!("`of` must be 0, 1 or 2, got {of}")),
    };
    if cx.operands.len() == 7 {
        return cx.mismatch(message![
            Name::Operand("mask"),
            " and ",
            Name::Operand("row_max"),
            " must be given together",
        ]);
    }
    let (result, sums) = shapes(cx)?;
    let own = [(3, &result), (4, &sums), (5, &result), (7, &sums)];
    for (operand, shape) in own.into_iter().filter(|(operand, _)| *operand < cx.operands.len()) {
        let own = cx.shape(operand).clone();
        cx.same(shape, &own, "the result of `attention` and an operand of its gradient")?;
    }
    Ok(cx.shape(of).clone())
}

/// The shapes of the result and of the sums over keys.
fn shapes(cx: &mut Infer) -> Result<(Shape, Shape)> {
    let mask = cx.op.operands.iter().position(|o| o.name == "mask");
    let mask = mask.and_then(|at| cx.operands.get(at)).copied();
    let sink = cx.op.operands.iter().position(|o| o.name == "sink");
    let sink = sink.and_then(|at| cx.operands.get(at)).copied();
    for side in ["left", "right"] {
        if let Attr::Int(count @ ..0) = cx.attr(side) {
            return cx.mismatch(format!("`{side}` must be at least 0, got {count}"));
        }
    }
    let has_value = cx.op.operands[2].name == VALUE.name;
    let (q, k) = (cx.shape(0).clone(), cx.shape(1).clone());
    let v = if has_value { cx.shape(2).clone() } else { k.clone() };
    let (qt, kt, vt) = (q.need_trailing(2)?, k.need_trailing(2)?, v.need_trailing(2)?);
    cx.unify(
        &qt[1],
        &kt[1],
        message!["the last dims of ", Name::Operand("query"), " and ", Name::Operand("key")],
    )?;
    cx.unify(&kt[0], &vt[0], "the numbers of keys and values")?;
    let grouped = usize::from(cx.bool("grouped"));
    let front = |shape: &Shape| without_last(shape, 2 + grouped);
    let joined = cx.broadcast(&front(&q)?, &front(&k)?)?;
    let heads = match grouped {
        0 => None,
        _ => Some(check_groups(cx, &q, &k, &v)?),
    };
    let with_heads = |mut shape: Shape| {
        shape.dims.extend(heads.clone());
        shape
    };
    if let Some(mask) = mask {
        check_mask(cx, mask, &with_last(&with_heads(joined.clone()), &[&qt[0], &kt[0]]))?;
    }
    if let Some(sink) = sink {
        cx.broadcasts_to(&sink.shape, &with_heads(joined.clone()))?;
    }
    let shape = cx.broadcast(&joined, &front(&v)?)?;
    let result = with_last(&with_heads(shape), &[&qt[0], &vt[1]]);
    Ok((result, with_last(&with_heads(joined), &[&qt[0]])))
}

/// The number of query heads, which must be a multiple of the number of key and value heads.
fn check_groups(cx: &mut Infer, q: &Shape, k: &Shape, v: &Shape) -> Result<Dim> {
    let heads = q.need_trailing(3)?[0].clone();
    let groups = k.need_trailing(3)?[0].clone();
    cx.unify(
        &groups,
        &v.need_trailing(3)?[0],
        message!["the heads of ", Name::Operand("key"), " and ", Name::Operand("value")],
    )?;
    match (heads.as_const(), groups.as_const()) {
        (Some(h), Some(g)) if g == 0 || h % g != 0 => {
            cx.mismatch(format!("{h} query heads are not a multiple of {g} key heads"))
        }
        _ => Ok(heads),
    }
}

fn without_last(shape: &Shape, count: usize) -> Result<Shape> {
    let kept = shape.dims.len() - shape.need_trailing(count)?.len();
    Ok(Shape { lead: shape.lead.clone(), dims: shape.dims[..kept].into() })
}

fn with_last(front: &Shape, last: &[&Dim]) -> Shape {
    let mut shape = front.clone();
    shape.dims.extend(last.iter().copied().cloned());
    shape
}

/// Checks that a mask broadcasts to the scores; an additive mask must have their dtype.
fn check_mask(cx: &mut Infer, mask: &Type, scores: &Shape) -> Result<()> {
    let query = cx.operands[0].dtype;
    if mask.dtype != DType::Bool && mask.dtype != query {
        return Diagnostic::new(message![
            "the mask of ",
            cx.name(),
            " must be bool or have the dtype of ",
            Name::Operand("query"),
        ])
        .got(mask.dtype)
        .expected(format!("bool or {query}"))
        .err();
    }
    cx.broadcasts_to(&mask.shape, scores)
}

fn attention<'a>(r: &Rule<'a>) -> Var<'a> {
    let parts = Parts::of(r);
    let (weights, has_key) = parts.weights();
    zero_fully_masked(weights.matmul(parts.heads[1]), has_key)
}

fn attention_gradients<'a>(r: &Rule<'a>) -> Vec<Option<Var<'a>>> {
    let own: Vec<(&str, Attr)> =
        r.op.attrs.iter().map(|def| (def.name, r.attr(def.name).clone())).collect();
    let sums = r.build("attention_logsumexp", &r.operands, &own);
    let mut all = vec![r.arg(0), r.arg(1), r.arg(2), r.y(), sums, r.g()];
    let mut sink_gradient = None;
    if let Some(mask) = r.optional(3) {
        let row_max = r.build("attention_row_max", &r.operands, &own);
        all.extend([mask, row_max]);
        sink_gradient = r.optional(4).map(|sink| {
            all.push(sink);
            let weight = (sink.expand_dims(&[-1]) - row_max - sums).exp();
            let delta = (r.g() * r.y()).sum(Some(&[-1]), false);
            (-(weight * delta).sum(Some(&[-1]), false)).sum_to(sink.shape())
        });
    }
    let gradient = |of: i64| {
        let attrs = [&[("of", of.into())], &own[..]].concat();
        Some(r.build("attention_gradient", &all, &attrs))
    };
    let first = (0..3).map(gradient);
    first.chain([None, sink_gradient]).take(r.operands.len()).collect()
}

fn attention_gradient<'a>(r: &Rule<'a>) -> Var<'a> {
    let parts = Parts::of(r);
    let (weights, has_key) = parts.weights();
    let (Parts { heads: [key, value], scale, slope, .. }, query, output) =
        (parts, r.arg(0), r.arg(3));
    let gradient = zero_fully_masked(r.arg(5), has_key);
    let of = r.int("of");
    if of == 2 {
        return sum_head_groups(r, weights.swap_last().matmul(gradient), r.arg(2));
    }
    let common = (gradient * output).sum(Some(&[-1]), true);
    let mut inner = weights * (gradient.matmul(value.swap_last()) - common) * scale;
    if let Some(slope) = slope {
        inner = inner * slope;
    }
    match of {
        0 => inner.matmul(key).sum_to(query.shape()),
        _ => sum_head_groups(r, inner.swap_last().matmul(query), r.arg(1)),
    }
}

/// Sums a gradient with one head per query head over the query heads that share a key or value
/// head.
fn sum_head_groups<'a>(r: &Rule<'a>, gradient: Var<'a>, of: Var<'a>) -> Var<'a> {
    let (own, all) = (of.shape(), gradient.shape());
    let (Ok(last), true) = (own.need_trailing(3), r.bool("grouped")) else {
        return gradient.sum_to(own);
    };
    let front = all.dims.len() - 3;
    let times = all.dims[front].exact_div(&last[0]);
    let times = times.unwrap_or_else(|| all.dims[front].floor_div(&last[0]));
    let middle = [last[0].clone(), times, last[1].clone(), last[2].clone()];
    let dims = all.dims[..front].iter().cloned().chain(middle).collect();
    let groups = gradient.reshape(Shape { lead: all.lead.clone(), dims });
    groups.sum(Some(&[-3]), false).sum_to(own)
}
