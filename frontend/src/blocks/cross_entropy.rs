//! Cross entropy of classes: indices or distributions, with weights, smoothing and ignored ones.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::Result;

use super::Value;
use super::elementwise::done;
use super::loss::vector;
use crate::lower::Cx;

pub(super) fn lower(cx: &Cx) -> Result<Vec<Value>> {
    let (input, target) = (cx.var("input"), cx.var("target"));
    let weights = vector(cx, "weights", input)?;
    let (smoothing, ignored) = (cx.float("label_smoothing"), cx.settings.int("ignore_index"));
    let plain = weights.is_none() && smoothing == 0.0 && ignored.is_none();
    if plain && cx.text("input_type") == "logits" && target.dtype().is_int() {
        return done(cx.op("cross_entropy", &[input, target], &[]));
    }
    let logs = logs(cx, input);
    let weighted = weights.map_or(logs, |w| logs * w);
    if target.dtype().is_float() {
        let exact = -(weighted * target).sum(Some(&[-1]), false);
        return done(match smoothing {
            0.0 => exact,
            _ => exact * (1.0 - smoothing) + even(weighted) * smoothing,
        });
    }
    let seen = ignored.map(|index| target.binary("ne", target.scalar(index as f64)));
    // An ignored index may lie outside the classes.
    let safe = seen.map_or(target, |seen| seen.select(target, target.scalar(0.0)));
    let attrs = [("axis", (-1).into())];
    let places = safe.expand_dims(&[-1]);
    let picked = cx.op("take_along", &[weighted, places], &attrs);
    let exact = -picked.squeeze(&[-1]);
    let smooth = match smoothing {
        0.0 => exact,
        _ => exact * (1.0 - smoothing) + even(weighted) * smoothing,
    };
    done(match seen {
        Some(seen) => seen.select(smooth, smooth.scalar(0.0)),
        None => smooth,
    })
}

/// The loss if all classes were as likely.
fn even(logs: Var<'_>) -> Var<'_> {
    -logs.reduce("mean", Some(&[-1]), false)
}

fn logs<'a>(cx: &Cx<'a>, input: Var<'a>) -> Var<'a> {
    match (cx.text("input_type"), cx.flag("robust")) {
        ("logits", _) => input.unary("log_softmax", &[]),
        ("log_probs", _) => input,
        (_, true) => input.unary("robust_log", &[]),
        (_, false) => input.log(),
    }
}
