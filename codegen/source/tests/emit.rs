//! Emitted source for whole models: what a person reads.

use std::path::Path;

use mithril_ir::graph::Module;
use mithril_ir::text::parse;
use mithril_passes::context::PassContext;
use mithril_passes::legalize::Legalize;
use mithril_passes::pass::Pass;
use mithril_source::backends::{BACKENDS, Backend, find};
use mithril_source::python::{Options, Source, emit};

fn read(name: &str) -> Module {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/models/{name}.mir"));
    let text = std::fs::read_to_string(path).expect("the model is there");
    parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn named(name: &str) -> &'static Backend {
    find(name).expect("a backend of this name")
}

fn source(module: &Module, framework: &'static Backend, name: &str) -> Source {
    let target = framework.target;
    let legal = Legalize { target }.run(module, &mut PassContext::new("legalize"));
    let options =
        Options { summary: format!("The model `{name}`"), stem: name.into(), ..Options::default() };
    let source = legal.and_then(|module| emit(&module, framework, &options));
    source.unwrap_or_else(|error| panic!("{name} for {framework:?}: {error}"))
}

/// The source of a model for every framework against its snapshot.
fn check(name: &str) {
    let module = read(name);
    let all =
        BACKENDS.iter().map(|framework| source(&module, framework, name).text).collect::<Vec<_>>();
    insta::assert_snapshot!(name, all.join("\n\n# ----------\n\n"));
}

#[test]
fn mlp() {
    check("mlp");
}

#[test]
fn attention() {
    check("attention");
}

#[test]
fn transformer() {
    check("transformer");
}

#[test]
fn symbolic_dims() {
    check("symbolic");
}

/// A symbol that no shape has as a bare dim is solved for from a dim that contains it in a sum.
#[test]
fn solved_dims() {
    let text = "mithril 1
        func @main(%wide: tensor<(2*k + 1) x f32>) -> (half: tensor<k x f32>) {
          %0 = slice(%wide) {axes = [0], starts = [0], limits = [k]}
          return %0
        }";
    let module = parse(text).expect("the model is well formed");
    let text = source(&module, named("numpy"), "solved").text;
    assert!(text.contains("k = (wide.shape[0] - 1) // 2\n    half = wide[:k]"), "{text}");
}

#[test]
fn any_rank() {
    check("polymorphic");
}

#[test]
fn repeated_blocks() {
    check("repeated");
}

#[test]
fn scans() {
    check("scan");
}

#[test]
fn conditions() {
    check("conditions");
}

/// A variable is never called what a function is called that is read after it.
#[test]
fn functions_keep_their_names() {
    let text = "mithril 1
        func @main(%x: tensor<2 x f32>) -> (y: tensor<2 x f32>) {
          %block = exp(%x)
          %y = call(%block) {callee = @block}
          return %y
        }
        func @block(%x: tensor<2 x f32>) -> (y: tensor<2 x f32>) {
          %y = tanh(%x)
          return %y
        }";
    let module = parse(text).expect("the model is well formed");
    let text = source(&module, named("numpy"), "names").text;
    assert!(text.contains("block_1 = np.exp(x)\n    y = block(block_1)"), "{text}");
}

#[test]
fn long_lines() {
    check("long");
}

#[test]
fn hostile_names() {
    check("hostile");
}

#[test]
fn constants() {
    check("constants");
    let source = source(&read("constants"), named("numpy"), "constants");
    let names: Vec<&str> = source.constants.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["big"]);
}

#[test]
fn state_and_keys() {
    check("state");
}

fn parsed(body: &str) -> Module {
    parse(&format!("mithril 1\n{body}")).expect("the module is well formed")
}

/// torch's own sum of these would have a sign.
#[test]
fn torch_sums_of_the_widest_unsigned() {
    let module =
        parsed("func @main(%x: tensor<3 x u64>) -> (sum: tensor<u64>) { %0 = sum(%x) return %0 }");
    let text = source(&module, named("torch"), "sum").text;
    assert!(text.contains("torch.sum(x, dtype=torch.uint64)"), "{text}");
}

#[test]
fn arguments_of_dtypes_that_torch_lacks() {
    let module = parsed("func @main(%x: tensor<3 x i4>) -> (x: tensor<3 x i4>) { return %x }");
    let error = emit(&module, named("torch"), &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("Backend does not support operation on i4"), "{error}");
    assert!(error.contains("argument `x`"), "{error}");
}

fn in_mixed_precision(body: &str) -> String {
    let module = parsed(body);
    let target = named("torch").target;
    let legal = Legalize { target }.run(&module, &mut PassContext::new("legalize"));
    let options = Options { mixed_precision: true, ..Options::default() };
    legal.and_then(|module| emit(&module, named("torch"), &options)).expect("it is legal").text
}

/// Under autocast, a product with a matrix and a bias are one call, if nothing else reads the
/// product.
#[test]
fn linear_layers_in_mixed_precision() {
    let layer = |head: &str, ops: &str| {
        in_mixed_precision(&format!("func @main({head}) -> (y: tensor<b x 3 x f32>) {{ {ops} }}"))
    };
    let head = "%x: tensor<b x 4 x f32>, %w: tensor<4 x 3 x f32>, %b: tensor<3 x f32>";
    let text = layer(head, "%0 = matmul(%x, %w) %y = add(%0, %b) return %y");
    assert!(text.contains("y = F.linear(x, w.T, b)"), "{text}");
    let text = layer(head, "%0 = matmul(%x, %w) %y = add(%b, %0) return %y");
    assert!(text.contains("y = F.linear(x, w.T, b)"), "{text}");
    let text = layer(head, "%0 = matmul(%x, %w) %1 = add(%0, %b) %y = add(%1, %0) return %y");
    assert!(text.contains("x @ w\n") && !text.contains("F.linear"), "{text}");
    let flipped = "%x: tensor<b x 4 x f32>, %w: tensor<3 x 4 x f32>, %b: tensor<3 x f32>";
    let dot = "%0 = dot_general(%x, %w) {x_contract = [1], y_contract = [1]}";
    let text = layer(flipped, &format!("{dot} %y = add(%0, %b) return %y"));
    assert!(text.contains("y = F.linear(x, w, b)"), "{text}");
    let turned = "%0 = transpose(%w) {permutation = [1, 0]} %1 = matmul(%x, %0)";
    let text = layer(flipped, &format!("{turned} %y = add(%1, %b) return %y"));
    assert!(text.contains("y = F.linear(x, w, b)"), "{text}");
}

#[test]
fn sums_that_are_no_linear_layers() {
    for (x, w, b, y) in [
        ("2 x 4", "4 x 3", "2 x 3", "2 x 3"),
        ("2 x 4", "4 x 3", "1", "2 x 3"),
        ("2 x 5 x 4", "2 x 4 x 3", "3", "2 x 5 x 3"),
    ] {
        let text = in_mixed_precision(&format!(
            "func @main(%x: tensor<{x} x f32>, %w: tensor<{w} x f32>, %b: tensor<{b} x f32>)
             -> (y: tensor<{y} x f32>) {{ %0 = matmul(%x, %w) %y = add(%0, %b) return %y }}"
        ));
        assert!(text.contains("y = x @ w + b"), "{text}");
    }
    let text = in_mixed_precision(
        "func @main(%x: tensor<*b x 4 x f64>, %w: tensor<4 x 3 x f64>, %b: tensor<3 x f64>)
         -> (y: tensor<*b x 3 x f64>) { %0 = matmul(%x, %w) %y = add(%b, %0) return %y }",
    );
    assert!(text.contains("y = F.linear(x, w.T, b)"), "{text}");
}

/// Convolutions of MLX take channels last. Two in a row need no transposes between them, also where
/// the second one is too long for a line, and an elementwise operation needs none before it.
#[test]
fn transposes_between_convolutions_cancel() {
    let net = |head: &str, ops: &str| {
        source(
            &parsed(&format!("func @main({head} {{ %0 = conv(%x, %v) {ops} }}")),
            named("mlx"),
            "net",
        )
        .text
    };
    let inputs = "%x: tensor<2 x 3 x 8 x 8 x f32>, %v: tensor<4 x 3 x 3 x 3 x f32>";
    let first = "features = mx.conv2d(x.transpose(0, 2, 3, 1), v.transpose(0, 2, 3, 1))\n";
    let two =
        format!("{inputs}, %w: tensor<5 x 4 x 3 x 3 x f32>) -> (y: tensor<2 x 5 x 4 x 4 x f32>)");
    let text = net(&two, "%y = conv(%0, %w) return %y");
    let next = "y = mx.conv2d(features, w.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)";
    assert!(text.contains(&format!("{first}    {next}")), "{text}");
    let long = "%y = conv(%0, %w) {low = [1, 1], high = [1, 1], dilations = [2, 2]} return %y";
    let next = "y = mx.conv2d(features, w.transpose(0, 2, 3, 1), padding=1, dilation=2).transpose(";
    let text = net(&two, long);
    assert!(text.contains(&format!("{first}    {next}")), "{text}");
    let one = format!("{inputs}) -> (y: tensor<2 x 4 x 6 x 6 x f32>)");
    let text = net(&one, "%y = relu(%0) return %y");
    let next = "y = mx.maximum(features, 0).transpose(0, 3, 1, 2)";
    assert!(text.contains(&format!("{first}    {next}")), "{text}");
}
