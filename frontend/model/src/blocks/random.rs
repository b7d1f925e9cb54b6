//! Blocks that draw random numbers from an explicit key. The output `new_key` is a new key for the
//! next draw.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::parameter::{Range, required, with};
use super::{
    BASE, Default, Entry, Group, Input, KEY, Kind, Output, Parameter, Value, data, gives, out,
};
use crate::lower::Cx;

const OUTPUTS: &[Output] = &[out("output"), out("new_key")];
const DTYPE: Parameter = with("dtype", Kind::DType, Default::None).doc("the dtype of the result");
const SHAPE: Parameter = required("shape", Kind::Dims).doc("the dims of the result");
const ONE_KEY: &[Input] = &[KEY];

const DRAW: Entry = Entry { group: Group::Random, inputs: ONE_KEY, outputs: OUTPUTS, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        example: gives(&["[0, 7]"], "(2, 3)").with_settings("(2, 3)"),
        parameters: &[SHAPE, DTYPE],
        ..DRAW.row("Randn", "Standard normal numbers of `shape`.", |cx| {
            let (key, next) = keys(cx);
            let attrs = [("shape", cx.dims("shape")?.into()), ("dtype", float(cx).into())];
            both(key.unary("normal", &attrs), next)
        })
    },
    Entry {
        example: gives(&["[0, 7]"], "(2, 3)").with_settings("(2, 3), low=-1"),
        parameters: &[
            SHAPE,
            with("low", Kind::Float(Range::Finite), Default::Float(0.0)).doc("the lower bound"),
            with("high", Kind::Float(Range::Finite), Default::Float(1.0))
                .doc("the upper bound, exclusive")
                .at_least("low"),
            DTYPE,
        ],
        ..DRAW.row(
            "RandUniform",
            "Uniform numbers from `low` up to but not including `high`.",
            |cx| {
                let (key, next) = keys(cx);
                let draw =
                    uniform(key, cx.dims("shape")?, float(cx), cx.float("low"), cx.float("high"));
                both(draw, next)
            },
        )
    },
    Entry {
        example: gives(&["[0, 7]"], "(2, 3)").with_settings("(2, 3), low=0, high=10"),
        parameters: &[
            SHAPE,
            required("low", Kind::Int).doc("the smallest integer"),
            required("high", Kind::Int).doc("the upper bound, exclusive"),
            DTYPE,
        ],
        ..DRAW.row(
            "RandInt",
            "Uniform integers from `low` up to but not including `high`: 32 random bits modulo \
             the range.",
            |cx| {
                let (low, high) = (cx.int("low"), cx.int("high"));
                if low >= high || high - low > i64::from(u32::MAX) {
                    return Diagnostic::new("`RandInt` has no integers to draw from")
                        .got(format!("low {low}, high {high}"))
                        .expected("low < high, fewer than 2^32 apart")
                        .err();
                }
                let (key, next) = keys(cx);
                let dtype = cx.settings.dtype("dtype").unwrap_or(cx.index);
                let attrs = [("shape", cx.dims("shape")?.into()), ("dtype", DType::U32.into())];
                let bits = key.unary("random_bits", &attrs);
                let range = bits.scalar((high - low) as f64);
                let below = bits.binary("mod", range).cast(dtype);
                both(below + low as f64, next)
            },
        )
    },
    Entry {
        example: gives(&["[[0, 1]]", "[0, 7]"], "[[0. 1.]]"),
        inputs: &[data("input", Class::Float), KEY],
        parameters: &[DTYPE],
        ..DRAW.row("Bernoulli", "1 with probability `input`, else 0.", |cx| {
            let (key, next) = keys(cx);
            let chance = cx.var("input");
            let draw = uniform(key, chance.shape(), chance.dtype(), 0.0, 1.0);
            let dtype = cx.settings.dtype("dtype").unwrap_or(chance.dtype());
            both(draw.binary("lt", chance).cast(dtype), next)
        })
    },
    Entry {
        example: gives(&["[[-100, 0], [0, -100]]", "[0, 7]"], "[1 0]"),
        inputs: &[data("input", Class::Float), KEY],
        ..DRAW.row(
            "Categorical",
            "One class sampled for each row of the last axis, with the unnormalised log \
             probabilities `input`, by the Gumbel-max trick.",
            |cx| {
                let (key, next) = keys(cx);
                let logits = cx.var("input");
                let draw =
                    uniform(key, logits.shape(), logits.dtype(), f64::from(f32::MIN_POSITIVE), 1.0);
                let gumbel = -(-draw.log()).log();
                let class = (logits + gumbel).unary("argmax", &[("axis", (-1).into())]);
                both(class.cast(cx.index), next)
            },
        )
    },
];

fn float(cx: &Cx) -> DType {
    cx.settings.dtype("dtype").unwrap_or(cx.float)
}

fn uniform<'a>(key: Var<'a>, shape: Shape, dtype: DType, low: f64, high: f64) -> Var<'a> {
    let attrs = [
        ("shape", shape.into()),
        ("dtype", dtype.into()),
        ("low", low.into()),
        ("high", high.into()),
    ];
    key.unary("uniform", &attrs)
}

/// The key to draw from, and the new key to return.
fn keys<'a>(cx: &Cx<'a>) -> (Var<'a>, Var<'a>) {
    let pair = cx.var("key").unary("key_split", &[("count", 2.into())]);
    let row = |i: usize| {
        let attrs = [
            ("axes", Attr::ints([0])),
            ("starts", Shape::fixed(&[i]).into()),
            ("limits", Shape::fixed(&[i + 1]).into()),
        ];
        pair.unary("slice", &attrs).squeeze(&[0])
    };
    (row(0), row(1))
}

fn both(output: Var, next: Var) -> Result<Vec<Value>> {
    Ok(vec![output.value, next.value])
}
