//! Positions of sequences: encodings that are added, rotations, and biases of attention.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::done;
use super::layers::{INIT, LAYER};
use super::parameter::{Range, required, with};
use super::settings::Settings;
use super::{Default, Entry, Input, Kind, Meaning, Parameter, Value, data, gives, param};
use crate::init::Init;
use crate::lower::Cx;

const HEADS: Parameter = required("heads", Kind::Count).doc("the number of heads");
const QUERIES: Input =
    data("input", Class::Float).doc("the sequence of the queries, (…, queries, width)");
const KEYS: Input = data("context", Class::Float)
    .optional()
    .doc("the sequence that is attended to, (…, keys, width); defaults to `input`");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "RotaryEmbedding",
        doc: "Rotates each pair of features of (…, length, width) by its position times \
              `base^(-2i / width)` (Su et al. 2021, eq. 34). Feature `i` of the first half of the \
              last axis is paired with that of the second half, as in Llama. `positions` default \
              to 0, 1, 2, ….",
        example: gives(
            &["[[1, 0], [1, 0], [1, 0]]"],
            "[[ 1.      0.    ]\n [ 0.5403  0.8415]\n [-0.4161  0.9093]]",
        ),
        parameters: &[with("base", Kind::Float(Range::Positive), Default::Float(10000.0))
            .doc("the base of the wavelengths")],
        inputs: &[
            data("input", Class::Float),
            data("positions", Class::Int).own_dtype().optional().doc(
                "the positions; default to 0, 1, \
                                                                  2, …",
            ),
        ],
        meaning: Meaning::Lower(rotary),
        ..LAYER
    },
    Entry {
        name: "PositionalEncoding",
        doc: "`input`, (…, length, width), plus sines and cosines of its positions (Vaswani et al. \
              2017, sec. 3.5).",
        example: gives(
            &["[[0, 0], [0, 0], [0, 0]]"],
            "[[ 0.      1.    ]\n [ 0.8415  0.5403]\n [ 0.9093 -0.4161]]",
        ),
        parameters: &[with("base", Kind::Float(Range::Positive), Default::Float(10000.0))
            .doc("the base of the wavelengths")],
        meaning: Meaning::Lower(|cx| {
            let x = cx.var("input");
            let [sine, cosine] = sine_and_cosine(cx, x)?;
            let pair = [sine.expand_dims(&[-1]), cosine.expand_dims(&[-1])];
            let pairs = cx.op("concat", &pair, &[("axis", (-1).into())]);
            let shape = x.shape();
            let last = shape.need_trailing(2)?;
            done(x + pairs.reshape(Shape::new(last.iter().cloned())))
        }),
        ..LAYER
    },
    Entry {
        name: "AlibiBias",
        doc: "A bias of attention, (heads, queries, keys): the distance of query and key times \
              minus the head's slope, `2^(-8 i / heads)` for head i = 1, 2, … (Press et al. 2022). If \
              `heads` is not a power of two, the further heads have every other slope of twice as \
              many heads. It is added to the scores, as the `mask` of `ScaledDotProduct`.",
        example: gives(
            &["[[0], [0], [0]]"],
            "[[[ 0.     -0.0625 -0.125 ]\n  [-0.0625  0.     -0.0625]\n  [-0.125  -0.0625  0.    ]]\n\n \
             [[ 0.     -0.0039 -0.0078]\n  [-0.0039  0.     -0.0039]\n  [-0.0078 -0.0039  0.    ]]]",
        )
        .with_settings("heads=2"),
        parameters: &[HEADS],
        inputs: &[QUERIES, KEYS],
        meaning: Meaning::Lower(|cx| {
            let lengths = lengths(sides(cx))?;
            done(alibi(cx, lengths, cx.int("heads"), cx.var("input").dtype()))
        }),
        ..LAYER
    },
    Entry {
        name: "RelativePositionBias",
        doc: "The bias that T5 adds to the scores of attention, (heads, queries, keys): the row of \
              `w` for the bucket of the distance from query to key (Raffel et al. 2020). Half of \
              the buckets are for single distances, the others for ranges that grow \
              logarithmically up to `max_distance`, the last one for all beyond. With \
              `bidirectional`, half of the buckets are for keys after the query; else these share \
              the bucket of distance 0. It is added as the `mask` of `ScaledDotProduct`.",
        example: gives(&["[[0], [0], [0]]"], "[[[0. 3. 3.]\n  [1. 0. 3.]\n  [1. 1. 0.]]]")
            .with_settings("heads=1, buckets=4, max_distance=8")
            .with_params(&["[[0], [1], [2], [3]]"]),
        parameters: &[
            HEADS,
            with("buckets", Kind::Count, Default::Int(32)).doc("the number of rows of `w`"),
            with("max_distance", Kind::Count, Default::Int(128))
                .doc("the distance from which on all share a bucket"),
            with("bidirectional", Kind::Bool, Default::Bool(true))
                .doc("tell keys after the query from those before it"),
            INIT,
        ],
        inputs: &[
            QUERIES,
            KEYS,
            param("w", Init::Normal, |cx| {
                let dims = [cx.int("buckets"), cx.int("heads")];
                Ok(Shape::new(dims.map(Dim::Const)))
            })
            .transposed()
            .takes_init()
            .doc("(buckets, heads)"),
        ],
        valid: valid_buckets,
        meaning: Meaning::Lower(relative_bias),
        ..LAYER
    },
];

/// The sequences of the queries and of the keys.
fn sides<'a>(cx: &Cx<'a>) -> [Var<'a>; 2] {
    let input = cx.var("input");
    [input, cx.optional("context").unwrap_or(input)]
}

/// The numbers of queries and keys: the second to last dims.
pub(super) fn lengths([queries, keys]: [Var; 2]) -> Result<[Dim; 2]> {
    let length = |x: Var| -> Result<Dim> { Ok(x.shape().need_trailing(2)?[0].clone()) };
    Ok([length(queries)?, length(keys)?])
}

/// The distances from queries to keys: positive for keys after the query.
fn distances<'a>(cx: &Cx<'a>, [queries, keys]: [Dim; 2], dtype: DType) -> Var<'a> {
    let positions = |count: Dim| cx.iota(Shape::new([count]), 0, dtype);
    positions(keys) - positions(queries).expand_dims(&[-1])
}

/// ALiBi's bias of the scores, (heads, queries, keys).
pub(super) fn alibi<'a>(cx: &Cx<'a>, lengths: [Dim; 2], heads: i64, dtype: DType) -> Var<'a> {
    let wide = dtype.widened();
    let slopes = Tensor::from_f64s(wide, vec![heads as usize, 1, 1], &slopes(heads));
    let slopes = cx.builder.var(cx.builder.constant(slopes)).named("slopes");
    let distances = distances(cx, lengths, wide).unary("abs", &[]).named("distances");
    // The difference from 0 is 0 where the distance is; the negated distance would be -0.
    let below = distances.scalar(0.0) - distances;
    (slopes * below).cast(dtype).named("alibi")
}

/// The slopes of Press et al. 2022.
fn slopes(heads: i64) -> Vec<f64> {
    let power = 1i64 << heads.max(1).ilog2();
    let of = |all: i64| (1..=all).map(move |i| (-8.0 * i as f64 / all as f64).exp2());
    of(power).chain(of(2 * power).step_by(2)).take(heads as usize).collect()
}

/// The number of buckets of one direction, and of those for single distances.
fn divided(settings: &Settings) -> [i64; 2] {
    let buckets = settings.int("buckets").unwrap_or(0);
    let own = if settings.flag("bidirectional") { buckets / 2 } else { buckets };
    [own, own / 2]
}

fn valid_buckets(settings: &Settings) -> Result<()> {
    let buckets = settings.int("buckets").unwrap_or(0);
    let [_, exact] = divided(settings);
    if exact == 0 || (settings.flag("bidirectional") && buckets % 2 == 1) {
        return Diagnostic::of(
            ErrorKind::Setting,
            "`buckets` of `RelativePositionBias` do not fit",
        )
        .got(buckets)
        .expected("an even number of at least 4, or of at least 2 with `bidirectional=False`")
        .err();
    }
    let limit = settings.int("max_distance").unwrap_or(0);
    if limit <= exact {
        return Diagnostic::of(
            ErrorKind::Setting,
            "`max_distance` of `RelativePositionBias` is too small",
        )
        .got(limit)
        .expected(format!("more than {exact}, the number of buckets for single distances"))
        .err();
    }
    Ok(())
}

fn relative_bias(cx: &Cx) -> Result<Vec<Value>> {
    let relative = distances(cx, lengths(sides(cx))?, DType::I32).named("relative");
    let [buckets, exact] = divided(cx.settings);
    let zero = relative.scalar(0.0);
    let distance = match cx.flag("bidirectional") {
        true => relative.unary("abs", &[]),
        false => (-relative).binary("maximum", zero),
    }
    .named("distance");
    // A small number is added, so that rounding of the logarithm does not matter where a bucket
    // begins at a whole distance.
    let range = cx.int("max_distance") as f64 / exact as f64;
    let steps = (distance.binary("maximum", relative.scalar(1.0)).cast(DType::F32) / exact as f64)
        .log()
        * ((buckets - exact) as f64 / range.ln());
    let far = (steps + 1e-4).unary("floor", &[]).cast(DType::I32) + exact as f64;
    let far = far.binary("minimum", relative.scalar((buckets - 1) as f64));
    let near = distance.binary("lt", relative.scalar(exact as f64));
    let mut bucket = near.select(distance, far);
    if cx.flag("bidirectional") {
        let after = relative.binary("gt", zero);
        bucket = bucket + after.select(relative.scalar(buckets as f64), zero);
    }
    let rows = cx.op("take", &[cx.var("w"), bucket.named("bucket")], &[("axis", 0.into())]);
    done(rows.transpose(&[2, 0, 1]).named("bias"))
}

/// Sines and cosines of positions times frequencies, each of shape (length, width / 2).
fn sine_and_cosine<'a>(cx: &Cx<'a>, x: Var<'a>) -> Result<[Var<'a>; 2]> {
    let shape = x.shape();
    let last = shape.need_trailing(2)?;
    let width = &last[1];
    let half = cx.divide(width, 2, || {
        Diagnostic::of(ErrorKind::Shapes, "the last dim is not even")
            .got(&shape)
            .expected("pairs of features")
    })?;
    // f16 counts exactly only to 2048 and bf16 to 256, and their angles are inaccurate well before.
    let dtype = x.dtype().widened();
    let ramp = cx.iota(Shape::new([half]), 0, dtype);
    let step = match width.as_const() {
        Some(width) => ramp * (-2.0 * cx.float("base").ln() / width as f64),
        None => ramp * (-2.0 * cx.float("base").ln()) / x.dim(-1).cast(dtype),
    };
    let positions = match cx.optional("positions") {
        Some(positions) => positions.cast(dtype),
        None => cx.iota(Shape::new([last[0].clone()]), 0, dtype),
    };
    let angles = positions.expand_dims(&[-1]) * step.exp();
    let of = |function, name| angles.unary(function, &[]).cast(x.dtype()).named(name);
    Ok([of("sin", "sine"), of("cos", "cosine")])
}

fn rotary(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let [sine, cosine] = sine_and_cosine(cx, x)?;
    let shape = x.shape();
    let half = shape.need_trailing(1)?[0].floor_div(&Dim::Const(2));
    let part = |start: Dim, limit: Dim| {
        let attrs = [
            ("axes", Attr::ints([-1])),
            ("starts", Shape::new([start]).into()),
            ("limits", Shape::new([limit]).into()),
        ];
        x.unary("slice", &attrs)
    };
    let (first, second) = (part(Dim::Const(0), half.clone()), part(half, Dim::Unknown));
    let rotated = [first * cosine - second * sine, second * cosine + first * sine];
    let joined = cx.op("concat", &rotated, &[("axis", (-1).into())]);
    // The two halves together have the shape of the input.
    done(joined.reshape(shape))
}
