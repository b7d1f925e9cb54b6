//! Normalisations of channels.

use super::layers::{BIAS, EPSILON, WEIGHT, X};
use super::{
    AttrKind, BASE, Class, Default, Infer, Kind, Meaning, OpDef, Operand, ShapeRule, attr, operand,
};
use crate::algebra::{Rule, Var, count_dims};
use crate::diagnostic::{Name, Result};
use crate::dim::Dim;
use crate::message;
use crate::shape::Shape;

const MEAN: Operand = operand("mean", Class::Float);
const VARIANCE: Operand = operand("variance", Class::Float);
const WIDENED_NOTE: &str = "f16 and bf16 are computed in f32 and rounded once.";

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "batch_norm",
        doc: "`(x - mean) / sqrt(variance + epsilon) * weight + bias` of each channel of (batch, \
              channels, …); the other operands have one element for each channel (Ioffe & Szegedy \
              2015, alg. 1).",
        kind: Kind::Composite,
        operands: &[X, MEAN, VARIANCE, WEIGHT, BIAS],
        attrs: &[EPSILON],
        shape: ShapeRule::Rule(channels_shape),
        meaning: Meaning::Decompose(|r| {
            let x = r.arg(0).widened();
            normalised(r, x - along_channels(r.arg(1), x.rank()), r.arg(2))
        }),
        note: WIDENED_NOTE,
        ..BASE
    },
    OpDef {
        name: "batch_norm_training",
        doc: "A step of batch norm in training. With `of = 0`, `batch_norm` with the mean and the \
              variance of `x` itself. With `of = 1`, the running `mean`, moved towards that of \
              `x` by `momentum`; with `of = 2`, the running `variance`, moved towards the unbiased \
              one.",
        kind: Kind::Composite,
        operands: &[X, MEAN, VARIANCE, WEIGHT, BIAS],
        attrs: &[
            attr("momentum", AttrKind::Float, Default::Float(0.1)),
            EPSILON,
            attr("of", AttrKind::Int, Default::Int(0)),
        ],
        shape: ShapeRule::Rule(|cx| {
            let x = channels_shape(cx)?;
            match cx.int("of") {
                0 => Ok(x),
                1 | 2 => Ok(cx.shape(1).clone()),
                of => cx.mismatch(format!("batch norm has no result {of}")),
            }
        }),
        meaning: Meaning::Decompose(training),
        note: "f16 and bf16 are computed in f32 and rounded once. The unbiased variance of one number is \
               not defined; frameworks differ there.",
        ..BASE
    },
];

/// The shape of the first operand. Checks the other operands, which have one element for each
/// channel.
fn channels_shape(cx: &mut Infer) -> Result<Shape> {
    let x = cx.shape(0).clone();
    if x.need_rank()? < 2 {
        return cx
            .shape_error(message![Name::Operand("x"), " has no axis of channels"])
            .got(&x)
            .expected("(batch, channels, …)")
            .err();
    }
    let channels = Shape::new([x.dims[1].clone()]);
    for at in 1..cx.operands.len() {
        let own = cx.shape(at).clone();
        cx.same(&channels, &own, "the channels and an operand")?;
    }
    Ok(x)
}

/// A value for each channel, widened and shaped to broadcast along axis 1 of an array of this rank.
fn along_channels(v: Var, rank: usize) -> Var {
    let later: Vec<i64> = (1..rank as i64 - 1).collect();
    let v = v.widened();
    if later.is_empty() { v } else { v.expand_dims(&later) }
}

/// Deviations over the root of a variance, scaled and shifted.
fn normalised<'a>(r: &Rule<'a>, deviation: Var<'a>, variance: Var<'a>) -> Var<'a> {
    let rank = deviation.rank();
    let along = |v: Var<'a>| along_channels(v, rank);
    let variance = if variance.rank() == rank { variance } else { along(variance) };
    let normal = deviation / (variance + r.float("epsilon").unwrap_or(0.0)).sqrt();
    let scaled = r.optional(3).map_or(normal, |w| normal * along(w));
    r.optional(4).map_or(scaled, |b| scaled + along(b)).cast(r.ty.dtype)
}

fn training<'a>(r: &Rule<'a>) -> Var<'a> {
    let x = r.arg(0).widened();
    let axes: Vec<i64> = [0].into_iter().chain(2..x.rank() as i64).collect();
    let average = |v: Var<'a>| v.reduce("mean", Some(&axes), true);
    let mean = average(x).named("mean");
    let deviation = (x - mean).named("deviation");
    let variance = || average(deviation * deviation).named("variance");
    let momentum = r.float("momentum").unwrap_or(0.0);
    // The old value moved towards the new one, which is given times `momentum`.
    let moved = |old: Var<'a>, step: Var<'a>| match momentum == 1.0 {
        true => step.cast(r.ty.dtype),
        false => (old.widened() * (1.0 - momentum) + step).cast(r.ty.dtype),
    };
    match r.int("of") {
        0 => normalised(r, deviation, variance()),
        1 => moved(r.arg(1), mean.squeeze(&axes) * momentum),
        _ => {
            let variance = variance().squeeze(&axes);
            let step = match count_dims(&x.shape(), Some(&axes)) {
                Some(Dim::Const(n)) => variance * (momentum * n as f64 / (n as f64 - 1.0)),
                _ => {
                    let count = x.count(Some(&axes));
                    variance * (count / (count - 1.0) * momentum)
                }
            };
            moved(r.arg(2), step)
        }
    }
}
