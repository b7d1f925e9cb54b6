//! Equality saturation as a whole: the same result each time, within its budgets, in good time.

use std::fmt::Write;
use std::time::{Duration, Instant};

use mithril_ir::graph::Module;
use mithril_ir::text;
use mithril_passes::driver::{Driver, Report};
use mithril_passes::pipeline::Pipeline;

fn parse(source: &str) -> Module {
    text::parse(source).unwrap_or_else(|error| panic!("{}", error.render("", source)))
}

fn run(pipeline: &str, module: &Module) -> (Module, Report) {
    Driver { verify: true }.run(&Pipeline::parse(pipeline, &[]).unwrap(), module).unwrap()
}

/// The body of a layer of this width that is spelled out: a norm, a product, a GELU.
fn layer(body: &mut String, number: usize, x: &str, width: usize, inner: usize) -> String {
    let wide = |n: usize| format!("%l{number}_{n}");
    let lines = [
        format!("mean({x}) {{axes = [1], keepdim = true}}"),
        format!("sub({x}, {})", wide(0)),
        format!("mul({}, {})", wide(1), wide(1)),
        format!("mean({}) {{axes = [1], keepdim = true}}", wide(2)),
        "constant() {value = dense<tensor<f32>, 0.1>}".to_string(),
        format!("add({}, {})", wide(3), wide(4)),
        format!("sqrt({})", wide(5)),
        format!("div({}, {})", wide(1), wide(6)),
        format!("constant() {{value = dense<tensor<{width} x {inner} x f32>, 0.5>}}"),
        format!("matmul({}, {})", wide(7), wide(8)),
        "constant() {value = dense<tensor<f32>, 1.4142135>}".to_string(),
        format!("div({}, {})", wide(9), wide(10)),
        format!("erf({})", wide(11)),
        "constant() {value = dense<tensor<f32>, 1.0>}".to_string(),
        format!("add({}, {})", wide(12), wide(13)),
        "constant() {value = dense<tensor<f32>, 0.5>}".to_string(),
        format!("mul({}, {})", wide(9), wide(15)),
        format!("mul({}, {})", wide(16), wide(14)),
    ];
    for (n, line) in lines.iter().enumerate() {
        writeln!(body, "  {} = {line}", wide(n)).unwrap();
    }
    wide(lines.len() - 1)
}

/// A chain of layers, each with a different width.
fn deep(layers: usize) -> Module {
    let mut body = String::new();
    let mut last = "%x".to_string();
    for number in 0..layers {
        last = layer(&mut body, number, &last, 8 + number, 9 + number);
    }
    let width = 8 + layers;
    parse(&format!(
        "mithril 1\nfunc @main(%x: tensor<4 x 8 x f32>) -> (y: tensor<4 x {width} x f32>) {{\n{body}  return {last}\n}}\n"
    ))
}

#[test]
fn many_different_layers_are_rewritten_quickly() {
    let module = deep(96);
    let start = Instant::now();
    let (after, _) = run("eqsat,dce", &module);
    let time = start.elapsed();
    let text = text::print(&after);
    assert_eq!(text.matches(" layer_norm(").count(), 96);
    assert_eq!(text.matches(" gelu(").count(), 96);
    println!("96 layers: {time:?}");
    assert!(time < Duration::from_secs(10), "{time:?}");
}

#[test]
fn results_are_the_same_each_time() {
    let module = deep(5);
    let print = || text::print(&run("eqsat", &module).0);
    assert_eq!(print(), print());
}

#[test]
fn budgets_and_excluded_rules_are_respected() {
    let module = deep(3);
    let changed = |pipeline: &str| run(pipeline, &module).1.passes[0].changed;
    assert!(changed("eqsat"));
    assert!(!changed("eqsat{iterations=0}"));
    let (after, _) = run("eqsat{without=layer-norm,layer-norm-rms}", &module);
    assert!(!text::print(&after).contains("layer_norm"));
}

#[test]
fn unusual_functions_are_unchanged() {
    for body in [
        "func @main() -> () {\n  return\n}",
        "func @main(%x: tensor<0 x f32>) -> (y: tensor<0 x f32>, z: tensor<0 x f32>) {\n  return %x, %x\n}",
        "func @main(%x: tensor<*b x 3 x f32>) -> (y: tensor<*b x 3 x f32>) {\n  %y = exp(%x)\n  return %y\n}",
    ] {
        let module = parse(&format!("mithril 1\n{body}\n"));
        let (after, report) = run("eqsat", &module);
        assert!(!report.passes[0].changed, "{after}");
    }
}
