//! Blocks without data inputs: ramps and constants.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::{ANY, done};
use super::parameter::{Range, required, with};
use super::{BASE, Default, Entry, Group, Kind, Parameter, Value, data};
use crate::lower::Cx;

const DTYPE: Parameter = with("dtype", Kind::DType, Default::None);

const CREATE: Entry = Entry { group: Group::Shape, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        parameters: &[
            with("start", Kind::Scalar, Default::Int(0)),
            with("stop", Kind::Scalar, Default::None),
            with("step", Kind::Count, Default::Int(1)),
            DTYPE,
        ],
        ..CREATE.row(
            "Arange",
            "The integers from `start` up to `stop` by `step`; `Arange(n)` counts from 0.",
            arange,
        )
    },
    Entry {
        parameters: &[
            required("start", Kind::Float(Range::Finite)),
            required("stop", Kind::Float(Range::Finite)),
            required("num", Kind::Count),
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
        parameters: &[required("n", Kind::Scalar), with("m", Kind::Scalar, Default::None), DTYPE],
        ..CREATE.row(
            "Eye",
            "The (n, m) matrix with 1 on the diagonal; `m` is `n` where left out.",
            |cx| {
                let mut computed = cx.computed()?.into_iter();
                let mut scalar =
                    |name: &str| super::index::bound_of(cx.settings.get(name), &mut computed);
                let rows = scalar("n").unwrap_or(Dim::Unknown);
                let columns = scalar("m").unwrap_or_else(|| rows.clone());
                let shape = Shape::new([rows, columns]);
                let dtype = cx.settings.dtype("dtype").unwrap_or(cx.float);
                done(cx.op("eye", &[], &[("shape", shape.into()), ("dtype", dtype.into())]))
            },
        )
    },
    Entry {
        parameters: &[required("shape", Kind::Dims), DTYPE],
        ..CREATE.row("Ones", "1 in every element of `shape`.", |cx| full(cx, 1.0))
    },
    Entry {
        parameters: &[required("shape", Kind::Dims), DTYPE],
        ..CREATE.row("Zeros", "0 in every element of `shape`.", |cx| full(cx, 0.0))
    },
    Entry {
        parameters: &[
            required("shape", Kind::Dims),
            required("value", Kind::Float(Range::Any)),
            DTYPE,
        ],
        ..CREATE
            .row("Full", "`value` in every element of `shape`.", |cx| full(cx, cx.float("value")))
    },
    Entry {
        inputs: ANY,
        keeps: true,
        ..CREATE.row("ZerosLike", "0 in every element of the shape of `input`.", |cx| {
            done(cx.var("input").full_like(0.0))
        })
    },
    Entry {
        inputs: &[data("input", Class::Any)],
        keeps: true,
        ..CREATE.row("OnesLike", "1 in every element of the shape of `input`.", |cx| {
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
    let mut scalar = |name: &str| super::index::bound_of(cx.settings.get(name), &mut computed);
    let (first, second) = (scalar("start"), scalar("stop"));
    let (start, stop) = match (first, second) {
        (Some(stop), None) => (Dim::Const(0), stop),
        (start, stop) => (start.unwrap_or(Dim::Const(0)), stop.unwrap_or(Dim::Const(0))),
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

/// A dim as a scalar value: a constant, or the terminal it was read at.
fn number<'a>(cx: &Cx<'a>, dim: &Dim, dtype: DType) -> Var<'a> {
    match (dim.as_const(), cx.optional("start_0")) {
        (None, Some(value)) => value.cast(dtype),
        (value, _) => {
            let tensor = Tensor::from_i64s(dtype, vec![], &[value.unwrap_or(0)]);
            let constant = Attr::Tensor(tensor);
            cx.op("constant", &[], &[("value", constant)])
        }
    }
}
