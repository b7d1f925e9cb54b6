//! Blocks that gather and scatter by index, sort elements, or read shapes.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::{ANY, NUMBER, done, one};
use super::indexer::{bound_of, slice};
use super::parameter::{required, with};
use super::shape::LAYOUT;
use super::{BASE, Default, Entry, Group, Kind, Meaning, Parameter, Value, data, gives, out};
use crate::lower::Cx;
use crate::setting::Setting;

const AXIS: Parameter = with("axis", Kind::Int, Default::Int(0)).doc("the axis");
const LAST: Parameter = with("axis", Kind::Int, Default::Int(-1)).doc("the axis");
const DESCENDING: Parameter =
    with("descending", Kind::Bool, Default::Bool(false)).doc("largest first");

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "input[start:stop:step]",
        example: gives(&["[0, 1, 2, 3, 4]"], "[1. 3.]").with_settings("1, 4, 2"),
        parameters: &[
            with("start", Kind::Scalar, Default::None).doc("the first index; defaults to 0"),
            with("stop", Kind::Scalar, Default::None)
                .doc("the end, exclusive; defaults to the end of the axis"),
            with("step", Kind::Count, Default::Int(1)).doc("the distance between neighbours"),
            AXIS,
        ],
        ..LAYOUT.row(
            "Slice",
            "Every `step`-th element from `start` to `stop` along `axis`.",
            |cx| {
                let bound = |name: &str| Setting::clone(cx.settings.get(name));
                let parts = [bound("start"), bound("stop"), bound("step")];
                let mut computed = cx.computed()?.into_iter();
                let [start, limit] = [0, 1].map(|i| bound_of(&parts[i], &mut computed));
                done(slice(
                    cx.var("input"),
                    &[(
                        cx.int("axis"),
                        start.unwrap_or(Dim::Const(0)),
                        limit.unwrap_or(Dim::Unknown),
                        cx.int("step"),
                    )],
                ))
            },
        )
    },
    Entry {
        formula: "input[index]",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[3. 6.]").with_settings("(slice(None), -1)"),
        parameters: &[with("index", Kind::Index, Default::None)
            .doc("the index; if omitted, it is given by the terminal `index`")],
        inputs: &[
            data("input", Class::Any),
            data("index", Class::Int).own_dtype().when(|s| s.get("index").is_none()),
        ],
        ..LAYOUT.row(
            "Indexer",
            "`input[index]` as in NumPy, for integers, slices, None, `...` and one array of \
             integers. If `index` is a terminal: the rows of `input` at these indices.",
            super::indexer::lower,
        )
    },
    Entry {
        doc: "The slices of `input` at `indices` along `axis`. In the result the axes of \
              `indices` replace `axis`.",
        formula: "take(input, indices, axis)",
        example: gives(
            &["[[1, 2, 3], [4, 5, 6]]", "[1, 0, 1]"],
            "[[4. 5. 6.]\n [1. 2. 3.]\n [4. 5. 6.]]",
        ),
        group: Group::Shape,
        parameters: &[AXIS],
        inputs: &[data("input", Class::Any), data("indices", Class::Int).own_dtype()],
        ..one("Gather", "take", ANY)
    },
    Entry {
        doc: "`input` with each slice of `updates` added at its index along `axis`.",
        example: gives(&["[0, 0, 0]", "[2, 0, 2]", "[1, 2, 3]"], "[2. 0. 4.]"),
        group: Group::Shape,
        parameters: &[AXIS],
        inputs: &[
            data("input", Class::Number),
            data("indices", Class::Int).own_dtype(),
            data("updates", Class::Number),
        ],
        ..one("Scatter", "scatter_add", ANY)
    },
    Entry {
        formula: "sort(input, axis)",
        example: gives(&["[3, 1, 2]"], "[1. 2. 3.]"),
        group: Group::Shape,
        parameters: &[LAST, DESCENDING],
        ..one("Sort", "sort", NUMBER)
    },
    Entry {
        formula: "argsort(input, axis)",
        example: gives(&["[3, 1, 2]"], "[1 2 0]"),
        group: Group::Shape,
        parameters: &[LAST, DESCENDING],
        ..one("ArgSort", "argsort", NUMBER)
    },
    Entry {
        name: "TopK",
        doc: "The `k` largest elements along `axis` in descending order, and their indices.",
        example: gives(&["[3, 1, 2]"], "[3. 2.] [0 2]").with_settings("k=2"),
        group: Group::Shape,
        parameters: &[required("k", Kind::Count).doc("the number of elements"), LAST],
        inputs: NUMBER,
        outputs: &[out("values"), out("indices")],
        meaning: Meaning::Lower(|cx| {
            let (x, axis) = (cx.var("input"), cx.int("axis"));
            let k = cx.int("k");
            let shape = x.shape();
            let there = &shape.dims[shape.dims.len() - shape.axis_from_back(axis)?];
            cx.need(there, k, || {
                Diagnostic::new(format!("`TopK` takes {k} of {there} elements"))
                    .got(format!("axis {axis} of {shape}"))
                    .expected(format!("`k` of at most {there}"))
            })?;
            let places = x.unary("argtopk", &[("axis", axis.into()), ("k", k.into())]);
            let values = cx.op("take_along", &[x, places], &[("axis", axis.into())]);
            Ok(vec![values.value, places.cast(cx.index).value])
        }),
        ..BASE
    },
    Entry {
        example: gives(&["[3, 1, 3, 2]"], "[1. 2. 3.]").with_settings("size=3"),
        parameters: &[required("size", Kind::Count).doc("the number of elements of the result")],
        inputs: NUMBER,
        same_dtype: true,
        ..LAYOUT.row(
            "Unique",
            "The distinct elements of `input` in ascending order: the smallest `size` of them; if \
             there are fewer, the rest is filled with the smallest.",
            unique,
        )
    },
    Entry {
        doc: "A new last axis of size `classes` that is 1 at the index and 0 elsewhere.",
        formula: "eye(classes)[input]",
        example: gives(&["[0, 2]"], "[[1. 0. 0.]\n [0. 0. 1.]]").with_settings("classes=3"),
        parameters: &[
            required("classes", Kind::Count).doc("the number of classes"),
            with("dtype", Kind::DType, Default::None)
                .doc("the dtype; defaults to that of the backend's floats"),
        ],
        group: Group::Shape,
        inputs: &[data("input", Class::Int)],
        meaning: Meaning::Lower(|cx| {
            let dtype = cx.settings.dtype("dtype").unwrap_or(cx.float);
            let attrs = [("classes", cx.int("classes").into()), ("dtype", dtype.into())];
            done(cx.var("input").unary("one_hot", &attrs))
        }),
        ..one("OneHot", "one_hot", ANY)
    },
    Entry {
        formula: "tril(input, diagonal)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[1. 0. 0.]\n [4. 5. 0.]]"),
        parameters: &[with("diagonal", Kind::Int, Default::Int(0))
            .doc("the last diagonal that is kept: 0 is the main one, 1 the one above")],
        ..LAYOUT.row("Tril", "`input` with 0 above the diagonal of the last two axes.", |cx| {
            triangle(cx, "tril")
        })
    },
    Entry {
        formula: "triu(input, diagonal)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[1. 2. 3.]\n [0. 5. 6.]]"),
        parameters: &[with("diagonal", Kind::Int, Default::Int(0))
            .doc("the first diagonal that is kept: 0 is the main one, 1 the one above")],
        ..LAYOUT.row("Triu", "`input` with 0 below the diagonal of the last two axes.", |cx| {
            triangle(cx, "triu")
        })
    },
    Entry {
        formula: "diagonal(input, offset, -2, -1)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[1. 5.]"),
        parameters: &[with("offset", Kind::Int, Default::Int(0))
            .doc("which diagonal: 0 is the main one, 1 the one above")],
        group: Group::Shape,
        ..one("Diagonal", "diagonal", ANY)
    },
    Entry {
        name: "Shape",
        doc: "The dims of `input`, as integers.",
        formula: "shape(input)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[2 3]"),
        group: Group::Shape,
        inputs: ANY,
        meaning: Meaning::Lower(|cx| {
            let x = cx.var("input");
            let rank = x.shape().need_rank()? as i64;
            if rank == 0 {
                let none = mithril_ir::tensor::Tensor::from_i64s(cx.index, vec![0], &[]);
                return Ok(vec![cx.builder.constant(none)]);
            }
            let dims = (0..rank).map(|axis| x.dim(axis).cast(cx.index).expand_dims(&[0]));
            let dims: Vec<Var> = dims.collect();
            done(cx.op("concat", &dims, &[("axis", 0.into())]))
        }),
        ..BASE
    },
    Entry {
        name: "Size",
        doc: "The number of elements of `input`, or the size of `axis`.",
        formula: "size(input, axis)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "6"),
        group: Group::Shape,
        parameters: &[
            with("axis", Kind::Int, Default::None).doc("the axis; all elements if omitted")
        ],
        inputs: ANY,
        meaning: Meaning::Lower(|cx| {
            let x = cx.var("input");
            done(
                match cx.settings.int("axis") {
                    Some(axis) => x.dim(axis),
                    None => x.unary("element_count", &[]),
                }
                .cast(cx.index),
            )
        }),
        ..BASE
    },
    Entry {
        name: "Length",
        doc: "The first dim of `input`.",
        formula: "len(input)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "2"),
        group: Group::Shape,
        inputs: ANY,
        meaning: Meaning::Lower(|cx| done(cx.var("input").dim(0).cast(cx.index))),
        ..BASE
    },
];

fn triangle(cx: &Cx, op: &str) -> Result<Vec<Value>> {
    done(cx.var("input").unary(op, &[("diagonal", cx.int("diagonal").into())]))
}

fn unique(cx: &Cx) -> Result<Vec<Value>> {
    let size = Shape::new([Dim::Const(cx.int("size"))]);
    let x = cx.var("input").reshape(Shape::new([Dim::Unknown]));
    cx.need(&x.shape().dims[0], 1, || {
        Diagnostic::of(ErrorKind::Shapes, "`Unique` needs an element")
            .got(cx.var("input").shape())
            .expected("one element or more")
    })?;
    let part = |v: Var<'_>, start: i64, limit: Dim| {
        let bounds = [
            ("axes", Attr::ints([0])),
            ("starts", Shape::new([Dim::Const(start)]).into()),
            ("limits", Shape::new([limit]).into()),
        ];
        v.unary("slice", &bounds).value
    };
    let part = |v: Var, start, limit| cx.builder.var(part(v, start, limit));
    let sorted = x.unary("sort", &[]);
    let (before, after) = (part(sorted, 0, Dim::Const(-1)), part(sorted, 1, Dim::Unknown));
    let differ = before.binary("ne", after);
    let differ = match x.dtype().is_float() {
        // All NaNs count as one element. They are sorted to the end.
        true => differ.binary("and", before.unary("is_nan", &[]).unary("not", &[])),
        false => differ,
    };
    // Marks the first of each run of equal elements; a stable argsort moves the marked ones to the
    // front.
    let index = cx.index;
    let first = cx.op(
        "iota",
        &[],
        &[("shape", Shape::fixed(&[1]).into()), ("axis", 0.into()), ("dtype", index.into())],
    );
    let repeats = differ.unary("not", &[]).cast(index);
    let repeats = cx.op("concat", &[first, repeats], &[("axis", 0.into())]);
    let places = repeats.unary("argsort", &[]).cast(index);
    let count = x.dim(0).cast(index) - repeats.sum(None, false);
    let wanted = cx.iota(size, 0, index);
    let there = wanted.binary("lt", count);
    let wanted = there.select(wanted, wanted.scalar(0.0));
    let along = [("axis", 0.into())];
    let places = cx.op("take", &[places, wanted], &along);
    done(cx.op("take", &[sorted, places], &along))
}
