//! Composites for neural networks. Each has a decomposition, so it works on every target.

use super::access::{Extent, Indexes};
use super::batch::{self, Batch};
use super::layers::{
    AXIS, BIAS, EPSILON, WEIGHT, X, log_softmax_gradient, normalised, softmax_gradient,
};
use super::pullback;
use super::reduce::{finite_max, is_empty};
use super::{BASE, Class, Gradient, Infer, Kind, Meaning, OpDef, ShapeRule, operand};
use crate::algebra::{Rule, Var};

use crate::diagnostic::Name::Operand;
use crate::diagnostic::Result;
use crate::message;
use crate::shape::Shape;

const COMPOSITE: OpDef =
    OpDef { kind: Kind::Composite, operands: &[operand("x", Class::Float)], ..BASE };
const WIDENED_NOTE: &str = "f16 and bf16 are computed in f32 and rounded once: in f16 squares overflow \
                    easily, and a small `epsilon` is 0.";

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "softmax",
        batch: Batch::Leading,
        doc: "`exp(x) / sum(exp(x))` along `axis`.",
        attrs: &[AXIS],
        shape: ShapeRule::Rule(along),
        meaning: Meaning::Decompose(|r| {
            let (x, axis) = (r.arg(0), r.int("axis"));
            let powers = (x - finite_max(x, Some(&[axis]))).exp().named("powers");
            powers / powers.sum(Some(&[axis]), true)
        }),
        gradient: Gradient::Rule(|r| vec![Some(softmax_gradient(r.g(), r.y(), r.int("axis")))]),
        pullback: pullback::of_result("softmax_gradient"),
        note: "The result for `[inf, 1]` is `[nan, 0]` on the evaluator, NumPy and native \
               targets, `[nan, nan]` on torch and JAX. tinygrad gives 1 for `[nan]`.",
        ..COMPOSITE
    },
    OpDef {
        name: "log_softmax",
        batch: Batch::Leading,
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
        gradient: Gradient::Rule(|r| vec![Some(log_softmax_gradient(r.g(), r.y(), r.int("axis")))]),
        pullback: pullback::of_result("log_softmax_gradient"),
        note: "Frameworks may raise if the axis has no elements. tinygrad gives 0 for `[nan]`.",
        ..COMPOSITE
    },
    OpDef {
        name: "layer_norm",
        batch: batch::FIRST,
        doc: "`(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axis \
              (Ba et al. 2016, eq. 4).",
        operands: &[X, WEIGHT, BIAS],
        attrs: &[EPSILON],
        shape: ShapeRule::Rule(normalised),
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0).widened();
            let deviation = (x - x.reduce("mean", Some(&[-1]), true)).named("deviation");
            let variance =
                (deviation * deviation).reduce("mean", Some(&[-1]), true).named("variance");
            let scaled = deviation / (variance + r.float("epsilon").unwrap_or(0.0)).sqrt();
            affine(r, scaled)
        }),
        gradient: Gradient::Rule(|r| {
            let x = r.arg(0).widened();
            let deviation = (x - x.reduce("mean", Some(&[-1]), true)).named("deviation");
            let variance =
                (deviation * deviation).reduce("mean", Some(&[-1]), true).named("variance");
            let scale = (variance + r.float("epsilon").unwrap_or(0.0)).sqrt();
            let scaled = deviation / scale;
            let inner = weighted(r, r.g().widened());
            let average = inner.reduce("mean", Some(&[-1]), true);
            let common = (inner * scaled).reduce("mean", Some(&[-1]), true);
            let dx = (inner - average - scaled * common) / scale;
            affine_gradients(r, dx, scaled)
        }),
        pullback: Some(pullback::LAYER_NORM),
        note: WIDENED_NOTE,
        ..COMPOSITE
    },
    OpDef {
        name: "rms_norm",
        batch: batch::FIRST,
        doc: "`x / sqrt(mean(x^2) + epsilon) * weight` over the last axis \
              (Zhang & Sennrich 2019, eq. 4).",
        operands: &[X, WEIGHT],
        attrs: &[EPSILON],
        shape: ShapeRule::Rule(normalised),
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0).widened();
            let power = (x * x).reduce("mean", Some(&[-1]), true).named("power");
            affine(r, x / (power + r.float("epsilon").unwrap_or(0.0)).sqrt())
        }),
        gradient: Gradient::Rule(|r| {
            let x = r.arg(0).widened();
            let power = (x * x).reduce("mean", Some(&[-1]), true).named("power");
            let scale = (power + r.float("epsilon").unwrap_or(0.0)).sqrt();
            let scaled = x / scale;
            let inner = weighted(r, r.g().widened());
            let common = (inner * scaled).reduce("mean", Some(&[-1]), true);
            affine_gradients(r, (inner - scaled * common) / scale, scaled)
        }),
        note: WIDENED_NOTE,
        ..COMPOSITE
    },
    OpDef {
        name: "cross_entropy",
        indexes: Some(Indexes { operand: 1, extent: Extent::Last, from_end: false }),
        doc: "`-log_softmax(logits)` at the class `target`, along the last axis; not reduced.",
        operands: &[operand("logits", Class::Float), operand("target", Class::Int).own_dtype()],
        shape: ShapeRule::Rule(|cx| {
            cx.shape(0).need_trailing(1)?;
            let shape = super::reduce::without_axes(cx.shape(0), Some(&[-1]), false)?;
            let target = cx.shape(1).clone();
            let (target_name, logits) = (Operand("target"), Operand("logits"));
            let what = message![target_name, " and ", logits, " without its last axis"];
            cx.same(&shape, &target, what)?;
            Ok(shape)
        }),
        meaning: Meaning::Decompose(|r| {
            let logs = r.arg(0).unary("log_softmax", &[]);
            let target = r.arg(1).expand_dims(&[-1]);
            let picked = r.build("take_along", &[logs, target], &[("axis", (-1).into())]);
            -picked.squeeze(&[-1])
        }),
        note: "A target out of range is treated as in `take_along`, but torch raises, and ignores \
               the target -100 (its loss is 0) if `logits` is a matrix. Frameworks may raise if \
               the axis has no elements.",
        ..COMPOSITE
    },
];

fn along(cx: &mut Infer) -> Result<Shape> {
    cx.shape(0).axis_from_back(cx.int("axis"))?;
    Ok(cx.shape(0).clone())
}

fn weighted<'a>(r: &Rule<'a>, x: Var<'a>) -> Var<'a> {
    r.optional(1).map_or(x, |w| x * w.widened())
}

fn affine<'a>(r: &Rule<'a>, scaled: Var<'a>) -> Var<'a> {
    let weighted = weighted(r, scaled);
    r.optional(2).map_or(weighted, |b| weighted + b.widened()).cast(r.ty.dtype)
}

fn affine_gradients<'a>(r: &Rule<'a>, dx: Var<'a>, scaled: Var<'a>) -> Vec<Option<Var<'a>>> {
    let g = r.g().widened();
    let own = |v: Var<'a>| Some(v.cast(r.ty.dtype));
    let mut gradients = vec![own(dx)];
    gradients.extend(r.optional(1).map(|w| own((g * scaled).sum_to(w.shape()))));
    gradients.extend(r.optional(2).map(|b| own(g.sum_to(b.shape()))));
    gradients
}
