//! Layers: blocks with params, and normalisations.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

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
const AXES: Parameter = with("axis", Kind::INTS, Default::Int(-1))
    .doc("the axis or axes that are normalised, as one: `(-3, -2, -1)` for whole images");
const SCALES: Input = param("w", Init::Ones, normalised_dims)
    .takes_init()
    .when(|s| s.flag("use_scale"))
    .doc("(the dims of `axis`, in its order)");
const SHIFTS: Input = param("b", Init::Zeros, normalised_dims)
    .when(|s| s.flag("use_bias"))
    .doc("(the dims of `axis`, in its order)");

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
        name: "LayerNorm",
        doc: "`(input - mean) / sqrt(variance + eps) * w + b` over the last axis, or over the axes \
              in `axis` (Ba et al. 2016, eq. 4). `w` starts at 1, or as given by `init`, `b` at 0.",
        formula: "(input - mean(input, -1, keepdims=True)) / sqrt(var(input, -1, keepdims=True) \
                  + eps) * w + b",
        example: gives(&["[[1, 3], [10, 20]]"], "[[-1.  1.]\n [-1.  1.]]")
            .with_params(&["[1, 1]", "[0, 0]"]),
        parameters: &[EPSILON, USE_SCALE, USE_BIAS, INIT, AXES],
        inputs: &[data("input", Class::Float), SCALES, SHIFTS],
        valid: need_axes,
        meaning: Meaning::Lower(|cx| {
            normalised(cx, |x, w, b| {
                let whole = w.and(b);
                let operands: Vec<Var> = [Some(x), w, whole].into_iter().flatten().collect();
                let normal = cx.op("layer_norm", &operands, &[epsilon(cx)]);
                match (whole, b) {
                    (None, Some(b)) => normal + b,
                    _ => normal,
                }
            })
        }),
        ..LAYER
    },
    Entry {
        name: "RMSNorm",
        doc: "`input / sqrt(mean(input^2) + eps) * w` over the last axis, or over the axes in \
              `axis` (Zhang & Sennrich 2019, eq. 4). `w` starts at 1, or as given by `init`.",
        formula: "input / sqrt(mean(input**2, -1, keepdims=True) + eps) * w",
        example: gives(&["[[1, 1], [3, -3]]"], "[[ 1.  2.]\n [ 1. -2.]]").with_params(&["[1, 2]"]),
        parameters: &[EPSILON, USE_SCALE, INIT, AXES],
        inputs: &[data("input", Class::Float), SCALES],
        valid: need_axes,
        meaning: Meaning::Lower(|cx| {
            normalised(cx, |x, w, _| {
                let operands: Vec<Var> = [Some(x), w].into_iter().flatten().collect();
                cx.op("rms_norm", &operands, &[epsilon(cx)])
            })
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

fn epsilon(cx: &Cx) -> (&'static str, Attr) {
    ("epsilon", cx.float("eps").into())
}

/// Errors: a list of no axes.
fn need_axes(settings: &Settings) -> Result<()> {
    match settings.get("axis").as_list() {
        Some([]) => Diagnostic::of(ErrorKind::Setting, "`axis` names no axis to normalise")
            .got("[]")
            .expected("at least one axis")
            .err(),
        _ => Ok(()),
    }
}

/// The normalised axes in the order of the setting, counted from the back (1 is the last). Errors:
/// an axis that is out of range or named twice.
fn normalised_axes(cx: &Cx) -> Result<Vec<usize>> {
    let shape = cx.var("input").shape();
    let given = cx.settings.ints("axis").unwrap_or_default();
    if given == [-1] {
        shape.need_trailing(1)?;
    }
    let mut axes = Vec::with_capacity(given.len());
    for axis in &given {
        let back = shape.axis_from_back(*axis)?;
        if axes.contains(&back) {
            return Diagnostic::of(ErrorKind::Shapes, format!("axis {axis} is named twice"))
                .got(format!("axes {given:?} of {shape}"))
                .expected("axes that differ")
                .err();
        }
        axes.push(back);
    }
    Ok(axes)
}

/// The shape of a param with one element for each index of the normalised axes.
fn normalised_dims(cx: &Cx) -> Result<Shape> {
    let shape = cx.var("input").shape();
    let dims = normalised_axes(cx)?;
    Ok(Shape::new(dims.iter().map(|back| shape.dims[shape.dims.len() - back].clone())))
}

/// Applies a normalisation of the last axis to `input`, `w` and `b`, whose normalised axes are moved
/// to the end and joined to one.
fn normalised<'a>(
    cx: &Cx<'a>,
    norm: impl FnOnce(Var<'a>, Option<Var<'a>>, Option<Var<'a>>) -> Var<'a>,
) -> Result<Vec<Value>> {
    let (x, w, b) = (cx.var("input"), cx.optional("w"), cx.optional("b"));
    let given = normalised_axes(cx)?;
    if given == [1] {
        return done(norm(x, w, b));
    }
    let mut axes = given.clone();
    axes.sort_unstable_by(|one, other| other.cmp(one));
    // The axes of the params that lie along these.
    let order = axes.iter().map(|axis| given.iter().position(|own| own == axis));
    let order: Vec<i64> = order.flatten().map(|at| at as i64).collect();
    let joined = |v: Var<'a>| {
        let v = if axes == given { v } else { v.transpose(&order) };
        v.reshape(Shape::new([v.shape().dims.iter().cloned().product::<Dim>()]))
    };
    let is_trailing = axes[0] == axes.len();
    let order = match is_trailing {
        true => Vec::new(),
        false => {
            let rank = x.shape().need_rank()?;
            let last: Vec<usize> = axes.iter().map(|back| rank - back).collect();
            (0..rank).filter(|axis| !last.contains(axis)).chain(last.iter().copied()).collect()
        }
    };
    let moved = if is_trailing { x } else { x.transpose(&signed(&order)) };
    let shape = moved.shape();
    let (others, last) = shape.dims.split_at(shape.dims.len() - axes.len());
    let size: Dim = last.iter().cloned().product();
    let rows =
        Shape { lead: shape.lead.clone(), dims: others.iter().cloned().chain([size]).collect() };
    let normal = norm(moved.reshape(rows), w.map(joined), b.map(joined)).reshape(shape.clone());
    if is_trailing {
        return done(normal);
    }
    let mut back = vec![0; order.len()];
    for (to, from) in order.iter().enumerate() {
        back[*from] = to;
    }
    done(normal.transpose(&signed(&back)))
}

fn signed(axes: &[usize]) -> Vec<i64> {
    axes.iter().map(|axis| *axis as i64).collect()
}
