//! Blocks composed of other blocks: ordinary models.

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::op::Class;

use super::layers::{INIT, LAYER};
use super::parameter::{required, with};
use super::{Default, Entry, Input, Kind, Meaning, Settings, build, data, gives};
use crate::block::Block;
use crate::model::Model;
use crate::setting::Setting;

const INPUT: &[Input] = &[data("input", Class::Float)];

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "Layer",
        doc: "A `Linear` of `dimension` followed by `activation`. `init` is that of the `Linear`.",
        example: gives(&["np.ones((5, 4), \"float32\")"], "(5, 3)")
            .with_settings("ml.Relu(), dimension=3"),
        parameters: &[
            required("activation", Kind::Block).doc("the block after the `Linear`"),
            required("dimension", Kind::Count).doc("the width of the output"),
            INIT,
        ],
        inputs: INPUT,
        meaning: Meaning::Compose(|settings| {
            let dimension = settings.int("dimension").unwrap_or(1);
            let linear = linear(dimension, true, Some(settings.get("init")));
            stack([linear].into_iter().chain([block(settings, "activation")]))
        }),
        ..LAYER
    },
    Entry {
        name: "MLP",
        doc: "A `Linear` of each of `dimensions`, each followed by its activation; None is no \
              activation. `init` is that of each `Linear`.",
        example: gives(&["np.ones((5, 4), \"float32\")"], "(5, 3)")
            .with_settings("activations=[ml.Relu(), None], dimensions=[8, 3]"),
        parameters: &[
            required("activations", Kind::List(&Kind::OrNone(&Kind::Block)))
                .doc("one block for each dimension, or None for no activation"),
            required("dimensions", Kind::INTS).doc("the width of each layer"),
            with("use_bias", Kind::Bool, Default::Bool(true)).doc("learn a bias in each layer"),
            INIT,
        ],
        inputs: INPUT,
        meaning: Meaning::Compose(mlp),
        ..LAYER
    },
    Entry {
        name: "Sequential",
        doc: "Blocks in sequence, connected by their standard terminals.",
        example: gives(&["[-1, 0, 2]"], "[0. 0. 4.]").with_settings("[ml.Relu(), ml.Square()]"),
        parameters: &[required("blocks", Kind::BLOCKS).doc("the blocks, first to last")],
        inputs: INPUT,
        meaning: Meaning::Compose(|settings| {
            if settings.list("blocks").is_empty() {
                return Diagnostic::new("`Sequential` needs at least one block")
                    .got("an empty list")
                    .err();
            }
            let blocks = settings.list("blocks").iter().filter_map(|s| match s {
                Setting::Block(block) => Some(Ok(block.clone())),
                _ => None,
            });
            stack(blocks)
        }),
        ..LAYER
    },
    Entry {
        name: "Residual",
        source: "He et al. 2016, eq. 1",
        doc: "`input + block(input)`.",
        example: gives(&["[-1, 0, 2]"], "[0. 0. 6.]").with_settings("ml.Square()"),
        parameters: &[
            required("block", Kind::Block).doc("the block whose result is added to `input`")
        ],
        inputs: INPUT,
        meaning: Meaning::Compose(|settings| {
            let model = Model::new();
            let inner = block(settings, "block")?;
            let result = model.apply(inner.input("input")?)?;
            let add = build("Add", vec![], vec![])?.connect([
                ("left", "input".into()),
                ("right", crate::model::Source::from(result)),
            ])?;
            model.connect(add.output("output")?)?;
            Ok(model)
        }),
        ..LAYER
    },
];

pub(super) fn block(settings: &Settings, name: &str) -> Result<Block> {
    match settings.block(name) {
        Some(block) => Ok(block.clone()),
        None => Diagnostic::new(format!("`{name}` is not a block")).err(),
    }
}

/// A `Linear`, with the initial values of its weights if they are given.
pub(super) fn linear(dimension: i64, use_bias: bool, init: Option<&Setting>) -> Result<Block> {
    let mut named =
        vec![("dimension", Setting::Int(dimension)), ("use_bias", Setting::Bool(use_bias))];
    named.extend(init.map(|init| ("init", init.clone())));
    build("Linear", vec![], named)
}

/// Chains blocks by their standard terminals, from `input` to `output`.
fn stack(blocks: impl IntoIterator<Item = Result<Block>>) -> Result<Model> {
    let model = Model::new();
    let mut blocks = blocks.into_iter().peekable();
    let mut first = true;
    while let Some(block) = blocks.next() {
        let mut block = block?;
        if std::mem::take(&mut first) && block.standard_input().is_some() {
            block = block.input("input")?;
        }
        if blocks.peek().is_none() {
            block = block.output("output")?;
        }
        model.extend(block)?;
    }
    Ok(model)
}

fn mlp(settings: &Settings) -> Result<Model> {
    let activations = settings.list("activations");
    let dimensions = settings.ints("dimensions").unwrap_or_default();
    if activations.len() != dimensions.len() || dimensions.is_empty() {
        return Diagnostic::new("`activations` and `dimensions` of `MLP` differ in length")
            .got(format!("{} and {}", activations.len(), dimensions.len()))
            .expected("one activation, or None, for each dimension")
            .err();
    }
    let use_bias = settings.flag("use_bias");
    let mut blocks = Vec::new();
    for (activation, dimension) in activations.iter().zip(dimensions) {
        if dimension < 1 {
            return Diagnostic::new("a dimension of `MLP` is not positive")
                .got(dimension)
                .expected("integers of at least 1")
                .err();
        }
        blocks.push(linear(dimension, use_bias, Some(settings.get("init"))));
        if let Setting::Block(activation) = activation {
            blocks.push(Ok(activation.clone()));
        }
    }
    stack(blocks)
}
