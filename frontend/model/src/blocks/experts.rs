//! Mixtures of experts: layers of which each token uses a few.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::layers::{INIT, LAYER};
use super::parameter::{required, with};
use super::{Default, Entry, Kind, Meaning, Output, Value, data, gives, out, param, written};
use crate::init::Init;
use crate::lower::Cx;

const OUTPUTS: &[Output] = &[out("output"), out("balance")];

pub(super) const BLOCKS: &[Entry] = &[Entry {
    name: "MoE",
    doc: "A mixture of experts (Shazeer et al. 2017): each token, a row of `input` (…, width), goes \
          to the `k` of `experts` MLPs for which the router `input @ w_router` is largest. `output` \
          is the sum of their results, weighted by the softmax of the `k` largest logits (Jiang \
          et al. 2024), or of all logits if not `normalize` (Fedus et al. 2022). An expert computes \
          `activation(x @ w_in) @ w_out`, with `gated` `(activation(x @ w_in) * (x @ w_gate)) @ \
          w_out`, for its own tokens alone. `balance` is the loss that spreads tokens evenly \
          (Fedus et al. 2022, eq. 4): `experts` times the sum, over the experts, of the share of \
          tokens that go to the expert times the mean of its probability. It is 1 if experts are \
          used equally.",
    example: gives(&["np.ones((2, 5, 8), \"float32\")"], "(2, 5, 8) ()")
        .with_settings("experts=4, k=2"),
    parameters: &[
        required("experts", Kind::Count).doc("the number of experts"),
        with("k", Kind::Count, Default::Int(2)).doc("the number of experts of a token"),
        with("dimension", Kind::Count, Default::None)
            .doc("the width of the hidden layer of an expert; defaults to 4 times the width"),
        with("activation", Kind::OneOf(ACTIVATIONS), Default::Str("relu"))
            .doc("the activation of the hidden layer"),
        with("gated", Kind::Bool, Default::Bool(false))
            .doc("multiply the hidden layer by another product with the tokens, as SwiGLU does"),
        with("use_bias", Kind::Bool, Default::Bool(false)).doc("learn biases of the experts"),
        with("normalize", Kind::Bool, Default::Bool(true))
            .doc("make the weights of the experts of a token add up to 1"),
        INIT,
    ],
    inputs: &[
        data("input", Class::Float),
        param("w_router", Init::FanIn, |cx| {
            Ok(Shape::new([cx.last_dim("input")?, Dim::Const(cx.int("experts"))]))
        })
        .doc("(width, experts)"),
        param("w_in", Init::Scaled, |cx| matrices(cx, true))
            .takes_init()
            .doc("(experts, width, dimension)"),
        param("w_gate", Init::Scaled, |cx| matrices(cx, true))
            .takes_init()
            .when(|s| s.flag("gated"))
            .doc("(experts, width, dimension)"),
        param("w_out", Init::Scaled, |cx| matrices(cx, false))
            .takes_init()
            .doc("(experts, dimension, width)"),
        param("b_in", Init::Zeros, |cx| biases(cx, true))
            .when(|s| s.flag("use_bias"))
            .doc("(experts, dimension)"),
        param("b_gate", Init::Zeros, |cx| biases(cx, true))
            .when(|s| s.flag("use_bias") && s.flag("gated"))
            .doc("(experts, dimension)"),
        param("b_out", Init::Zeros, |cx| biases(cx, false))
            .when(|s| s.flag("use_bias"))
            .doc("(experts, width)"),
    ],
    outputs: OUTPUTS,
    valid: |settings| {
        let [experts, k] = ["experts", "k"].map(|name| settings.int(name).unwrap_or(0));
        if k <= experts {
            return Ok(());
        }
        Diagnostic::of(ErrorKind::Setting, "`k` of `MoE` is more than `experts`")
            .got(format!("k {k}, experts {experts}"))
            .expected(format!("`k` of at most {experts}"))
            .err()
    },
    meaning: Meaning::Lower(mixture),
    ..LAYER
}];

/// The product that a mixture consists of.
pub(super) const PRODUCTS: &[Entry] = &[Entry {
    example: written(
        "shapes = {\"left\": [\"rows\", 2], \"right\": [2, 2, 1], \"offsets\": [2]}\n\
         block = ml.GroupedMatrixMultiply()\n\
         compiled = ml.compile(block, ml.NumpyBackend(), shapes=shapes)\n\
         inputs = {\n\
         \x20   \"left\": np.float32([[1, 2], [3, 4], [5, 6]]),\n\
         \x20   \"right\": np.float32([[[1], [0]], [[0], [1]]]),\n\
         \x20   \"offsets\": np.array([1, 3]),\n\
         }\n\
         print(compiled.evaluate({}, inputs)[\"output\"])\n",
        "[[1.]\n [4.]\n [6.]]",
    ),
    inputs: &[
        data("left", Class::Float).doc("(rows, k)"),
        data("right", Class::Float).doc("(groups, k, n)"),
        data("offsets", Class::Int)
            .own_dtype()
            .doc("(groups), the end of each group of rows, in ascending order"),
    ],
    ..LAYER.row(
        "GroupedMatrixMultiply",
        "The product of each row of `left` with the matrix of its group: (rows, n). Group i has the \
         rows from `offsets[i - 1]` to `offsets[i]`, as in `torch.nn.functional.grouped_mm`. Rows \
         after the last group give 0.",
        grouped,
    )
}];

fn grouped(cx: &Cx) -> Result<Vec<Value>> {
    let (left, right, offsets) = (cx.var("left"), cx.var("right"), cx.var("offsets"));
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "rows, matrices and offsets do not match")
            .got(format!("{}, {} and {}", left.shape(), right.shape(), offsets.shape()))
            .expected("(rows, k), (groups, k, n) and (groups), with a known number of groups")
    };
    for (part, rank) in [(left, 2), (right, 3), (offsets, 1)] {
        cx.need_rank(part, rank, wrong)?;
    }
    let groups = right.shape().dims[0].clone();
    match groups.as_const() {
        Some(1..) => {}
        Some(_) => return wrong().err(),
        None => return wrong().hint("give the number of groups in `shapes=`").err(),
    }
    cx.need_same(&groups, &offsets.shape().dims[0], wrong)?;
    let rows = Shape::new([left.shape().dims[0].clone(), Dim::Const(1)]);
    let row = cx.iota(rows, 0, offsets.dtype());
    let after = row.binary("ge", offsets.expand_dims(&[0])).cast(offsets.dtype());
    let group = after.sum(Some(&[-1]), false);
    let last = group.scalar((groups.as_const().unwrap_or(1) - 1) as f64);
    let inside = group.binary("le", last).expand_dims(&[-1]);
    let group = group.binary("minimum", last);
    let product = cx.op("grouped_matmul", &[left, right, group], &[]);
    done(inside.select(product, product.scalar(0.0)))
}

const ACTIVATIONS: &[&str] = &["relu", "gelu", "silu", "tanh", "sigmoid"];

/// The widths of tokens and of hidden layers.
fn widths(cx: &Cx) -> Result<[Dim; 2]> {
    let width = cx.last_dim("input")?;
    let hidden = match cx.settings.int("dimension") {
        Some(dimension) => Dim::Const(dimension),
        None => &width * &Dim::Const(4),
    };
    Ok([width, hidden])
}

fn matrices(cx: &Cx, is_first: bool) -> Result<Shape> {
    let [width, hidden] = widths(cx)?;
    let sides = if is_first { [width, hidden] } else { [hidden, width] };
    Ok(Shape::new([Dim::Const(cx.int("experts"))].into_iter().chain(sides)))
}

fn biases(cx: &Cx, is_first: bool) -> Result<Shape> {
    let [width, hidden] = widths(cx)?;
    Ok(Shape::new([Dim::Const(cx.int("experts")), if is_first { hidden } else { width }]))
}

/// A layer of the experts: the product of each row with its expert's matrix, plus the bias.
fn layer<'a>(cx: &Cx<'a>, rows: Var<'a>, expert: Var<'a>, name: &str) -> Var<'a> {
    let product = cx.op("grouped_matmul", &[rows, cx.var(&format!("w_{name}")), expert], &[]);
    let bias = cx.optional(&format!("b_{name}"));
    bias.map_or(product, |bias| product + cx.op("take", &[bias, expert], &[("axis", 0.into())]))
}

fn mixture(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.builder.var(cx.var("input").value);
    let shape = x.shape();
    let rank = shape.need_rank()?;
    let (width, k) = (cx.last_dim("input")?, Dim::Const(cx.int("k")));
    let tokens: Dim = shape.dims[..rank - 1].iter().cloned().product();
    let rows = x.reshape(Shape::new([tokens.clone(), width.clone()])).named("tokens");
    let logits = rows.matmul(cx.var("w_router")).named("logits");
    let axis = [("axis", (-1).into())];
    let chosen = logits.unary("argtopk", &[axis[0].clone(), ("k", cx.int("k").into())]);
    let chosen = chosen.named("experts");
    let probabilities = logits.unary("softmax", &axis).named("probabilities");
    let weights = match cx.flag("normalize") {
        true => cx.op("take_along", &[logits, chosen], &axis).unary("softmax", &axis),
        false => cx.op("take_along", &[probabilities, chosen], &axis),
    }
    .named("weights");
    // Each token once for each of its experts.
    let expert = chosen.reshape(Shape::new([&tokens * &k])).named("expert");
    let each = Shape::new([tokens.clone(), k.clone(), width.clone()]);
    let copies = rows.expand_dims(&[1]).broadcast_to(each.clone());
    let copies = copies.reshape(Shape::new([&tokens * &k, width])).named("copies");
    let mut hidden = layer(cx, copies, expert, "in").unary(cx.text("activation"), &[]);
    if cx.flag("gated") {
        hidden = hidden * layer(cx, copies, expert, "gate");
    }
    let results = layer(cx, hidden.named("hidden"), expert, "out").reshape(each);
    let output = (results * weights.expand_dims(&[-1])).sum(Some(&[1]), false).reshape(shape);
    let attrs = [("classes", cx.int("experts").into()), ("dtype", x.dtype().into())];
    let share = expert.unary("one_hot", &attrs).reduce("mean", Some(&[0]), false).named("share");
    let probability = probabilities.reduce("mean", Some(&[0]), false);
    let balance = (share * probability).sum(None, false) * cx.int("experts") as f64;
    Ok(vec![output.value, balance.value])
}
