//! Classical machine learning: distances, kernels, and models that are linear in features.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::compose::{block, linear};
use super::elementwise::{INPUT, done};
use super::layers::LAYER;
use super::parameter::{required, with};
use super::polynomials::polynomial_features;
use super::reduce::above_zero;
use super::{
    BASE, Default, Entry, Group, Input, Kind, Meaning, Parameter, Settings, build, data, gives,
    out, param, written,
};
use crate::init::Init;
use crate::lower::Cx;
use crate::model::Model;

pub(super) const DTYPE: Parameter = with("dtype", Kind::DType, Default::None)
    .doc("the dtype; defaults to that of the backend's floats");
const FINAL: Parameter = with("get_final_distance", Kind::Bool, Default::Bool(true))
    .doc("take the root of the sums of powers");
const DEGREE: Parameter = required("degree", Kind::Count).doc("the largest degree of a product");

const LEFT_RIGHT: &[Input] = &[
    data("left", Class::Float).doc("(n, features)"),
    data("right", Class::Float).doc("(m, features)"),
];
const SAMPLES: [Input; 2] = [
    data("input1", Class::Float).doc("(n, features)"),
    data("input2", Class::Float).doc("(m, features)"),
];

const fn scalar(name: &'static str, init: Init) -> Input {
    param(name, init, |_| Ok(Shape::new([]))).doc("a number")
}

/// A function of samples that learns at most numbers.
const CLASSICAL: Entry = Entry { group: Group::Layer, inputs: INPUT, same_dtype: true, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "left[:, None] - right[None]",
        example: gives(&["[[1], [2]]", "[[0], [5], [7]]"], "(2, 3, 1)"),
        inputs: LEFT_RIGHT,
        ..CLASSICAL.row(
            "CartesianDifference",
            "The difference of each row of `left` and each row of `right`: (n, m, features).",
            |cx| done(differences(cx.var("left"), cx.var("right"))?),
        )
    },
    Entry {
        formula: "sqrt(sum((left[:, None] - right[None]) ** 2, -1))",
        example: gives(&["[[0, 0], [3, 4]]", "[[0, 0]]"], "[[0.]\n [5.]]"),
        parameters: &[FINAL],
        inputs: &[
            LEFT_RIGHT[0],
            LEFT_RIGHT[1],
            data("norm", Class::Float)
                .optional()
                .doc("the order of the norm, a number; 2 if it is not connected"),
        ],
        ..CLASSICAL.row(
            "DistanceMatrix",
            "The distance of each row of `left` from each row of `right`: (n, m). Distances of 0 \
             have a gradient of 0.",
            |cx| {
                let (left, right) = (cx.var("left"), cx.var("right"));
                done(distances(cx, left, right, cx.optional("norm"))?)
            },
        )
    },
    Entry {
        example: gives(&["[[0, 0], [3, 4]]"], "[[0. 5.]\n [5. 0.]]").with_params(&["2"]),
        parameters: &[FINAL],
        inputs: &[
            SAMPLES[0],
            data("input2", Class::Float).optional().doc("(m, features); `input1` if omitted"),
            scalar("norm", Init::Constant(2f64.to_bits())),
        ],
        ..CLASSICAL.row(
            "EncoderDistanceMatrix",
            "`DistanceMatrix` with a norm that is learned, and that `NormModifier` keeps from 1 \
             to 5. It starts at 2.",
            |cx| {
                let left = cx.var("input1");
                let norm = modified(cx.var("norm"));
                let right = cx.optional("input2").unwrap_or(left);
                done(distances(cx, left, right, Some(norm))?)
            },
        )
    },
    Entry {
        formula: "5 - abs((input - 1) % 8 - 4)",
        example: gives(&["[0, 1, 2, 5, 6]"], "[2. 1. 2. 5. 4.]"),
        ..CLASSICAL.row(
            "NormModifier",
            "`input` folded into the range from 1 to 5: it stays within, and is reflected at the \
             ends, as often as needed.",
            |cx| done(modified(cx.var("input"))),
        )
    },
    Entry {
        formula: "diagonal(input, 0, -2, -1)[..., None]",
        example: gives(&["[[1, 2], [3, 4]]"], "[[1.]\n [4.]]"),
        inputs: &[data("input", Class::Any)],
        ..CLASSICAL.row(
            "TransposedDiagonal",
            "The diagonal of the last two axes as a column.",
            |cx| done(cx.var("input").unary("diagonal", &[]).expand_dims(&[-1])),
        )
    },
    Entry {
        formula: "1 - eye(n, m)",
        example: gives(&[], "[[0. 1. 1.]\n [1. 0. 1.]]").with_settings("2, 3"),
        group: Group::Shape,
        parameters: &[
            required("n", Kind::Count).doc("the number of rows"),
            with("m", Kind::Count, Default::None).doc("the number of columns; defaults to `n`"),
            DTYPE,
        ],
        ..BASE.row(
            "EyeComplement",
            "The (n, m) matrix with 0 on the diagonal and 1 elsewhere; `m` defaults to `n`.",
            |cx| {
                let (rows, columns) = (cx.int("n"), cx.settings.int("m"));
                let dims = [rows, columns.unwrap_or(rows)].map(Dim::Const);
                let dtype = cx.settings.dtype("dtype").unwrap_or(cx.float);
                let attrs = [("shape", Shape::new(dims).into()), ("dtype", dtype.into())];
                done(-cx.op("eye", &[], &attrs) + 1.0)
            },
        )
    },
    Entry {
        formula: "sigma**2 * exp(-sum((input1[:, None] - input2[None]) ** 2, -1) / (2 * \
                  l_scale**2))",
        example: gives(&["[[0], [2]]", "[[0], [1]]"], "[[4.     3.53  ]\n [2.4261 3.53  ]]")
            .with_params(&["2", "2"]),
        inputs: &[
            SAMPLES[0],
            SAMPLES[1],
            scalar("l_scale", Init::Ones),
            scalar("sigma", Init::Ones),
        ],
        ..CLASSICAL.row(
            "RBFKernel",
            "`sigma^2 exp(-|x - y|^2 / (2 l_scale^2))` of each row x of `input1` and y of \
             `input2`. Both numbers are learned, and start at 1. scikit-learn's `gamma` is \
             `1 / (2 l_scale^2)`.",
            |cx| {
                let (length, sigma) = (cx.var("l_scale"), cx.var("sigma"));
                let square = squares(cx.var("input1"), cx.var("input2"))?;
                done((-square / (length * length * 2.0)).exp() * (sigma * sigma))
            },
        )
    },
    Entry {
        formula: "(input1 @ input2.T + poly_coef) ** degree",
        example: gives(&["[[1, 0], [1, 1]]", "[[2, 3]]"], "[[ 9.]\n [36.]]")
            .with_settings("degree=2")
            .with_params(&["1"]),
        parameters: &[with("degree", Kind::Count, Default::Int(3)).doc("the power")],
        inputs: &[SAMPLES[0], SAMPLES[1], scalar("poly_coef", Init::Ones)],
        ..CLASSICAL.row(
            "PolynomialKernel",
            "`(x · y + poly_coef)^degree` of each row x of `input1` and y of `input2`. `poly_coef` \
             is learned, and starts at 1.",
            |cx| {
                // Powers of rounded products lose digits of halves.
                let (x, y) = (cx.var("input1"), cx.var("input2"));
                let product = x.widened().matmul(y.widened().swap_last());
                let sum = product + cx.var("poly_coef").widened();
                let power = sum.binary("pow", sum.scalar(cx.int("degree") as f64));
                done(power.cast(x.dtype()))
            },
        )
    },
    Entry {
        name: "KernelizedSVM",
        doc: "The decision function of a support vector machine: a `Linear` of `dimension` after \
              `kernel` of `input1` and the support vectors `input2`. Its weights are the dual \
              coefficients.",
        example: gives(&["[[0], [2]]", "[[0], [1], [3]]"], "(2, 1)")
            .with_settings("ml.RBFKernel()"),
        parameters: &[
            required("kernel", Kind::Block)
                .doc("a block with terminals `input1` and `input2`, such as `RBFKernel()`"),
            with("dimension", Kind::Count, Default::Int(1)).doc("the width of the output"),
        ],
        inputs: &SAMPLES,
        meaning: Meaning::Compose(|settings| {
            let model = Model::new();
            let kernel = block(settings, "kernel")?;
            let kernel = kernel.connect([("input1", "input1"), ("input2", "input2")])?;
            let result = model.apply(kernel)?;
            let dimension = settings.int("dimension").unwrap_or(1);
            let linear = linear(dimension, true, None)?.input(result)?;
            model.connect(linear.output("output")?)?;
            Ok(model)
        }),
        ..LAYER
    },
    Entry {
        name: "LinearSVM",
        doc: "A `Linear` of one output, and in `decision_output` its sign. It is trained with \
              `HingeLoss` or `QuadHingeLoss`, and `L2` of its weights.",
        example: written(
            "compiled = ml.compile(ml.LinearSVM(), ml.NumpyBackend())\n\
             params = {\"linear.w\": np.float32([[1], [-1]]), \"linear.b\": np.float32([0.5])}\n\
             outputs = compiled.evaluate(params, {\"input\": np.float32([[1, 2]])})\n\
             print(outputs[\"output\"], outputs[\"decision_output\"])\n",
            "[[-0.5]] [[-1.]]",
        ),
        inputs: INPUT,
        outputs: &[out("output"), out("decision_output")],
        meaning: Meaning::Compose(|_| scored(1, "Sign", "decision_output")),
        ..LAYER
    },
    Entry {
        name: "LogisticRegression",
        doc: "A `Linear` of `dimension`, which gives scores for `BinaryCrossEntropy`, and in \
              `probs_output` their `Sigmoid`.",
        example: written(
            "compiled = ml.compile(ml.LogisticRegression(), ml.NumpyBackend())\n\
             params = {\"linear.w\": np.float32([[1], [-1]]), \"linear.b\": np.float32([0.5])}\n\
             outputs = compiled.evaluate(params, {\"input\": np.float32([[1, 2]])})\n\
             print(outputs[\"output\"], outputs[\"probs_output\"])\n",
            "[[-0.5]] [[0.3775]]",
        ),
        parameters: &[with("dimension", Kind::Count, Default::Int(1)).doc("the number of scores")],
        inputs: INPUT,
        outputs: &[out("output"), out("probs_output")],
        meaning: Meaning::Compose(|settings| {
            scored(settings.int("dimension").unwrap_or(1), "Sigmoid", "probs_output")
        }),
        ..LAYER
    },
    Entry {
        example: written(
            "features = ml.PolynomialFeatures(degree=2)\n\
             compiled = ml.compile(features, ml.NumpyBackend(), shapes={\"input\": [1, 2]})\n\
             print(compiled.evaluate({}, {\"input\": np.float32([[2, 3]])})[\"output\"])\n",
            "[[2. 3. 4. 6. 9.]]",
        ),
        parameters: &[
            DEGREE,
            with("include_bias", Kind::Bool, Default::Bool(false))
                .doc("begin with a feature that is 1"),
        ],
        ..CLASSICAL.row(
            "PolynomialFeatures",
            "The products of up to `degree` features, which are the last axis of `input`, in the \
             order of scikit-learn: by degree, then by feature.",
            polynomial_features,
        )
    },
    Entry {
        name: "PolynomialRegression",
        doc: "A `Linear` of `dimension` after `PolynomialFeatures` of `degree`.",
        example: written(
            "model = ml.PolynomialRegression(degree=2)\n\
             compiled = ml.compile(model, ml.NumpyBackend(), shapes={\"input\": [1, 2]})\n\
             params = compiled.randomize_params()\n\
             print(compiled.evaluate(params, {\"input\": np.float32([[2, 3]])})[\"output\"].shape)\n",
            "(1, 1)",
        ),
        parameters: &[
            DEGREE,
            with("dimension", Kind::Count, Default::Int(1)).doc("the width of the output"),
        ],
        inputs: INPUT,
        meaning: Meaning::Compose(regression),
        ..LAYER
    },
];

/// The differences of rows: (n, m, features). Errors: an input that is no matrix.
fn differences<'a>(left: Var<'a>, right: Var<'a>) -> Result<Var<'a>> {
    for shape in [left.shape(), right.shape()] {
        if shape.need_rank()? < 2 {
            return Diagnostic::of(ErrorKind::Shapes, "samples are rows of a matrix")
                .got(shape)
                .expected("(samples, features)")
                .err();
        }
    }
    Ok(left.expand_dims(&[-2]) - right.expand_dims(&[-3]))
}

/// The squares of distances: (n, m).
pub(super) fn squares<'a>(left: Var<'a>, right: Var<'a>) -> Result<Var<'a>> {
    let difference = differences(left, right)?;
    Ok((difference * difference).sum(Some(&[-1]), false))
}

/// The root of a sum of squares. Where it is 0, so are the numbers, and the gradient.
pub(super) fn square_root(sum: Var<'_>) -> Var<'_> {
    let none = sum.binary("eq", sum.scalar(0.0));
    none.select(sum.scalar(0.0), (sum + none.cast(sum.dtype())).sqrt())
}

/// The distances of rows by a norm of this order, by default 2; or the sums before the root.
fn distances<'a>(
    cx: &Cx<'a>,
    left: Var<'a>,
    right: Var<'a>,
    norm: Option<Var<'a>>,
) -> Result<Var<'a>> {
    let root = cx.flag("get_final_distance");
    let Some(norm) = norm else {
        let square = squares(left, right)?;
        return Ok(if root { square_root(square) } else { square });
    };
    let size = differences(left, right)?.unary("abs", &[]);
    let sum = above_zero(size, |v| v.binary("pow", norm)).sum(Some(&[-1]), false);
    let inverse = norm.unary("reciprocal", &[]);
    Ok(if root { above_zero(sum, |v| v.binary("pow", inverse)) } else { sum })
}

/// A triangle wave from 1 to 5 that is the identity between them.
fn modified(x: Var<'_>) -> Var<'_> {
    let place = (x - 1.0).binary("mod", x.scalar(8.0));
    -(place - 4.0).unary("abs", &[]) + 5.0
}

/// A `Linear`, and a function of its result as another output.
fn scored(dimension: i64, function: &str, name: &str) -> Result<Model> {
    let model = Model::new();
    model.connect(linear(dimension, true, None)?.input("input")?.output("output")?)?;
    model.connect(build(function, vec![], vec![])?.input("output")?.output(name)?)?;
    model.expose("output")?;
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}

fn regression(settings: &Settings) -> Result<Model> {
    let model = Model::new();
    let named = vec![("degree", settings.get("degree").clone())];
    let features = build("PolynomialFeatures", vec![], named)?;
    let features = model.apply(features.input("input")?)?;
    let linear = linear(settings.int("dimension").unwrap_or(1), true, None)?;
    model.connect(linear.input(features)?.output("output")?)?;
    Ok(model)
}
