//! Blocks from functions: from `.mir` text, and with bodies in the languages of targets.

use mithril_driver::arrays::Arrays;
use mithril_driver::compile::CompileOptions;
use mithril_driver::compiled::Compiled;
use mithril_driver::native::Tier;
use mithril_ir::diagnostic::Result;
use mithril_model::{Block, Code, Custom, Mode, Model, block};
use ndarray::{Array1, array};

const SWISH: &str = "mithril 1
func @swish(%x: tensor<*b x float>) -> (y: tensor<*b x float>) {
  %s = sigmoid(%x)
  %y = mul(%x, %s)
  return %y
}
";

/// A model with this block between two others.
fn surrounded(inner: Block) -> Result<Block> {
    let model = Model::new();
    model.extend(block!(Relu())?.connect([("input", "x")])?)?;
    model.extend(inner)?;
    model.extend(block!(Negate())?.output("z")?)?;
    model.block()
}

fn compiled(block: &Block, target: &str) -> Result<Compiled> {
    let mut options = CompileOptions::usual(target)?;
    options.lower.shapes = vec![("x".into(), vec!["n".into()])];
    options.lower.mode = Mode::Inference;
    options.tier = Tier::Instant;
    Compiled::new(block, &options)
}

fn evaluated(compiled: &Compiled) -> Result<Array1<f32>> {
    let inputs = Arrays::from([("x", array![-1f32, 0.0, 2.0])]);
    let outputs = compiled.evaluate(&Arrays::new(), &inputs)?;
    let z = outputs.get::<f32>("z").expect("an output of this dtype").clone();
    Ok(z.into_dimensionality().expect("one axis"))
}

fn expected() -> Array1<f32> {
    array![0f32, 0.0, 2.0].mapv(|x| -x / (1.0 + (-x).exp()))
}

fn assert_close(got: &Array1<f32>) {
    for (got, want) in got.iter().zip(&expected()) {
        assert!((got - want).abs() < 1e-6, "{got} {want}");
    }
}

#[test]
fn functions_of_text_run_everywhere() {
    let block = surrounded(Block::from_function(SWISH, None).unwrap()).unwrap();
    assert_close(&evaluated(&compiled(&block, "cpu").unwrap()).unwrap());
    assert_close(&evaluated(&compiled(&block, "c").unwrap()).unwrap());
    let source = compiled(&block, "torch").unwrap();
    assert!(source.source().unwrap().contains("silu("));
    let text = block.to_json().unwrap();
    let again = Block::from_json_of(&text, Code::Trusted).unwrap();
    assert_eq!(again.to_json().unwrap(), text);
}

#[test]
fn bodies_run_on_their_targets() {
    let own = Custom::new("swish")
        .shape("(x: [*b]) -> [*b]")
        .body("numpy", "return x / (1 + np.exp(-x))")
        .body("c", "for (int64_t i = 0; i < x_size; ++i) output[i] = x[i] / (1 + expf(-x[i]));");
    let block = surrounded(own.block().unwrap()).unwrap();
    assert_close(&evaluated(&compiled(&block, "cpu").unwrap()).unwrap());
    assert_close(&evaluated(&compiled(&block, "c").unwrap()).unwrap());
    let source = compiled(&block, "numpy").unwrap();
    assert!(source.source().unwrap().contains("    return x / (1 + np.exp(-x))\n"));
    let error = compiled(&block, "jax").err().expect("there is no body for JAX").to_string();
    assert!(error.contains("a body for jax") && error.contains("block `swish`"), "{error}");
}

#[test]
fn mistakes_are_located() {
    let error = Block::from_function("mithril 1\nfunc @f(", None).unwrap_err().to_string();
    assert!(error.contains("line 2, column 9"), "{error}");
    let custom = Custom::new("f").shape("(x: [n]) -> [m").body("numpy", "return x");
    let error = custom.block().unwrap_err().to_string();
    assert!(error.contains("line 1, column 15"), "{error}");
}
