//! Cross entropies: over many classes, with the target given as an index or as probabilities, and
//! binary.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::{ROBUST, done};
use super::loss_terms::{log, other_shape, pair, times_finite, times_log, without};
use super::parameter::{Range, with};
use super::{Default, Input, Kind, Output, Parameter, Settings, Value, data, out};
use crate::lower::Cx;
use crate::setting::Setting;

pub(super) const WEIGHTS: Parameter =
    with("weights", Kind::FLOATS, Default::None).doc("a weight for each class");
pub(super) const IGNORED: Parameter =
    with("ignore_index", Kind::Int, Default::None).doc("the target that is ignored");
const AXIS: Parameter = with("axis", Kind::Int, Default::Int(-1)).doc("the axis of the classes");

pub(super) const OF_CLASSES: &[Parameter] = &[
    with("input_type", Kind::OneOf(&["logits", "probs", "log_probs"]), Default::Str("logits"))
        .doc("the meaning of `input`: scores, probabilities, or their logarithms"),
    WEIGHTS,
    with("label_smoothing", Kind::Float(Range::Unit), Default::Float(0.0))
        .doc("the share of each target that is spread evenly over all classes"),
    IGNORED,
    ROBUST,
    AXIS,
];

pub(super) const OF_LOGARITHMS: &[Parameter] = &[WEIGHTS, IGNORED, AXIS];

pub(super) const OF_TWO: &[Parameter] = &[
    with("input_type", Kind::OneOf(&["logits", "probs"]), Default::Str("logits"))
        .doc("the meaning of `input`: scores or probabilities"),
    with("pos_weight", Kind::Float(Range::NotNegative), Default::Float(1.0))
        .doc("the weight of targets of 1"),
    ROBUST,
];

pub(super) const CLASSES: &[Input] = &[
    data("input", Class::Float),
    data("target", Class::Int)
        .own_dtype()
        .following(|cx| match cx.stated {
            Some(dtype) if dtype.is_float() => Ok(cx.var("input").shape()),
            _ => without(&cx.var("input").shape(), cx.int("axis")),
        })
        .doc("a class for each sample, or a float for each class"),
];

pub(super) const OUTPUTS: &[Output] = &[out("output"), out("weight").when(is_weighted)];

pub(super) fn of_two(cx: &Cx) -> Result<Vec<Value>> {
    let (x, target) = pair(cx)?;
    let weighted = match cx.float("pos_weight") {
        1.0 => target,
        weight => target * weight,
    };
    let rest = -target + 1.0;
    if cx.text("input_type") == "logits" {
        // Each term stays accurate near 0. The equal `softplus(x) - target * x` suffers from
        // cancellation.
        let (miss, alarm) = ((-x).unary("softplus", &[]), x.unary("softplus", &[]));
        return done(weighted * miss + rest * alarm);
    }
    let robust = cx.flag("robust");
    done(-(times_log(weighted, x, robust) + times_log(rest, -x + 1.0, robust)))
}

/// Whether targets differ in weight with these settings, so that the block also outputs their
/// weights.
pub(super) fn is_weighted(settings: &Settings) -> bool {
    ["weights", "ignore_index"].iter().any(|name| !settings.get(name).is_none())
}

pub(super) fn of_classes(cx: &Cx) -> Result<Vec<Value>> {
    let of = match cx.text("input_type") {
        "logits" => Scores::Logits,
        "probs" => Scores::Probabilities,
        _ => Scores::Logarithms,
    };
    let (robust, smoothing) = (cx.flag("robust"), cx.float("label_smoothing"));
    Loss { of, robust, smoothing, ..Loss::of(cx)? }.outputs()
}

/// The negative log-likelihood: the cross entropy of log-probabilities.
pub(super) fn of_logarithms(cx: &Cx) -> Result<Vec<Value>> {
    Loss { of: Scores::Logarithms, ..Loss::of(cx)? }.outputs()
}

/// The meaning of `input`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scores {
    Logits,
    Probabilities,
    Logarithms,
}

/// The settings and operands of one cross entropy.
struct Loss<'a> {
    cx: &'a Cx<'a>,
    input: Var<'a>,
    target: Var<'a>,
    /// The axis of the classes, counted from the end (negative).
    axis: i64,
    of: Scores,
    robust: bool,
    weights: Option<Var<'a>>,
    smoothing: f64,
    ignored: Option<i64>,
}

impl<'a> Loss<'a> {
    /// The loss with the settings that all blocks of this kind have.
    fn of(cx: &'a Cx<'a>) -> Result<Loss<'a>> {
        let input = cx.var("input");
        let axis = -(input.shape().axis_from_back(cx.int("axis"))? as i64);
        Ok(Loss {
            cx,
            input,
            target: cx.var("target"),
            axis,
            of: Scores::Logits,
            robust: false,
            weights: weights(cx, input, axis)?,
            smoothing: 0.0,
            ignored: cx.settings.int("ignore_index"),
        })
    }

    fn outputs(self) -> Result<Vec<Value>> {
        let settings = self.cx.settings;
        let (value, weight) = match self.target.dtype() {
            dtype if dtype.is_float() => self.of_probabilities()?,
            _ => self.of_indices()?,
        };
        Ok(match is_weighted(settings) {
            true => vec![value.value, weight.value],
            false => vec![value.value],
        })
    }

    /// Log-probabilities if `input` is logits, otherwise `input` itself. Logarithms of
    /// probabilities are taken only where the weight is not 0, as the logarithm of an unused 0
    /// would make gradients NaN.
    fn scores(&self) -> Var<'a> {
        match self.of {
            Scores::Logits => self.input.unary("log_softmax", &[("axis", self.axis.into())]),
            Scores::Probabilities | Scores::Logarithms => self.input,
        }
    }

    /// `weight * log(p)`, computed from the scores.
    fn weighted_log(&self, weight: Var<'a>, scores: Var<'a>) -> Var<'a> {
        match self.of {
            Scores::Probabilities => times_log(weight, scores, self.robust),
            Scores::Logits | Scores::Logarithms => times_finite(weight, scores),
        }
    }

    fn total(&self, v: Var<'a>) -> Var<'a> {
        v.sum(Some(&[self.axis]), false)
    }

    /// The weights of the classes, shaped to broadcast along the class axis.
    fn along_classes(&self, weights: Var<'a>) -> Var<'a> {
        let axes_after: Vec<i64> = (1..-self.axis).collect();
        match axes_after.is_empty() {
            true => weights,
            false => weights.expand_dims(&axes_after),
        }
    }

    /// The loss and the weight of each target.
    fn of_probabilities(self) -> Result<(Var<'a>, Var<'a>)> {
        let expected = self.input.shape();
        check(self.target, &expected)?;
        if self.ignored.is_some() {
            return Diagnostic::new("`ignore_index` needs targets that are indices of classes")
                .got(self.target.ty())
                .expected("integers")
                .err();
        }
        let spread = match self.smoothing {
            0.0 => self.target,
            part => {
                let classes = self.input.count(Some(&[self.axis]));
                self.target * (1.0 - part) + self.input.scalar(part) / classes
            }
        };
        let weight = self.weights.map_or(spread, |w| spread * self.along_classes(w));
        let loss = -self.total(self.weighted_log(weight, self.scores()));
        // A target that is a distribution over the classes has weight 1, as in PyTorch.
        Ok((loss, ones(loss)))
    }

    /// The error for targets of another shape, with a hint if they seem to be probabilities, or to
    /// have the classes at PyTorch's axis.
    fn with_hint(&self, error: Box<Diagnostic>) -> Box<Diagnostic> {
        let (input, target) = (self.input.shape(), self.target.shape());
        let fits = |shape: &Shape| {
            let sizes = |shape: &Shape| shape.dims.iter().map(Dim::as_const).collect::<Vec<_>>();
            shape.rank() == target.rank() && sizes(shape) == sizes(&target)
        };
        if fits(&input) {
            return Box::new(error.hint(
                "targets that are probabilities need a float dtype: \
                 `model.set_types({\"target\": ml.float32})`",
            ));
        }
        match without(&input, 1) {
            Ok(shape) if fits(&shape) => {
                Box::new(error.hint(
                    "`axis=1` if the classes are at axis 1, as in `torch.nn.CrossEntropyLoss`",
                ))
            }
            _ => error,
        }
    }

    /// The loss and the weight of each target. The weight is that of its class, or 0 if it is
    /// ignored.
    fn of_indices(self) -> Result<(Var<'a>, Var<'a>)> {
        check(self.target, &without(&self.input.shape(), self.axis)?)
            .map_err(|error| self.with_hint(error))?;
        let target = self.target;
        let seen = self.ignored.map(|index| target.binary("ne", target.scalar(index as f64)));
        // An ignored index may be out of range.
        let safe = seen.map_or(target, |seen| seen.select(target, target.scalar(0.0)));
        let plain = self.weights.is_none() && self.smoothing == 0.0 && self.axis == -1;
        if plain && self.of == Scores::Logits {
            let loss = self.cx.op("cross_entropy", &[self.input, safe], &[]);
            let loss = seen.map_or(loss, |seen| seen.select(loss, loss.scalar(0.0)));
            let weight = seen.map_or(ones(loss), |seen| seen.cast(loss.dtype()));
            return Ok((loss, weight));
        }
        let scores = self.scores();
        let attrs = [("axis", self.axis.into())];
        let picked = self.cx.op("pick", &[scores, safe], &attrs);
        let probs = self.of == Scores::Probabilities;
        let certain = picked.scalar(if probs { 1.0 } else { 0.0 });
        let picked = seen.map_or(picked, |seen| seen.select(picked, certain));
        let own = self.weights.map(|w| self.cx.op("take", &[w, safe], &[("axis", 0.into())]));
        let exact = -match own {
            Some(own) => self.weighted_log(own, picked),
            None if probs => log(picked, self.robust),
            None => picked,
        };
        let loss = match self.smoothing {
            0.0 => exact,
            part => exact * (1.0 - part) + self.uniform_loss(scores, seen) * part,
        };
        let weight = match (own, seen) {
            (Some(own), Some(seen)) => seen.select(own, own.scalar(0.0)),
            (Some(own), None) => own,
            (None, Some(seen)) => seen.cast(loss.dtype()),
            (None, None) => ones(loss),
        };
        Ok((loss, weight))
    }

    /// The loss of a target that is uniform over the classes; 0 if the target is ignored.
    fn uniform_loss(&self, scores: Var<'a>, seen: Option<Var<'a>>) -> Var<'a> {
        let one = scores.scalar(1.0);
        let mut weight = self.weights.map_or(one, |w| self.along_classes(w));
        if let Some(seen) = seen {
            weight = weight * seen.cast(scores.dtype()).expand_dims(&[self.axis]);
        }
        -self.total(self.weighted_log(weight, scores)) / scores.count(Some(&[self.axis]))
    }
}

/// Ones with the shape of `loss`. If the rank is not known, they are computed from a comparison
/// that is always true, which also works in the gradient.
fn ones(loss: Var<'_>) -> Var<'_> {
    match loss.shape().rank() {
        Some(_) => loss.full_like(1.0),
        None => loss.binary("ne", loss.scalar(f64::NAN)).cast(loss.dtype()),
    }
}

/// Checks the shape of the target. Errors: known dims differ. Unknown dims are checked by the
/// guards of the operations that read both.
fn check(target: Var, expected: &Shape) -> Result<()> {
    let own = target.shape();
    let (Some(a), Some(b)) = (own.rank(), expected.rank()) else {
        return Ok(());
    };
    let known = |a: &Dim, b: &Dim| match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    let mut dims = own.dims.iter().zip(&expected.dims);
    if a == b && dims.all(|(a, b)| known(a, b)) {
        return Ok(());
    }
    other_shape("input", "target", expected)
}

/// The weights of the classes. Errors: their number differs from the number of classes.
pub(super) fn weights<'a>(cx: &Cx<'a>, input: Var<'a>, axis: i64) -> Result<Option<Var<'a>>> {
    let Some(items) = cx.settings.get("weights").as_list() else {
        return Ok(None);
    };
    let number = |item: &Setting| match item {
        Setting::Float(v) => Some(*v),
        _ => None,
    };
    let numbers: Vec<f64> = items.iter().filter_map(number).collect();
    let shape = input.shape();
    let classes = &shape.dims[shape.dims.len() - axis.unsigned_abs() as usize];
    if classes.as_const().is_some_and(|n| n != numbers.len() as i64) {
        return Diagnostic::of(ErrorKind::Shapes, "`weights` must have one number for each class")
            .got(numbers.len())
            .expected(classes)
            .err();
    }
    let tensor = Tensor::from_f64s(input.dtype(), vec![numbers.len()], &numbers);
    Ok(Some(cx.builder.var(cx.builder.constant(tensor)).named("class_weights")))
}
