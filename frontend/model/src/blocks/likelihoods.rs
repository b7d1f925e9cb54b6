//! Losses that are negative logarithms of likelihoods.

use std::f64::consts::PI;

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;
use mithril_ir::op::Class;

use super::elementwise::done;
use super::loss_terms::{check_alike, pair};
use super::losses::{LOSS, SCORE, TARGET};
use super::parameter::{Range, with};
use super::{Default, Entry, Kind, Parameter, Value, cross_entropy, data, gives};
use crate::lower::Cx;

const FULL: Parameter = with("full", Kind::Bool, Default::Bool(false))
    .doc("include the terms that depend on no learned value");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "-take_along_axis(input, target[..., None], -1)[..., 0]",
        example: gives(&["[[-0.5, -1], [-2, -0.1]]", "[0, 1]"], "[1.  0.1] [2. 1.]")
            .with_settings("weights=[2, 1]"),
        parameters: cross_entropy::OF_LOGARITHMS,
        inputs: cross_entropy::CLASSES,
        outputs: cross_entropy::OUTPUTS,
        ..LOSS.row(
            "NegativeLogLikelihood",
            "`-log p(target)`, where `input` is log p, for example from `LogSoftmax`. It is \
             `CrossEntropy` of `log_probs`: the classes are along `axis`, `weights` has a number \
             for each class, a target that is `ignore_index` has loss 0, and with either of them \
             the second output `weight` is the weight of each target, by which means divide.",
            cross_entropy::of_logarithms,
        )
    },
    Entry {
        formula: "exp(input) - target * input",
        example: gives(&["[0, 1, 2]", "[1, 1, 5]"], "[ 1.      1.7183 -2.6109]"),
        parameters: &[
            with("log_input", Kind::Bool, Default::Bool(true))
                .doc("whether `input` is the logarithm of the rate"),
            FULL,
            with("eps", Kind::Float(Range::NotNegative), Default::Float(1e-8))
                .doc("added to a rate, so that its logarithm is finite"),
        ],
        ..LOSS.row(
            "PoissonNLL",
            "The negative log-likelihood of the count `target` for a Poisson distribution: \
             `exp(input) - target input`, or `input - target log(input + eps)` if `input` is the \
             rate itself. `full` adds Stirling's approximation of `log(target!)` where `target` \
             is above 1: `target log(target) - target + log(2 pi target) / 2`. PyTorch does the \
             same.",
            poisson,
        )
    },
    Entry {
        formula: "(log(maximum(variance, eps)) + (input - target) ** 2 / maximum(variance, \
                  eps)) / 2",
        example: gives(&["[1, 2]", "[1, 0]", "[1, 4]"], "[0.     1.1931]"),
        parameters: &[
            FULL,
            with("eps", Kind::Float(Range::Positive), Default::Float(1e-6))
                .doc("the least variance"),
        ],
        inputs: &[
            SCORE,
            TARGET,
            data("variance", Class::Float)
                .doc("of the shape of `input`, with sizes of 1, or without its last axis"),
        ],
        ..LOSS.row(
            "GaussianNLL",
            "The negative log-likelihood of `target` for a normal distribution with mean `input`: \
             `(log v + (input - target)^2 / v) / 2`, where v is `max(variance, eps)`; `full` adds \
             `log(2 pi) / 2` (Nix & Weigend 1994). The gradient of `variance` is that of v, as in \
             PyTorch, so a variance below `eps` can grow.",
            gaussian,
        )
    },
];

fn poisson(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target) = pair(cx)?;
    let loss = match cx.flag("log_input") {
        true => x.exp() - target * x,
        false => x - target * (x + cx.float("eps")).log(),
    };
    if !cx.flag("full") {
        return done(loss);
    }
    // The logarithm of a target of 0 is computed nowhere: its gradient would be NaN.
    let large = target.binary("gt", target.scalar(1.0));
    let safe = large.select(target, target.scalar(1.0));
    let stirling = safe * safe.log() - safe + (safe * (2.0 * PI)).log() * 0.5;
    done(loss + large.select(stirling, target.scalar(0.0)))
}

fn gaussian(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target) = pair(cx)?;
    let mut variance = cx.var("variance");
    if variance.shape().need_rank()? + 1 == x.shape().need_rank()? {
        variance = variance.expand_dims(&[-1]);
    }
    check_alike(("input", &x.shape()), ("variance", &variance.shape()))?;
    let variance = at_least(variance, cx.float("eps"));
    let error = x - target;
    let loss = (variance.log() + error * error / variance) * 0.5;
    done(match cx.flag("full") {
        true => loss + 0.5 * (2.0 * PI).ln(),
        false => loss,
    })
}

/// `max(x, least)` with the gradient of `x`.
fn at_least(x: Var<'_>, least: f64) -> Var<'_> {
    let below = x.binary("lt", x.scalar(least));
    let missing = below.select(x.scalar(least) - x, x.scalar(0.0));
    x + missing.stop_gradient()
}
