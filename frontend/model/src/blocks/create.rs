//! Blocks without data inputs: ramps and constants.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::{ANY, done};
use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Group, Kind, Parameter, Value, data, gives};
use crate::lower::Cx;

const DTYPE: Parameter = with("dtype", Kind::DType, Default::None)
    .doc("the dtype; defaults to that of the backend's floats, for `Arange` to that of indices");

const CREATE: Entry = Entry { group: Group::Shape, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "arange(start or 0, stop, step)",
        example: gives(&[], "[2 5]").with_settings("2, 8, 3"),
        parameters: &[
            with("start", Kind::Scalar, Default::None).doc("the first integer; defaults to 0"),
            with("stop", Kind::Scalar, Default::None).doc("the end, exclusive"),
            with("step", Kind::Count, Default::Int(1)).doc("the distance between neighbours"),
            DTYPE,
        ],
        valid: |settings| match settings.get("start").is_none() && settings.get("stop").is_none() {
            true => Diagnostic::of(ErrorKind::Setting, "`Arange` needs `stop`")
                .expected("an integer or a connection")
                .hint("Arange(5) counts from 0 to 4, Arange(2, 5) from 2 to 4")
                .err(),
            false => Ok(()),
        },
        ..CREATE.row(
            "Arange",
            "The integers from `start`, by default 0, up to `stop` by `step`; `Arange(n)` counts \
             from 0 up to `n`.",
            arange,
        )
    },
    Entry {
        formula: "linspace(start, stop, num)",
        example: gives(&[], "[0.   0.25 0.5  0.75 1.  ]").with_settings("0, 1, num=5"),
        parameters: &[
            required("start", Kind::Float(Range::Finite)).doc("the first number"),
            required("stop", Kind::Float(Range::Finite)).doc("the last number"),
            required("num", Kind::Count).doc("the number of elements"),
            DTYPE,
        ],
        ..CREATE.row("Linspace", "`num` numbers from `start` to `stop`, evenly spaced.", |cx| {
            let (start, stop, num) = (cx.float("start"), cx.float("stop"), cx.int("num"));
            let step = if num > 1 { (stop - start) / (num - 1) as f64 } else { 0.0 };
            let values: Vec<f64> = (0..num)
                .map(|i| match i {
                    _ if i > 0 && i == num - 1 => stop,
                    _ => start + step * i as f64,
                })
                .collect();
            let dtype = cx.settings.dtype("dtype").unwrap_or(cx.float);
            let tensor = Tensor::from_f64s(dtype, vec![num as usize], &values);
            Ok(vec![cx.builder.constant(tensor)])
        })
    },
    Entry {
        formula: "eye(n, m)",
        example: gives(&[], "[[1. 0. 0.]\n [0. 1. 0.]]").with_settings("2, 3"),
        parameters: &[
            required("n", Kind::Scalar).doc("the number of rows"),
            with("m", Kind::Scalar, Default::None).doc("the number of columns; defaults to `n`"),
            DTYPE,
        ],
        ..CREATE.row(
            "Eye",
            "The (n, m) matrix with 1 on the diagonal and 0 elsewhere; `m` defaults to `n`.",
            |cx| {
                let mut computed = cx.computed()?.into_iter();
                let mut scalar =
                    |name: &str| super::indexer::bound_of(cx.settings.get(name), &mut computed);
                let rows = scalar("n").unwrap_or(Dim::Unknown);
                let columns = scalar("m").unwrap_or_else(|| rows.clone());
                let shape = Shape::new([rows, columns]);
                let dtype = cx.settings.dtype("dtype").unwrap_or(cx.float);
                done(cx.op("eye", &[], &[("shape", shape.into()), ("dtype", dtype.into())]))
            },
        )
    },
    Entry {
        formula: "ones(shape)",
        example: gives(&[], "[[1. 1.]\n [1. 1.]]").with_settings("(2, 2)"),
        parameters: &[required("shape", Kind::Dims).doc("the dims"), DTYPE],
        ..CREATE.row("Ones", "An array of `shape` filled with 1.", |cx| full(cx, 1.0))
    },
    Entry {
        formula: "zeros(shape)",
        example: gives(&[], "[[0. 0.]\n [0. 0.]]").with_settings("(2, 2)"),
        parameters: &[required("shape", Kind::Dims).doc("the dims"), DTYPE],
        ..CREATE.row("Zeros", "An array of `shape` filled with 0.", |cx| full(cx, 0.0))
    },
    Entry {
        formula: "full(shape, value)",
        example: gives(&[], "[[0.5 0.5]\n [0.5 0.5]]").with_settings("(2, 2), value=0.5"),
        parameters: &[
            required("shape", Kind::Dims).doc("the dims"),
            required("value", Kind::Float(Range::Any)).doc("the value"),
            DTYPE,
        ],
        ..CREATE.row("Full", "An array of `shape` filled with `value`.", |cx| {
            full(cx, cx.float("value"))
        })
    },
    Entry {
        formula: "zeros_like(input)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[0. 0. 0.]\n [0. 0. 0.]]"),
        inputs: ANY,
        same_dtype: true,
        ..CREATE.row("ZerosLike", "An array of the shape of `input`, filled with 0.", |cx| {
            done(cx.var("input").full_like(0.0))
        })
    },
    Entry {
        formula: "ones_like(input)",
        example: gives(&["[[1, 2, 3], [4, 5, 6]]"], "[[1. 1. 1.]\n [1. 1. 1.]]"),
        inputs: &[data("input", Class::Any)],
        same_dtype: true,
        ..CREATE.row("OnesLike", "An array of the shape of `input`, filled with 1.", |cx| {
            done(cx.var("input").full_like(1.0))
        })
    },
];

fn full(cx: &Cx, value: f64) -> Result<Vec<Value>> {
    let dtype = cx.settings.dtype("dtype").unwrap_or(cx.float);
    let scalar = cx.builder.constant(Tensor::scalar(dtype, value));
    done(cx.builder.var(scalar).broadcast_to(cx.dims("shape")?))
}

fn arange(cx: &Cx) -> Result<Vec<Value>> {
    let mut computed = cx.computed()?.into_iter();
    let mut scalar = |name: &str| super::indexer::bound_of(cx.settings.get(name), &mut computed);
    let (start, stop) = match (scalar("start"), scalar("stop")) {
        (start, Some(stop)) => (start.unwrap_or(Dim::Const(0)), stop),
        (stop, None) => (Dim::Const(0), stop.expect("the settings are checked to have one")),
    };
    let step = cx.int("step");
    let length = (&stop - &start).max(&Dim::Const(0)).ceil_div(&Dim::Const(step));
    let dtype = cx.settings.dtype("dtype").unwrap_or(cx.index);
    let mut ramp = cx.iota(Shape::new([length]), 0, dtype);
    if step != 1 {
        ramp = ramp * step as f64;
    }
    if start != Dim::Const(0) {
        ramp = ramp + number(cx, &start, dtype);
    }
    done(ramp)
}

/// A dim as a scalar value: a constant, or the terminal that the dim was read from.
fn number<'a>(cx: &Cx<'a>, dim: &Dim, dtype: DType) -> Var<'a> {
    match (dim.as_const(), cx.optional("start_0")) {
        (None, Some(value)) => value.cast(dtype),
        (value, _) => {
            let tensor = Tensor::from_i64s(dtype, vec![], &[value.unwrap_or(0)]);
            let constant = Attr::from(tensor);
            cx.op("constant", &[], &[("value", constant)])
        }
    }
}
