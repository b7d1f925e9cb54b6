//! Costs of kernels against what they are known to be.

use mithril_ir::dim::Dim;
use mithril_ir::text;
use mithril_passes::cost::{Cost, of_kernel};

fn cost(signature: &str, body: &str) -> Cost {
    let source = format!("mithril 1\n\nfunc @f({signature} {{\n{body}\n}}\n");
    let module = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    of_kernel(module.entry().expect("an entry")).expect("a cost")
}

#[test]
fn cost_of_a_linear_layer() {
    let cost = cost(
        "%x: tensor<b x 24 x f32>, %w: tensor<24 x 33 x f32>, %b: tensor<33 x f32>) -> (y: tensor<b x 33 x f32>)",
        "%0 = matmul(%x, %w)\n%1 = add(%0, %b)\nreturn %1",
    );
    let b = Dim::symbol("b");
    assert_eq!(cost.flops, b.clone() * Dim::from(2 * 24 * 33 + 33));
    assert_eq!(cost.bytes, b * Dim::from(4 * (24 + 33)) + Dim::from(4 * (24 * 33 + 33)));
    assert_eq!(cost.to_string(), "1617*b flop, 228*b + 3300 B");
}

#[test]
fn cost_of_an_unknown_rank() {
    let cost = cost(
        "%x: tensor<*b x 24 x f32>, %w: tensor<24 x 2 x f32>) -> (y: tensor<*b x 2 x f32>)",
        "%0 = matmul(%x, %w)\nreturn %0",
    );
    assert_eq!(cost.to_string(), "96*size(*b) flop, 104*size(*b) + 192 B");
}

#[test]
fn cost_of_a_transpose() {
    let cost = cost(
        "%x: tensor<1000 x 20 x f16>) -> (y: tensor<20 x 1000 x f16>)",
        "%0 = transpose(%x) {permutation = [1, 0]}\nreturn %0",
    );
    assert_eq!(cost.to_string(), "0 flop, 80.0 kB");
}

/// The products of attention backward are five, each of 2·s·s·d: scores and what the values'
/// gradient makes of them are computed once for all three.
#[test]
fn cost_of_gradients_with_common_subexpressions() {
    let (s, d) = (128, 16);
    let head = "tensor<128 x 16 x f32>";
    let cost = cost(
        &format!(
            "%q: {head}, %k: {head}, %v: {head}, %o: {head}, %l: tensor<128 x f32>, %g: {head}) -> (a: {head}, b: {head}, c: {head})"
        ),
        "%0 = attention_gradient(%q, %k, %v, %o, %l, %g) {of = 0}
         %1 = attention_gradient(%q, %k, %v, %o, %l, %g) {of = 1}
         %2 = attention_gradient(%q, %k, %v, %o, %l, %g) {of = 2}
         return %0, %1, %2",
    );
    let (flops, products) = (cost.flops.as_const().expect("a number"), 5 * 2 * s * s * d);
    assert!((products..products + 10 * s * s).contains(&flops), "{flops} beside {products}");
    assert_eq!(cost.bytes.as_const(), Some(4 * (8 * s * d + s)));
}
