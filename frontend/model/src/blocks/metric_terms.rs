//! Helpers of metrics: classes, counts and ratios.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::shape::Shape;

use super::Value;
use super::elementwise::done;
use super::loss_terms::{other_shape, without};
use crate::lower::Cx;

/// Whether the classes are the last axis of `input`, rather than the values of its elements.
pub(super) fn holds_classes(cx: &Cx, input: Var) -> bool {
    let binary = cx.flag("binary") || cx.text("average") == "binary";
    !binary && input.dtype().is_float()
}

/// The dtype for counting: f16 cannot count beyond 2048.
pub(super) fn counting(cx: &Cx) -> DType {
    cx.float.widened()
}

/// The result in the model's dtype.
pub(super) fn ratio(cx: &Cx, value: Var) -> Result<Vec<Value>> {
    done(value.cast(cx.float))
}

/// The quotient, or 0 if the denominator is 0.
pub(super) fn over<'a>(part: Var<'a>, whole: Var<'a>) -> Var<'a> {
    let none = whole.binary("eq", whole.scalar(0.0));
    let quotient = part / none.select(whole.scalar(1.0), whole);
    none.select(quotient.scalar(0.0), quotient)
}

/// `target` as class indices. Errors: it does not match the scores.
pub(super) fn actual<'a>(cx: &Cx<'a>) -> Result<Var<'a>> {
    let (input, target) = (cx.var("input"), cx.var("target"));
    let (scores, own) = (input.shape(), target.shape());
    let classes = holds_classes(cx, input);
    if classes {
        check_samples(cx, &scores)?;
    }
    if classes && target.dtype().is_float() && own.rank().is_some() && own.rank() == scores.rank() {
        return Ok(target.unary("argmax", &[("axis", (-1).into())]));
    }
    let expected = match classes {
        true => without(&scores, -1)?,
        false => scores,
    };
    match (own.rank(), expected.rank()) {
        (Some(a), Some(b)) if a != b => other_shape("input", "target", &expected),
        _ => Ok(target.cast(DType::I64)),
    }
}

/// Errors: scores of rank 1. They would be read as the class scores of one sample, but are usually
/// the scores of class 1 of many samples.
fn check_samples(cx: &Cx, scores: &Shape) -> Result<()> {
    if scores.rank() == Some(1) {
        let way = match cx.settings.iter().any(|(p, _)| p.name == "binary") {
            true => "binary=True",
            false => "average=\"binary\"",
        };
        return Diagnostic::of(ErrorKind::Shapes, "the scores have only one axis")
            .expected("samples, then a last axis with a score for each class")
            .hint(format!("`{way}` reads one score for each sample, that of class 1"))
            .err();
    }
    scores.need_trailing(2).map(drop)
}
