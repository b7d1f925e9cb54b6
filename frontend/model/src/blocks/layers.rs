//! Layers: blocks with params, and normalisations.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::{INPUT, done};
use super::embeddings::{EMBEDDING, EMBEDDING_BAG};
use super::parameter::{Range, required, with};
use super::{
    BASE, Default, Entry, Group, Input, Kind, Meaning, Parameter, data, gives, param,
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
    EMBEDDING,
    EMBEDDING_BAG,
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
