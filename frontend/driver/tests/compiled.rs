//! Models from Rust: composed, compiled, called with arrays of `ndarray`, trained and exported.

use std::path::{Path, PathBuf};

use mithril_driver::arrays::{Array, Arrays};
use mithril_driver::compile::CompileOptions;
use mithril_driver::compiled::{Call, Compiled};
use mithril_driver::native::Tier;
use mithril_driver::native::export::Library;
use mithril_ir::diagnostic::Result;
use mithril_model::{Block, DimSpec, Loss, Mode, Model, Options, TrainModel, block};
use mithril_passes::pipeline::OptimizationOptions;
use ndarray::{Array1, Array2, arr0, arr1, arr2, array};

/// Compiles with Cranelift, so that the tests do not need LLVM.
fn compiled(block: &Block, target: &str, shapes: &[(&str, &[DimSpec])], mode: Mode) -> Compiled {
    let shapes = shapes.iter().map(|(name, dims)| (name.to_string(), dims.to_vec())).collect();
    let lower = Options { shapes, mode, ..Options::default() };
    let mut options =
        CompileOptions::new(target, lower, OptimizationOptions::default()).expect("a target");
    options.tier = Tier::Instant;
    Compiled::new(block, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn batch(size: u64) -> Vec<DimSpec> {
    vec!["batch".into(), size.into()]
}

fn two_layers() -> Result<Block> {
    let model = Model::new();
    model.extend(block!(Linear(dimension = 3))?.connect([("input", "x")])?)?;
    model.extend(block!(Relu())?)?;
    model.extend(block!(Linear(dimension = 2))?.output("y")?)?;
    model.block()
}

/// The params of `two_layers` for inputs of two numbers.
fn params() -> Arrays {
    Arrays::new()
        .with("linear_0.w", array![[1f32, -1.0, 0.5], [2.0, 1.0, -0.5]])
        .with("linear_0.b", array![0f32, 1.0, 0.25])
        .with("linear_1.w", array![[1f32, 0.0], [0.0, 1.0], [2.0, -2.0]])
        .with("linear_1.b", array![0.5f32, -0.5])
}

fn expected(x: &Array2<f32>) -> Array2<f32> {
    let params = params();
    let of = |name: &str| params.get::<f32>(name).unwrap().clone();
    let matrix = |name: &str| of(name).into_dimensionality::<ndarray::Ix2>().unwrap();
    let hidden = (x.dot(&matrix("linear_0.w")) + of("linear_0.b")).mapv(|v| v.max(0.0));
    let hidden = hidden.into_dimensionality::<ndarray::Ix2>().unwrap();
    (hidden.dot(&matrix("linear_1.w")) + of("linear_1.b")).into_dimensionality().unwrap()
}

#[test]
fn source_is_text() {
    let block = two_layers().unwrap();
    let code = compiled(&block, "numpy", &[("x", &batch(2))], Mode::Inference);
    assert!(code.source().unwrap().contains("np.maximum("));
    let c = compiled(&block, "c", &[("x", &batch(2))], Mode::Inference);
    assert!(c.source().unwrap().contains("int mithril_model("));
    let native = compiled(&block, "cpu", &[("x", &batch(2))], Mode::Inference);
    assert_eq!(native.source(), None);
    let error = code.evaluate(&params(), &Arrays::new()).unwrap_err();
    assert!(error.headline().contains("there is no native code"), "{error}");
}

#[test]
fn outputs_for_every_size_and_layout() {
    let compiled = compiled(&two_layers().unwrap(), "cpu", &[("x", &batch(2))], Mode::Inference);
    for rows in [0, 1, 3, 70] {
        let x = Array2::from_shape_fn((rows, 2), |(row, column)| row as f32 - 2.0 * column as f32);
        let turned = x.t().as_standard_layout().into_owned().reversed_axes();
        for x in [x, turned] {
            let got = compiled.evaluate(&params(), &Arrays::from([("x", x.clone())])).unwrap();
            assert_eq!(*got.get::<f32>("y").unwrap(), expected(&x).into_dyn());
        }
    }
}

#[test]
fn gradients_match_central_differences() {
    let compiled = compiled(&two_layers().unwrap(), "cpu", &[("x", &batch(2))], Mode::Training);
    let inputs = Arrays::from([("x", arr2(&[[1f32, 2.0], [3.0, -1.0]]))]);
    let seeds = Arrays::from([("y", arr2(&[[1f32, 2.0], [-1.0, 0.5]]))]);
    let params = params();
    let total = |params: &Arrays| -> f64 {
        let outputs = compiled.evaluate(params, &inputs).unwrap();
        let (y, seed) = (outputs.get::<f32>("y").unwrap(), seeds.get::<f32>("y").unwrap());
        y.iter().zip(seed).map(|(y, seed)| f64::from(y * seed)).sum()
    };
    let call = Call { params: &params, inputs: &inputs, state: None, output_gradients: None };
    assert!(compiled.call(&call).unwrap().gradients.is_empty());
    let call = Call { output_gradients: Some(&seeds), ..call };
    let step = compiled.call(&call).unwrap();
    assert_eq!(step.outputs, compiled.evaluate(&params, &inputs).unwrap());
    assert!(step.gradients.names().eq(params.names()));
    for (name, gradient) in step.gradients.iter() {
        for (at, got) in gradient.get::<f32>().unwrap().iter().enumerate() {
            let moved = |by: f32| {
                let mut params = params.clone();
                *params.get_mut::<f32>(name).unwrap().iter_mut().nth(at).unwrap() += by;
                total(&params)
            };
            let slope = (moved(0.125) - moved(-0.125)) / 0.25;
            assert!((f64::from(*got) - slope).abs() < 1e-4, "{name}[{at}]: {got} and {slope}");
        }
    }
    let zeros = Arrays::new();
    let step = compiled.call(&Call { output_gradients: Some(&zeros), ..call }).unwrap();
    assert!(step.gradients.get::<f32>("linear_1.b").unwrap().iter().all(|own| *own == 0.0));
}

#[test]
fn training_reduces_the_cost() {
    let mut training = TrainModel::new(&two_layers().unwrap()).unwrap();
    let loss = Loss { input: "y".into(), ..Loss::default() };
    training.add_loss(block!(CrossEntropy()).unwrap(), loss).unwrap();
    let block = training.finish().unwrap();
    let shapes: &[(&str, &[DimSpec])] = &[("x", &batch(2)), ("target", &["batch".into()])];
    let compiled = compiled(&block, "cpu", shapes, Mode::Training);
    let mut params = compiled.first_params(1).unwrap();
    let x = Array2::from_shape_fn((40, 2), |(row, column)| ((row * 7 + column) % 11) as f32 - 5.0);
    let target: Array1<i32> = x.outer_iter().map(|row| i32::from(row[0] > row[1])).collect();
    let inputs = Arrays::new().with("x", x).with("target", target);
    let seeds = Arrays::from([("final_cost", arr0(1f32))]);
    let mut costs = Vec::new();
    for _ in 0..60 {
        let call =
            Call { params: &params, inputs: &inputs, state: None, output_gradients: Some(&seeds) };
        let step = compiled.call(&call).unwrap();
        costs.push(step.outputs.get::<f32>("final_cost").unwrap()[[]]);
        for (name, gradient) in step.gradients.iter() {
            params.get_mut::<f32>(name).unwrap().scaled_add(-0.3, gradient.get().unwrap());
        }
    }
    assert!(costs[59] < 0.2 * costs[0], "{costs:?}");
}

#[test]
fn threads_share_a_model() {
    let compiled = compiled(&two_layers().unwrap(), "cpu", &[("x", &batch(2))], Mode::Inference);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let compiled = &compiled;
            scope.spawn(move || {
                for rows in 1..20 {
                    let x = Array2::from_elem((rows, 2), thread as f32);
                    let inputs = Arrays::from([("x", x.clone())]);
                    let got = compiled.evaluate(&params(), &inputs).unwrap();
                    assert_eq!(*got.get::<f32>("y").unwrap(), expected(&x).into_dyn());
                }
            });
        }
    });
}

#[test]
fn states_are_updated_arrays() {
    let model = Model::new();
    model.extend(block!(BatchNorm1d()).unwrap().connect([("input", "x")]).unwrap()).unwrap();
    let norm = compiled(&model.block().unwrap(), "cpu", &[("x", &batch(2))], Mode::Training);
    let (params, state) = (norm.first_params(0).unwrap(), norm.first_state().unwrap());
    let inputs = Arrays::from([("x", arr2(&[[1f32, 2.0], [3.0, 6.0]]))]);
    let call =
        Call { params: &params, inputs: &inputs, state: Some(&state), output_gradients: None };
    let step = norm.call(&call).unwrap();
    assert!(step.state.names().eq(state.names()));
    let moved = step.state.iter().filter(|(name, own)| state.find(name) != Some(own));
    assert!(moved.count() >= 2);
    let error = norm.evaluate(&params, &inputs).unwrap_err();
    assert!(error.headline().ends_with("missing from state"), "{error}");
}

#[test]
fn indices_may_have_any_integer_dtype() {
    let block = block!(Embedding(num_embeddings = 4, dimension = 2)).unwrap();
    let compiled = compiled(&block, "cpu", &[("input", &["n".into()])], Mode::Inference);
    let params = Arrays::from([("w", Array2::from_shape_fn((4, 2), |(i, j)| (2 * i + j) as f32))]);
    let with = |input: Array| compiled.evaluate(&params, &Arrays::from([("input", input)]));
    let wanted = arr2(&[[6f32, 7.0], [2.0, 3.0]]).into_dyn();
    for input in [Array::from(arr1(&[3i64, 1])), arr1(&[3u8, 1]).into(), arr1(&[3i32, 1]).into()] {
        assert_eq!(*with(input).unwrap().get::<f32>("output").unwrap(), wanted);
    }
    let error = with(arr1(&[3i64, 4]).into()).unwrap_err();
    assert!(error.headline().starts_with("Index out of range: `input` of inputs"), "{error}");
    assert!(with(arr1(&[3f32, 1.0]).into()).is_err());
    assert!(with(arr1(&[u64::MAX]).into()).is_err());
}

#[test]
fn errors_of_calls_have_messages() {
    let compiled = compiled(&two_layers().unwrap(), "cpu", &[("x", &batch(2))], Mode::Inference);
    let mut text = String::new();
    let good = || Arrays::from([("x", arr2(&[[1f32, 2.0]]))]);
    let cases = [
        (params(), Arrays::new()),
        (params(), good().with("z", arr0(1f32))),
        (params(), Arrays::from([("x", arr2(&[[1f64, 2.0]]))])),
        (params(), Arrays::from([("x", arr1(&[1f32, 2.0]))])),
        (params(), Arrays::from([("x", arr2(&[[1f32, 2.0, 3.0]]))])),
        (params().with("linear_0.b", arr1(&[1f32])), good()),
        (Arrays::from([("linear_0.c", arr1(&[1f32]))]), good()),
    ];
    for (params, inputs) in cases {
        text += &format!("{}\n\n", compiled.evaluate(&params, &inputs).unwrap_err());
    }
    let seeds = Arrays::new();
    let (params, inputs) = (params(), good());
    let call =
        Call { params: &params, inputs: &inputs, state: None, output_gradients: Some(&seeds) };
    text += &format!("{}\n\n", compiled.call(&call).unwrap_err());
    text += &format!("{}\n\n", params.get::<f32>("linear_0.v").unwrap_err());
    text += &format!("{}\n", params.get::<f64>("linear_0.w").unwrap_err());
    insta::assert_snapshot!(text);
}

#[test]
fn initial_params_equal_those_of_python() {
    let compiled = compiled(&two_layers().unwrap(), "numpy", &[("x", &batch(2))], Mode::Training);
    let params = compiled.first_params(7).unwrap();
    assert_eq!(params, compiled.first_params(7).unwrap());
    assert_ne!(params, compiled.first_params(8).unwrap());
    // These are the values of Python's `randomize_params(7)` (tests/python/test_init.py).
    let got = params.get::<f32>("linear_1.b").unwrap().as_slice().unwrap().to_vec();
    assert_eq!(got, [-0.169_665_49, -0.282_355_34]);
}

/// The path of the code generator, if it was built (which needs LLVM).
fn code_generator() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/mithril/_native.so");
    built.exists().then_some(built)
}

#[test]
fn models_are_exported() {
    let Some(native) = code_generator() else { return };
    // SAFETY: no other test of this file reads the environment, as only this test compiles with
    // LLVM.
    unsafe { std::env::set_var("MITHRIL_NATIVE", native) };
    let folder = tempfile::tempdir().expect("a folder");
    let compiled = compiled(&two_layers().unwrap(), "cpu", &[("x", &batch(2))], Mode::Training);
    let library = Library { name: Some("net".into()), ..Library::default() };
    let files = compiled.export(folder.path(), &library, Some(&params())).unwrap();
    let weights = mithril_driver::params::load(&files.weights.unwrap()).unwrap();
    assert_eq!(weights.len(), 4);
    assert!(std::fs::read_to_string(files.header).unwrap().contains("int mithril_net("));
    assert!(files.library.ends_with("libnet.so") && files.library.exists());
    let wrong = Library { name: Some("a/b".into()), ..Library::default() };
    assert!(compiled.export(folder.path(), &wrong, None).is_err());
}
