//! Order statistics, and places among sorted boundaries.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
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

pub(super) const STATISTIC: Entry =
    Entry { group: Group::Reduce, inputs: INPUT, same_dtype: true, ..BASE };
const PLACES: Entry = Entry { group: Group::Reduce, inputs: SORTED, parameters: &[RIGHT], ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "quantile(input, q, axis)",
        example: gives(&["[[1, 2], [3, 5]]"], "[1.5 4. ]").with_settings("0.5, axis=-1"),
        parameters: &[
            required("q", Kind::OneOrList(&Kind::Float(Range::Unit)))
                .doc("the fraction of elements below, or a list of them"),
            AXIS,
            KEEPDIM,
            with(
                "interpolation",
                Kind::OneOf(&["linear", "lower", "higher", "midpoint", "nearest"]),
                Default::Str("linear"),
            )
            .doc("the value between two elements"),
        ],
        valid: |settings| match settings.get("q").as_list() {
            Some([]) => Diagnostic::of(ErrorKind::Setting, "`q` of `Quantile` is an empty list")
                .expected("at least one number from 0 to 1")
                .err(),
            _ => Ok(()),
        },
        needs: need_elements,
        ..STATISTIC.row(
            "Quantile",
            "The value below which a fraction `q` of the elements along `axis` lies; NaN if any \
             of them is NaN. A list as `q` gives a further first axis, with the value of each \
             fraction.",
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
                done(finished(cx, sorted, axis, at(cx, sorted, middle, axis), 0)?)
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

pub(super) fn index<'a>(cx: &Cx<'a>, number: i64) -> Var<'a> {
    cx.builder.var(cx.builder.constant(Tensor::from_i64s(cx.index, vec![], &[number])))
}

/// The elements at one index along an axis, which is removed.
fn at<'a>(cx: &Cx<'a>, x: Var<'a>, index: Var<'a>, axis: i64) -> Var<'a> {
    cx.op("take", &[x, index], &[("axis", axis.into())])
}

/// The result with the reduced axes if they are kept, after the `front` first ones, and NaN where
/// the last element is NaN.
fn finished<'a>(
    cx: &Cx<'a>,
    sorted: Var<'a>,
    axis: i64,
    value: Var<'a>,
    front: i64,
) -> Result<Var<'a>> {
    let mut result = value;
    if value.dtype().is_float() {
        let last = at(cx, sorted, index(cx, -1), axis);
        result = last.unary("is_nan", &[]).select(last, value);
    }
    if !cx.flag("keepdim") {
        return Ok(result);
    }
    let kept: Vec<i64> = match cx.settings.int("axis") {
        Some(_) => vec![axis + front],
        None => (front..front + cx.var("input").shape().need_rank()? as i64).collect(),
    };
    Ok(if kept.is_empty() { result } else { result.expand_dims(&kept) })
}

/// Where quantiles lie in the sorted axis: indices and parts, which are scalars, or vectors with a
/// value for each quantile.
struct Places<'a> {
    /// The element at or before a quantile.
    low: Var<'a>,
    /// The element after it, and the part of the way to that one. `None`: the quantiles are
    /// elements.
    next: Option<[Var<'a>; 2]>,
    /// Whether the part may be 0.
    may_hit: bool,
}

fn quantile<'a>(cx: &Cx<'a>) -> Result<Vec<Value>> {
    let (sorted, axis) = sorted(cx)?;
    let is_list = cx.settings.get("q").as_list().is_some();
    let places = match sorted.shape().dims[axis as usize].as_const() {
        Some(count) => fixed_places(cx, count, sorted.dtype().widened()),
        None => open_places(cx, sorted, axis),
    };
    let low = at(cx, sorted, places.low, axis);
    let later: Vec<i64> = (1..low.rank() as i64 - axis).collect();
    // A part for each quantile, along the axis that is taken.
    let aligned = |part: Var<'a>| match is_list && !later.is_empty() {
        true => part.expand_dims(&later),
        false => part,
    };
    let mut value = low;
    if let Some([high, part]) = places.next {
        let part = aligned(part);
        value = between(low, at(cx, sorted, high, axis), part);
        if places.may_hit {
            // The difference to an infinite element is no number.
            value = part.binary("eq", part.scalar(0.0)).select(low, value);
        }
    }
    if is_list && axis > 0 {
        let rank = value.rank() as i64;
        let order: Vec<i64> = [axis].into_iter().chain((0..rank).filter(|a| *a != axis)).collect();
        value = value.transpose(&order);
    }
    done(finished(cx, sorted, axis, value, i64::from(is_list))?)
}

/// The places in an axis of `count` elements.
fn fixed_places<'a>(cx: &Cx<'a>, count: i64, dtype: DType) -> Places<'a> {
    let (given, how) = (cx.settings.floats("q"), cx.text("interpolation"));
    let shape = || match cx.settings.get("q").as_list() {
        Some(_) => vec![given.len()],
        None => vec![],
    };
    let place = |q: &f64| {
        let place = q * (count - 1) as f64;
        match how {
            "lower" => place.floor(),
            "higher" => place.ceil(),
            "nearest" => place.round_ties_even(),
            _ => place,
        }
    };
    let all: Vec<f64> = given.iter().map(place).collect();
    let constant = |tensor: Tensor| cx.builder.var(cx.builder.constant(tensor));
    let indices = |round: fn(f64) -> f64| {
        let all: Vec<i64> = all.iter().map(|place| round(*place) as i64).collect();
        constant(Tensor::from_i64s(cx.index, shape(), &all))
    };
    let low = indices(f64::floor);
    let part = |place: &f64| match place.fract() {
        0.0 => 0.0,
        _ if how == "midpoint" => 0.5,
        part => part,
    };
    let parts: Vec<f64> = all.iter().map(part).collect();
    let (some, may_hit) = (parts.iter().any(|part| *part > 0.0), parts.contains(&0.0));
    let parts = || constant(Tensor::from_f64s(dtype, shape(), &parts));
    Places { low, next: some.then(|| [indices(f64::ceil), parts()]), may_hit }
}

/// The places in an axis of open size.
fn open_places<'a>(cx: &Cx<'a>, sorted: Var<'a>, axis: i64) -> Places<'a> {
    let last = sorted.dim(axis) - 1.0;
    let (low, part) = fractions(cx, last, sorted.dtype().widened());
    let whole = part.binary("eq", part.scalar(0.0));
    let high = whole.select(low, low + 1.0);
    let element = |place: Var<'a>| Places { low: place.cast(cx.index), next: None, may_hit: false };
    let part = match cx.text("interpolation") {
        "lower" => return element(low),
        "higher" => return element(high),
        "nearest" => {
            let half = part.scalar(0.5);
            let even = low.binary("mod", low.scalar(2.0)).binary("eq", low.scalar(0.0));
            let tied = part.binary("eq", half).binary("and", even);
            let down = part.binary("lt", half).binary("or", tied);
            return element(down.select(low, low + 1.0));
        }
        "midpoint" => whole.select(part, part.scalar(0.5)),
        _ => part,
    };
    let [low, high] = [low, high].map(|place| place.cast(cx.index));
    Places { low, next: Some([high, part]), may_hit: true }
}

/// `q` times an index, rounded down, and the rest.
fn fractions<'a>(cx: &Cx<'a>, last: Var<'a>, dtype: DType) -> (Var<'a>, Var<'a>) {
    let all = cx.settings.floats("q");
    // Fractions of small integers are exact for every size.
    let exact = |q: &f64| {
        let close = |n: &f64| (q * n - (q * n).round()).abs() < 1e-12 * n;
        (1..=1000).map(f64::from).find(close)
    };
    let over: Vec<Option<f64>> = all.iter().map(exact).collect();
    let constant = |dtype: DType, each: &dyn Fn(usize) -> f64| {
        let shape = cx.settings.get("q").as_list().map_or(vec![], |_| vec![all.len()]);
        let values: Vec<f64> = (0..all.len()).map(each).collect();
        cx.builder.var(cx.builder.constant(Tensor::from_f64s(dtype, shape, &values)))
    };
    let of_integers = || {
        let times = |at: usize| (all[at] * over[at].unwrap_or(0.0)).round();
        let by = |at: usize| over[at].unwrap_or(1.0);
        let (place, divisor) = (last * constant(last.dtype(), &times), constant(last.dtype(), &by));
        let low = place.binary("floor_div", divisor);
        (low, (place - low * divisor).cast(dtype) / constant(dtype, &by))
    };
    if over.iter().all(Option::is_some) {
        return of_integers();
    }
    let place = last.cast(dtype) * constant(dtype, &|at| all[at]);
    let low = place.unary("floor", &[]);
    let (low, part) = (low.cast(last.dtype()), place - low);
    if over.iter().all(Option::is_none) {
        return (low, part);
    }
    let is_exact = constant(DType::Bool, &|at| f64::from(u8::from(over[at].is_some())));
    let (whole, rest) = of_integers();
    (is_exact.select(whole, low), is_exact.select(rest, part))
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
        Some(count) => done(by_halving(cx, x, (boundaries, count), cx.flag("right"))),
        None => done(by_sorting(cx, boundaries)),
    }
}

/// Binary search among `count` boundaries: the largest number of them that are all before the
/// element. With `right`, those that equal it are before it.
pub(super) fn by_halving<'a>(
    cx: &Cx<'a>,
    x: Var<'a>,
    (boundaries, count): (Var<'a>, i64),
    right: bool,
) -> Var<'a> {
    let vector = boundaries.rank() == 1;
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
        let stops = boundary.binary(if right { "gt" } else { "ge" }, x);
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
