//! Measures the time to compose, seal and lower models, in milliseconds. Run it with `cargo bench
//! -p mithril-model`.

use std::time::Instant;

use mithril_ir::diagnostic::Result;
use mithril_model::{Block, DimSpec, Model, Options, Source, block, lower};

/// A chain of `n` linear layers, each with an activation.
fn chain(n: usize) -> Result<Block> {
    let model = Model::new();
    for _ in 0..n {
        model.extend(block!(Linear(dimension = 64))?)?;
        model.extend(block!(Relu())?)?;
    }
    model.block()
}

/// One layer of a transformer with pre-normalisation.
fn layer(width: i64) -> Result<Block> {
    let model = Model::of_kind("Layer");
    model.extend(block!(LayerNorm())?.named("ln_1")?.input("x")?)?;
    let attention = block!(MultiHeadAttention(heads = 12, is_causal = true))?;
    model.extend(attention.named("attn")?.output("a")?)?;
    model.extend(block!(Add())?.connect([("left", "x"), ("right", "a"), ("output", "y")])?)?;
    model.extend(block!(LayerNorm())?.named("ln_2")?.input("y")?)?;
    model.extend(block!(Linear(dimension = 4 * width))?.named("c_fc")?)?;
    model.extend(block!(Gelu(approximate = true))?)?;
    model.extend(block!(Linear(dimension = width))?.named("c_proj")?.output("m")?)?;
    model.extend(block!(Add())?.connect([("left", "y"), ("right", "m"), ("output", "z")])?)?;
    model.set_standard(Some("x"), Some("z"))?;
    model.seal()
}

/// GPT-2 with this number of layers. Each layer is built separately.
fn gpt(layers: usize) -> Result<Block> {
    let model = Model::new();
    let wte = block!(Embedding(num_embeddings = 50257, dimension = 768))?.named("wte")?;
    model.connect(wte.connect([("input", "ids"), ("w", "table"), ("output", "tokens")])?)?;
    let positions = model.terminal("ids")?.method("size", vec![], vec![("axis", (-1).into())])?;
    let ramp = block!(Arange(start = positions))?;
    let ramp = model.apply(ramp)?;
    let wpe = block!(Embedding(num_embeddings = 1024, dimension = 768))?.named("wpe")?;
    let places = model.apply(wpe.input(ramp)?)?;
    let sum = [("left", Source::from("tokens")), ("right", places.into())];
    model.connect(block!(Add())?.connect(sum)?)?;
    for i in 0..layers {
        model.extend(layer(768)?.named(&format!("h{i}"))?)?;
    }
    model.extend(block!(LayerNorm())?.named("ln_f")?.output("h")?)?;
    let head = model.apply(block!(Transpose())?.input("table")?)?;
    let head = [("left", Source::from("h")), ("right", head.into())];
    model.connect(block!(MatrixMultiply())?.connect(head)?)?;
    model.block()
}

fn report_fastest(name: &str, mut run: impl FnMut()) {
    let times = (0..10).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    let fastest = times.min().expect("there are runs");
    println!("{name:<28} {:>9.3} ms", fastest.as_secs_f64() * 1e3);
}

fn main() -> Result<()> {
    let shapes = |name: &str, dims: Vec<DimSpec>| Options {
        shapes: vec![(name.into(), dims)],
        ..Options::default()
    };
    report_fastest("compose gpt-2, 12 layers", || drop(gpt(12)));
    let (model, options) = (gpt(12)?, shapes("ids", vec!["batch".into(), "length".into()]));
    lower(&model, &options)?;
    report_fastest("lower gpt-2, 12 layers", || drop(lower(&model, &options)));
    report_fastest("lower gpt-2, no shapes", || drop(lower(&model, &Options::default())));
    for n in [1000, 2000, 4000] {
        report_fastest(&format!("compose {n} layers"), || drop(chain(n)));
        let (model, options) = (chain(n)?, shapes("input", vec!["batch".into(), 64.into()]));
        lower(&model, &options)?;
        report_fastest(&format!("lower {n} layers"), || drop(lower(&model, &options)));
    }
    Ok(())
}
