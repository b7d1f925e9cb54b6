//! Layers: blocks with params, and normalisations.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::{Shape, unify};

use super::elementwise::{INPUT, done};
use super::parameter::{Range, required, with};
use super::{
    BASE, Default, Entry, Group, Input, Kind, Meaning, Parameter, Settings, Value, data, gives,
    param,
};
use crate::init::Init;
use crate::lower::Cx;

pub(super) const LAYER: Entry =
    Entry { group: Group::Layer, inputs: INPUT, same_dtype: true, ..BASE };
pub(super) const EPSILON: Parameter =
    with("eps", Kind::Float(Range::NotNegative), Default::Float(1e-5))
        .is_width_in_torch()
        .doc("the number that is added to the variance");
pub(super) const USE_BIAS: Parameter =
    with("use_bias", Kind::Bool, Default::Bool(true)).doc("learn a bias `b`");
pub(super) const USE_SCALE: Parameter =
    with("use_scale", Kind::Bool, Default::Bool(true)).doc("learn a scale `w`");
/// The setting for the initial value of `w`.
pub(super) const INIT: Parameter =
    with("init", Kind::Init, Default::None).doc("the initial values of the weights");
const SCALE: Input = param("w", Init::Ones, features)
    .takes_init()
    .when(|s| s.flag("use_scale"))
    .doc("(last dim of `input`)");
const SHIFT: Input =
    param("b", Init::Zeros, features).when(|s| s.flag("use_bias")).doc("(last dim of `input`)");

/// The rows of an embedding.
const TABLE: Input = param("w", Init::Normal, |cx| {
    let dims = [cx.int("num_embeddings"), cx.int("dimension")];
    Ok(Shape::new(dims.map(Dim::Const)))
})
.transposed()
.takes_init()
.doc("(num_embeddings, dimension)");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "Linear",
        doc: "`input @ w + b` over the last axis of `input`; `w` is (in_features, dimension). \
              Both start uniform within `1 / sqrt(in_features)`, as in `torch.nn.Linear`; `init` \
              is for `w`.",
        formula: "input @ w + b",
        example: gives(&["[[1, 2]]"], "[[1.5 2.  8. ]]")
            .with_settings("dimension=3")
            .with_params(&["[[1, 0, 2], [0, 1, 3]]", "[0.5, 0, 0]"]),
        parameters: &[
            required("dimension", Kind::Count).doc("the width of the output"),
            USE_BIAS,
            INIT,
        ],
        inputs: &[
            data("input", Class::Float),
            param("w", Init::FanIn, |cx| {
                let features = cx.last_dim("input")?;
                Ok(Shape::new([features, Dim::Const(cx.int("dimension"))]))
            })
            .takes_init()
            .doc("(last dim of `input`, dimension)"),
            param("b", Init::FanIn, |cx| Ok(Shape::new([Dim::Const(cx.int("dimension"))])))
                .fan_of("w")
                .when(|s| s.flag("use_bias"))
                .doc("(dimension)"),
        ],
        meaning: Meaning::Lower(|cx| {
            let product = cx.var("input").matmul(cx.var("w"));
            done(cx.optional("b").map_or(product, |b| product + b))
        }),
        ..LAYER
    },
    Entry {
        name: "Embedding",
        doc: "The rows of `w`, which is (num_embeddings, dimension), at the indices `input`. `w` \
              starts standard normal, as in `torch.nn.Embedding`, or as given by `init`, with \
              `dimension` as its fan in.",
        formula: "w[input]",
        example: gives(&["[2, 0]"], "[[4. 5.]\n [0. 1.]]")
            .with_settings("num_embeddings=3, dimension=2")
            .with_params(&["[[0, 1], [2, 3], [4, 5]]"]),
        parameters: &[
            required("num_embeddings", Kind::Count).doc("the number of rows"),
            required("dimension", Kind::Count).doc("the width of a row"),
            INIT,
            with("padding_idx", Kind::Int, Default::None)
                .doc("the index of a row that has no gradient; may count from the end"),
        ],
        inputs: &[
            data("input", Class::Int).own_dtype().doc("indices of rows, of any shape"),
            TABLE,
        ],
        valid: valid_padding,
        meaning: Meaning::Lower(embedding),
        ..LAYER
    },
    Entry {
        name: "EmbeddingBag",
        doc: "The sum, mean or maximum of the rows of `w` at the indices of each bag, which is a \
              row of `input`, as in `torch.nn.EmbeddingBag`. The rows are those of `Embedding`, and \
              `w` starts as there. Indices that are `padding_idx` do not count; a bag of no others \
              gives 0. `per_sample_weights` multiply the rows of a sum. Of equal maxima, the first \
              has the gradient.",
        formula: "mean(w[input], 1)",
        example: gives(&["[[2, 0], [1, 1]]"], "[[2. 3.]\n [2. 3.]]")
            .with_settings("num_embeddings=3, dimension=2")
            .with_params(&["[[0, 1], [2, 3], [4, 5]]"]),
        parameters: &[
            required("num_embeddings", Kind::Count).doc("the number of rows of `w`"),
            required("dimension", Kind::Count).doc("the width of a row"),
            with("mode", Kind::OneOf(&["sum", "mean", "max"]), Default::Str("mean"))
                .doc("how the rows of a bag are combined"),
            with("padding_idx", Kind::Int, Default::None)
                .doc("the index of a row that is left out of bags; may count from the end"),
            INIT,
        ],
        inputs: &[
            data("input", Class::Int).own_dtype().doc("(bags, indices of rows)"),
            TABLE,
            data("per_sample_weights", Class::Float)
                .optional()
                .doc("a factor for each index, in mode \"sum\""),
        ],
        valid: valid_padding,
        meaning: Meaning::Lower(embedding_bag),
        ..LAYER
    },
    Entry {
        name: "LayerNorm",
        doc: "`(input - mean) / sqrt(variance + eps) * w + b` over the last axis (Ba et al. 2016, \
              eq. 4). `w` starts at 1, or as given by `init`, `b` at 0.",
        formula: "(input - mean(input, -1, keepdims=True)) / sqrt(var(input, -1, \
                  keepdims=True) + eps) * w + b",
        example: gives(&["[[1, 3], [10, 20]]"], "[[-1.  1.]\n [-1.  1.]]")
            .with_params(&["[1, 1]", "[0, 0]"]),
        parameters: &[EPSILON, USE_SCALE, USE_BIAS, INIT],
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
              eq. 4). `w` starts at 1, or as given by `init`.",
        formula: "input / sqrt(mean(input**2, -1, keepdims=True) + eps) * w",
        example: gives(&["[[1, 1], [3, -3]]"], "[[ 1.  2.]\n [ 1. -2.]]").with_params(&["[1, 2]"]),
        parameters: &[EPSILON, USE_SCALE, INIT],
        inputs: &[data("input", Class::Float), SCALE],
        meaning: Meaning::Lower(|cx| {
            let mut operands = vec![cx.var("input")];
            operands.extend(cx.optional("w"));
            done(cx.op("rms_norm", &operands, &[("epsilon", cx.float("eps").into())]))
        }),
        ..LAYER
    },
    Entry {
        name: "ElementWiseAffine",
        doc: "`input * w + b` with one `w` and `b` for each index of the last axis. `w` starts at \
              1, or as given by `init`, `b` at 0.",
        formula: "input * w + b",
        example: gives(&["[[1, 2], [3, 4]]"], "[[ 1. 25.]\n [ 3. 45.]]")
            .with_params(&["[1, 10]", "[0, 5]"]),
        parameters: &[USE_SCALE, USE_BIAS, INIT],
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
        formula: "exp(input) / sum(exp(input), axis, keepdims=True)",
        example: gives(&["[[0, 0], [0, 3]]"], "[[0.5    0.5   ]\n [0.0474 0.9526]]"),
        parameters: &[with("axis", Kind::Int, Default::Int(-1)).doc("the axis that sums to 1")],
        meaning: Meaning::Op("softmax"),
        ..LAYER
    },
    Entry {
        name: "LogSoftmax",
        formula: "input - log(sum(exp(input), axis, keepdims=True))",
        example: gives(&["[[0, 0], [0, 3]]"], "[[-0.6931 -0.6931]\n [-3.0486 -0.0486]]"),
        parameters: &[
            with("axis", Kind::Int, Default::Int(-1)).doc("the axis whose exponentials sum to 1")
        ],
        meaning: Meaning::Op("log_softmax"),
        ..LAYER
    },
];

/// The shape of a param with one element per feature (last axis).
fn features(cx: &Cx) -> Result<Shape> {
    Ok(Shape::new([cx.last_dim("input")?]))
}

/// Errors: a padding index out of range.
fn valid_padding(settings: &Settings) -> Result<()> {
    let (Some(at), Some(count)) = (settings.int("padding_idx"), settings.int("num_embeddings"))
    else {
        return Ok(());
    };
    if (-count..count).contains(&at) {
        return Ok(());
    }
    Diagnostic::of(ErrorKind::Setting, "`padding_idx` is out of range")
        .got(at)
        .expected(format!("an integer from {} to {}", -count, count - 1))
        .err()
}

/// Checks that there are bags of indices, and that factors fit them.
fn check_bags(cx: &Cx) -> Result<()> {
    let bags = cx.var("input").shape();
    if bags.need_rank()? != 2 {
        return Diagnostic::of(ErrorKind::Shapes, "`EmbeddingBag` takes bags of indices")
            .got(&bags)
            .expected("(bags, indices)")
            .err();
    }
    let Some(factors) = cx.optional("per_sample_weights") else { return Ok(()) };
    if cx.text("mode") != "sum" {
        let what = "`per_sample_weights` of `EmbeddingBag` multiply the rows of a sum";
        return Diagnostic::of(ErrorKind::Setting, what)
            .got(format!("mode=\"{}\"", cx.text("mode")))
            .expected("mode=\"sum\"")
            .err();
    }
    let shape = factors.shape();
    let mut guards = Vec::new();
    let same = shape.rank() == Some(2)
        && shape.dims.iter().zip(&bags.dims).all(|(a, b)| unify(a, b, &mut guards).is_some());
    if !same {
        let what = "`per_sample_weights` of `EmbeddingBag` do not have the shape of `input`";
        return Diagnostic::of(ErrorKind::Shapes, what).got(&shape).expected(&bags).err();
    }
    cx.builder.add_guards(guards);
    Ok(())
}

/// Whether each index is another than `padding_idx`, with a last axis of size 1. `None`: all are.
fn counted<'a>(cx: &Cx<'a>) -> Option<Var<'a>> {
    let (at, count) = (cx.settings.int("padding_idx")?, cx.int("num_embeddings"));
    let input = cx.var("input");
    let front = at.rem_euclid(count);
    let is_other = |at: i64| input.binary("ne", input.scalar(at as f64));
    Some(is_other(front).binary("and", is_other(front - count)).expand_dims(&[-1]))
}

fn embedding(cx: &Cx) -> Result<Vec<Value>> {
    let rows = cx.op("take", &[cx.var("w"), cx.var("input")], &[("axis", 0.into())]);
    cx.builder.check()?;
    done(counted(cx).map_or(rows, |others| others.select(rows, rows.stop_gradient())))
}

fn embedding_bag(cx: &Cx) -> Result<Vec<Value>> {
    check_bags(cx)?;
    let (w, bags) = (cx.var("w"), cx.var("input"));
    let mut rows = cx.op("take", &[w, bags], &[("axis", 0.into())]).widened();
    cx.builder.check()?;
    if let Some(factors) = cx.optional("per_sample_weights") {
        rows = rows * factors.widened().expand_dims(&[2]);
    }
    let counted = counted(cx);
    let with = |other: f64| match counted {
        Some(counted) => counted.select(rows, rows.scalar(other)),
        None => rows,
    };
    done(match cx.text("mode") {
        "sum" => with(0.0).sum(Some(&[1]), false).cast(w.dtype()),
        "mean" => {
            let count = match counted {
                Some(counted) => counted.cast(rows.dtype()).sum(Some(&[1]), false),
                None => rows.count(Some(&[1])),
            };
            let count = count.binary("maximum", count.scalar(1.0));
            (with(0.0).sum(Some(&[1]), false) / count).cast(w.dtype())
        }
        _ => {
            cx.need(&bags.shape().dims[1], 1, || {
                Diagnostic::of(ErrorKind::Shapes, "`EmbeddingBag` has no maximum of empty bags")
                    .got(bags.shape())
                    .expected("at least one index in each bag")
            })?;
            let rows = with(f64::NEG_INFINITY);
            let attrs = [("axis", 1.into()), ("keepdim", true.into())];
            let first = rows.unary("argmax", &attrs);
            let max = cx.op("take_along", &[rows, first], &[("axis", 1.into())]).squeeze(&[1]);
            let max = match counted {
                Some(counted) => {
                    let any = counted.reduce("any", Some(&[1]), false);
                    any.select(max, max.scalar(0.0))
                }
                None => max,
            };
            max.cast(w.dtype())
        }
    })
}
