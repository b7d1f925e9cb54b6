//! Params belong to block objects: clones share them, copies do not.

mod harness;

use harness::{compile, f64s, options, run};
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Role;
use mithril_model::{Block, Loss, Model, TrainModel, block};

fn linear(dimension: i64) -> Result<Block> {
    block!(Linear(dimension = dimension))
}

/// A model that applies one block to `left` and another to `right`. Its outputs are `a` and `b`.
fn pair(one: &Block, other: &Block) -> Result<Model> {
    let model = Model::new();
    model.connect(one.clone().connect([("input", "left"), ("output", "a")])?)?;
    model.connect(other.clone().connect([("input", "right"), ("output", "b")])?)?;
    Ok(model)
}

fn param_names(block: &Block) -> Vec<String> {
    let inputs = block.inputs().iter().filter(|t| t.role != Role::Data);
    inputs.map(|t| t.name.to_string()).collect()
}

#[test]
fn clones_share_params_and_copies_do_not() -> Result<()> {
    let one = linear(1)?;
    assert_eq!(param_names(&pair(&one, &one)?.block()?), ["linear_0.w", "linear_0.b"]);
    let names = ["linear_0.w", "linear_0.b", "linear_1.w", "linear_1.b"];
    assert_eq!(param_names(&pair(&one, &one.copy())?.block()?), names);
    assert_eq!(param_names(&pair(&one, &linear(1)?)?.block()?), names);
    let named = one.named("fc")?;
    assert_eq!(param_names(&pair(&named, &named)?.block()?), ["fc.w", "fc.b"]);
    assert!(pair(&named, &named.copy()).is_err());
    Ok(())
}

#[test]
fn a_shared_param_is_one_argument() -> Result<()> {
    let one = linear(1)?;
    let block = pair(&one, &one)?.block()?;
    let inputs = vec![
        ("left", f64s(&[1, 2], &[1.0, 2.0])),
        ("right", f64s(&[1, 2], &[3.0, 4.0])),
        ("linear_0.w", f64s(&[2, 1], &[10.0, 1.0])),
        ("linear_0.b", f64s(&[1], &[0.5])),
    ];
    let results = run(&block, &inputs, &options(&inputs));
    let values: Vec<f64> = results.iter().map(|(_, value)| value.to_f64s()[0]).collect();
    assert_eq!(values, [12.5, 34.5]);
    Ok(())
}

#[test]
fn nested_models_and_copies_keep_sharing() -> Result<()> {
    let one = linear(1)?;
    let tower = pair(&one, &one)?;
    let outer = Model::new();
    let inner = tower.seal()?;
    outer.connect(inner.clone().connect([("a", "p"), ("b", "q")])?)?;
    outer.connect(inner.connect([("a", "r"), ("b", "s")])?)?;
    outer.connect(tower.copy().seal()?.connect([("a", "t"), ("b", "u")])?)?;
    outer.connect(one.connect([("input", "left"), ("output", "v")])?)?;
    let names = ["model_0", "model_2"].map(|m| ["w", "b"].map(|n| format!("{m}.linear_0.{n}")));
    let block = outer.block()?;
    assert_eq!(param_names(&block), names.concat());
    assert_eq!(param_names(&outer.copy().block()?), names.concat());
    let again = Block::from_json(&block.to_json()?)?;
    assert_eq!(param_names(&again), names.concat());
    assert!(again == block);
    assert_eq!(again.to_json()?, block.to_json()?);
    Ok(())
}

#[test]
fn models_that_share_differently_are_not_equal() -> Result<()> {
    let (one, other) = (linear(1)?, linear(1)?);
    assert!(pair(&one, &one)?.block()? != pair(&one, &other)?.block()?);
    assert!(pair(&one, &one)?.block()? == pair(&other, &other)?.block()?);
    let stack = |blocks: &[&Block]| {
        let blocks: Vec<Block> = blocks.iter().map(|block| (*block).clone()).collect();
        mithril_model::blocks::build("Sequential", vec![], vec![("blocks", blocks.into())])
    };
    let shared = stack(&[&one, &one])?;
    assert!(shared != stack(&[&one, &other])?);
    assert_eq!(param_names(&Block::from_json(&shared.to_json()?)?).len(), 2);
    Ok(())
}

#[test]
fn a_saved_model_with_wrong_sharing_is_damaged() -> Result<()> {
    let one = linear(1)?;
    let text = pair(&one, &one)?.block()?.to_json()?;
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let model = value["blocks"].as_array().expect("blocks").len() - 1;
    let wrong = [serde_json::json!([0]), serde_json::json!("all"), serde_json::json!([0, -1, 2])];
    for shares in wrong {
        value["blocks"][model]["parts"][0]["block"]["shares"] = shares;
        assert!(Block::from_json(&value.to_string()).is_err());
    }
    Ok(())
}

#[test]
fn states_are_updated_by_each_use() -> Result<()> {
    let norm = block!(BatchNorm1d())?;
    let model = Model::new();
    model.extend(norm.clone().input("x")?)?;
    model.extend(norm)?;
    let x = [("x", f64s(&[2, 2], &[0.0; 4]))];
    let module = compile(&model.block()?, &options(&x));
    let main = module.entry().expect("an entry");
    let states = main.results.iter().filter_map(|r| r.state.as_deref());
    let names = ["batch_norm1d_0.running_mean", "batch_norm1d_0.running_var"];
    assert_eq!(states.collect::<Vec<_>>(), names);
    Ok(())
}

#[test]
fn a_training_model_used_as_a_block_cannot_change() -> Result<()> {
    let mut train = TrainModel::new(&linear(1)?)?;
    train.add_loss(block!(SquaredError())?, Loss::default())?;
    let block = train.seal()?;
    assert!(train.add_loss(block!(AbsoluteError())?, Loss::default()).is_err());
    assert!(train.seal()? == block);
    assert_eq!(param_names(train.trained()), ["w", "b"]);
    Ok(())
}
