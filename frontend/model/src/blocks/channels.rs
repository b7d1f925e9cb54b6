//! Normalisations of channels, and dropout of whole channels.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::{done, dropped};
use super::example::Example;
use super::layers::{EPSILON, INIT, LAYER, USE_BIAS, USE_SCALE};
use super::parameter::{Range, required, with};
use super::{
    Default, Entry, Input, KEY, Kind, Parameter, Settings, Value, data, gives, param, state,
};
use crate::init::Init;
use crate::lower::Cx;

const SCALE: Input =
    param("w", Init::Ones, channels).takes_init().when(|s| s.flag("use_scale")).doc("(channels)");
const SHIFT: Input =
    param("b", Init::Zeros, channels).when(|s| s.flag("use_bias")).doc("(channels)");
const MOMENTUM: Parameter = with(
    "momentum",
    Kind::OrNone(&Kind::Float(Range::Unit)),
    Default::Float(0.1),
)
.is_width_in_torch()
.doc(
    "the fraction by which a running value moves towards that of the batch; with None, it is \
         the average of all batches",
);
const TRACKS: Parameter = with("track_running_stats", Kind::Bool, Default::Bool(true))
    .doc("keep running values for inference; without them, it uses those of the batch as well");
const RATE: Parameter =
    with("rate", Kind::Float(Range::Unit), Default::Float(0.5)).doc("the probability of 0");

const BATCH_INPUTS: &[Input] = &[
    data("input", Class::Float),
    SCALE,
    SHIFT,
    state("running_mean", Init::Zeros, channels).when(tracks).doc("(channels)"),
    state("running_var", Init::Ones, channels).when(tracks).doc("(channels)"),
    Input {
        class: Class::Int,
        ..state("num_batches", Init::Zeros, |_| Ok(Shape::scalar()))
            .own_dtype()
            .when(is_cumulative)
            .doc("the number of batches so far, with `momentum=None`")
    },
];
const DROPOUT_INPUTS: &[Input] = &[data("input", Class::Float), KEY.in_training()];

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "(input - mean(input, 0)) / sqrt(var(input, 0) + eps) * w + b",
        ..batch_norm_of::<1>(
            "BatchNorm1d",
            "`(input - mean) / sqrt(variance + eps) * w + b` of each channel of (batch, channels) \
             or (batch, channels, length) (Ioffe & Szegedy 2015, alg. 1). Training uses the mean \
             and variance of the batch, and moves the running ones towards them by `momentum` \
             (with the unbiased variance); inference uses the running ones. With `momentum=None` \
             these are the averages over all batches, whose number is the state `num_batches`. `w` \
             starts at 1, or as given by `init`, `b` and the running mean at 0, the running \
             variance at 1.",
            gives(&["[[1, 2], [3, 6]]"], "[[-1. -1.]\n [ 1.  1.]]")
                .with_params(&["[1, 1]", "[0, 0]"]),
        )
    },
    batch_norm_of::<2>(
        "BatchNorm2d",
        "`BatchNorm1d` for images, (batch, channels, height, width).",
        gives(&["[[[[1, 3]], [[2, 6]]]]"], "[[[[-1.  1.]]\n\n  [[-1.  1.]]]]")
            .with_params(&["[1, 1]", "[0, 0]"]),
    ),
    batch_norm_of::<3>(
        "BatchNorm3d",
        "`BatchNorm1d` for volumes, (batch, channels, depth, height, width).",
        gives(&["np.ones((2, 3, 4, 5, 6), \"float32\")"], "(2, 3, 4, 5, 6)"),
    ),
    Entry {
        source: "Wu & He 2018, eq. 7",
        example: gives(&["[[[1], [3], [5], [7]]]"], "[[[-1.]\n  [ 1.]\n  [-1.]\n  [ 1.]]]")
            .with_settings("groups=2")
            .with_params(&["[1, 1, 1, 1]", "[0, 0, 0, 0]"]),
        parameters: &[
            required("groups", Kind::Count)
                .doc("the number of groups into which the channels are split"),
            EPSILON,
            USE_SCALE,
            USE_BIAS,
            INIT,
        ],
        inputs: &[data("input", Class::Float), SCALE, SHIFT],
        ..LAYER.row(
            "GroupNorm",
            "`(input - mean) / sqrt(variance + eps) * w + b` of (batch, channels, …), with mean \
             and variance over each group of channels of a sample. `w` starts at 1, or as given \
             by `init`, `b` at 0.",
            |cx| {
                let groups = cx.int("groups");
                let channels = channels(cx)?.dims[0].clone();
                cx.divide(&channels, groups, || {
                    Diagnostic::of(
                        ErrorKind::Shapes,
                        "`groups` does not divide the channels of `input`",
                    )
                    .got(format!("{channels} channels, and {groups} groups"))
                    .expected("a number of channels that is a multiple of `groups`")
                })?;
                grouped_norm(cx, Dim::Const(groups))
            },
        )
    },
    Entry {
        source: "Ulyanov et al. 2016, eq. 4",
        example: gives(&["[[[1, 3], [2, 6]]]"], "[[[-1.  1.]\n  [-1.  1.]]]"),
        parameters: &[
            EPSILON,
            with("use_scale", Kind::Bool, Default::Bool(false)).doc("learn a scale `w`"),
            with("use_bias", Kind::Bool, Default::Bool(false)).doc("learn a bias `b`"),
            INIT,
            with("track_running_stats", Kind::Bool, Default::Bool(false))
                .doc("keep running values for inference; without them, it uses those of a sample"),
            with("momentum", Kind::Float(Range::Unit), Default::Float(0.1))
                .doc("the fraction by which a running value moves towards the mean of the samples"),
        ],
        inputs: &[
            data("input", Class::Float),
            SCALE,
            SHIFT,
            state("running_mean", Init::Zeros, channels).when(tracks).doc("(channels)"),
            state("running_var", Init::Ones, channels).when(tracks).doc("(channels)"),
        ],
        ..LAYER.row(
            "InstanceNorm",
            "`(input - mean) / sqrt(variance + eps) * w + b` of (batch, channels, …), with mean \
             and variance over each channel of a sample. With `track_running_stats`, training also \
             moves a running mean and variance by `momentum` towards the averages over the samples \
             (of the unbiased variance), and inference uses these. `w` starts at 1, or as given by \
             `init`, `b` and the running mean at 0, the running variance at 1.",
            instance_norm,
        )
    },
    Entry {
        source: "Krizhevsky et al. 2012, section 3.3",
        example: gives(&["[[[1], [2], [2]]]"], "[[[0.4082]\n  [0.6325]\n  [0.5547]]]")
            .with_settings("size=2, alpha=2, beta=0.5, k=5"),
        parameters: &[
            required("size", Kind::Count).doc("the number of neighbouring channels"),
            with("alpha", Kind::Float(Range::Finite), Default::Float(1e-4)).doc("the factor"),
            with("beta", Kind::Float(Range::Finite), Default::Float(0.75)).doc("the exponent"),
            with("k", Kind::Float(Range::Finite), Default::Float(1.0)).doc("the added constant"),
        ],
        ..LAYER.row(
            "LocalResponseNorm",
            "`input / (k + alpha * mean) ** beta` of (batch, channels, …), with the mean of \
             `input ** 2` over `size` neighbouring channels. Channels beyond the ends count as 0.",
            local_response_norm,
        )
    },
];

pub(super) const DROPOUT: &[Entry] = &[
    dropout::<1>(
        "Dropout1d",
        "Each channel of sequences, (batch, channels, length), is 0 with probability `rate`, else \
         `input / (1 - rate)`; in inference, `input` itself (Tompson et al. 2015).",
        gives(&["[[[1, 2, 3]]]", "[0, 7]"], "(1, 1, 3)").with_settings("rate=0.5"),
    ),
    dropout::<2>(
        "Dropout2d",
        "Each channel of images, (batch, channels, height, width), is 0 with probability `rate`, \
         else `input / (1 - rate)`; in inference, `input` itself (Tompson et al. 2015).",
        gives(&["[[[[1, 2, 3]]]]", "[0, 7]"], "(1, 1, 1, 3)").with_settings("rate=0.5"),
    ),
    dropout::<3>(
        "Dropout3d",
        "Each channel of volumes, (batch, channels, depth, height, width), is 0 with probability \
         `rate`, else `input / (1 - rate)`; in inference, `input` itself (Tompson et al. 2015).",
        gives(&["[[[[[1, 2, 3]]]]]", "[0, 7]"], "(1, 1, 1, 1, 3)").with_settings("rate=0.5"),
    ),
    Entry {
        source: "Klambauer et al. 2017",
        example: gives(&["[1, 2, 3]", "[0, 7]"], "(3,)").with_settings("rate=0.5"),
        parameters: &[RATE],
        inputs: DROPOUT_INPUTS,
        ..LAYER.row(
            "AlphaDropout",
            "`Dropout` for `Selu`: an element that is dropped becomes the limit of `Selu` at minus \
             infinity, and all elements are scaled and shifted so that mean 0 and variance 1 stay. \
             In inference, `input` itself.",
            |cx| alpha_dropout(cx, cx.var("input").shape()),
        )
    },
    Entry {
        source: "Klambauer et al. 2017",
        example: gives(&["[[[1, 2, 3]]]", "[0, 7]"], "(1, 1, 3)").with_settings("rate=0.5"),
        parameters: &[RATE],
        inputs: DROPOUT_INPUTS,
        ..LAYER.row(
            "FeatureAlphaDropout",
            "`AlphaDropout` of whole channels of (batch, channels, …).",
            |cx| {
                channels(cx)?;
                let mut shape = cx.var("input").shape();
                shape.dims[2..].fill(Dim::Const(1));
                alpha_dropout(cx, shape)
            },
        )
    },
];

/// Drops elements in training; a draw of this shape, which broadcasts, decides which.
fn alpha_dropout(cx: &Cx, shape: Shape) -> Result<Vec<Value>> {
    /// The limit of `Selu` at minus infinity.
    const LIMIT: f64 = -1.7580993408473766;
    let (x, rate) = (cx.var("input"), cx.float("rate"));
    let Some(key) = cx.optional("key").filter(|_| cx.training() && rate > 0.0) else {
        return done(x);
    };
    if rate >= 1.0 {
        return done(x * 0.0);
    }
    let draw = key.unary("uniform", &[("shape", shape.into()), ("dtype", DType::F32.into())]);
    let kept = draw.binary("ge", draw.scalar(rate));
    let scale = ((1.0 - rate) * (1.0 + rate * LIMIT * LIMIT)).powf(-0.5);
    let dropped = kept.select(x, x.scalar(LIMIT));
    done(dropped * scale - scale * LIMIT * rate)
}

const fn batch_norm_of<const AXES: usize>(
    name: &'static str,
    doc: &'static str,
    example: Example,
) -> Entry {
    Entry {
        example,
        parameters: &[MOMENTUM, EPSILON, USE_SCALE, USE_BIAS, INIT, TRACKS],
        inputs: BATCH_INPUTS,
        ..LAYER.row(name, doc, |cx| {
            let shape = cx.var("input").shape();
            let rank = shape.need_rank()?;
            if rank == AXES + 2 || (AXES == 1 && rank == 2) {
                return batch_norm(cx);
            }
            let expected = [
                "(batch, channels) or (batch, channels, length)",
                "(batch, channels, height, width)",
                "(batch, channels, depth, height, width)",
            ];
            let what = format!("`BatchNorm{AXES}d` takes batches of channels");
            Diagnostic::of(ErrorKind::Shapes, what).got(&shape).expected(expected[AXES - 1]).err()
        })
    }
}

const fn dropout<const AXES: usize>(
    name: &'static str,
    doc: &'static str,
    example: Example,
) -> Entry {
    Entry {
        example,
        parameters: &[RATE],
        inputs: DROPOUT_INPUTS,
        ..LAYER.row(name, doc, |cx| {
            let mut shape = cx.var("input").shape();
            if shape.need_rank()? != AXES + 2 {
                let expected = [
                    "(batch, channels, length)",
                    "(batch, channels, height, width)",
                    "(batch, channels, depth, height, width)",
                ];
                let what = format!("`Dropout{AXES}d` takes batches of channels");
                return Diagnostic::of(ErrorKind::Shapes, what)
                    .got(&shape)
                    .expected(expected[AXES - 1])
                    .err();
            }
            shape.dims[2..].fill(Dim::Const(1));
            dropped(cx, shape)
        })
    }
}

/// The shape of a param with one element per channel (axis 1).
pub(super) fn channels(cx: &Cx) -> Result<Shape> {
    let shape = cx.var("input").shape();
    match shape.need_rank()? {
        0 | 1 => Diagnostic::of(ErrorKind::Shapes, "`input` has no axis of channels")
            .got(&shape)
            .expected("(batch, channels, …)")
            .err(),
        _ => Ok(Shape::new([shape.dims[1].clone()])),
    }
}

/// A value per channel, shaped to broadcast along axis 1 of an array of this rank.
fn along_channels<'a>(v: Var<'a>, rank: usize) -> Var<'a> {
    let later: Vec<i64> = (1..rank as i64 - 1).collect();
    if later.is_empty() { v } else { v.expand_dims(&later) }
}

/// Scales and shifts each channel, where the block learns to.
fn scaled<'a>(cx: &Cx<'a>, x: Var<'a>) -> Var<'a> {
    let along = |v: Var<'a>| along_channels(v.cast(x.dtype()), x.rank());
    let scaled = cx.optional("w").map_or(x, |w| x * along(w));
    cx.optional("b").map_or(scaled, |b| scaled + along(b))
}

/// Requires enough samples for a variance. Errors, at compile time or at run time: a channel has
/// fewer than two elements.
fn need_samples(cx: &Cx, shape: &Shape) -> Result<()> {
    let others = shape.dims.iter().enumerate().filter(|(axis, _)| *axis != 1);
    let count: Dim = others.map(|(_, dim)| dim.clone()).product();
    let name = format!("BatchNorm{}d", (shape.dims.len() - 2).max(1));
    cx.need(&count, 2, || {
        Diagnostic::of(
            ErrorKind::Shapes,
            format!("`{name}` needs at least two numbers per channel in training"),
        )
        .hint("give a larger batch, or compile with `inference=True`")
    })
}

fn tracks(settings: &Settings) -> bool {
    settings.flag("track_running_stats")
}

/// Whether running values are averages of all batches.
fn is_cumulative(settings: &Settings) -> bool {
    tracks(settings) && settings.float("momentum").is_none()
}

/// The running mean and variance.
fn running<'a>(cx: &Cx<'a>) -> [Var<'a>; 2] {
    ["running_mean", "running_var"].map(|name| cx.var(name))
}

/// The operands of a batch norm with this mean and variance. Without a scale, a shift is added by an
/// operation of its own.
fn operands<'a>(cx: &Cx<'a>, [mean, variance]: [Var<'a>; 2]) -> Vec<Var<'a>> {
    let scale = cx.optional("w");
    let shift = scale.and(cx.optional("b"));
    [Some(cx.var("input")), Some(mean), Some(variance), scale, shift]
        .into_iter()
        .flatten()
        .collect()
}

/// Adds the shift that `operands` leaves out.
fn shifted<'a>(cx: &Cx<'a>, normal: Var<'a>) -> Var<'a> {
    if cx.optional("w").is_some() { normal } else { scaled(cx, normal) }
}

fn epsilon(cx: &Cx) -> (&'static str, Attr) {
    ("epsilon", cx.float("eps").into())
}

/// Normalises by the running mean and variance.
fn by_running<'a>(cx: &Cx<'a>) -> Var<'a> {
    shifted(cx, cx.op("batch_norm", &operands(cx, running(cx)), &[epsilon(cx)]))
}

/// A result of the step in training. With a momentum of 1, running values become those of the batch.
fn step<'a>(cx: &Cx<'a>, operands: &[Var<'a>], of: i64) -> Var<'a> {
    let momentum = cx.settings.float("momentum").unwrap_or(1.0);
    let attrs = [("momentum", momentum.into()), epsilon(cx), ("of", of.into())];
    cx.op("batch_norm_training", operands, &attrs)
}

fn batch_norm(cx: &Cx) -> Result<Vec<Value>> {
    let tracks = tracks(cx.settings);
    if !cx.training() && tracks {
        return done(by_running(cx));
    }
    need_samples(cx, &cx.var("input").shape())?;
    if tracks {
        let operands = operands(cx, running(cx));
        let mut values = vec![shifted(cx, step(cx, &operands, 0))];
        values.extend(match is_cumulative(cx.settings) {
            true => averaged(cx, &operands),
            false => vec![step(cx, &operands, 1), step(cx, &operands, 2)],
        });
        return Ok(values.iter().map(|v| v.value).collect());
    }
    // The statistics of the batch do not depend on the running ones.
    let shape = channels(cx)?;
    let fixed = [0.0, 1.0].map(|v| cx.var("input").scalar(v).broadcast_to(shape.clone()));
    done(shifted(cx, step(cx, &operands(cx, fixed), 0)))
}

/// The averages of the statistics of all batches, and the number of batches.
fn averaged<'a>(cx: &Cx<'a>, operands: &[Var<'a>]) -> Vec<Var<'a>> {
    // Averages of halves are rounded once. Other dtypes share the step with the output.
    let wide: Vec<Var> = operands[..3].iter().map(|v| v.widened()).collect();
    let is_wide = wide[0].dtype() == operands[0].dtype();
    let count = cx.var("num_batches") + 1.0;
    let share = wide[0].scalar(1.0) / count.cast(wide[0].dtype());
    let moved = |of: usize| {
        let new = step(cx, if is_wide { operands } else { &wide }, of as i64);
        let moved = wide[of] * (share.scalar(1.0) - share) + new * share;
        moved.cast(operands[of].dtype())
    };
    vec![moved(1), moved(2), count]
}

fn instance_norm<'a>(cx: &Cx<'a>) -> Result<Vec<Value>> {
    let channels = channels(cx)?.dims[0].clone();
    if !tracks(cx.settings) {
        return grouped_norm(cx, channels);
    }
    if !cx.training() {
        return done(by_running(cx));
    }
    let x = cx.var("input");
    let shape = x.shape();
    let elements: Dim = shape.dims[2..].iter().cloned().product();
    cx.need(&elements, 2, || {
        let what = "`InstanceNorm` needs at least two numbers per channel of a sample in training";
        Diagnostic::of(ErrorKind::Shapes, what)
            .got(&shape)
            .hint("give larger samples, or leave out `track_running_stats`")
    })?;
    cx.need(&shape.dims[0], 1, || {
        Diagnostic::of(ErrorKind::Shapes, "`InstanceNorm` needs a sample in training")
            .got(&shape)
            .hint("give a batch that is not empty, or leave out `track_running_stats`")
    })?;
    let mut values = grouped_norm(cx, channels.clone())?;
    let rows = x.reshape(Shape::new([shape.dims[0].clone(), channels, elements])).widened();
    let average = |v: Var<'a>, axis: i64| v.reduce("mean", Some(&[axis]), true);
    let mean = average(rows, -1);
    let deviation = rows - mean;
    let count = rows.count(Some(&[-1]));
    let variance = average(deviation * deviation, -1) * (count / (count - 1.0));
    let momentum = cx.float("momentum");
    for (old, new) in running(cx).into_iter().zip([mean, variance]) {
        let new = average(new, 0).squeeze(&[0, -1]);
        let moved = old.widened() * (1.0 - momentum) + new * momentum;
        values.push(moved.cast(old.dtype()).value);
    }
    Ok(values)
}

/// Normalises each group of channels of each sample.
fn grouped_norm(cx: &Cx, groups: Dim) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let shape = x.shape();
    let size = shape.dims[1].floor_div(&groups);
    let elements = shape.dims[2..].iter().cloned().fold(size, |a, b| &a * &b);
    let rows = Shape::new([shape.dims[0].clone(), groups, elements]);
    let attrs = [("epsilon", cx.float("eps").into())];
    let normal = cx.op("layer_norm", &[x.reshape(rows)], &attrs);
    done(scaled(cx, normal.reshape(shape)))
}

fn local_response_norm(cx: &Cx) -> Result<Vec<Value>> {
    let own = cx.var("input");
    let shape = own.shape();
    if shape.need_rank()? < 3 {
        return Diagnostic::of(ErrorKind::Shapes, "`input` has no axes after its channels")
            .got(&shape)
            .expected("(batch, channels, …)")
            .err();
    }
    let (x, size) = (own.widened(), cx.int("size"));
    let rest: Dim = shape.dims[2..].iter().cloned().product();
    let rows = Shape::new([shape.dims[0].clone(), shape.dims[1].clone(), rest]);
    let square = (x * x).reshape(rows);
    let mut attrs = vec![("sizes", Attr::ints([size, 1]))];
    if size > 1 {
        attrs.push(("low", Attr::ints([size / 2, 0])));
        attrs.push(("high", Attr::ints([(size - 1) / 2, 0])));
    }
    let mean = square.unary("sum_pool", &attrs) / size as f64;
    let scale = mean.reshape(shape) * cx.float("alpha") + cx.float("k");
    done((x / scale.binary("pow", scale.scalar(cx.float("beta")))).cast(own.dtype()))
}
