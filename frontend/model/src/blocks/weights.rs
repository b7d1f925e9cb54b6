//! Blocks whose weight is computed from other params: its spectral norm, or its norms, are fixed or
//! learned.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dim::Dim;
use mithril_ir::graph::Role;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::compose::block;
use super::layers::LAYER;
use super::parameter::{Range, required, with};
use super::{Default, Entry, Kind, Meaning, Parameter, Settings, Value, Wrapper, written};
use crate::block::{Block, quoted};
use crate::definition::{Outlet, Terminal};
use crate::init::{Init, Norms, Rule, Singular, Start};
use crate::lower::Cx;

const BLOCK: Parameter = required("block", Kind::Block).doc("the block that has the weight");
const WEIGHT: Parameter = with("weight", Kind::Str, Default::Str("w")).doc("the name of the param");
const AXIS: Parameter = with("axis", Kind::Int, Default::None)
    .doc("the axis of the weight along which outputs lie; found from the block if omitted");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "SpectralNorm",
        source: "Miyato et al. 2018, alg. 1",
        doc: "`block` with its weight divided by its spectral norm, the largest singular value of \
              the weight as a matrix (outputs, all other axes). The terminals are those of \
              `block`. For a weight `w`, the states `w_u` and `w_v` are estimates of the singular \
              vectors. Each call in training improves them by steps of the power iteration; \
              inference only uses them. They start as PyTorch's do: random numbers, improved by 15 \
              steps for the weight of the first call.",
        example: written(
            "block = ml.SpectralNorm(ml.Linear(2, use_bias=False), n_power_iterations=20)\n\
             compiled = ml.compile(block, ml.NumpyBackend(), shapes={\"input\": [1, 2]})\n\
             params = {\"w\": np.float32([[4, 0], [0, 2]])}\n\
             print(compiled.evaluate(params, {\"input\": np.float32([[1, 1]])})[\"output\"])\n",
            "[[1.  0.5]]",
        ),
        parameters: &[
            BLOCK,
            WEIGHT,
            with("n_power_iterations", Kind::Count, Default::Int(1))
                .doc("the number of steps in each call in training"),
            with("eps", Kind::Float(Range::NotNegative), Default::Float(1e-12))
                .doc("the least norm by which vectors are divided"),
            AXIS,
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Wrap(&Wrapper {
            terminals: spectral_terminals,
            outlets,
            shape: spectral_shape,
            lower: spectral,
        }),
        ..LAYER
    },
    Entry {
        name: "WeightNorm",
        source: "Salimans & Kingma 2016, eq. 2",
        doc: "`block` with its weight given by a direction and a norm for each output: \
              `w = w_g * w_v / norm(w_v)`, where the params `w_g` and `w_v` replace `w`. The other \
              terminals are those of `block`. `w_v` starts as `w` does in `block`, and `w_g` as its \
              norms.",
        example: written(
            "block = ml.WeightNorm(ml.Linear(1, use_bias=False))\n\
             compiled = ml.compile(block, ml.NumpyBackend(), shapes={\"input\": [1, 2]})\n\
             params = {\"w_g\": np.float32([[10]]), \"w_v\": np.float32([[3], [4]])}\n\
             print(compiled.evaluate(params, {\"input\": np.float32([[1, 1]])})[\"output\"])\n",
            "[[14.]]",
        ),
        parameters: &[
            BLOCK,
            WEIGHT,
            AXIS,
            with("whole", Kind::Bool, Default::Bool(false))
                .doc("one norm for the whole weight, as with `dim=None` in PyTorch"),
        ],
        inputs: &[],
        outputs: &[],
        meaning: Meaning::Wrap(&Wrapper {
            terminals: norm_terminals,
            outlets,
            shape: norm_shape,
            lower: weight_norm,
        }),
        ..LAYER
    },
];

/// The block inside, and the index of its weight among its inputs. Errors: a model, a block that is
/// connected already, or that has no such param.
fn inner(settings: &Settings) -> Result<(Block, usize)> {
    let inner = block(settings, "block")?;
    let name = settings.text("weight");
    let params = inner.inputs().iter().filter(|t| t.role == Role::Param);
    let params: Vec<&str> = params.map(|t| &*t.name).collect();
    let found = inner.inputs().iter().position(|t| *t.name == *name && t.role == Role::Param);
    let Some(at) = found else {
        let what = format!("`{}` has no param `{name}`", inner.kind());
        let error = Diagnostic::of(ErrorKind::Terminal, what).got(format!("weight=\"{name}\""));
        let mut error = match params.is_empty() {
            true => error.expected("a block that learns a weight, such as `Linear`"),
            false => error.expected(quoted(&params)),
        };
        error.hint = did_you_mean(name, params.iter().copied());
        return error.err();
    };
    if !inner.is_plain() {
        let what = format!("`{}` is not a single layer", inner.kind());
        return Diagnostic::of(ErrorKind::Setting, what)
            .got("a model of blocks, or a block with connections")
            .expected("a layer without connections, such as `Linear` or `Conv2d`")
            .hint("wrap the layer whose weight it is, and build the model of the result")
            .err();
    }
    Ok((inner, at))
}

/// What a checked setting has.
fn inside(cx: &Cx) -> Result<(Block, usize)> {
    inner(cx.settings)
}

fn outlets(settings: &Settings) -> Result<Vec<Outlet>> {
    Ok(inner(settings)?.0.outputs().to_vec())
}

fn named(settings: &Settings, suffix: &str) -> String {
    format!("{}_{suffix}", settings.text("weight"))
}

/// A param or a state with the dtype of the block, whose shape is inferred.
fn learned(name: String, role: Role, start: Start) -> Terminal {
    Terminal { role, inferred: true, start, ..Terminal::data(name, Class::Float) }
}

fn spectral_terminals(settings: &Settings) -> Result<Vec<Terminal>> {
    let (inner, at) = inner(settings)?;
    let mut terminals = inner.inputs().to_vec();
    let axis = settings.int("axis").or_else(|| output_axis(&inner, at, true));
    let axis = axis.map_or(Norms::Outputs, Norms::Along);
    for vector in ["u", "v"] {
        let start = Start {
            rule: Rule::Known(Init::Singular(Singular { axis, is_left: vector == "u" })),
            fan_of: Some(at as u32),
            transposed: false,
            stacked: false,
        };
        terminals.push(learned(named(settings, vector), Role::State, start));
    }
    Ok(terminals)
}

fn norm_terminals(settings: &Settings) -> Result<Vec<Terminal>> {
    let (inner, at) = inner(settings)?;
    let mut terminals = inner.inputs().to_vec();
    let direction = named(settings, "v");
    let start = terminals[at].start.clone();
    let axis = settings.int("axis").or_else(|| output_axis(&inner, at, false));
    let norms = match axis {
        _ if settings.flag("whole") => Norms::Whole,
        Some(axis) => Norms::Along(axis),
        None => Norms::Outputs,
    };
    terminals[at] = Terminal { name: direction.into(), ..terminals[at].clone() };
    let start = Start {
        rule: Rule::Known(Init::Norms(norms)),
        fan_of: Some(at as u32),
        transposed: start.transposed,
        stacked: false,
    };
    terminals.push(learned(named(settings, "g"), Role::Param, start));
    Ok(terminals)
}

/// The axis of outputs, as an index from the front. `None`: it depends on the rank of the weight.
/// The kernels of transposed convolutions are (in, out, sizes …), but PyTorch's norms of weights are
/// along their first axis as well.
fn output_axis(block: &Block, at: usize, spectral: bool) -> Option<i64> {
    match block.kind().starts_with("ConvTranspose") {
        true => Some(i64::from(spectral)),
        false => block.inputs()[at].start.transposed.then_some(0),
    }
}

/// The axis of outputs of a weight. A matrix is (in, out) unless it says otherwise, a kernel
/// (out, in, sizes …). Errors: no such axis; a weight that is not a matrix.
fn axis_of(cx: &Cx, shape: &Shape, spectral: bool) -> Result<usize> {
    let (inner, at) = inside(cx)?;
    let rank = shape.need_rank()?;
    if rank < 2 && spectral {
        return Diagnostic::of(ErrorKind::Shapes, "the weight has no spectral norm")
            .got(format!("`{}` of shape {shape}", cx.text("weight")))
            .expected("at least two axes")
            .err();
    }
    match cx.settings.int("axis").or_else(|| output_axis(&inner, at, spectral)) {
        Some(axis) => shape.axis(axis),
        None => shape.axis(i64::from(rank == 2)),
    }
}

/// The shape of the weight according to the block inside.
fn weight_shape(cx: &Cx) -> Result<Shape> {
    let (inner, at) = inside(cx)?;
    let name = inner.inputs()[at].name.clone();
    cx.inside(&inner, (&name, None), |cx, entry| cx.inferred_shape(entry, &name))
}

/// The shape of an input of the block inside.
fn other_shape(cx: &Cx, name: &str) -> Result<Shape> {
    let (inner, at) = inside(cx)?;
    let weight = inner.inputs()[at].name.clone();
    cx.inside(&inner, (&weight, None), |cx, entry| cx.inferred_shape(entry, name))
}

fn spectral_shape(cx: &Cx, name: &str) -> Result<Shape> {
    let weight = cx.text("weight");
    let vector = name.strip_prefix(weight).filter(|rest| ["_u", "_v"].contains(rest));
    let Some(vector) = vector else {
        return if name == weight { weight_shape(cx) } else { other_shape(cx, name) };
    };
    let shape = weight_shape(cx)?;
    let axis = axis_of(cx, &shape, true)?;
    let rows = shape.dims[axis].clone();
    let others = shape.dims.iter().enumerate().filter(|(i, _)| *i != axis);
    let columns: Dim = others.map(|(_, dim)| dim.clone()).product();
    Ok(Shape::new([if vector == "_u" { rows } else { columns }]))
}

fn norm_shape(cx: &Cx, name: &str) -> Result<Shape> {
    let weight = cx.text("weight");
    match name.strip_prefix(weight) {
        Some("_v") => weight_shape(cx),
        Some("_g") => {
            let shape = weight_shape(cx)?;
            if cx.flag("whole") {
                return Ok(Shape::scalar());
            }
            let axis = axis_of(cx, &shape, false)?;
            let dims = shape.dims.iter().enumerate();
            let kept = dims.map(|(i, dim)| if i == axis { dim.clone() } else { Dim::Const(1) });
            Ok(Shape::new(kept.collect::<Vec<_>>()))
        }
        _ => other_shape(cx, name),
    }
}

/// The outputs of the block inside, with this weight.
fn applied(cx: &Cx, weight: Var) -> Result<Vec<Value>> {
    let (inner, at) = inside(cx)?;
    let name = inner.inputs()[at].name.clone();
    cx.builder.check()?;
    cx.inside(&inner, (&name, Some(weight.value)), |cx, entry| cx.emit(entry))
}

/// A vector divided by its norm, or by `eps` if that is larger.
fn normalized<'a>(x: Var<'a>, eps: f64) -> Var<'a> {
    let norm = (x * x).sum(None, false).sqrt();
    x / norm.binary("maximum", x.scalar(eps))
}

fn spectral(cx: &Cx) -> Result<Vec<Value>> {
    let weight = cx.var(cx.text("weight"));
    let axis = axis_of(cx, &weight.shape(), true)?;
    let rank = weight.shape().dims.len() as i64;
    let (mut u, mut v) =
        (cx.var(&named(cx.settings, "u")).widened(), cx.var(&named(cx.settings, "v")).widened());
    // The matrix (outputs, all other axes).
    let first = axis as i64;
    let order: Vec<i64> = [first].into_iter().chain((0..rank).filter(|i| *i != first)).collect();
    let ordered = if axis == 0 { weight } else { weight.transpose(&order) };
    let (rows, columns) = (u.shape().dims[0].clone(), v.shape().dims[0].clone());
    let matrix = ordered.reshape(Shape::new([rows, columns])).widened();
    if cx.training() {
        let constant = matrix.stop_gradient();
        let eps = cx.float("eps");
        (u, v) = (u.stop_gradient(), v.stop_gradient());
        for _ in 0..cx.int("n_power_iterations") {
            u = normalized(constant.matmul(v), eps);
            v = normalized(u.matmul(constant), eps);
        }
    }
    (u, v) = (u.stop_gradient(), v.stop_gradient());
    let norm = (u * matrix.matmul(v)).sum(None, false).named("spectral_norm");
    let scaled = (weight.widened() / norm).cast(weight.dtype()).named("normalized");
    let mut values = applied(cx, scaled)?;
    if cx.training() {
        values.extend([u, v].map(|vector| vector.cast(weight.dtype()).value));
    }
    Ok(values)
}

fn weight_norm(cx: &Cx) -> Result<Vec<Value>> {
    let (norm, direction) = (cx.var(&named(cx.settings, "g")), cx.var(&named(cx.settings, "v")));
    let wide = direction.widened();
    let rank = wide.shape().need_rank()? as i64;
    let others: Option<Vec<i64>> = match cx.flag("whole") {
        true => None,
        false => {
            let axis = axis_of(cx, &wide.shape(), false)? as i64;
            Some((0..rank).filter(|i| *i != axis).collect())
        }
    };
    let length = match &others {
        Some(axes) if axes.is_empty() => wide.unary("abs", &[]),
        _ => (wide * wide).sum(others.as_deref(), others.is_some()).sqrt(),
    };
    let weight = wide * (norm.widened() / length);
    applied(cx, weight.cast(direction.dtype()).named("weight"))
}
