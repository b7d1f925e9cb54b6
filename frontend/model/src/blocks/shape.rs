//! Blocks that change shapes: reshape, transpose, join and slice.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::{Dim, Relation};
use mithril_ir::op::Class;
use mithril_ir::shape::{Guard, Shape};

use super::elementwise::{ANY, done, one};
use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Output, Value, data, gives, out};
use crate::lower::Cx;
use crate::setting::Setting;

const LIST: &[Input] = &[data("inputs", Class::Any).many()];

pub(super) const LAYOUT: Entry =
    Entry { group: Group::Shape, inputs: ANY, same_dtype: true, ..BASE };

/// The shape as an input, if the parameter is not given.
const COMPUTED: Input = data("shape", Class::Int).own_dtype().when(|s| s.get("shape").is_none());

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "reshape(input, shape)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[1. 2.]\n [3. 4.]\n [5. 6.]]")
            .with_settings("(3, -1)"),
        parameters: &[with("shape", Kind::Dims, Default::None).doc(
            "the dims, of which one may be -1 or None; if omitted, they are given by the terminal \
             `shape`",
        )],
        inputs: &[data("input", Class::Any), COMPUTED],
        ..LAYOUT.row(
            "Reshape",
            "The same elements in row-major order in `shape`; one dim may be -1 or None, which is \
             inferred from the others. Dims may be connections, and the whole shape may be a \
             terminal.",
            |cx| {
                let open = |s: &&Setting| matches!(s, Setting::None | Setting::Int(-1));
                if cx.settings.list("shape").iter().filter(open).count() > 1 {
                    return Diagnostic::of(
                        ErrorKind::Shapes,
                        "`shape` has more than one \
                         unknown dim",
                    )
                    .got(cx.settings.get("shape").text())
                    .expected("at most one -1 or None")
                    .err();
                }
                done(cx.var("input").reshape(cx.dims("shape")?))
            },
        )
    },
    Entry {
        formula: "reshape(input, shape(input)[:start] + (-1,))",
        example: gives(&["np.zeros((2, 3, 4), \"float32\")"], "(2, 12)").with_settings("start=1"),
        parameters: &[
            with("start", Kind::Int, Default::Int(0)).doc("the first axis that is joined"),
            with("end", Kind::Int, Default::Int(-1)).doc("the last axis that is joined"),
        ],
        ..LAYOUT.row(
            "Flatten",
            "`input` with the axes from `start` to `end` joined into one.",
            |cx| {
                let x = cx.var("input");
                let shape = x.shape();
                let (start, end) = (shape.axis(cx.int("start"))?, shape.axis(cx.int("end"))?);
                if start > end {
                    return Diagnostic::new("`start` of `Flatten` comes after `end`")
                        .got(format!("start {start}, end {end} of {shape}"))
                        .err();
                }
                let mut dims = shape.dims.to_vec();
                let joined: Dim = dims.splice(start..=end, [Dim::Const(0)]).product();
                dims[start] = joined;
                done(x.reshape(Shape::new(dims)))
            },
        )
    },
    Entry {
        formula: "transpose(input, axes)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[1. 4.]\n [2. 5.]\n [3. 6.]]"),
        parameters: &[with("axes", Kind::INTS, Default::None)
            .doc("the order of the axes; reversed if omitted")],
        ..LAYOUT.row(
            "Transpose",
            "`input` with its axes in the order `axes`, by default reversed.",
            |cx| {
                let x = cx.var("input");
                let axes = match cx.settings.ints("axes") {
                    Some(axes) => axes,
                    None => (0..x.shape().need_rank()? as i64).rev().collect(),
                };
                done(x.transpose(&axes))
            },
        )
    },
    Entry {
        doc: "The input with two axes exchanged.",
        formula: "swapaxes(input, first, second)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[1. 4.]\n [2. 5.]\n [3. 6.]]")
            .with_settings("0, 1"),
        group: Group::Shape,
        parameters: &[
            required("first", Kind::Int).doc("one axis"),
            required("second", Kind::Int).doc("the other axis"),
        ],
        ..one("SwapAxes", "swap_axes", ANY)
    },
    Entry {
        formula: "transpose(input, permutation)",
        example: gives(&["np.zeros((2, 3, 4), \"float32\")"], "(4, 2, 3)")
            .with_settings("(2, 0, 1)"),
        group: Group::Shape,
        parameters: &[required("permutation", Kind::INTS)
            .doc("the axis of `input` for each axis of the result")],
        ..one("PermuteTensor", "transpose", ANY)
    },
    Entry {
        formula: "squeeze(input, axis)",
        example: gives(&["[[[1], [2]]]"], "[[1. 2.]]").with_settings("axis=-1"),
        parameters: &[with("axis", Kind::INTS, Default::None)
            .doc("the axis or axes to remove; all of size 1 if omitted")],
        ..LAYOUT.row(
            "Squeeze",
            "`input` with axes of size 1 removed: those in `axis`, by default all.",
            |cx| {
                let x = cx.var("input");
                let axes: Vec<i64> = match cx.settings.ints("axis") {
                    Some(axes) => axes,
                    None => {
                        let shape = x.shape();
                        shape.need_rank()?;
                        let ones = shape.dims.iter().enumerate();
                        let ones = ones.filter(|(_, d)| d.as_const() == Some(1));
                        ones.map(|(i, _)| i as i64).collect()
                    }
                };
                done(x.squeeze(&axes))
            },
        )
    },
    Entry {
        formula: "expand_dims(input, axis)",
        example: gives(&["[1, 2]"], "[[1.]\n [2.]]").with_settings("axis=-1"),
        group: Group::Shape,
        parameters: &[
            required("axis", Kind::INTS).doc("the positions of the new axes in the result")
        ],
        ..one("ExpandDims", "expand_dims", ANY)
    },
    Entry {
        formula: "broadcast_to(input, shape)",
        example: gives(&["[1, 2]"], "[[1. 2.]\n [1. 2.]]").with_settings("(2, 2)"),
        parameters: &[with("shape", Kind::Dims, Default::None)
            .doc("the dims; if omitted, they are given by the terminal `shape`")],
        inputs: &[data("input", Class::Any), COMPUTED],
        ..LAYOUT.row("BroadcastTo", "`input` broadcast to `shape`, as in NumPy.", |cx| {
            done(cx.var("input").broadcast_to(cx.dims("shape")?))
        })
    },
    Entry {
        formula: "concatenate(inputs, axis)",
        example: gives(&["[[1, 2]]", "[[3, 4]]"], "[[1. 2. 3. 4.]]"),
        parameters: &[with("axis", Kind::OrNone(&Kind::Int), Default::Int(-1))
            .doc("the axis to join along; None joins all elements")],
        inputs: LIST,
        ..LAYOUT.row(
            "Concat",
            "The inputs concatenated along `axis`; with `axis=None` they are flattened first, as \
             in NumPy.",
            |cx| {
                let (inputs, axis) = (cx.list("inputs"), cx.settings.int("axis"));
                let inputs = match axis {
                    Some(_) => inputs,
                    None => inputs.into_iter().map(flat).collect::<Result<_>>()?,
                };
                done(cx.op("concat", &inputs, &[("axis", axis.unwrap_or(0).into())]))
            },
        )
    },
    Entry {
        formula: "stack(inputs, axis)",
        example: gives(&["[1, 2]", "[3, 4]"], "[[1. 2.]\n [3. 4.]]"),
        parameters: &[with("axis", Kind::Int, Default::Int(0)).doc(
            "the position of the new axis in the \
                                                          result",
        )],
        inputs: LIST,
        ..LAYOUT.row("Stack", "The inputs, all of one shape, stacked along a new axis.", |cx| {
            done(cx.op("stack", &cx.list("inputs"), &[("axis", cx.int("axis").into())]))
        })
    },
    Entry {
        formula: "split(input, n, axis)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[1.]\n [4.]] [[2.]\n [5.]] [[3.]\n [6.]]")
            .with_settings("n=3, axis=-1"),
        parameters: &[
            required("n", Kind::Count).doc("the number of parts"),
            with("axis", Kind::Int, Default::Int(0)).doc("the axis to cut"),
        ],
        outputs: &[Output {
            list: Some(|s| s.int("n").and_then(|n| u32::try_from(n).ok())),
            ..out("output")
        }],
        ..LAYOUT.row("Split", "`input` split into a list of `n` equal parts along `axis`.", split)
    },
    Entry {
        formula: "pad(input, pad_width, constant_values=value)",
        example: gives(&["[1, 2]"], "[0. 1. 2. 0. 0.]").with_settings("[(1, 2)]"),
        parameters: &[
            required("pad_width", Kind::Pairs).doc("(before, after) for each axis"),
            with("value", Kind::Float(Range::Any), Default::Float(0.0)).doc(
                "the value of the \
                                                                             padding",
            ),
        ],
        ..LAYOUT.row(
            "Pad",
            "`input` padded with `value` before and after each axis: `pad_width` is a list of \
             (before, after).",
            |cx| {
                let x = cx.var("input");
                let pairs: Vec<Vec<i64>> = cx
                    .settings
                    .list("pad_width")
                    .iter()
                    .map(|pair| {
                        pair.as_list().unwrap_or(&[]).iter().filter_map(Setting::as_int).collect()
                    })
                    .collect();
                let shape = x.shape();
                if shape.need_rank()? != pairs.len() {
                    return Diagnostic::of(
                        ErrorKind::Shapes,
                        "`pad_width` has the wrong number \
                         of pairs",
                    )
                    .got(format!("{} pairs for {shape}", pairs.len()))
                    .expected("a pair for each axis")
                    .err();
                }
                let side = |i: usize| Attr::ints(pairs.iter().map(|p| p[i]));
                let value = x.scalar(cx.float("value"));
                done(cx.op("pad", &[x, value], &[("low", side(0)), ("high", side(1))]))
            },
        )
    },
    Entry {
        formula: "tile(input, reps)",
        example: gives(&["[1, 2]"], "[1. 2. 1. 2.]").with_settings("2"),
        parameters: &[required("reps", Kind::INTS)
            .doc("the number of repetitions along each of the last axes")],
        group: Group::Shape,
        ..one("Tile", "tile", ANY)
    },
    Entry {
        formula: "repeat(input, repeats, axis)",
        example: gives(&["[1, 2]"], "[1. 1. 2. 2.]").with_settings("2, axis=0"),
        parameters: &[
            required("repeats", Kind::Count).doc("the number of repetitions of each element"),
            required("axis", Kind::Int).doc("the axis"),
        ],
        group: Group::Shape,
        ..one("Repeat", "repeat", ANY)
    },
    Entry {
        formula: "flip(input, axis)",
        example: gives(&["[1, 2, 3]"], "[3. 2. 1.]").with_settings("axis=0"),
        group: Group::Shape,
        parameters: &[required("axis", Kind::INTS).doc("the axis or axes to reverse")],
        ..one("Flip", "reverse", ANY)
    },
    Entry {
        formula: "roll(input, shift, axis)",
        example: gives(&["[1, 2, 3]"], "[3. 1. 2.]").with_settings("1, axis=0"),
        parameters: &[
            required("shift", Kind::Int).doc("the number of positions to shift by"),
            required("axis", Kind::Int).doc("the axis"),
        ],
        group: Group::Shape,
        ..one("Roll", "roll", ANY)
    },
];

/// Flattens to one axis. Errors: an unknown rank, for which the number of elements is open.
fn flat(value: Var<'_>) -> Result<Var<'_>> {
    let shape = value.shape();
    shape.need_rank()?;
    Ok(value.reshape(Shape::new([shape.dims.iter().cloned().product::<Dim>()])))
}

/// Slices `input` along one axis, from `start` up to, but excluding, `limit`.
pub(super) fn cut<'a>(cx: &Cx<'a>, axis: i64, start: Option<&Dim>, limit: Option<&Dim>) -> Var<'a> {
    let start = start.cloned().unwrap_or(Dim::Const(0));
    let limit = limit.cloned().unwrap_or(Dim::Unknown);
    let attrs = [
        ("axes", Attr::ints([axis])),
        ("starts", Shape::new([start]).into()),
        ("limits", Shape::new([limit]).into()),
    ];
    cx.var("input").unary("slice", &attrs)
}

fn split(cx: &Cx) -> Result<Vec<Value>> {
    let (n, axis) = (cx.int("n"), cx.int("axis"));
    let shape = cx.var("input").shape();
    let length = shape.dims[shape.dims.len() - shape.axis_from_back(axis)?].clone();
    let rest = length.modulo(&Dim::Const(n));
    if rest.is_unknown() || rest.compare(&Dim::Const(0)) == Relation::Different {
        return Diagnostic::of(
            ErrorKind::Shapes,
            "the axis cannot be \
                                divided evenly",
        )
        .got(format!("{length} in axis {axis} of {shape}"))
        .expected(format!("a multiple of {n}"))
        .err();
    }
    if rest.as_const().is_none() {
        cx.builder.add_guards(vec![Guard::new(rest, Dim::Const(0))]);
    }
    let each = length.floor_div(&Dim::Const(n));
    let parts = (0..n).map(|i| {
        let (start, limit) = (&each * &Dim::Const(i), &each * &Dim::Const(i + 1));
        cut(cx, axis, Some(&start), Some(&limit)).value
    });
    Ok(parts.collect())
}
