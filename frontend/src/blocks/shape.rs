//! Blocks that change shapes: of the same elements, in another order, joined or cut.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::{Dim, Relation};
use mithril_ir::op::Class;
use mithril_ir::shape::{Guard, Shape};

use super::elementwise::{ANY, done, one};
use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Output, Value, data};
use crate::lower::Cx;
use crate::setting::Setting;

const LIST: &[Input] = &[data("inputs", Class::Any).many()];

pub(super) const LAYOUT: Entry = Entry { group: Group::Shape, inputs: ANY, keeps: true, ..BASE };

/// The shape as a terminal where the parameter was not given.
const COMPUTED: Input = data("shape", Class::Int).apart().when(|s| s.get("shape").is_none());

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        parameters: &[with("shape", Kind::Dims, Default::None)],
        inputs: &[data("input", Class::Any), COMPUTED],
        ..LAYOUT.row(
            "Reshape",
            "The same elements in row-major order in `shape`; one dim may be -1 or None, which \
             follows from the others. Dims may be connections, and the whole shape a terminal.",
            |cx| {
                let open = |s: &&Setting| matches!(s, Setting::None | Setting::Int(-1));
                if cx.settings.list("shape").iter().filter(open).count() > 1 {
                    return Diagnostic::new(
                        "Incompatible shapes during compilation: `shape` leaves more than one dim \
                         open",
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
        parameters: &[
            with("start", Kind::Int, Default::Int(0)),
            with("end", Kind::Int, Default::Int(-1)),
        ],
        ..LAYOUT.row("Flatten", "The axes from `start` to `end` as one.", |cx| {
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
        })
    },
    Entry {
        parameters: &[with("axes", Kind::Ints, Default::None)],
        ..LAYOUT.row("Transpose", "Axes in the order `axes`, by default reversed.", |cx| {
            let x = cx.var("input");
            let axes = match cx.settings.ints("axes") {
                Some(axes) => axes,
                None => (0..x.shape().need_rank()? as i64).rev().collect(),
            };
            done(x.transpose(&axes))
        })
    },
    Entry {
        doc: "Two axes exchanged.",
        group: Group::Shape,
        parameters: &[required("first", Kind::Int), required("second", Kind::Int)],
        ..one("SwapAxes", "swap_axes", ANY)
    },
    Entry {
        group: Group::Shape,
        parameters: &[required("permutation", Kind::Ints)],
        ..one("PermuteTensor", "transpose", ANY)
    },
    Entry {
        parameters: &[with("axis", Kind::Ints, Default::None)],
        ..LAYOUT.row("Squeeze", "Axes of size 1 taken away: `axis`, by default all.", |cx| {
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
        })
    },
    Entry {
        group: Group::Shape,
        parameters: &[required("axis", Kind::Ints)],
        ..one("ExpandDims", "expand_dims", ANY)
    },
    Entry {
        parameters: &[with("shape", Kind::Dims, Default::None)],
        inputs: &[data("input", Class::Any), COMPUTED],
        ..LAYOUT.row("BroadcastTo", "`input` repeated to `shape`, as NumPy broadcasts.", |cx| {
            done(cx.var("input").broadcast_to(cx.dims("shape")?))
        })
    },
    Entry {
        group: Group::Shape,
        parameters: &[with("axis", Kind::Int, Default::Int(-1))],
        ..one("Concat", "concat", LIST)
    },
    Entry {
        parameters: &[with("axis", Kind::Int, Default::Int(0))],
        inputs: LIST,
        ..LAYOUT.row("Stack", "The inputs, of one shape, along a new axis.", |cx| {
            done(cx.op("stack", &cx.list("inputs"), &[("axis", cx.int("axis").into())]))
        })
    },
    Entry {
        parameters: &[required("n", Kind::Count), with("axis", Kind::Int, Default::Int(0))],
        outputs: &[Output {
            name: "output",
            list: Some(|s| s.int("n").and_then(|n| u32::try_from(n).ok())),
        }],
        ..LAYOUT.row("Split", "`input` cut into `n` equal parts along `axis`: a list.", split)
    },
    Entry {
        parameters: &[
            required("pad_width", Kind::Pairs),
            with("value", Kind::Float(Range::Any), Default::Float(0.0)),
        ],
        ..LAYOUT.row(
            "Pad",
            "`value` put before and after each axis: `pad_width` is a list of (before, after).",
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
                    return Diagnostic::new(
                        "Incompatible shapes during compilation: `pad_width` has another number of \
                         axes",
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
        parameters: &[required("reps", Kind::Ints)],
        group: Group::Shape,
        ..one("Tile", "tile", ANY)
    },
    Entry {
        parameters: &[required("repeats", Kind::Count), required("axis", Kind::Int)],
        group: Group::Shape,
        ..one("Repeat", "repeat", ANY)
    },
    Entry {
        group: Group::Shape,
        parameters: &[required("axis", Kind::Ints)],
        ..one("Flip", "reverse", ANY)
    },
    Entry {
        parameters: &[required("shift", Kind::Int), required("axis", Kind::Int)],
        group: Group::Shape,
        ..one("Roll", "roll", ANY)
    },
];

/// `input` from `start` up to `limit` of one axis.
pub(super) fn cut<'a>(
    cx: &Cx<'a>,
    axis: i64,
    start: Option<&Dim>,
    limit: Option<&Dim>,
) -> mithril_ir::algebra::Var<'a> {
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
        return Diagnostic::new("Incompatible shapes during compilation: the axis does not divide")
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
