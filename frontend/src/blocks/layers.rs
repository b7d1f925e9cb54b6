//! Layers: blocks with learned inputs, and normalisations.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::{INPUT, done};
use super::parameter::{Range, required, with};
use super::{
    BASE, Default, Entry, Group, Input, Kind, Meaning, Parameter, Value, data, param, state,
};
use crate::block::Init;
use crate::lower::Cx;

pub(super) const LAYER: Entry = Entry { group: Group::Layer, inputs: INPUT, keeps: true, ..BASE };
const EPSILON: Parameter = with("eps", Kind::Float(Range::NotNegative), Default::Float(1e-5));
const USE_BIAS: Parameter = with("use_bias", Kind::Bool, Default::Bool(true));
const USE_SCALE: Parameter = with("use_scale", Kind::Bool, Default::Bool(true));
const SCALE: Input = param("w", Init::Ones, features).when(|s| s.flag("use_scale"));
const SHIFT: Input = param("b", Init::Zeros, features).when(|s| s.flag("use_bias"));

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "Linear",
        doc: "`input @ w + b` over the last axis of `input`; `w` is (in_features, dimension).",
        parameters: &[required("dimension", Kind::Count), USE_BIAS],
        inputs: &[
            data("input", Class::Float),
            param("w", Init::Normal, |cx| {
                let features = cx.last_dim("input")?;
                Ok(Shape::new([features, Dim::Const(cx.int("dimension"))]))
            }),
            param("b", Init::Zeros, |cx| Ok(Shape::new([Dim::Const(cx.int("dimension"))])))
                .when(|s| s.flag("use_bias")),
        ],
        meaning: Meaning::Lower(|cx| {
            let product = cx.var("input").matmul(cx.var("w"));
            done(cx.optional("b").map_or(product, |b| product + b))
        }),
        ..LAYER
    },
    Entry {
        name: "Embedding",
        doc: "The rows of `w`, which is (num_embeddings, dimension), at the indices `input`.",
        parameters: &[required("num_embeddings", Kind::Count), required("dimension", Kind::Count)],
        inputs: &[
            data("input", Class::Int).apart(),
            param("w", Init::Normal, |cx| {
                let dims = [cx.int("num_embeddings"), cx.int("dimension")];
                Ok(Shape::new(dims.map(Dim::Const)))
            }),
        ],
        meaning: Meaning::Lower(|cx| {
            let attrs = [("axis", 0.into())];
            done(cx.op("take", &[cx.var("w"), cx.var("input")], &attrs))
        }),
        ..LAYER
    },
    Entry {
        name: "LayerNorm",
        doc: "`(input - mean) / sqrt(variance + eps) * w + b` over the last axis (Ba et al. 2016, \
              eq. 4).",
        parameters: &[EPSILON, USE_SCALE, USE_BIAS],
        inputs: &[data("input", Class::Float), SCALE, SHIFT],
        meaning: Meaning::Lower(|cx| {
            let mut operands = vec![cx.var("input")];
            operands.extend(cx.optional("w"));
            let whole = cx.optional("w").and(cx.optional("b"));
            operands.extend(whole);
            let normal = cx.op("layer_norm", &operands, &[("epsilon", cx.float("eps").into())]);
            match (whole, cx.optional("b")) {
                (None, Some(b)) => done(normal + b),
                _ => done(normal),
            }
        }),
        ..LAYER
    },
    Entry {
        name: "RMSNorm",
        doc: "`input / sqrt(mean(input^2) + eps) * w` over the last axis (Zhang & Sennrich 2019, \
              eq. 4).",
        parameters: &[EPSILON, USE_SCALE],
        inputs: &[data("input", Class::Float), SCALE],
        meaning: Meaning::Lower(|cx| {
            let mut operands = vec![cx.var("input")];
            operands.extend(cx.optional("w"));
            done(cx.op("rms_norm", &operands, &[("epsilon", cx.float("eps").into())]))
        }),
        ..LAYER
    },
    Entry {
        name: "BatchNorm1d",
        doc: "`(input - mean) / sqrt(variance + eps) * w + b` of each channel of (batch, channels) \
              or (batch, channels, length) (Ioffe & Szegedy 2015, alg. 1). Training takes the \
              batch's moments and moves the running ones by `momentum`, the variance unbiased; \
              inference takes the running ones.",
        parameters: &[
            with("momentum", Kind::Float(Range::Unit), Default::Float(0.1)),
            EPSILON,
            USE_SCALE,
            USE_BIAS,
        ],
        inputs: &[
            data("input", Class::Float),
            param("w", Init::Ones, channels).when(|s| s.flag("use_scale")),
            param("b", Init::Zeros, channels).when(|s| s.flag("use_bias")),
            state("running_mean", Init::Zeros, channels),
            state("running_var", Init::Ones, channels),
        ],
        meaning: Meaning::Lower(batch_norm),
        ..LAYER
    },
    Entry {
        name: "ElementWiseAffine",
        doc: "`input * w + b` with one `w` and `b` for each place of the last axis.",
        parameters: &[USE_SCALE, USE_BIAS],
        inputs: &[data("input", Class::Float), SCALE, SHIFT],
        meaning: Meaning::Lower(|cx| {
            let x = cx.var("input");
            let scaled = cx.optional("w").map_or(x, |w| x * w);
            done(cx.optional("b").map_or(scaled, |b| scaled + b))
        }),
        ..LAYER
    },
    Entry {
        name: "Softmax",
        parameters: &[with("axis", Kind::Int, Default::Int(-1))],
        meaning: Meaning::Op("softmax"),
        ..LAYER
    },
    Entry {
        name: "LogSoftmax",
        parameters: &[with("axis", Kind::Int, Default::Int(-1))],
        meaning: Meaning::Op("log_softmax"),
        ..LAYER
    },
];

/// One dim: the last one of the input.
fn features(cx: &Cx) -> Result<Shape> {
    Ok(Shape::new([cx.last_dim("input")?]))
}

/// One dim: that of the channels, axis 1.
fn channels(cx: &Cx) -> Result<Shape> {
    let shape = cx.var("input").shape();
    match shape.need_rank()? {
        2 | 3 => Ok(Shape::new([shape.dims[1].clone()])),
        _ => Diagnostic::new(
            "Incompatible shapes during compilation: `BatchNorm1d` takes batches of channels",
        )
        .got(&shape)
        .expected("(batch, channels) or (batch, channels, length)")
        .err(),
    }
}

/// Errors, at compile or run time: a channel has fewer than two numbers, whose variance says nothing.
fn need_samples(cx: &Cx, shape: &Shape) -> Result<()> {
    let apart = shape.dims.iter().enumerate().filter(|(axis, _)| *axis != 1);
    let count: Dim = apart.map(|(_, dim)| dim.clone()).product();
    cx.need(&count, 2, || {
        Diagnostic::new(
            "Incompatible shapes during compilation: `BatchNorm1d` learns from two numbers of each \
             channel at least",
        )
        .got(format!("input: {shape}"))
        .hint("give a larger batch, or compile with `inference=True`")
    })
}

fn batch_norm(cx: &Cx) -> Result<Vec<Value>> {
    // Squares soon leave f16.
    let x = cx.var("input").widened();
    let rank = x.shape().need_rank()?;
    let axes: &[i64] = if rank == 2 { &[0] } else { &[0, 2] };
    if cx.training() {
        need_samples(cx, &x.shape())?;
    }
    // A channel's numbers stand along axis 1.
    let along = |v: Var<'_>| {
        let v = v.widened();
        if rank == 2 { v } else { v.expand_dims(&[1]) }.value
    };
    let along = |v: Var| cx.builder.var(along(v));
    let average = |v: Var| cx.builder.var(v.reduce("mean", Some(axes), true).value);
    let (mean, deviation, variance) = match cx.training() {
        true => {
            let mean = average(x).named("mean");
            let deviation = (x - mean).named("deviation");
            (mean, deviation, average(deviation * deviation).named("variance"))
        }
        false => {
            let mean = along(cx.var("running_mean"));
            (mean, x - mean, along(cx.var("running_var")))
        }
    };
    let normal = deviation / (variance + cx.float("eps")).sqrt();
    let scaled = cx.optional("w").map_or(normal, |w| normal * along(w));
    let shifted = cx.optional("b").map_or(scaled, |b| scaled + along(b));
    let own = cx.var("input").dtype();
    let output = shifted.cast(own);
    if !cx.training() {
        return done(output);
    }
    let momentum = cx.float("momentum");
    let moved = |old: Var<'_>, new: Var<'_>| {
        let (old, new) = (cx.builder.var(old.value).widened(), cx.builder.var(new.value));
        (old * (1.0 - momentum) + new * momentum).cast(own).stop_gradient().value
    };
    let count = x.count(Some(axes));
    let unbiased = variance.squeeze(axes) * (count / (count - 1.0));
    Ok(vec![
        output.value,
        moved(cx.var("running_mean"), mean.squeeze(axes)),
        moved(cx.var("running_var"), unbiased),
    ])
}
