//! Order statistics, places among sorted boundaries, and histograms.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::{INPUT, NUMBER, done};
use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Parameter, Value, data, gives};
use crate::lower::Cx;

const AXIS: Parameter =
    with("axis", Kind::Int, Default::None).doc("the axis; the flattened array if omitted");
const KEEPDIM: Parameter =
    with("keepdim", Kind::Bool, Default::Bool(false)).doc("keep reduced axes with size 1");
const RIGHT: Parameter = with("right", Kind::Bool, Default::Bool(false))
    .doc("count the boundaries that equal an element as well");
const SORTED: &[Input] = &[
    data("input", Class::Number),
    data("boundaries", Class::Number).doc("in ascending order along the last axis"),
];

const STATISTIC: Entry = Entry { group: Group::Reduce, inputs: INPUT, same_dtype: true, ..BASE };
const PLACES: Entry = Entry { group: Group::Reduce, inputs: SORTED, parameters: &[RIGHT], ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "quantile(input, q, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[1.5 4. ]").with_settings("0.5, axis=-1"),
        parameters: &[
            required("q", Kind::Float(Range::Unit)).doc("the fraction of elements below"),
            AXIS,
            KEEPDIM,
            with(
                "interpolation",
                Kind::OneOf(&["linear", "lower", "higher", "midpoint", "nearest"]),
                Default::Str("linear"),
            )
            .doc("the value between two elements"),
        ],
        needs: need_elements,
        ..STATISTIC.row(
            "Quantile",
            "The value below which a fraction `q` of the elements along `axis` lies; NaN if any \
             of them is NaN.",
            quantile,
        )
    },
    Entry {
        example: gives(&["[[1, 4, 2, 3], [5, 5, 1, 7]]"], "[2. 5.]").with_settings("axis=-1"),
        parameters: &[AXIS, KEEPDIM],
        inputs: NUMBER,
        needs: need_elements,
        ..STATISTIC.row(
            "Median",
            "The middle element along `axis`, of an even number the lower one of two, as in \
             `torch.median`; NaN if any of them is NaN. `Quantile(0.5)` is the mean of the two. One \
             element has the gradient.",
            |cx| {
                let (sorted, axis) = sorted(cx)?;
                let middle = match sorted.shape().dims[axis as usize].as_const() {
                    Some(n) => index(cx, (n - 1) / 2),
                    None => (sorted.dim(axis) - 1.0).binary("floor_div", sorted.dim(axis).scalar(2.0)),
                };
                done(finished(cx, sorted, axis, at(cx, sorted, middle, axis))?)
            },
        )
    },
    Entry {
        formula: "searchsorted(boundaries, input)",
        example: gives(&["[0, 2, 9]", "[1, 2, 4]"], "[0 1 3]"),
        ..PLACES.row(
            "SearchSorted",
            "The number of `boundaries` below each element of `input`, which is the index at which \
             it keeps them sorted. If `boundaries` has several axes, each row of `input` is placed \
             in its own row.",
            |cx| places(cx, cx.var("boundaries")),
        )
    },
    Entry {
        formula: "digitize(input, boundaries, right=not right)",
        example: gives(&["[0, 2, 9]", "[1, 2, 4]"], "[0 1 3]"),
        ..PLACES.row(
            "Bucketize",
            "The number of `boundaries`, a vector, below each element of `input`: the bucket that \
             it falls into.",
            |cx| {
                let boundaries = cx.var("boundaries");
                if boundaries.shape().need_rank()? != 1 {
                    return Diagnostic::of(
                        ErrorKind::Shapes,
                        "the boundaries of `Bucketize` are not a vector",
                    )
                    .got(boundaries.shape())
                    .expected("one axis")
                    .hint("`SearchSorted` takes boundaries for each row")
                    .err();
                }
                places(cx, boundaries)
            },
        )
    },
    Entry {
        formula: "histogram(input, bins, (min, max))[0]",
        example: gives(&["[1, 2, 1, 5]"], "[0 2 1 0]").with_settings("bins=4, min=0, max=4"),
        parameters: &[
            required("bins", Kind::Count).doc("the number of bins"),
            with("min", Kind::Float(Range::Finite), Default::None)
                .doc("the start of the first bin; the least element if omitted"),
            with("max", Kind::Float(Range::Finite), Default::None)
                .doc("the end of the last bin; the largest element if omitted")
                .at_least("min"),
        ],
        ..Entry { same_dtype: false, ..STATISTIC }.row(
            "Histogram",
            "The number of elements in each of `bins` bins of equal width from `min` to `max`, \
             which the last bin includes. Elements outside, and NaN, are not counted. A range \
             without width is widened by 1/2 on both sides, as in NumPy.",
            histogram,
        )
    },
];

/// Errors, at compile time or at run time: there are no elements.
fn need_elements(cx: &Cx) -> Result<()> {
    let shape = cx.var("input").shape();
    let dims = match cx.settings.int("axis") {
        Some(axis) => {
            let back = shape.axis_from_back(axis)?;
            shape.dims[shape.dims.len() - back..][..1].to_vec()
        }
        None => shape.dims.to_vec(),
    };
    for dim in &dims {
        cx.need(dim, 1, || {
            Diagnostic::of(ErrorKind::Shapes, "a quantile of no elements")
                .got(&shape)
                .expected("at least one element along the axis")
        })?;
    }
    Ok(())
}

/// The elements sorted along an axis, counted from the front: all of them if none is given.
fn sorted<'a>(cx: &Cx<'a>) -> Result<(Var<'a>, i64)> {
    let x = cx.var("input");
    let (x, axis) = match cx.settings.int("axis") {
        Some(axis) => (x, x.shape().axis(axis)? as i64),
        None => (x.reshape(Shape::new([Dim::Unknown])), 0),
    };
    Ok((x.unary("sort", &[("axis", axis.into())]), axis))
}

fn index<'a>(cx: &Cx<'a>, number: i64) -> Var<'a> {
    cx.builder.var(cx.builder.constant(Tensor::from_i64s(cx.index, vec![], &[number])))
}

/// The elements at one index along an axis, which is removed.
fn at<'a>(cx: &Cx<'a>, x: Var<'a>, index: Var<'a>, axis: i64) -> Var<'a> {
    cx.op("take", &[x, index], &[("axis", axis.into())])
}

/// The result with the reduced axes if they are kept, and NaN where the last element is NaN.
fn finished<'a>(cx: &Cx<'a>, sorted: Var<'a>, axis: i64, value: Var<'a>) -> Result<Var<'a>> {
    let mut result = value;
    if value.dtype().is_float() {
        let last = at(cx, sorted, index(cx, -1), axis);
        result = last.unary("is_nan", &[]).select(last, value);
    }
    if !cx.flag("keepdim") {
        return Ok(result);
    }
    let kept = match cx.settings.int("axis") {
        Some(_) => vec![axis],
        None => (0..cx.var("input").shape().need_rank()? as i64).collect(),
    };
    Ok(if kept.is_empty() { result } else { result.expand_dims(&kept) })
}

fn quantile(cx: &Cx) -> Result<Vec<Value>> {
    let (sorted, axis) = sorted(cx)?;
    let (q, how) = (cx.float("q"), cx.text("interpolation"));
    let value = match sorted.shape().dims[axis as usize].as_const() {
        Some(n) => {
            let place = q * (n - 1) as f64;
            let place = match how {
                "lower" => place.floor(),
                "higher" => place.ceil(),
                "nearest" => place.round_ties_even(),
                _ => place,
            };
            let low = at(cx, sorted, index(cx, place.floor() as i64), axis);
            match place.fract() {
                0.0 => low,
                part => {
                    let high = at(cx, sorted, index(cx, place.ceil() as i64), axis);
                    let part = if how == "midpoint" { 0.5 } else { part };
                    between(low, high, low.widened().scalar(part))
                }
            }
        }
        None => open_quantile(cx, sorted, axis),
    };
    done(finished(cx, sorted, axis, value)?)
}

/// The quantile along an axis of open size.
fn open_quantile<'a>(cx: &Cx<'a>, sorted: Var<'a>, axis: i64) -> Var<'a> {
    let (q, how) = (cx.float("q"), cx.text("interpolation"));
    let last = sorted.dim(axis) - 1.0;
    let dtype = sorted.dtype().widened();
    // Fractions of small integers are exact for every size.
    let over = (1..=1000).map(f64::from).find(|n| (q * n - (q * n).round()).abs() < 1e-12 * n);
    let (low, part) = match over {
        Some(over) => {
            let place = last * (q * over).round();
            let low = place.binary("floor_div", place.scalar(over));
            (low, (place - low * over).cast(dtype) / over)
        }
        None => {
            let place = last.cast(dtype) * q;
            let low = place.unary("floor", &[]);
            (low.cast(last.dtype()), place - low)
        }
    };
    let whole = part.binary("eq", part.scalar(0.0));
    let high = whole.select(low, low + 1.0);
    let element = |place: Var<'a>| at(cx, sorted, place.cast(cx.index), axis);
    match how {
        "lower" => element(low),
        "higher" => element(high),
        "nearest" => {
            let half = part.scalar(0.5);
            let even = low.binary("mod", low.scalar(2.0)).binary("eq", low.scalar(0.0));
            let tied = part.binary("eq", half).binary("and", even);
            let down = part.binary("lt", half).binary("or", tied);
            element(down.select(low, low + 1.0))
        }
        "midpoint" => between(element(low), element(high), whole.select(part, part.scalar(0.5))),
        _ => between(element(low), element(high), part),
    }
}

/// The value at a part of the way from `low` to `high`.
fn between<'a>(low: Var<'a>, high: Var<'a>, part: Var<'a>) -> Var<'a> {
    let (first, last) = (low.widened(), high.widened());
    (first + (last - first) * part).cast(low.dtype())
}

/// The number of boundaries before each element of `input`.
fn places(cx: &Cx, boundaries: Var) -> Result<Vec<Value>> {
    let boundaries = cx.builder.var(boundaries.value);
    let (x, shape) = (cx.var("input"), boundaries.shape());
    let (rank, own) = (shape.need_trailing(1).map(|_| shape.dims.len())?, x.shape().need_rank()?);
    if rank > 1 && rank != own {
        return Diagnostic::of(ErrorKind::Shapes, "`boundaries` does not match `input`")
            .got(format!("{shape} for an input of shape {}", x.shape()))
            .expected("a vector, or a row of boundaries for each row of `input`")
            .err();
    }
    match shape.dims[rank - 1].as_const() {
        Some(count) => done(by_halving(cx, boundaries, count)),
        None => done(by_sorting(cx, boundaries)),
    }
}

/// Binary search: the largest number of boundaries that are all before the element.
fn by_halving<'a>(cx: &Cx<'a>, boundaries: Var<'a>, count: i64) -> Var<'a> {
    let (x, vector) = (cx.var("input"), boundaries.rank() == 1);
    let mut place = index(cx, 0).broadcast_to(x.shape());
    let mut step = if count > 0 { 1 << count.ilog2() } else { 0 };
    while step > 0 {
        let next = place + step as f64;
        let read = next.binary("minimum", next.scalar(count as f64)) - 1.0;
        let boundary = match vector {
            true => cx.op("take", &[boundaries, read], &[("axis", 0.into())]),
            false => cx.op("take_along", &[boundaries, read], &[("axis", (-1).into())]),
        };
        // NaN is after all boundaries.
        let stops = boundary.binary(if cx.flag("right") { "gt" } else { "ge" }, x);
        let there = next.binary("le", next.scalar(count as f64));
        let before = stops.unary("not", &[]).binary("and", there);
        place = before.select(next, place);
        step /= 2;
    }
    place
}

/// Sorts elements and boundaries together, and counts the boundaries before each element.
fn by_sorting<'a>(cx: &Cx<'a>, boundaries: Var<'a>) -> Var<'a> {
    let (whole, right) = (cx.var("input"), cx.flag("right"));
    let x = match boundaries.rank() {
        1 => whole.reshape(Shape::new([Dim::Unknown])),
        _ => whole,
    };
    let axis = [("axis", (-1).into())];
    // The order is stable: boundaries that are counted come before equal elements.
    let both = if right { [boundaries, x] } else { [x, boundaries] };
    let joined = cx.op("concat", &both, &axis);
    let order = joined.unary("argsort", &axis).cast(cx.index);
    let first = both[0].dim(-1).cast(cx.index);
    let counted = order.binary(if right { "lt" } else { "ge" }, first).cast(cx.index);
    let count = counted.unary("cumsum", &axis);
    let zeros = count.full_like(0.0);
    let back = cx.op("scatter_add_along", &[zeros, order, count], &axis);
    let (start, limit) = match right {
        true => (boundaries.shape().dims.last().cloned(), None),
        false => (None, x.shape().dims.last().cloned()),
    };
    let bounds = [
        ("axes", Attr::ints([-1])),
        ("starts", Shape::new([start.unwrap_or(Dim::Const(0))]).into()),
        ("limits", Shape::new([limit.unwrap_or(Dim::Unknown)]).into()),
    ];
    back.unary("slice", &bounds).reshape(whole.shape())
}

fn histogram(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input").widened().stop_gradient();
    let x = x.reshape(Shape::new([Dim::Unknown]));
    let bins = cx.int("bins");
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
    let width = (high - low) / bins as f64;
    let last = held.scalar((bins - 1) as f64);
    let bin = ((held - low) / width).unary("floor", &[]).binary("minimum", last);
    // The quotient may be rounded across the edge of a bin.
    let (start, one, zero) = (low + bin * width, bin.scalar(1.0), bin.scalar(0.0));
    let early = held.binary("lt", start).select(one, zero);
    let end = low + (bin + 1.0) * width;
    let late = held.binary("ge", end).binary("and", bin.binary("lt", last)).select(one, zero);
    let bin = (bin - early + late).cast(cx.index);
    let zeros = index(cx, 0).broadcast_to(Shape::new([Dim::Const(bins)]));
    done(cx.op("scatter_add", &[zeros, bin, inside.cast(cx.index)], &[("axis", 0.into())]))
}
