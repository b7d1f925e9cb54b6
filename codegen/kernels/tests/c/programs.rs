//! Tests whole functions as C.

use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_kernels::target::TARGETS;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;

use crate::cases::Random;
use crate::compiled::{Check, expect_no_failures};

type Checks = fn() -> Vec<Check>;
const PROGRAMS: &[(&str, Checks)] = &[
    ("contractions", contractions),
    ("rows_and_columns", rows_and_columns),
    ("attention", attention),
    ("repeated_results", repeated_results),
    ("scans", scans),
    ("conditions", conditions),
    ("gradients_of_attention", gradients_of_attention),
    ("integer_products", integer_products),
    ("sums_of_reversed_and_transposed", sums_of_reversed_and_transposed),
];

/// All checks of this file.
pub fn checks() -> Vec<Check> {
    PROGRAMS.iter().flat_map(|(_, checks)| checks()).collect()
}

#[test]
fn match_the_evaluator() {
    for (name, checks) in PROGRAMS {
        println!("{name}");
        expect_no_failures(&checks());
    }
}

/// Creates a check of a function with this signature and body, in which `t` stands for `tensor`.
/// `sizes` are the values of the symbols.
fn check(signature: &str, body: &str, sizes: &[(&str, i64)]) -> Check {
    let source = format!("mithril 1\n\nfunc @f({signature} {{\n{body}\n}}\n");
    let source = source.replace("t<", "tensor<");
    let module = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    check_module(&source, module, "f", sizes)
}

/// Creates a check of a function of a module. `sizes` are the values of the symbols.
fn check_module(source: &str, module: Module, function: &str, sizes: &[(&str, i64)]) -> Check {
    let entry = module.get(function).expect("the function").clone();
    let mut random = Random(1);
    let size = |symbol: &mithril_ir::dim::Symbol| {
        sizes.iter().find(|(name, _)| *name == symbol.as_str()).map(|(_, size)| *size)
    };
    let inputs: Vec<Tensor> = (entry.arguments())
        .map(|(value, _)| {
            let ty = entry.ty(value);
            let dims = ty.shape.dims.iter().map(|d| d.evaluate(&size).expect("a size") as usize);
            let shape: Vec<usize> = dims.collect();
            let count: usize = shape.iter().product();
            let number = |random: &mut Random| match ty.dtype {
                dtype if dtype.is_float() => random.unit() * 4.0 - 2.0,
                dtype if dtype.is_unsigned_int() => random.range(0, 40) as f64,
                _ => random.range(-20, 20) as f64,
            };
            let values: Vec<f64> = (0..count).map(|_| number(&mut random)).collect();
            Tensor::from_f64s(ty.dtype, shape, &values)
        })
        .collect();
    let expected = evaluate(&module, &entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let about = format!("{source}{sizes:?}");
    Check { about, module, function: function.into(), inputs, expected, precise: None }
}

fn contractions() -> Vec<Check> {
    let mut checks = Vec::new();
    for (m, k, n) in [(8, 8, 8), (1, 33, 17), (33, 127, 17), (64, 70, 1), (5, 3, 600), (2, 0, 3)] {
        let body = "%0 = matmul(%x, %w)\n%1 = add(%0, %b)\n%2 = gelu_tanh(%1)\nreturn %2";
        let fixed = format!(
            "%x: t<{m} x {k} x f32>, %w: t<{k} x {n} x f32>, %b: t<{n} x f32>) -> (y: t<{m} x {n} x f32>)"
        );
        checks.push(check(&fixed, body, &[]));
        let open = "%x: t<m x k x f32>, %w: t<k x n x f32>, %b: t<n x f32>) -> (y: t<m x n x f32>)";
        checks.push(check(open, body, &[("m", m), ("k", k), ("n", n)]));
        let body = "%v = transpose(%w) {permutation = [1, 0]}\n%0 = matmul(%x, %v)\nreturn %0";
        let turned = "%x: t<m x k x f32>, %w: t<n x k x f32>) -> (y: t<m x n x f32>)";
        checks.push(check(turned, body, &[("m", m), ("k", k), ("n", n)]));
        let turned =
            format!("%x: t<{m} x {k} x f64>, %w: t<{n} x {k} x f64>) -> (y: t<{m} x {n} x f64>)");
        checks.push(check(&turned, body, &[]));
    }
    checks
}

fn rows_and_columns() -> Vec<Check> {
    let mut checks = Vec::new();
    for (n, m) in [(1, 1), (5, 10), (3, 70), (2, 300), (0, 4), (4, 0)] {
        checks.push(check(
            "%x: t<n x m x f32>, %w: t<m x f32>, %b: t<m x f32>) -> (r: t<n x m x f32>, s: t<n x m x f32>)",
            "%0 = softmax(%x)\n%1 = layer_norm(%0, %w, %b)\nreturn %0, %1",
            &[("n", n), ("m", m)],
        ));
        checks.push(check(
            "%x: t<n x m x f32>) -> (r: t<m x f32>, s: t<n x f32>, p: t<n x m x f32>, q: t<n x m x i64>)",
            "%0 = sum(%x) {axes = [0]}\n%1 = prod(%x) {axes = [1]}\n%2 = cumsum(%x) {axis = 1}\n%3 = argsort(%x)\nreturn %0, %1, %2, %3",
            &[("n", n), ("m", m)],
        ));
    }
    checks
}

fn attention() -> Vec<Check> {
    let mut checks = Vec::new();
    let mut add = |signature: &str, body: &str, sizes: &[(&str, i64)]| {
        checks.push(check(signature, body, sizes));
    };
    for (s, keys) in [(17, 17), (1, 1), (70, 70), (33, 5), (0, 3), (3, 0)] {
        for causal in [true, false] {
            if causal && s != keys {
                continue;
            }
            let t = if causal { "s" } else { "t" };
            add(
                &format!(
                    "%q: t<b x 3 x s x 16 x f32>, %k: t<b x 3 x {t} x 16 x f32>, %v: t<b x 3 x {t} x 32 x f32>) -> (y: t<b x 3 x s x 32 x f32>)"
                ),
                &format!("%0 = attention(%q, %k, %v) {{causal = {causal}}}\nreturn %0"),
                &[("b", 2), ("s", s), ("t", keys)],
            );
            if !causal {
                let merged =
                    "%q: t<b x 3 x s x 16 x f32>, %w: t<48 x 5 x f32>) -> (y: t<b x s x 5 x f32>)";
                let body = "%0 = attention(%q, %q, %q)\n%1 = transpose(%0) {permutation = [0, 2, 1, 3]}\n%2 = reshape(%1) {shape = [b x s x 48]}\n%3 = matmul(%2, %w)\nreturn %3";
                add(merged, body, &[("b", 2), ("s", s)]);
            }
            let shared = "%q: t<b x s x 4 x 16 x f32>, %k: t<b x s x 2 x 16 x f32>, %v: t<b x s x 2 x 16 x f32>) -> (y: t<b x 4 x s x 16 x f32>)";
            let heads = ["q", "k", "v"].map(|side| {
                format!("%{side}t = transpose(%{side}) {{permutation = [0, 2, 1, 3]}}\n")
            });
            let body = format!(
                "{}%0 = attention(%qt, %kt, %vt) {{causal = {causal}, grouped = true}}\nreturn %0",
                heads.concat()
            );
            add(shared, &body, &[("b", 2), ("s", s)]);
        }
    }
    checks
}

fn repeated_results() -> Vec<Check> {
    let fixed = "%x: t<3 x 4 x f32>) -> (a: t<3 x 4 x f32>, b: t<4 x 3 x f32>, c: t<3 x 4 x f32>, d: t<3 x 4 x f32>, e: t<12 x f32>)";
    let body = "%0 = exp(%x)\n%1 = transpose(%x) {permutation = [1, 0]}\n%2 = reshape(%0) {shape = [12]}\nreturn %x, %1, %0, %0, %2";
    vec![check(fixed, body, &[])]
}

/// Scans, with values named like the variables that the generated C declares for loops.
fn scans() -> Vec<Check> {
    let source = include_str!("../../../source/tests/models/scan.mir");
    differentiated(&source.replace("%mask", "%row_0").replace("%h0", "%t6"))
}

fn conditions() -> Vec<Check> {
    differentiated(include_str!("../../../source/tests/models/conditions.mir"))
}

/// A module of dim `n`, forward and backward.
fn differentiated(source: &str) -> Vec<Check> {
    let module = text::parse(source).unwrap_or_else(|e| panic!("{e}"));
    let pipeline = Pipeline::parse("autodiff,dce", TARGETS).expect("the pipeline");
    let (module, _) = Driver::default().run(&pipeline, &module).unwrap_or_else(|e| panic!("{e}"));
    let mut checks = Vec::new();
    for function in ["main", "gradients"] {
        for n in [0, 1, 5] {
            checks.push(check_module(source, module.clone(), function, &[("n", n)]));
        }
    }
    checks
}

/// The kernels of attention and of its gradients never have all scores in memory.
fn gradients_of_attention() -> Vec<Check> {
    let mut checks = Vec::new();
    for (causal, grouped, heads, mask) in [
        (true, false, 3, ""),
        (false, false, 3, ""),
        (true, true, 1, ""),
        (false, false, 3, ", %m: tensor<2 x 1 x 1 x s x f32>"),
        (false, true, 1, ", %m: tensor<3 x s x s x bool>"),
    ] {
        let read = if mask.is_empty() { "" } else { ", %m" };
        let source = format!(
            "mithril 1\n\nfunc @main(%q: tensor<2 x 3 x s x 16 x f32> param, %k: tensor<2 x {heads} x s x 16 x f32> param, %v: tensor<2 x {heads} x s x 32 x f32> param{mask}) -> (y: tensor<2 x 3 x s x 32 x f32>) {{
  %0 = attention(%q, %k, %v{read}) {{causal = {causal}, grouped = {grouped}}}
  return %0
}}
"
        );
        let module = text::parse(&source).unwrap_or_else(|e| panic!("{e}"));
        let pipeline = Pipeline::parse("autodiff{target=c},dce", TARGETS).expect("the pipeline");
        let ran = Driver::default().run(&pipeline, &module);
        let (module, _) = ran.unwrap_or_else(|e| panic!("{e}"));
        for s in [2, 17, 70] {
            checks.push(check_module(&source, module.clone(), "gradients", &[("s", s)]));
        }
        let compiled = crate::compiled::make(checks.last().expect("a check"), 0).expect("C");
        let room = compiled.source.interface.entries[0].workspace.bytes.eval(&[1000]);
        // The temporaries are results and their gradients, not scores.
        assert!(room.expect("a size") < 8 * 2 * 3 * 32 * 1000 * 4);
    }
    checks
}

const INTEGERS: [DType; 8] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

/// Matrix products with many sums at once. GCC 12.2 loses lanes if the sums are signed.
fn integer_products() -> Vec<Check> {
    let mut checks = Vec::new();
    for dtype in INTEGERS {
        let widest = if dtype.is_unsigned_int() { DType::U64 } else { DType::I64 };
        for acc in [dtype, widest] {
            for (m, n, k) in [(1, 1, 16), (3, 5, 33), (7, 17, 24)] {
                let body = format!(
                    "%0 = dot_general(%x, %y) {{x_contract = [1], y_contract = [1], acc = {acc}}}\nreturn %0"
                );
                let open = format!(
                    "%x: t<{m} x k x {dtype}>, %y: t<{n} x k x {dtype}>) -> (z: t<{m} x {n} x {dtype}>)"
                );
                checks.push(check(&open, &body, &[("k", k)]));
                let fixed = open.replace(" k ", &format!(" {k} "));
                checks.push(check(&fixed, &body, &[]));
            }
        }
    }
    checks
}

/// Sums over small dims that are read in reverse or transposed. GCC before 12.4 adds some numbers
/// twice.
fn sums_of_reversed_and_transposed() -> Vec<Check> {
    let mut checks = Vec::new();
    for dtype in ["f32", "f64", "i32"] {
        for (n, m) in [(9, 9), (4, 3), (17, 7), (33, 16)] {
            for open in [false, true] {
                let n_text = if open { "n".into() } else { n.to_string() };
                let sizes: &[(&str, i64)] = if open { &[("n", n)] } else { &[] };
                let sum = "sum(%0) {axes = [0, 1]}\nreturn %1";
                for rest in [1, 2] {
                    let x = format!("%x: t<{n_text} x {m} x {rest} x {dtype}>");
                    let whole = format!("{x}) -> (y: t<{rest} x {dtype}>)");
                    for axes in ["[1]", "[0, 1]"] {
                        let body = format!("%0 = reverse(%x) {{axes = {axes}}}\n%1 = {sum}");
                        checks.push(check(&whole, &body, sizes));
                    }
                }
                let x = format!("%x: t<{n_text} x {m} x {dtype}>");
                let whole = format!("-> (y: t<{dtype}>)");
                let running =
                    "%0 = reverse(%x) {axes = [1]}\n%1 = cumsum(%0) {axis = 1}\nreturn %1";
                let rows = format!("-> (y: t<{n_text} x {m} x {dtype}>)");
                checks.push(check(&format!("{x}) {rows}"), running, sizes));
                let across = "%t = transpose(%y) {permutation = [0, 2, 1]}\n\
                     %0 = mul(%x, %t)\n%1 = sum(%0) {axes = [0, 1, 2]}\nreturn %1";
                let pair = format!(
                    "%x: t<{n_text} x 3 x {m} x {dtype}>, %y: t<{n_text} x {m} x 3 x {dtype}>) {whole}"
                );
                checks.push(check(&pair, across, sizes));
            }
        }
    }
    checks
}
