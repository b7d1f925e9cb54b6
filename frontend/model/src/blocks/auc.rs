//! The area under the receiver operating characteristic (ROC) curve, computed by sorting.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::shape::Shape;

use super::Value;
use super::metric_terms::{actual, counting, over, ratio};
use crate::lower::Cx;

pub(super) fn lower(cx: &Cx) -> Result<Vec<Value>> {
    let (scores, positive) = rows(cx)?;
    let curve = Curve::of(cx, scores, positive);
    let total = |v: Var| cx.builder.var(v.sum(None, false).value);
    let some = |v: Var| cx.builder.var(v.binary("gt", v.scalar(0.0)).value);
    let both = some(curve.positives).binary("and", some(curve.negatives));
    let weight = match cx.text("average") {
        "weighted" => curve.positives * both.cast(curve.positives.dtype()),
        _ => both.cast(curve.positives.dtype()),
    };
    ratio(cx, over(total(curve.area * weight), total(weight)))
}

/// The scores, and whether each sample is positive: one row per class, one column per sample.
/// Errors: an unknown rank; an integer input, which holds no scores.
fn rows<'a>(cx: &Cx<'a>) -> Result<(Var<'a>, Var<'a>)> {
    let input = cx.var("input");
    if !input.dtype().is_float() {
        return Diagnostic::new("`AUC` needs scores, not classes")
            .got(input.ty())
            .expected("floats")
            .err();
    }
    let labels = actual(cx)?;
    let shape = input.shape();
    shape.need_rank()?;
    labels.shape().need_rank()?;
    let all = |dims: &[Dim]| dims.iter().cloned().product::<Dim>();
    let labels = labels.reshape(Shape::new([Dim::Const(1), all(&labels.shape().dims)]));
    let (scores, class) = match cx.text("average") {
        "binary" => {
            let scores = input.reshape(Shape::new([Dim::Const(1), all(&shape.dims)]));
            (scores, labels.scalar(1.0))
        }
        _ => {
            let classes = cx.last_dim("input")?;
            let samples = all(&shape.dims[..shape.dims.len() - 1]);
            let table = input.reshape(Shape::new([samples, classes.clone()]));
            let class = cx.iota(Shape::new([classes, Dim::Const(1)]), 0, DType::I64);
            (table.transpose(&[1, 0]), class)
        }
    };
    let positive = labels.binary("eq", class).cast(counting(cx));
    Ok((scores, positive))
}

/// The area under the curve of each row, and the number of positive and negative samples.
struct Curve<'a> {
    area: Var<'a>,
    positives: Var<'a>,
    negatives: Var<'a>,
}

impl<'a> Curve<'a> {
    fn of(cx: &Cx<'a>, scores: Var<'a>, positive: Var<'a>) -> Curve<'a> {
        let along = [("axis", 1.into())];
        let falling = [("axis", 1.into()), ("descending", true.into())];
        let order = scores.unary("argsort", &falling);
        let sorted = cx.op("take_along", &[scores, order], &along);
        let positive = cx.op("take_along", &[positive, order], &along);
        // Samples with equal scores form one step of the curve, so they share an index.
        let samples = Shape::new([scores.shape().dims[1].clone()]);
        let ramp = cx.iota(samples, 0, DType::I64);
        let before = (ramp - 1.0).binary("maximum", ramp.scalar(0.0));
        let before = cx.op("take", &[sorted, before], &along);
        let starts = sorted.binary("ne", before).cast(DType::I64);
        let step = starts.unary("cumsum", &along);
        let none = positive.full_like(0.0);
        let gather = |v: Var<'a>| cx.op("scatter_add_along", &[none, step, v], &along);
        let (hits, alarms) = (gather(positive), gather(-positive + 1.0));
        let total = |v: Var<'a>| v.sum(Some(&[1]), true);
        let (positives, negatives) = (total(hits), total(alarms));
        let (hits, alarms) = (over(hits, positives), over(alarms, negatives));
        let height = hits.unary("cumsum", &along) - hits * 0.5;
        Curve { area: total(alarms * height), positives, negatives }
    }
}
