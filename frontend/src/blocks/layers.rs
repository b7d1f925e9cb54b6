//! Layers: blocks with learned inputs.

use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::parameter::{required, with};
use super::{BASE, Default, Entry, Group, Input, Kind, Meaning, data, param};
use crate::block::Init;
use crate::lower::Cx;

const LAYER: Entry = Entry {
    group: Group::Layer,
    inputs: &[data("input", Class::Float)],
    ..BASE
};

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "Linear",
        doc: "`input @ w + b` over the last axis of `input`; `w` is (in_features, dimension).",
        parameters: &[
            required("dimension", Kind::Count),
            with("use_bias", Kind::Bool, Default::Bool(true)),
        ],
        inputs: &[
            data("input", Class::Float),
            param("w", Init::Normal, |cx| {
                let features = cx.last_dim("input")?;
                Ok(Shape::new([features, Dim::Const(cx.int("dimension"))]))
            }),
            BIAS.when(|s| s.flag("use_bias")),
        ],
        meaning: Meaning::Lower(|cx| {
            let product = cx.var("input").matmul(cx.var("w"));
            let output = match cx.optional("b") {
                Some(b) => product + b,
                None => product,
            };
            Ok(vec![output.value])
        }),
        ..LAYER
    },
    Entry {
        name: "Softmax",
        parameters: &[with("axis", Kind::Int, Default::Int(-1))],
        meaning: Meaning::Op("softmax"),
        ..LAYER
    },
];

const BIAS: Input = param("b", Init::Zeros, width);

/// One dim: the block's `dimension`.
fn width(cx: &Cx) -> mithril_ir::diagnostic::Result<Shape> {
    Ok(Shape::new([Dim::Const(cx.int("dimension"))]))
}
