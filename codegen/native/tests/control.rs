//! Control flow as loops of launches, against the evaluator.

mod machine;

use machine::{Native, agree};
use mithril_ir::dim::Symbol;
use mithril_ir::graph::Module;
use mithril_ir::op::Kind;
use mithril_ir::text;
use mithril_kernels::target::TARGETS;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;

const CELLS: &str = include_str!("../../source/tests/models/scan.mir");

/// A scan in a scan, whose inner carries are matrices; one carry stays, two change places, and rows
/// are what others are.
const NESTED: &str = "mithril 1

func @main(%x: tensor<n x m x k x f32> param, %w: tensor<k x k x f32> param, %a: tensor<k x f32>, %b: tensor<k x f32>)
    -> (p: tensor<k x f32>, q: tensor<k x f32>, y: tensor<n x m x k x f32>, z: tensor<n x k x f32>, s: tensor<k x f32>) {
  %v = transpose(%w) {permutation = [1, 0]}
  %p, %q, %y, %z = scan(%a, %b, %x, %v) {callee = @outer, carries = 2}
  %s = sum(%z) {axes = [0]}
  return %p, %q, %y, %z, %s
}

func @outer(%a: tensor<k x f32>, %b: tensor<k x f32>, %x: tensor<m x k x f32>, %w: tensor<k x k x f32>)
    -> (a: tensor<k x f32>, b: tensor<k x f32>, y: tensor<m x k x f32>, z: tensor<k x f32>) {
  %zero = sub(%w, %w)
  %c, %kept, %y = scan(%zero, %w, %x, %b) {callee = @inner, carries = 2, reverse = true}
  %1 = sum(%c) {axes = [0]}
  %2 = tanh(%1)
  %3 = add(%2, %a)
  return %b, %3, %y, %3
}

func @inner(%c: tensor<k x k x f32>, %kept: tensor<k x k x f32>, %x: tensor<k x f32>, %b: tensor<k x f32>)
    -> (c: tensor<k x k x f32>, kept: tensor<k x k x f32>, y: tensor<k x f32>) {
  %0 = matmul(%x, %kept)
  %1 = add(%0, %b)
  %2 = tanh(%1)
  %3 = add(%c, %2)
  return %3, %kept, %2
}
";

/// The gradients of a module as its first function.
fn gradients(source: &str) -> String {
    let module = text::parse(source).unwrap_or_else(|e| panic!("{e}"));
    let pipeline = Pipeline::parse("autodiff,dce", TARGETS).expect("the pipeline");
    let (module, _) = Driver::default().run(&pipeline, &module).unwrap_or_else(|e| panic!("{e}"));
    let mut first = Module::of((**module.get("gradients").expect("gradients")).clone());
    for function in module.functions.values() {
        first.insert((**function).clone());
    }
    text::print(&first)
}

fn check(source: &str, sizes: &[&[(&str, usize)]]) {
    for source in [source, &gradients(source)] {
        let native = Native::new(source);
        assert!(!native.plan.program.loops.is_empty());
        sizes.iter().for_each(|sizes| agree(&native, sizes));
    }
}

#[test]
fn recurrences() {
    check(CELLS, &[&[("n", 5)], &[("n", 1)], &[("n", 0)], &[("n", 33)]]);
}

#[test]
fn conditions() {
    let source = include_str!("../../source/tests/models/conditions.mir");
    check(source, &[&[("n", 5)], &[("n", 1)], &[("n", 0)], &[("n", 33)]]);
}

#[test]
fn scans_in_scans() {
    let sizes = |n, m, k| [("n", n), ("m", m), ("k", k)];
    check(
        NESTED,
        &[&sizes(2, 3, 4), &sizes(1, 1, 17), &sizes(3, 0, 5), &sizes(0, 3, 5), &sizes(4, 2, 33)],
    );
}

/// What a loop reads lies in memory of its own until the last iteration.
#[test]
fn memory_is_reused_around_loops() {
    check(
        "mithril 1

func @main(%x: tensor<6 x 40 x f32> param, %h: tensor<40 x f32>) -> (y: tensor<6 x 40 x f32>, z: tensor<40 x f32>) {
  %0 = exp(%h)
  %1 = sort(%0)
  %2 = reverse(%x) {axes = [0]}
  %3 = constant() {value = dense<tensor<40 x f32>, 0.5>}
  %last, %rows = scan(%3, %2, %1) {callee = @step, carries = 1}
  %4 = sort(%rows)
  %5 = mul(%last, %1)
  return %4, %5
}

func @step(%h: tensor<40 x f32>, %x: tensor<40 x f32>, %b: tensor<40 x f32>) -> (h: tensor<40 x f32>, y: tensor<40 x f32>) {
  %0 = mul(%h, %b)
  %1 = sort(%0)
  %2 = sub(%x, %1)
  %3 = tanh(%2)
  return %3, %3
}
",
        &[&[]],
    );
}

#[test]
fn costs_are_those_of_all_iterations() {
    let native = Native::new(NESTED);
    let costs = (0..native.plan.program.launches.len()).filter_map(|at| {
        let own =
            &native.plan.kernels.get(native.plan.program.launches[at].kernel)?.outlined.function;
        let matmul = own.ops.iter().any(|op| op.op.kind == Kind::Contraction);
        matmul.then(|| native.plan.cost(at).expect("a cost").flops)
    });
    let size = |symbol: &Symbol| match symbol.as_str() {
        "n" => Some(2),
        "m" => Some(3),
        _ => Some(5),
    };
    let flops: Vec<Option<i64>> = costs.map(|flops| flops.evaluate(&size)).collect();
    // The product, the sum and the hyperbolic tangent of five numbers, six times.
    assert_eq!(flops, [Some(6 * (2 * 25 + 5 + 5))]);
}
