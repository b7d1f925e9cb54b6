//! Blocks that reduce elements at equal indices: segments, scatters by other operators.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::{Guard, Shape};

use super::elementwise::done;
use super::indexer::{Bounds, slice};
use super::metric_terms::over;
use super::parameter::{required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Parameter, Value, data, gives};
use crate::lower::Cx;

const COUNT: &[Parameter] = &[required("num_segments", Kind::Count).doc("the number of segments")];
const AXIS: Parameter = with("axis", Kind::Int, Default::Int(0)).doc("the axis");
const PARTIAL: Parameter = with("partial", Kind::Bool, Default::Bool(false))
    .doc("let `indices` be smaller along the other axes");

const IDS: Input = data("segment_ids", Class::Int)
    .own_dtype()
    .doc("the segment of each row of `input`, from 0 to `num_segments - 1`, in any order");
const ROWS: &[Input] = &[data("input", Class::Number), IDS];
const FLOAT_ROWS: &[Input] = &[data("input", Class::Float), IDS];

const SEGMENT: Entry =
    Entry { group: Group::Reduce, parameters: COUNT, inputs: ROWS, same_dtype: true, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        example: gives(&["[1, 2, 3, 4]", "[0, 2, 0, 2]"], "[4. 0. 6.]")
            .with_settings("num_segments=3"),
        ..SEGMENT.row(
            "SegmentSum",
            "The sum of the rows of `input` with each segment id: 0 for a segment without rows.",
            |cx| {
                let x = cx.var("input");
                let ids = ids(cx)?;
                done(sums(cx, x.widened(), ids).cast(x.dtype()))
            },
        )
    },
    Entry {
        example: gives(&["[1, 2, 3, 4]", "[0, 2, 0, 2]"], "[2. 0. 3.]")
            .with_settings("num_segments=3"),
        inputs: FLOAT_ROWS,
        ..SEGMENT.row(
            "SegmentMean",
            "The mean of the rows of `input` with each segment id: 0 for a segment without rows.",
            |cx| {
                let x = cx.var("input");
                let ids = ids(cx)?;
                let total = sums(cx, x.widened(), ids);
                let ones = total.scalar(1.0).broadcast_to(ids.shape());
                let axes: Vec<i64> = (1..x.shape().need_rank()? as i64).collect();
                let count = trailing(sums(cx, ones, ids), &axes);
                done(over(total, count).cast(x.dtype()))
            },
        )
    },
    Entry {
        example: gives(&["[1, 2, 3, 4]", "[0, 2, 0, 2]"], "[  3. -inf   4.]")
            .with_settings("num_segments=3"),
        ..SEGMENT.row(
            "SegmentMax",
            "The maximum of the rows of `input` with each segment id: minus infinity, or the least \
             integer, for a segment without rows. Equal maxima share the gradient.",
            |cx| {
                let x = cx.var("input");
                let axes: Vec<i64> = (1..x.shape().need_rank()? as i64).collect();
                let places = trailing(ids(cx)?, &axes).broadcast_to(x.shape());
                let least = x.scalar(f64::NEG_INFINITY).broadcast_to(segments(cx, x));
                done(cx.op("scatter_max_along", &[least, places, x], &[("axis", 0.into())]))
            },
        )
    },
    Entry {
        formula: "take_along_axis(input, indices, axis)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]", "[[1, 0, 1]]"], "[[4. 2. 6.]]"),
        group: Group::Shape,
        parameters: &[AXIS, PARTIAL],
        inputs: &[data("input", Class::Any), data("indices", Class::Int).own_dtype()],
        ..SEGMENT.row(
            "TakeAlongAxis",
            "For each element of `indices`, the element of `input` at that index along `axis` and \
             at the same position along the other axes, whose sizes are equal. With `partial`, \
             `indices` may be smaller along the other axes, as in `torch.gather`.",
            |cx| {
                let (mut x, indices) = (cx.var("input"), cx.var("indices"));
                if cx.flag("partial") {
                    let bounds = first_part(cx, "input", x, &indices.shape(), true)?;
                    x = slice(x, &bounds);
                }
                done(cx.op("take_along", &[x, indices], &[("axis", cx.int("axis").into())]))
            },
        )
    },
    Entry {
        example: gives(&["[1, 2, 3]", "[2, 0, 2]", "[4, 5, 6]"], "[ 6.  2. 13.]"),
        group: Group::Shape,
        parameters: &[
            AXIS,
            with(
                "reduce",
                Kind::OneOf(&["sum", "prod", "mean", "amax", "amin"]),
                Default::Str("sum"),
            )
            .doc("how elements at one index are combined"),
            with("include_self", Kind::Bool, Default::Bool(true))
                .doc("whether the element of `input` is one of them"),
            PARTIAL,
        ],
        inputs: &[
            data("input", Class::Number),
            data("indices", Class::Int).own_dtype(),
            data("updates", Class::Number).doc("of the shape of `indices`"),
        ],
        ..SEGMENT.row(
            "ScatterReduce",
            "`input` with each element of `updates` combined with that at its index along `axis`, \
             as `torch.scatter_reduce` does it. Elements that no index names stay. Equal maxima, \
             or minima, share the gradient. With `partial`, `indices` may be smaller than `updates`, \
             and than `input` along the other axes: those of the first positions are used.",
            scatter_reduce,
        )
    },
];

/// The segment of each row. Errors: it is no vector, or not as long as `input`.
fn ids<'a>(cx: &Cx<'a>) -> Result<Var<'a>> {
    let (x, ids) = (cx.var("input").shape(), cx.var("segment_ids"));
    let shape = ids.shape();
    let error = || {
        Diagnostic::of(ErrorKind::Shapes, "`segment_ids` does not match the rows of `input`")
            .got(format!("{shape} for an input of shape {x}"))
            .expected("a vector with an id for each row")
    };
    if x.need_rank()? == 0 || shape.need_rank()? != 1 {
        return error().err();
    }
    match cx.is_equal(&shape.dims[0], &x.dims[0]) {
        Some(true) => {}
        Some(false) => return error().err(),
        None => {
            let guard = Guard::new(shape.dims[0].clone(), x.dims[0].clone());
            cx.builder.add_guards(vec![guard]);
        }
    }
    Ok(ids)
}

/// The shape of `x` with a row for each segment.
fn segments(cx: &Cx, x: Var) -> Shape {
    let mut shape = x.shape();
    shape.dims[0] = Dim::Const(cx.int("num_segments"));
    shape
}

/// The sums of the rows of each segment.
fn sums<'a>(cx: &Cx<'a>, x: Var<'a>, ids: Var<'a>) -> Var<'a> {
    let zeros = x.scalar(0.0).broadcast_to(segments(cx, x));
    cx.op("scatter_add", &[zeros, ids, x], &[("axis", 0.into())])
}

/// Adds trailing axes of size 1.
fn trailing<'a>(x: Var<'a>, axes: &[i64]) -> Var<'a> {
    if axes.is_empty() { x } else { x.expand_dims(axes) }
}

/// The bounds of the first elements of an input along each axis, as many as `part` has. Errors: it
/// has fewer, or another number of axes.
fn first_part(cx: &Cx, name: &str, x: Var, part: &Shape, is_input: bool) -> Result<Vec<Bounds>> {
    let whole = x.shape();
    let wrong = || {
        let mut error =
            Diagnostic::of(ErrorKind::Shapes, format!("`indices` is not a part of `{name}`"));
        error = error.got(format!("{part} for {whole}"));
        match is_input {
            true => error.expected("sizes of at most those of `input` along the other axes"),
            false => error.expected(format!("sizes of at most those of `{name}`")),
        }
    };
    if part.need_rank()? != whole.need_rank()? {
        return wrong().err();
    }
    let skipped = if is_input { Some(whole.axis(cx.int("axis"))?) } else { None };
    let mut bounds = Vec::new();
    for (axis, (all, some)) in whole.dims.iter().zip(&part.dims).enumerate() {
        if skipped == Some(axis) || cx.is_equal(all, some) == Some(true) {
            continue;
        }
        cx.need(&(all - some), 0, wrong)?;
        bounds.push((axis as i64, Dim::Const(0), some.clone(), 1));
    }
    Ok(bounds)
}

fn scatter_reduce(cx: &Cx) -> Result<Vec<Value>> {
    let (whole, indices) = (cx.var("input"), cx.var("indices"));
    let mut updates = cx.var("updates");
    if !cx.flag("partial") {
        return done(scattered(cx, whole, indices, updates));
    }
    let part = indices.shape();
    let bounds = first_part(cx, "updates", updates, &part, false)?;
    updates = slice(updates, &bounds);
    let bounds = first_part(cx, "input", whole, &part, true)?;
    let changed = scattered(cx, slice(whole, &bounds), indices, updates);
    if bounds.is_empty() {
        return done(changed);
    }
    let attrs = [
        ("axes", Attr::ints(bounds.iter().map(|bound| bound.0))),
        ("starts", Shape::new(bounds.iter().map(|bound| bound.1.clone())).into()),
        ("limits", Shape::new(bounds.iter().map(|bound| bound.2.clone())).into()),
    ];
    done(cx.op("slice_update", &[whole, changed], &attrs))
}

/// The elements combined with the updates at their indices.
fn scattered<'a>(cx: &Cx<'a>, input: Var<'a>, indices: Var<'a>, updates: Var<'a>) -> Var<'a> {
    let (x, updates) = (input.widened(), updates.widened());
    let axis = [("axis", cx.int("axis").into())];
    let (op, identity) = match cx.text("reduce") {
        "prod" => ("scatter_mul_along", 1.0),
        "amax" => ("scatter_max_along", f64::NEG_INFINITY),
        "amin" => ("scatter_min_along", f64::INFINITY),
        _ => ("scatter_add_along", 0.0),
    };
    let (alone, mean) = (!cx.flag("include_self"), cx.text("reduce") == "mean");
    let (mut base, mut count) = (x, None);
    if alone || mean {
        let zeros = indices.scalar(0.0).cast(cx.index).broadcast_to(x.shape());
        let ones = zeros.scalar(1.0).broadcast_to(indices.shape());
        count = Some(cx.op("scatter_add_along", &[zeros, indices, ones], &axis));
    }
    if let Some(count) = count.filter(|_| alone) {
        let named = count.binary("gt", count.scalar(0.0));
        base = named.select(x.scalar(identity), x);
    }
    let mut result = cx.op(op, &[base, indices, updates], &axis);
    if let Some(count) = count.filter(|_| mean) {
        let own = if alone { count.binary("maximum", count.scalar(1.0)) } else { count + 1.0 };
        let own = own.cast(x.dtype());
        result = match x.dtype().is_float() {
            true => result / own,
            false => result.binary("floor_div", own),
        };
    }
    result.cast(input.dtype())
}
