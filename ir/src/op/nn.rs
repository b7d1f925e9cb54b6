//! Composites of neural networks: each carries its decomposition, and works everywhere by it.

use super::access::Access;
use super::reduce::{finite_max, is_empty};
use super::{
    BASE, Class, Default, Gradient, Infer, Kind, Meaning, OpDef, Operand, Python, ShapeRule, attr,
    operand,
};
use crate::algebra::{Rule, Var};
use crate::attr::{Attr, AttrKind};
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::shape::Shape;

const COMPOSITE: OpDef =
    OpDef { kind: Kind::Composite, operands: &[operand("x", Class::Float)], ..BASE };
const AXIS: super::AttrDef = attr("axis", AttrKind::Int, Default::Int(-1));
const EPSILON: super::AttrDef = attr("epsilon", AttrKind::Float, Default::Float(1e-5));
const X: Operand = operand("x", Class::Float);
const WEIGHT: Operand = operand("weight", Class::Float).optional();
const BIAS: Operand = operand("bias", Class::Float).optional();

const NO_CLASSES: &str = "Frameworks may raise where there are no elements along the axis.";

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "softmax",
        doc: "`exp(x) / sum(exp(x))` along `axis`.",
        attrs: &[AXIS],
        shape: ShapeRule::Rule(along),
        meaning: Meaning::Decompose(|r| {
            let (x, axis) = (r.arg(0), r.int("axis"));
            let powers = (x - finite_max(x, Some(&[axis]))).exp().named("powers");
            powers / powers.sum(Some(&[axis]), true)
        }),
        gradient: Gradient::Rule(|r| {
            let weighted = r.g() * r.y();
            vec![Some(weighted - r.y() * weighted.sum(Some(&[r.int("axis")]), true))]
        }),
        python: Python {
            numpy: "",
            torch: "@softmax({x}, {axis})",
            jax: "jax.nn.softmax({x}[, axis={axis}])",
        },
        note: "Of `[inf, 1]` it is `[nan, 0]` on the evaluator, NumPy and native targets, `[nan, nan]` \
               on torch and JAX.",
        ..COMPOSITE
    },
    OpDef {
        name: "log_softmax",
        doc: "`x - log(sum(exp(x)))` along `axis`.",
        attrs: &[AXIS],
        shape: ShapeRule::Rule(along),
        meaning: Meaning::Decompose(|r| {
            let (x, axis) = (r.arg(0), r.int("axis"));
            if is_empty(x) {
                return x;
            }
            let shifted = (x - finite_max(x, Some(&[axis]))).named("shifted");
            shifted - shifted.exp().sum(Some(&[axis]), true).log()
        }),
        gradient: Gradient::Rule(|r| {
            let total = r.g().sum(Some(&[r.int("axis")]), true);
            vec![Some(r.g() - r.y().exp() * total)]
        }),
        python: Python {
            numpy: "",
            torch: "@log_softmax({x}, {axis})",
            jax: "jax.nn.log_softmax({x}[, axis={axis}])",
        },
        note: NO_CLASSES,
        ..COMPOSITE
    },
    OpDef {
        name: "layer_norm",
        doc: "`(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axis \
              (Ba et al. 2016, eq. 4).",
        operands: &[X, WEIGHT, BIAS],
        attrs: &[EPSILON],
        shape: ShapeRule::Rule(normalised),
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0);
            let deviation = (x - x.reduce("mean", Some(&[-1]), true)).named("deviation");
            let variance =
                (deviation * deviation).reduce("mean", Some(&[-1]), true).named("variance");
            let scaled = deviation / (variance + r.float("epsilon").unwrap_or(0.0)).sqrt();
            affine(r, scaled)
        }),
        gradient: Gradient::Rule(|r| {
            let x = r.arg(0);
            let deviation = (x - x.reduce("mean", Some(&[-1]), true)).named("deviation");
            let variance =
                (deviation * deviation).reduce("mean", Some(&[-1]), true).named("variance");
            let scale = (variance + r.float("epsilon").unwrap_or(0.0)).sqrt();
            let scaled = deviation / scale;
            let inner = r.optional(1).map_or(r.g(), |w| r.g() * w);
            let average = inner.reduce("mean", Some(&[-1]), true);
            let common = (inner * scaled).reduce("mean", Some(&[-1]), true);
            let dx = (inner - average - scaled * common) / scale;
            affine_gradients(r, dx, scaled)
        }),
        python: Python {
            numpy: "",
            torch: "F.layer_norm({x}, ({x.last},)[, {weight}][, {bias}][, eps={epsilon}])",
            jax: "",
        },
        ..COMPOSITE
    },
    OpDef {
        name: "rms_norm",
        doc: "`x / sqrt(mean(x^2) + epsilon) * weight` over the last axis \
              (Zhang & Sennrich 2019, eq. 4).",
        operands: &[X, WEIGHT],
        attrs: &[EPSILON],
        shape: ShapeRule::Rule(normalised),
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0);
            let power = (x * x).reduce("mean", Some(&[-1]), true).named("power");
            affine(r, x / (power + r.float("epsilon").unwrap_or(0.0)).sqrt())
        }),
        gradient: Gradient::Rule(|r| {
            let x = r.arg(0);
            let power = (x * x).reduce("mean", Some(&[-1]), true).named("power");
            let scale = (power + r.float("epsilon").unwrap_or(0.0)).sqrt();
            let scaled = x / scale;
            let inner = r.optional(1).map_or(r.g(), |w| r.g() * w);
            let common = (inner * scaled).reduce("mean", Some(&[-1]), true);
            affine_gradients(r, (inner - scaled * common) / scale, scaled)
        }),
        python: Python {
            numpy: "",
            torch: "F.rms_norm({x}, ({x.last},)[, {weight}], eps={epsilon})",
            jax: "",
        },
        ..COMPOSITE
    },
    OpDef {
        name: "attention",
        access: Access::Attention,
        doc: "`softmax(query keyᵀ scale + mask) value` over the last two axes (Vaswani et al. 2017, \
              eq. 1). `scale` is 1/sqrt(last dim of the query) where left out. A bool `mask` says \
              which keys are seen; a float one is added. `causal` hides later keys. With `grouped`, \
              each head of `key` and `value` (axis -3) serves several of `query`.",
        operands: &[
            operand("query", Class::Float),
            operand("key", Class::Float),
            operand("value", Class::Float),
            operand("mask", Class::Any).apart().optional(),
        ],
        attrs: &[
            attr("scale", AttrKind::Float, Default::None),
            attr("causal", AttrKind::Bool, Default::Bool(false)),
            attr("grouped", AttrKind::Bool, Default::Bool(false)),
        ],
        shape: ShapeRule::Rule(attention_shape),
        meaning: Meaning::Decompose(attention),
        python: Python {
            numpy: "",
            torch: "F.scaled_dot_product_attention({query}, {key}, {value}[, attn_mask={mask}]\
                    [, is_causal={causal}][, scale={scale}][, enable_gqa={grouped}])",
            jax: "",
        },
        note: "A query that sees no key gives NaN from softmax of nothing in frameworks, 0 here. Where \
               there are no keys at all, frameworks may raise.",
        ..COMPOSITE
    },
    OpDef {
        name: "cross_entropy",
        doc: "`-log_softmax(logits)` at the class `target`, along the last axis; not reduced.",
        operands: &[operand("logits", Class::Float), operand("target", Class::Int).apart()],
        shape: ShapeRule::Rule(|cx| {
            cx.shape(0).need_trailing(1)?;
            let shape = super::reduce::without_axes(cx.shape(0), Some(&[-1]), false)?;
            let target = cx.shape(1).clone();
            cx.same(&shape, &target, "`target` and `logits` without its last axis")?;
            Ok(shape)
        }),
        meaning: Meaning::Decompose(|r| {
            let logs = r.arg(0).unary("log_softmax", &[]);
            let target = r.arg(1).expand_dims(&[-1]);
            let picked = r.build("take_along", &[logs, target], &[("axis", (-1).into())]);
            -picked.squeeze(&[-1])
        }),
        python: Python {
            numpy: "",
            torch: "F.cross_entropy({logits}, {target}, reduction=\"none\") \
                    if logits is matrix and target is i64; \
                    F.cross_entropy({logits}, {target}.to(@int64), reduction=\"none\") \
                    if logits is matrix; \
                    -@log_softmax({logits}, -1).gather(-1, {target}.unsqueeze(-1)).squeeze(-1) \
                    if target is i64; \
                    -@log_softmax({logits}, -1).gather(-1, {target}.to(@int64).unsqueeze(-1)).squeeze(-1)",
            jax: "",
        },
        note: "A target out of range is as one of `take_along`, but torch raises, and where `logits` is a \
               matrix takes -100 for none, whose loss is 0. Frameworks may raise where there are no \
               elements along the axis.",
        ..COMPOSITE
    },
];

fn along(cx: &mut Infer) -> Result<Shape> {
    cx.shape(0).axis_from_back(cx.int("axis"))?;
    Ok(cx.shape(0).clone())
}

fn normalised(cx: &mut Infer) -> Result<Shape> {
    let shape = cx.shape(0).clone();
    let last = shape.need_trailing(1)?[0].clone();
    for i in 1..cx.operands.len() {
        let own = cx.shape(i).clone();
        if own.rank() != Some(1) {
            return cx.mismatch(format!("`{}` has one dim", cx.op.operand(i).name));
        }
        cx.unify(&own.dims[0], &last, "the normalised dim and the one it is scaled by")?;
    }
    Ok(shape)
}

fn affine<'a>(r: &Rule<'a>, scaled: Var<'a>) -> Var<'a> {
    let weighted = r.optional(1).map_or(scaled, |w| scaled * w);
    r.optional(2).map_or(weighted, |b| weighted + b)
}

fn affine_gradients<'a>(r: &Rule<'a>, dx: Var<'a>, scaled: Var<'a>) -> Vec<Option<Var<'a>>> {
    let mut gradients = vec![Some(dx)];
    gradients.extend(r.optional(1).map(|w| Some((r.g() * scaled).sum_to(w.shape()))));
    gradients.extend(r.optional(2).map(|b| Some(r.g().sum_to(b.shape()))));
    gradients
}

fn attention_shape(cx: &mut Infer) -> Result<Shape> {
    if cx.bool("causal") && cx.operands.len() > 3 {
        return Diagnostic::new("`attention` takes either a mask or `causal`")
            .hint("put the causal mask into the mask: `Tril` of ones")
            .err();
    }
    let (q, k, v) = (cx.shape(0).clone(), cx.shape(1).clone(), cx.shape(2).clone());
    let (qt, kt, vt) = (q.need_trailing(2)?, k.need_trailing(2)?, v.need_trailing(2)?);
    cx.unify(&qt[1], &kt[1], "the last dims of `query` and `key`")?;
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
    check_mask(cx, &with_last(&with_heads(joined.clone()), [&qt[0], &kt[0]]))?;
    let shape = cx.broadcast(&joined, &front(&v)?)?;
    Ok(with_last(&with_heads(shape), [&qt[0], &vt[1]]))
}

/// The heads of the query, which the heads of key and value divide.
fn check_groups(cx: &mut Infer, q: &Shape, k: &Shape, v: &Shape) -> Result<Dim> {
    let heads = q.need_trailing(3)?[0].clone();
    let groups = k.need_trailing(3)?[0].clone();
    cx.unify(&groups, &v.need_trailing(3)?[0], "the heads of `key` and `value`")?;
    match (heads.as_const(), groups.as_const()) {
        (Some(h), Some(g)) if g == 0 || h % g != 0 => {
            cx.mismatch(format!("{h} heads do not divide into {g} groups"))
        }
        _ => Ok(heads),
    }
}

fn without_last(shape: &Shape, count: usize) -> Result<Shape> {
    let kept = shape.dims.len() - shape.need_trailing(count)?.len();
    Ok(Shape { lead: shape.lead.clone(), dims: shape.dims[..kept].into() })
}

fn with_last(front: &Shape, last: [&Dim; 2]) -> Shape {
    let mut shape = front.clone();
    shape.dims.extend(last.map(Dim::clone));
    shape
}

/// A mask broadcasts to the scores; one that is added has their dtype.
fn check_mask(cx: &mut Infer, scores: &Shape) -> Result<()> {
    let Some(mask) = cx.operands.get(3).copied() else {
        return Ok(());
    };
    let query = cx.operands[0].dtype;
    if mask.dtype != DType::Bool && mask.dtype != query {
        return Diagnostic::new("the mask of `attention` is bool, or of the dtype of `query`")
            .got(mask.dtype)
            .expected(format!("bool or {query}"))
            .err();
    }
    cx.broadcasts_to(&mask.shape, scores)
}

fn attention<'a>(r: &Rule<'a>) -> Var<'a> {
    let (query, key, value) = (r.arg(0), r.arg(1), r.arg(2));
    let (key, value) = match r.bool("grouped") {
        true => (each_head(key, query), each_head(value, query)),
        false => (key, value),
    };
    let scaled = match (r.float("scale"), query.shape().dims.last().and_then(Dim::as_const)) {
        (Some(scale), _) => query * scale,
        (None, Some(width)) => query * (1.0 / (width as f64).sqrt()),
        (None, None) => query / query.dim(-1).cast(query.dtype()).sqrt(),
    };
    let scores = scaled.matmul(key.swap_last()).named("scores");
    let scores = match r.optional(3) {
        Some(mask) if mask.dtype() == DType::Bool => hide(scores, mask),
        Some(mask) => scores + mask,
        None if r.bool("causal") => hide(scores, lower_triangle(r, scores)),
        None => scores,
    };
    scores.unary("softmax", &[]).named("weights").matmul(value)
}

fn hide<'a>(scores: Var<'a>, seen: Var<'a>) -> Var<'a> {
    seen.select(scores, scores.scalar(f64::NEG_INFINITY)).named("masked")
}

/// Which keys come no later than each query.
fn lower_triangle<'a>(r: &Rule<'a>, scores: Var<'a>) -> Var<'a> {
    let shape = scores.shape();
    let Ok(last) = shape.need_trailing(2) else {
        return scores;
    };
    let square = Attr::from(Shape::new(last.iter().cloned()));
    let ramp = |axis: i64| {
        let attrs =
            [("shape", square.clone()), ("axis", axis.into()), ("dtype", DType::I32.into())];
        r.build("iota", &[], &attrs)
    };
    ramp(0).binary("ge", ramp(1)).named("causal")
}

/// Keys or values repeated so that each head of `query` has its own.
fn each_head<'a>(v: Var<'a>, query: Var<'a>) -> Var<'a> {
    let (shape, heads) = (v.shape(), query.shape());
    let (Ok(own), Ok(all)) = (shape.need_trailing(3), heads.need_trailing(3)) else {
        return v;
    };
    let times = all[0].exact_div(&own[0]).unwrap_or_else(|| all[0].floor_div(&own[0]));
    let front = &shape.dims[..shape.dims.len() - 3];
    let dims = |middle: Vec<Dim>| Shape {
        lead: shape.lead.clone(),
        dims: front.iter().cloned().chain(middle).collect(),
    };
    let each = dims(vec![own[0].clone(), times, own[1].clone(), own[2].clone()]);
    let flat = dims(vec![all[0].clone(), own[1].clone(), own[2].clone()]);
    v.expand_dims(&[-3]).broadcast_to(each).reshape(flat)
}
