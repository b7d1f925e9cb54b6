//! Histograms.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::parameter::{Range, required, with};
use super::statistics::{STATISTIC, by_halving};
use super::{Default, Entry, Kind, Settings, Value, data, gives};
use crate::lower::Cx;

pub(super) const BLOCKS: &[Entry] = &[Entry {
    formula: "histogram(input, bins, (min, max))[0]",
    example: gives(&["[1, 2, 1, 5]"], "[0 2 1 0]").with_settings("bins=4, min=0, max=4"),
    parameters: &[
        required("bins", Kind::CountOrFloats)
            .doc("the number of bins, or a list of their edges in ascending order"),
        with("min", Kind::Float(Range::Finite), Default::None)
            .doc("the start of the first bin; the least element if omitted"),
        with("max", Kind::Float(Range::Finite), Default::None)
            .doc("the end of the last bin; the largest element if omitted")
            .at_least("min"),
        with("density", Kind::Bool, Default::Bool(false)).doc(
            "divide by the sum of all bins and by the width of each, so that the integral over all \
             bins is 1",
        ),
    ],
    inputs: &[
        data("input", Class::Float),
        data("weights", Class::Float)
            .optional()
            .doc("what each element adds to its bin, of the shape of `input`; defaults to 1"),
    ],
    valid,
    ..Entry { same_dtype: false, ..STATISTIC }.row(
        "Histogram",
        "The number of elements in each of `bins` bins of equal width from `min` to `max`, which \
         the last bin includes, or between the edges that `bins` lists, as in `numpy.histogram`. \
         With `weights` it is the sum of those, to which gradients pass. Elements outside, and \
         NaN, are not counted. A range without width is widened by 1/2 on both sides, as in NumPy.",
        histogram,
    )
}];

/// The edges of bins that `bins` lists.
fn edges(settings: &Settings) -> Option<Vec<f64>> {
    settings.get("bins").as_list().map(|_| settings.floats("bins"))
}

/// Errors: edges that do not ascend, or along with a range.
fn valid(settings: &Settings) -> Result<()> {
    let Some(edges) = edges(settings) else { return Ok(()) };
    if edges.len() < 2 || edges.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Diagnostic::of(ErrorKind::Setting, "`bins` of `Histogram` are no edges")
            .got(settings.get("bins").text())
            .expected("at least two numbers in ascending order")
            .err();
    }
    match ["min", "max"].into_iter().find(|name| !settings.get(name).is_none()) {
        Some(name) => {
            Diagnostic::of(ErrorKind::Setting, format!("`{name}` of `Histogram` has no meaning"))
                .got(format!("`{name}`, and edges as `bins`"))
                .expected("a number of bins, or edges alone")
                .err()
        }
        None => Ok(()),
    }
}

/// The bin of each element, whether it is in any, and the width of each bin.
struct Bins<'a> {
    count: i64,
    place: Var<'a>,
    inside: Var<'a>,
    width: Var<'a>,
}

fn histogram(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input").widened().stop_gradient();
    let weights = weights(cx)?;
    let x = x.reshape(Shape::new([Dim::Unknown]));
    let bins = match edges(cx.settings) {
        Some(edges) => listed(cx, x, &edges),
        None => uniform(cx, x)?,
    };
    let adds = match weights {
        Some(weights) => bins.inside.select(weights, weights.scalar(0.0)),
        None => bins.inside.cast(cx.index),
    };
    let zeros = adds.scalar(0.0).broadcast_to(Shape::new([Dim::Const(bins.count)]));
    let all = cx.op("scatter_add", &[zeros, bins.place, adds], &[("axis", 0.into())]);
    let own = cx.var("input").dtype();
    if cx.flag("density") {
        let all = all.cast(x.dtype());
        return Ok(vec![(all / (bins.width * all.sum(None, false))).cast(own).value]);
    }
    Ok(vec![if weights.is_some() { all.cast(own) } else { all }.value])
}

/// The weights as a vector. Errors: another shape than that of `input`.
fn weights<'a>(cx: &Cx<'a>) -> Result<Option<Var<'a>>> {
    let Some(weights) = cx.optional("weights") else { return Ok(None) };
    let (own, shape) = (weights.shape(), cx.var("input").shape());
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`weights` of `Histogram` has the wrong shape")
            .got(&own)
            .expected(format!("{shape}, a weight for each element of `input`"))
    };
    if own.need_rank()? != shape.need_rank()? {
        return wrong().err();
    }
    for (one, other) in own.dims.iter().zip(&shape.dims) {
        cx.need_same(one, other, wrong)?;
    }
    // The two have equal shapes, which the flattened dims do not tell.
    let weights = weights.broadcast_to(shape.clone());
    Ok(Some(weights.widened().reshape(Shape::new([Dim::Unknown]))))
}

/// Bins between given edges.
fn listed<'a>(cx: &Cx<'a>, x: Var<'a>, edges: &[f64]) -> Bins<'a> {
    let constant = |values: &[f64]| {
        let tensor = Tensor::from_f64s(x.dtype(), vec![values.len()], values);
        cx.builder.var(cx.builder.constant(tensor))
    };
    let (count, last) = (edges.len() as i64 - 1, edges.len() - 1);
    let [low, high] = [edges[0], edges[last]].map(|edge| x.scalar(edge));
    let inside = x.binary("ge", low).binary("and", x.binary("le", high));
    // Elements outside are added to the first bin, as 0.
    let held = inside.select(x, low);
    let place = match &edges[1..last] {
        [] => held.scalar(0.0).broadcast_to(held.shape()).cast(cx.index),
        inner => by_halving(cx, held, (constant(inner), count - 1), true),
    };
    let widths: Vec<f64> = edges.windows(2).map(|pair| pair[1] - pair[0]).collect();
    Bins { count, place, inside, width: constant(&widths) }
}

/// Bins of equal width. Errors: no elements, where the range follows from them.
fn uniform<'a>(cx: &Cx<'a>, x: Var<'a>) -> Result<Bins<'a>> {
    let count = cx.int("bins");
    let bins = count as f64;
    let given = ["min", "max"].map(|name| cx.settings.float(name));
    if given.contains(&None) {
        cx.need(&x.shape().dims[0], 1, || {
            Diagnostic::of(ErrorKind::Shapes, "`Histogram` of no elements needs a range")
                .expected("`min` and `max`, or at least one element")
        })?;
    }
    let end = |given: Option<f64>, by: &str| match given {
        Some(end) => x.scalar(end),
        None => x.reduce(by, None, false),
    };
    let (low, high) = (end(given[0], "min"), end(given[1], "max"));
    let flat = low.binary("eq", high);
    let [low, high] = [flat.select(low - 0.5, low), flat.select(high + 0.5, high)];
    let inside = x.binary("ge", low).binary("and", x.binary("le", high));
    // Elsewhere, the index would be that of a NaN or a large number.
    let held = inside.select(x, low);
    let width = (high - low) / bins;
    let last = held.scalar(bins - 1.0);
    let bin = ((held - low) / width).unary("floor", &[]).binary("minimum", last);
    // The quotient may be rounded across the edge of a bin.
    let (start, one, zero) = (low + bin * width, bin.scalar(1.0), bin.scalar(0.0));
    let early = held.binary("lt", start).select(one, zero);
    let end = low + (bin + 1.0) * width;
    let late = held.binary("ge", end).binary("and", bin.binary("lt", last)).select(one, zero);
    let place = (bin - early + late).cast(cx.index);
    Ok(Bins { count, place, inside, width })
}
