//! Training models: the names of added terminals, the cost, and errors.

mod harness;

use harness::{compile, f64s, i64s, options, run};
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Role;
use mithril_ir::tensor::Tensor;
use mithril_model::{Block, DimSpec, IoKey, Loss, Model, Options, Select, TrainModel, block};

fn layers() -> Result<Block> {
    let model = Model::new();
    model.extend(block!(Linear(dimension = 3))?)?;
    model.extend(block!(Relu())?)?;
    model.extend(block!(Linear(dimension = 2))?)?;
    model.block()
}

fn one_layer() -> Result<TrainModel> {
    TrainModel::new(&block!(Linear(dimension = 2))?)
}

fn names(block: &Block) -> (String, String) {
    let inputs: Vec<&str> = block.inputs().iter().map(|t| &*t.name).collect();
    let outputs: Vec<&str> = block.outputs().iter().map(|o| &*o.name).collect();
    (inputs.join(" "), outputs.join(" "))
}

#[test]
fn training_keeps_names() -> Result<()> {
    let plain = layers()?;
    let mut train = TrainModel::new(&plain)?;
    train.add_loss(block!(CrossEntropy())?, Loss::default())?;
    // A block in the loss and a reduce step, both of a kind that the model has, do not change the
    // model's names.
    let judge = Model::of_kind("Linear");
    judge.extend(block!(Linear(dimension = 1))?.input("input")?)?;
    judge.extend(block!(Relu())?)?;
    train.add_loss(judge.seal()?, Loss::default())?;
    let block = train.finish()?;
    let (inputs, outputs) = names(&block);
    assert_eq!(
        inputs,
        "input target linear_0.w linear_0.b linear_1.w linear_1.b linear.linear.w \
         linear.linear.b"
    );
    assert_eq!(outputs, "output final_cost");
    let module = compile(&block, &Options::default());
    let main = module.entry().unwrap();
    let params = main.args.iter().filter(|a| a.role == Role::Param);
    assert_eq!(params.count(), 6);
    Ok(())
}

#[test]
fn training_keeps_random_numbers() -> Result<()> {
    let model = Model::new();
    model.extend(block!(Dropout(rate = 0.5))?)?;
    let plain = model.block()?;
    let mut train = TrainModel::new(&plain)?;
    train.add_loss(block!(SquaredError())?, Loss::default())?;
    let block = train.finish()?;
    assert_eq!(names(&block).0, "input target key");
    let x = ("input", f64s(&[64], &[1.0; 64]));
    let y = ("target", f64s(&[64], &[0.0; 64]));
    let alone = run(&plain, std::slice::from_ref(&x), &options(std::slice::from_ref(&x)));
    let both = [x, y];
    let trained = run(&block, &both, &options(&both));
    assert_eq!(alone[0].1, trained[0].1);
    Ok(())
}

/// The results of the model `input @ w + b` for these values.
fn results_of(train: &TrainModel, more: &[(&'static str, Tensor)]) -> Vec<(String, Vec<f64>)> {
    let mut inputs = vec![
        ("input", f64s(&[2, 1], &[1.0, 2.0])),
        ("w", f64s(&[1, 2], &[1.0, -2.0])),
        ("b", f64s(&[2], &[0.5, 0.0])),
        ("target", f64s(&[2, 2], &[1.5, -1.0, 0.5, -4.0])),
    ];
    inputs.retain(|(name, _)| !more.iter().any(|(n, _)| n == name));
    inputs.extend(more.iter().cloned());
    let block = train.finish().unwrap_or_else(|e| panic!("{e}"));
    inputs.retain(|(name, _)| block.inputs().iter().any(|t| &*t.name == *name));
    let results = run(&block, &inputs, &options(&inputs)).into_iter();
    results.map(|(name, t)| (name, t.to_f64s())).collect()
}

fn cost(train: &TrainModel) -> f64 {
    let results = results_of(train, &[]);
    let cost = results.iter().find(|(name, _)| name == "final_cost");
    cost.expect("there is a cost").1[0]
}

/// Errors are 0, 1, 2, 0: squares 0, 1, 4, 0.
#[test]
fn costs_combine_losses_and_regularizers() -> Result<()> {
    let squares = || block!(SquaredError());
    let mut train = one_layer()?;
    train.add_loss(squares()?, Loss::default())?;
    assert_eq!(cost(&train), 1.25);
    let worst = Loss {
        reduce_steps: vec![block!(Sum(axis = 1))?, block!(Max())?],
        coef: 2.0,
        ..Loss::default()
    };
    train.add_loss(squares()?, worst)?;
    assert_eq!(cost(&train), 1.25 + 8.0);
    train.add_regularization(block!(L2())?, 0.1, "w")?;
    assert!((cost(&train) - 9.5).abs() < 1e-12);
    train.add_regularization(block!(L1())?, 1.0, Select::Pattern("[wb]$".into()))?;
    assert!((cost(&train) - 13.0).abs() < 1e-12);
    let mut greatest = one_layer()?;
    greatest.add_loss(squares()?, Loss::default())?;
    greatest.set_loss_combiner(block!(Max())?)?;
    assert_eq!(cost(&greatest), 1.25);
    greatest.add_loss(block!(AbsoluteError())?, Loss::default())?;
    assert_eq!(cost(&greatest), 1.25);
    greatest.set_loss_combiner(block!(Subtract())?)?;
    assert_eq!(cost(&greatest), 0.5);
    Ok(())
}

#[test]
fn losses_connect_to_inputs_and_values() -> Result<()> {
    let mut train = one_layer()?;
    // One loss compares with an input of the model, another with a new input that has a shape and a
    // dtype.
    let given = [("input", "output"), ("target", "input")];
    train.add_loss(block!(AbsoluteError())?.connect(given)?, Loss::default())?;
    let labels = IoKey { dtype: Some(mithril_ir::dtype::DType::I32), ..IoKey::new("labels") };
    let loss = block!(CrossEntropy())?.connect([("target", labels)])?;
    let none = Loss { coef: 0.0, ..Loss::default() };
    train.add_loss(loss, none)?;
    let metric = block!(Accuracy())?.connect([("target", "labels")])?;
    train.add_metric(metric, vec![], "output", "target", "accuracy")?;
    let residual = block!(Subtract())?.connect([("left", "output"), ("right", "input")])?;
    let steps = vec![block!(Absolute())?, block!(Mean())?];
    train.add_metric(residual, steps, "output", "target", "residual")?;
    let block = train.finish()?;
    let (inputs, outputs) = names(&block);
    assert_eq!(inputs, "input w b labels");
    assert_eq!(outputs, "output accuracy residual final_cost");
    let labels = Tensor::from_i64s(mithril_ir::dtype::DType::I32, vec![2], &[0, 1]);
    let got = results_of(&train, &[("labels", labels)]);
    // Outputs (1.5, -2) and (2.5, -4) against inputs 1 and 2.
    assert_eq!(got[1].1, [0.5]);
    assert_eq!(got[2].1, [2.5]);
    assert_eq!(got[3].1, [2.5]);
    Ok(())
}

/// Patterns with the semantics of Python's `re.search`, and the number of params that they match.
#[test]
fn patterns_select_params() -> Result<()> {
    let plain = layers()?;
    let table = [
        ("linear_0", 2),
        ("linear_0.w$", 1),
        (r".*\.w", 2),
        (r"\.w$", 2),
        ("0", 2),
        ("^linear_0", 2),
        (r"(?i)LINEAR_\d\.[wb]", 4),
        (r"(?P<layer>linear_\d)", 4),
        ("linear_0|linear_1", 4),
    ];
    for (pattern, count) in table {
        let mut train = TrainModel::new(&plain)?;
        train.add_loss(block!(CrossEntropy())?, Loss::default())?;
        train.add_regularization(block!(L2())?, 0.1, Select::Pattern(pattern.into()))?;
        let module = compile(&train.finish()?, &Options::default());
        let ops = &module.entry().unwrap().ops;
        let paths = ops.iter().map(|o| o.loc.to_string());
        let mut paths: Vec<String> = paths.filter(|p| p.starts_with("l2")).collect();
        paths.dedup();
        assert_eq!(paths.len(), count, "{pattern}: {paths:?}");
    }
    Ok(())
}

#[test]
fn targets_take_the_shapes_of_outputs() -> Result<()> {
    let mut train = TrainModel::new(&layers()?)?;
    train.add_loss(block!(CrossEntropy())?, Loss::default())?;
    train.add_metric(block!(F1())?, vec![], "output", "target", "f1")?;
    let shape = vec![DimSpec::Number(8), DimSpec::Number(4)];
    let options = Options { shapes: vec![("input".into(), shape)], ..Options::default() };
    let module = compile(&train.finish()?, &options);
    let main = module.entry().unwrap();
    let (value, _) = main.arguments().find(|(_, a)| &*a.name == "target").unwrap();
    assert_eq!(main.ty(value).to_string(), "tensor<8 x i64>");
    Ok(())
}

/// A function that returns an error, and the expected message.
type Wrong = (fn() -> Result<()>, &'static str);

fn accuracy(train: &mut TrainModel, name: &str) -> Result<()> {
    train.add_metric(block!(Accuracy())?, vec![], "output", "target", name)
}

fn lowered(train: &TrainModel, shapes: &[(&str, Tensor)]) -> Result<()> {
    mithril_model::lower(&train.finish()?, &options(shapes)).map(drop)
}

const WRONG: &[Wrong] = &[
    (
        || {
            let mut train = one_layer()?;
            train.add_loss(block!(SquaredError())?, Loss::default())?;
            let x = f64s(&[4, 3], &[0.0; 12]);
            lowered(&train, &[("input", x), ("target", f64s(&[4], &[0.0; 4]))])
        },
        "Incompatible shapes during compilation: the shape of `target` does not match `input`
  where: block `squared_error` (SquaredError)
  input: tensor<4 x 2 x f64> from `linear.output`
  target: tensor<4 x f64> from the input `target`
  expected: target: [4 x 2]
  hint: reshape one of them: losses do not broadcast to another number of dims",
    ),
    (
        || {
            let mut train = one_layer()?;
            train.add_loss(block!(CrossEntropy())?, Loss::default())?;
            let x = f64s(&[4, 3], &[0.0; 12]);
            lowered(&train, &[("input", x), ("target", i64s(&[5], &[0; 5]))])
        },
        "Incompatible shapes during compilation: the shape of `target` does not match `input`
  where: block `cross_entropy` (CrossEntropy)
  input: tensor<4 x 2 x f64> from `linear.output`
  target: tensor<5 x i64> from the input `target`
  expected: target: [4]
  hint: reshape one of them: losses do not broadcast to another number of dims",
    ),
    (
        || {
            let mut train = one_layer()?;
            let loss = block!(CrossEntropy(weights = vec![1.0, 2.0, 3.0]))?;
            train.add_loss(loss, Loss::default())?;
            lowered(&train, &[("input", f64s(&[4, 3], &[0.0; 12]))])
        },
        "Incompatible shapes during compilation: `weights` must have one number for each class",
    ),
    (
        || block!(CrossEntropy(input_type = "logit")).map(drop),
        "`input_type` of `CrossEntropy` has an invalid value
  got: the string \"logit\"
  expected: one of \"logits\", \"probs\", \"log_probs\"",
    ),
    (
        || block!(QuantileLoss(q = 1.5)).map(drop),
        "`q` of `QuantileLoss` is out of range
  got: the number 1.5
  expected: a number from 0 to 1",
    ),
    (
        || {
            let mut train = TrainModel::new(&layers()?)?;
            train.add_regularization(block!(L2())?, 0.1, "linear_0.v")
        },
        "Terminal not found: `Model` has no terminal `linear_0.v`
  expected: one of `input`, `linear_0.w`, `linear_0.b`, `linear_1.w`, `linear_1.b`, `output`
  hint: did you mean `linear_0.b` or `linear_0.w` or `linear_1.b`?",
    ),
    (
        || {
            let mut train = TrainModel::new(&layers()?)?;
            train.add_regularization(block!(L2())?, 0.1, Select::Pattern("linear0.w".into()))
        },
        "Terminal not found: no param of `Model` matches `linear0.w`
  expected: one of `linear_0.w`, `linear_0.b`, `linear_1.w`, `linear_1.b`
  hint: did you mean `linear_0.w` or `linear_0.b` or `linear_1.w`?",
    ),
    (
        || {
            let mut train = TrainModel::new(&layers()?)?;
            train.add_regularization(block!(L2())?, 0.1, Select::Pattern("(?=w)".into()))
        },
        "the pattern is not a supported regular expression",
    ),
    (
        || {
            let mut train = one_layer()?;
            accuracy(&mut train, "accuracy")?;
            accuracy(&mut train, "accuracy")
        },
        "two metrics are called `accuracy`
  hint: give the metric its own `name`",
    ),
    (
        || accuracy(&mut one_layer()?, "output"),
        "a metric and a terminal of the model are called `output`
  hint: give the metric its own `name`",
    ),
    (
        || {
            let loss = block!(SquaredError())?.input("outputs")?;
            one_layer()?.add_loss(loss, Loss::default())
        },
        "Terminal not found: `Linear` has no terminal `outputs`
  expected: one of `input`, `w`, `b`, `output`
  hint: did you mean `output`?",
    ),
    (
        || {
            let given = [("input", "input"), ("target", "target")];
            one_layer()?.add_loss(block!(SquaredError())?.connect(given)?, Loss::default())
        },
        "the loss `SquaredError` reads no output of the model
  expected: a connection to one of `output`",
    ),
    (
        || {
            let model = Model::new();
            model.connect(block!(Relu())?.connect([("input", "a"), ("output", "left")])?)?;
            model.connect(block!(Tanh())?.connect([("input", "a"), ("output", "right")])?)?;
            model.connect(block!(Sum())?.connect([("input", "right"), ("output", "s")])?)?;
            model.discard("s")?;
            model.expose("right")?;
            TrainModel::new(&model.block()?)?.add_loss(block!(SquaredError())?, Loss::default())
        },
        "Terminal not found: `Model` has no terminal `output`
  expected: one of `a`, `left`, `right`",
    ),
    (
        || {
            let mut train = one_layer()?;
            train.add_loss(block!(SquaredError())?, Loss::default())?;
            train.set_loss_combiner(block!(Add())?)?;
            train.finish().map(drop)
        },
        "`Add` cannot combine the losses
  got: inputs: 2, outputs: 1, losses: 1
  expected: one input for all losses or one for each, and one output",
    ),
    (
        || {
            let mut train = one_layer()?;
            train.add_loss(block!(SquaredError())?, Loss::default())?;
            train.set_loss_combiner(block!(Split(n = 2))?)?;
            train.finish().map(drop)
        },
        "`Split` cannot combine the losses
  got: inputs: 1, outputs: a list, losses: 1
  expected: one input for all losses or one for each, and one output",
    ),
    (
        || one_layer()?.finish().map(drop),
        "the model to be trained has no loss
  hint: add one with `add_loss`",
    ),
    (
        || {
            let mut train = one_layer()?;
            let none = Loss { reduce_steps: vec![], ..Loss::default() };
            train.add_loss(block!(SquaredError())?, none)?;
            lowered(&train, &[("input", f64s(&[4, 3], &[0.0; 12]))])
        },
        "Incompatible shapes during compilation: a value has a different shape than stated
  got: [4 x 2] from `squared_error.output`
  expected: []
  hint: reduce the loss to one number: `reduce_steps=[Mean()]`",
    ),
    (
        || {
            let mut train = one_layer()?;
            let loss = block!(CrossEntropy(ignore_index = 0))?;
            train.add_loss(loss, Loss::default())?;
            let inputs =
                [("input", f64s(&[4, 3], &[0.0; 12])), ("target", f64s(&[4, 2], &[0.0; 8]))];
            lowered(&train, &inputs)
        },
        "`ignore_index` needs targets that are indices of classes",
    ),
    (
        || {
            let block = block!(Precision())?;
            let inputs = [("input", i64s(&[4], &[0; 4])), ("target", i64s(&[4], &[0; 4]))];
            mithril_model::lower(&block, &options(&inputs)).map(drop)
        },
        "the number of classes cannot be inferred from class indices",
    ),
];

#[test]
fn errors_have_messages() {
    for (step, expected) in WRONG {
        let error = step().expect_err(expected).to_string();
        match expected.contains('\n') {
            true => assert_eq!(error, *expected),
            false => assert!(error.starts_with(expected), "{error}"),
        }
    }
}
