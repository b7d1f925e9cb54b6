//! The text form: printed modules are read back, and every error has a span.

use mithril_ir::text::{parse, print};
use mithril_ir::verify::verify;

/// The module prints as it is written here, once and again.
fn round_trip(source: &str) {
    let module = parse(source).unwrap_or_else(|e| panic!("{}", e.render("test.mir", source)));
    assert_eq!(print(&module), source);
    verify(&module).unwrap_or_else(|e| panic!("{e}"));
}

/// The text normalises to the other.
fn becomes(source: &str, expected: &str) {
    let module = parse(source).unwrap_or_else(|e| panic!("{}", e.render("test.mir", source)));
    assert_eq!(print(&module), expected);
    round_trip(expected);
}

#[test]
fn whole_grammar_is_parsed() {
    round_trip(
        r#"mithril 1

func @main(%x: tensor<batch x 784 x f32>, %w: tensor<784 x 10 x f32> param "layer 0.w", %c: tensor<2 x f32> state donated, %3: tensor<2 x u32> key "0", %n: tensor<n x (n + 1) x min(n, 3) x f32>) -> (output: tensor<batch x 10 x f32>, "the next": tensor<2 x f32> state "c") where batch <= 512, (n//2) == m, m >= 1 {
  %5 = matmul(%x, %w) : tensor<batch x 10 x f32> @ "linear_0"
  %h = softmax(%5) {axis = 0} : tensor<batch x 10 x f32> @ "a.b", "c \"d\"\n\u{1}"
  %7, %8 = call(%x, %w) {callee = @"layer 1"} : tensor<batch x 784 x f32>, tensor<784 x 10 x f32>
  %9 = reshape(%7) {shape = [784 x ?]} : tensor<784 x batch x f32>
  %10 = constant() {value = dense<tensor<3 x f32>, [1.0, nan, -inf]>} : tensor<3 x f32>
  %11 = constant() {value = dense<tensor<100 x bf16>, 0.1>} : tensor<100 x bf16>
  %12 = constant() {value = dense<tensor<2 x 0 x bool>, []>} : tensor<2 x 0 x bool>
  %13 = constant() {value = dense<tensor<f32>, hex"0100c07f">} : tensor<f32>
  %14 = cast(%13) {dtype = i4} : tensor<i4>
  %15 = sum(%x) {axes = [-1], keepdim = true, acc = f64} : tensor<batch x 1 x f32>
  %16 = softplus(%15) {beta = 1e-30} : tensor<batch x 1 x f32>
  call() {callee = @nothing} @ "x"
  guard batch == n
  guard (2*n) == (m + 1)
  return %h, %c
}

func @"layer 1"(%a: tensor<*b x f32>, %b: tensor<*c x 10 x f32>) -> (a: tensor<*b x f32>, b: tensor<*c x 10 x f32>) {
  return %a, %b
}

entry func @nothing() -> () {
  return
}

extern func @custom(%x: tensor<*b x f32>) -> (output: tensor<*b x u x f32>)

extern func @guarded(%x: tensor<a x b x f32>) -> (output: tensor<f32>) {
  guard a == b @ "h.0.add", "norm"
}

extern func @bodies(%x: tensor<a x f32>, %y: tensor<f32> "the rest") -> (output: tensor<a x f32>) {
  body numpy "scale = {the rest} * 2"
    "return {x} * scale"
  body c "for (long i = 0; i < a; i++) {{ output[i] = {x}[i]; }}"
    ""
  guard a == 3
}
"#,
    );
}

#[test]
fn abbreviations_are_parsed() {
    becomes(
        "mithril 1 // a comment
        func @f(%x: tensor<a x 3 x f32>, // and another
                %y: tensor<b x 1 x f32>) -> (z: tensor<a x 3 x f32>) where a <= 4 // ends here
        {
          %z = add(%x, %y)
          return %z // done
        }",
        "mithril 1

func @f(%x: tensor<a x 3 x f32>, %y: tensor<b x 1 x f32>) -> (z: tensor<a x 3 x f32>) where a <= 4 {
  %z = add(%x, %y) : tensor<a x 3 x f32>
  guard a == b
  return %z
}
",
    );
}

/// `max_pool` requires `n >= 5`, which implies what `windows` requires: `n >= 3`.
#[test]
fn implied_guards_are_not_added() {
    round_trip(
        "mithril 1

func @main(%x: tensor<n x f32>) -> (out: tensor<(n - 4) x f32>, windows: tensor<(n - 2) x 3 x f32>) {
  %1 = max_pool(%x) {sizes = [3], dilations = [2]} : tensor<(n - 4) x f32>
  %2 = windows(%x) {axes = [0], sizes = [3], strides = [1]} : tensor<(n - 2) x 3 x f32>
  guard n == max(n, 5)
  return %1, %2
}
",
    );
}

#[test]
fn a_scan_carries_its_body() {
    round_trip(
        "mithril 1

func @main(%h: tensor<2 x f32> param, %xs: tensor<n x 2 x f32>) -> (output: tensor<n x 2 x f32>) {
  %2, %3 = scan(%h, %xs) {callee = @body, carries = 1} : tensor<2 x f32>, tensor<n x 2 x f32>
  return %3
}

func @body(%h: tensor<2 x f32>, %x: tensor<2 x f32>) -> (next: tensor<2 x f32>, out: tensor<2 x f32>) {
  %n = add(%h, %x) : tensor<2 x f32>
  %o = mul(%n, %x) : tensor<2 x f32>
  return %n, %o
}
",
    );
}
