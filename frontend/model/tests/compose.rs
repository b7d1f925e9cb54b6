//! Composed models: their names, inputs and outputs, and their text in the IR.

mod harness;

use std::fmt::Write;

use harness::{alone, compile, f64s, first, options, run};
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Role;
use mithril_ir::text::print;
use mithril_model::{
    Block, DimSpec, IoKey, Loss, Mode, Model, Options, Setting, Source, TrainModel, block,
};

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

/// The FAQ's model with several inputs and outputs.
fn several_outputs() -> Result<Block> {
    let model = Model::new();
    model.connect(linear(64)?.connect([("input", "image"), ("output", "image_features")])?)?;
    model.extend(linear(32)?.connect([("input", "text"), ("output", "text_features")])?)?;
    let features = Source::from(vec!["image_features", "text_features"]);
    model.extend(
        block!(Concat(axis = -1))?
            .connect([("inputs", features), ("output", "combined".into())])?,
    )?;
    model.extend(linear(10)?.connect([("input", "combined"), ("output", "classification")])?)?;
    model.extend(linear(1)?.connect([("input", "combined"), ("output", "regression")])?)?;
    model.block()
}

fn clashing_inputs() -> Result<Block> {
    let model = Model::new();
    model.connect(block!(Add())?)?;
    model.connect(block!(Add())?)?;
    model.connect(block!(Multiply())?)?;
    model.block()
}

fn read_before_written() -> Result<Block> {
    let model = Model::new();
    model.connect(block!(Relu())?.connect([("input", "h"), ("output", "y")])?)?;
    model.connect(linear(2)?.connect([("input", "x"), ("output", "h")])?)?;
    model.block()
}

fn tied() -> Result<Block> {
    let model = Model::new();
    // The transpose is added before the embedding, which determines the role and shape of `wte`.
    model.connect(block!(Transpose())?.connect([("input", "wte"), ("output", "head")])?)?;
    let embedding = block!(Embedding(num_embeddings = 5, dimension = 3))?;
    model.connect(embedding.connect([("input", "ids"), ("w", "wte"), ("output", "h")])?)?;
    model.connect(block!(MatrixMultiply())?.connect([("left", "h"), ("right", "head")])?)?;
    model.block()
}

fn parts_of_a_list() -> Result<Block> {
    let model = Model::new();
    model.connect(
        block!(Split(n = 3, axis = -1))?.connect([("input", "x"), ("output", "parts")])?,
    )?;
    let parts = model.terminal("parts")?;
    parts.element(0)?.operate("*", parts.element(-1)?)?;
    model.set_shapes([("x", vec![DimSpec::Any, 6.into()])])?;
    model.block()
}

fn exposed_and_discarded() -> Result<Block> {
    let model = Model::new();
    let key = IoKey { expose: true, ..IoKey::new("hidden") };
    model.connect(linear(4)?.input("x")?.output(key)?)?;
    model.connect(block!(Tanh())?.connect([("input", "hidden"), ("output", "unwanted")])?)?;
    model.connect(block!(Sine())?.connect([("input", "hidden"), ("output", "wanted")])?)?;
    model.discard("unwanted")?;
    model.rename("wanted", "given")?;
    model.block()
}

fn constants_and_annotations() -> Result<Block> {
    let model = Model::new();
    let rate = IoKey { value: Some(0.5.into()), ..IoKey::new("rate") };
    let x = IoKey { shape: Some(vec![DimSpec::from("batch"), 3.into()].into()), ..IoKey::new("x") };
    let scale = block!(Multiply())?.connect([("left", Source::from(x)), ("right", rate.into())])?;
    model.connect(scale.output("y")?)?;
    model.block()
}

fn random_and_state() -> Result<Block> {
    let inner = Model::of_kind("Noisy");
    inner.extend(block!(BatchNorm1d())?.input("x")?)?;
    inner.extend(block!(Dropout(rate = 0.1))?)?;
    let model = Model::new();
    let inner = inner.seal()?;
    model.extend(inner.clone())?;
    model.extend(inner)?;
    model.set_shapes([("x", vec![DimSpec::Any, 3.into()])])?;
    model.block()
}

fn shared_definitions() -> Result<Block> {
    let layer = || -> Result<Block> {
        let model = Model::of_kind("Layer1");
        model.extend(linear(8)?)?;
        model.extend(block!(Relu())?)?;
        model.seal()
    };
    let model = Model::new();
    for i in 0..3 {
        // Each layer is built again. Equal definitions become one function.
        model.extend(layer()?.named(&format!("h{i}"))?)?;
    }
    model.set_shapes([("input", vec![DimSpec::Any, 8.into()])])?;
    model.block()
}

type Case = (&'static str, fn() -> Result<Block>);

const MODELS: &[Case] = &[
    ("readme", readme),
    ("several outputs", several_outputs),
    ("clashing inputs", clashing_inputs),
    ("read before written", read_before_written),
    ("tied weights", tied),
    ("parts of a list", parts_of_a_list),
    ("exposed and discarded", exposed_and_discarded),
    ("constants and annotations", constants_and_annotations),
    ("random and state", random_and_state),
    ("shared definitions", shared_definitions),
    ("a single layer", || linear(16)),
];

#[test]
fn texts_of_models() {
    let mut text = String::new();
    for (name, model) in MODELS {
        let block = model().unwrap_or_else(|e| panic!("{name}: {e}"));
        let _ = writeln!(text, "{name}\n\n{}", print(&compile(&block, &Options::default())));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn models_are_saved_and_loaded() {
    for (name, model) in MODELS {
        let block = model().unwrap();
        let text = block.to_json().unwrap();
        let again = Block::from_json(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        let print = |b: &Block| print(&compile(b, &Options::default()));
        assert_eq!(print(&again), print(&block), "{name}");
        assert_eq!(again.to_json().unwrap(), text, "{name}");
        assert_eq!(
            again.standard_input().map(|t| &t.name),
            block.standard_input().map(|t| &t.name),
            "{name}"
        );
    }
}

#[test]
fn settings_are_saved_and_loaded() {
    let slice = Setting::Slice(std::sync::Arc::new([1.into(), Setting::None, Setting::None]));
    let relu = block!(Relu()).unwrap();
    let activations = vec![Setting::from(relu.named("act").unwrap()), Setting::None];
    let blocks = [
        block!(Indexer(index = vec![slice, Setting::Ellipsis])),
        block!(MLP(activations = activations, dimensions = vec![3, 2])),
        block!(CrossEntropy(weights = vec![1.0, 2.0])),
        block!(Clamp(max = f64::INFINITY)),
        block!(Cast(dtype = mithril_ir::dtype::DType::I32)),
    ];
    for block in blocks {
        let block = block.unwrap();
        assert!(Block::from_json(&block.to_json().unwrap()).unwrap() == block, "{}", block.kind());
    }
}

#[test]
fn roles_follow_the_keys() {
    let block = alone(linear(2).unwrap()).unwrap();
    let given = Options {
        trainable_keys: vec!["input".into()],
        data_keys: vec!["linear.b".into()],
        constant_keys: vec![(
            "linear.w".into(),
            mithril_ir::tensor::Tensor::from_f64s(
                mithril_ir::dtype::DType::F32,
                vec![3, 2],
                &[1.0; 6],
            )
            .into(),
        )],
        ..Options::default()
    };
    let module = compile(&block, &given);
    let args = &module.entry().unwrap().args;
    let args: Vec<(&str, Role)> = args.iter().map(|a| (&*a.name, a.role)).collect();
    assert_eq!(args, [("input", Role::Param), ("linear.b", Role::Data)]);
}

#[test]
fn equal_definitions_are_equal_blocks() {
    assert!(readme().unwrap() == readme().unwrap());
    assert!(linear(3).unwrap() != linear(4).unwrap());
    let module = compile(&shared_definitions().unwrap(), &Options::default());
    assert_eq!(module.functions.len(), 2);
}

#[test]
fn training_models_compute_cost_and_metrics() -> Result<()> {
    let mut train = TrainModel::new(&alone(linear(1)?)?)?;
    train.add_loss(block!(SquaredError())?, Loss::default())?;
    let l1 = Loss { coef: 0.5, ..Loss::default() };
    train.add_loss(block!(AbsoluteError())?, l1)?;
    train.add_regularization_where(&block!(L2())?, 0.1, |name| name.ends_with(".w"))?;
    train.add_metric(
        block!(AbsoluteError())?,
        vec![block!(Max())?],
        "output",
        "target",
        "worst",
    )?;
    let block = train.finish()?;
    let inputs = vec![
        ("input", f64s(&[2, 1], &[1.0, 2.0])),
        ("linear.w", f64s(&[1, 1], &[3.0])),
        ("linear.b", f64s(&[1], &[0.0])),
        ("target", f64s(&[2, 1], &[2.0, 8.0])),
    ];
    let results = run(&block, &inputs, &options(&inputs));
    let names: Vec<&str> = results.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["output", "worst", "final_cost"]);
    // Errors are 1 and -2: 2.5 + 0.5 * 1.5 + 0.1 * 4.5.
    assert!((results[2].1.to_f64s()[0] - 3.7).abs() < 1e-12);
    assert_eq!(results[1].1.to_f64s(), [2.0]);
    // A table block keeps the names of its terminals.
    let mut train = TrainModel::new(&linear(1)?)?;
    train.add_loss(block!(SquaredError())?, Loss::default())?;
    train.add_regularization(block!(L1())?, 1.0, "w")?;
    let names: Vec<String> = train.finish()?.inputs().iter().map(|t| t.name.to_string()).collect();
    assert_eq!(names, ["input", "w", "b", "target"]);
    Ok(())
}

#[test]
fn inference_has_no_keys_and_updates_no_states() {
    let inference = Options { mode: Mode::Inference, ..Options::default() };
    let module = compile(&random_and_state().unwrap(), &inference);
    let main = module.entry().unwrap();
    assert!(main.args.iter().all(|a| a.role != Role::Key));
    assert!(main.results.iter().all(|r| r.state.is_none()));
    let x = vec![("input", f64s(&[2], &[1.0, 2.0]))];
    let dropped = first(&block!(Dropout(rate = 1.0)).unwrap(), &x);
    assert_eq!(dropped.to_f64s(), [0.0, 0.0]);
}
