//! Summaries of models as tables.

use mithril_driver::summary::table;
use mithril_ir::diagnostic::Result;
use mithril_model::summary::summary;
use mithril_model::{Block, Model, Options, block};

fn linear(dimension: i64) -> Result<Block> {
    block!(Linear(dimension = dimension))
}

fn two_layers(activation: Block) -> Result<Model> {
    let model = Model::new();
    model.extend(linear(32)?)?;
    model.extend(activation)?;
    model.extend(linear(16)?.output("output")?)?;
    Ok(model)
}

/// The README's first example.
fn readme() -> Result<Block> {
    let model = Model::new();
    model.extend(two_layers(block!(Relu())?)?.seal()?.output("output1")?)?;
    model.extend(two_layers(block!(LeakyRelu())?)?.seal()?.output("output2")?)?;
    let add = block!(Add())?.connect([("left", "output1"), ("right", "output2")])?;
    model.extend(add.output("output")?)?;
    model.block()
}

#[test]
fn summaries() {
    let mut text = table(&summary(&readme().unwrap(), None, 9).unwrap());
    let shapes = Options {
        shapes: vec![("input".into(), vec!["batch".into(), 784.into()])],
        ..Options::default()
    };
    for depth in [1, 2] {
        text.push('\n');
        text.push_str(&table(&summary(&readme().unwrap(), Some(&shapes), depth).unwrap()));
    }
    text.push('\n');
    text.push_str(&table(&summary(&linear(16).unwrap(), Some(&shapes), 1).unwrap()));
    insta::assert_snapshot!(text);
}
