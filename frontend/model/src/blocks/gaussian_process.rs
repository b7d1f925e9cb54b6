//! Regression with Gaussian processes, and its loss.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::compose::block;
use super::elementwise::done;
use super::layers::LAYER;
use super::parameter::required;
use super::{
    BASE, Entry, Group, Input, Kind, Meaning, Output, Value, build, data, gives, out, param,
};
use crate::init::Init;
use crate::lower::Cx;
use crate::model::{Model, Source};

const LABEL: Input = data("label", Class::Float).doc("of each sample: (n) or (n, targets)");
const OUTPUTS: &[Output] = &[out("output"), out("variance"), out("loss")];

pub(super) const LOSS: &[Entry] = &[Entry {
    example: gives(&["[[2, 1], [1, 2]]", "[1, 2]"], "3.3871832"),
    group: Group::Loss,
    inputs: &[
        data("input", Class::Float).doc("the covariance of the samples, (n, n)"),
        data("target", Class::Float).doc("(n) or (n, targets)"),
    ],
    same_dtype: true,
    ..BASE.row(
        "GaussianProcessLoss",
        "The negative logarithm of the likelihood of `target` under a Gaussian process whose \
         samples have the covariance `input`, summed over targets (Rasmussen & Williams 2006, \
         eq. 2.30). NaN if `input` is not positive definite.",
        |cx| {
            let target = cx.var("target");
            let columns = columns(target)?;
            let factor = cx.var("input").widened().unary("cholesky", &[]);
            cx.builder.check()?;
            let weights = solved(cx, factor, columns);
            done(likelihood(factor, columns, weights).cast(target.dtype()))
        },
    )
}];

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        example: gives(
            &["[[1, 0.5], [0.5, 1]]", "[[0.5, 1]]", "[[1]]", "[1, 2]"],
            "[1.0667] [0.4667] 3.5654216",
        )
        .with_params(&["1"]),
        group: Group::Layer,
        inputs: &[
            data("kernel", Class::Float).doc("of the samples: (n, n)"),
            data("cross", Class::Float).doc("of the input and the samples: (m, n)"),
            data("own", Class::Float).doc("of the input: (m, m)"),
            LABEL,
            param("noise", Init::Constant(0.1f64.to_bits()), |_| Ok(Shape::new([])))
                .doc("the standard deviation of the noise of labels, a number"),
        ],
        outputs: OUTPUTS,
        same_dtype: true,
        ..BASE.row(
            "GaussianProcessCore",
            "`GaussianProcessRegression` of the values of a kernel.",
            core,
        )
    },
    Entry {
        name: "GaussianProcessRegression",
        doc: "The mean and the `variance` of a Gaussian process at each row of `input`, (m) or (m, \
              targets) and (m), given `samples` with noisy labels; and its `loss`, which trains the \
              params of `kernel` and the noise: `GaussianProcessLoss` of the samples (Rasmussen & \
              Williams 2006, algorithm 2.1). `noise` starts at 0.1. scikit-learn's `alpha` is its \
              square.",
        example: gives(&["[[0.5]]", "[[0], [1]]", "[0, 1]"], "(1,) (1,) ()")
            .with_settings("ml.RBFKernel()"),
        parameters: &[required("kernel", Kind::Block)
            .doc("a block with terminals `input1` and `input2`, such as `RBFKernel()`")],
        inputs: &[
            data("input", Class::Float).doc("(m, features)"),
            data("samples", Class::Float).doc("(n, features)"),
            LABEL,
        ],
        outputs: OUTPUTS,
        meaning: Meaning::Compose(|settings| {
            let model = Model::new();
            let kernel = block(settings, "kernel")?;
            let pair = |first: &str, second: &str| {
                model.apply(kernel.clone().connect([("input1", first), ("input2", second)])?)
            };
            let samples = pair("samples", "samples")?;
            let (cross, own) = (pair("input", "samples")?, pair("input", "input")?);
            let core = build("GaussianProcessCore", vec![], vec![])?.connect([
                ("kernel", Source::from(samples)),
                ("cross", cross.into()),
                ("own", own.into()),
                ("label", "label".into()),
                ("output", "output".into()),
                ("variance", "variance".into()),
                ("loss", "loss".into()),
            ])?;
            model.connect(core)?;
            model.set_standard(Some("input"), Some("output"))?;
            Ok(model)
        }),
        ..LAYER
    },
];

/// The labels as a matrix with a column for each target. Errors: another number of axes.
fn columns(label: Var<'_>) -> Result<Var<'_>> {
    let shape = label.shape();
    match shape.need_rank()? {
        1 => Ok(label.widened().expand_dims(&[-1])),
        2 => Ok(label.widened()),
        _ => Diagnostic::of(ErrorKind::Shapes, "the labels of a Gaussian process have other axes")
            .got(&shape)
            .expected("(n) or (n, targets)")
            .err(),
    }
}

/// The solution of `factor @ factor.T @ x = columns`.
fn solved<'a>(cx: &Cx<'a>, factor: Var<'a>, columns: Var<'a>) -> Var<'a> {
    let half = cx.op("triangular_solve", &[factor, columns], &[]);
    cx.op("triangular_solve", &[factor, half], &[("transposed", true.into())])
}

/// The negative logarithm of the likelihood of columns, given the Cholesky factor of their
/// covariance and the solution of the system of both.
fn likelihood<'a>(factor: Var<'a>, columns: Var<'a>, weights: Var<'a>) -> Var<'a> {
    let squares = (columns * weights).sum(None, false) * 0.5;
    let logs = factor.unary("diagonal", &[]).log().sum(None, false);
    let half_log_of_two_pi = 0.9189385332046727;
    let counts = (columns.count(Some(&[-1])), columns.count(None));
    squares + logs * counts.0 + counts.1 * half_log_of_two_pi
}

fn core(cx: &Cx) -> Result<Vec<Value>> {
    let label = cx.var("label");
    let columns = columns(label)?;
    let [kernel, cross, own] = ["kernel", "cross", "own"].map(|name| cx.var(name).widened());
    for name in ["kernel", "cross", "own"] {
        cx.var(name).shape().need_trailing(2)?;
    }
    let noise = cx.var("noise").widened();
    let dims = kernel.shape().need_trailing(2)?.to_vec();
    let attrs = [("shape", Shape::new(dims).into()), ("dtype", kernel.dtype().into())];
    let identity = cx.op("eye", &[], &attrs);
    let factor = (kernel + identity * (noise * noise)).unary("cholesky", &[]).named("factor");
    cx.builder.check()?;
    let weights = solved(cx, factor, columns).named("weights");
    cx.builder.check()?;
    let mean = cross.matmul(weights);
    let explained = cx.op("triangular_solve", &[factor, cross.swap_last()], &[]);
    cx.builder.check()?;
    let variance = own.unary("diagonal", &[]) - (explained * explained).sum(Some(&[-2]), false);
    let variance = variance.binary("maximum", variance.scalar(0.0));
    let mean = if label.shape().need_rank()? == 1 { mean.squeeze(&[-1]) } else { mean };
    let loss = likelihood(factor, columns, weights);
    cx.builder.check()?;
    Ok([mean, variance, loss].map(|v| v.cast(label.dtype()).value).to_vec())
}
