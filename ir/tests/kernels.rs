//! The evaluator's kernels against NumPy and JAX, and their errors.

mod golden;

use golden::{Case, cases, dtype, tensor};
use mithril_ir::dtype::DType;
use mithril_ir::eval::array::Array;
use mithril_ir::eval::contract::{DotDims, dot_general};
use mithril_ir::eval::elementwise::elementwise;
use mithril_ir::eval::{cumulate, index, layout, reduce, sort};
use mithril_ir::evaluate::evaluate;
use mithril_ir::scalar::expr::Expr;
use mithril_ir::scalar::{Prim, Scalar};
use mithril_ir::tensor::Tensor;
use mithril_ir::text::parse;

/// Results beyond the libraries': the identities of empty reductions, NaN, and accumulation.
const DEFINED: &str = "
    max | f32 0x2:          | 0 | false = f32 2: -inf -inf
    min | f32 0:            | 0 | true  = f32 1: inf
    max | i8 0:             | 0 | false = i8 -: -128
    min | u64 0:            | 0 | false = u64 -: 18446744073709551615
    max | u64 2: 1 18446744073709551615 | 0 | false = u64 -: 18446744073709551615
    max | bool 0:           | 0 | false = bool -: false
    min | bool 0:           | 0 | false = bool -: true
    min | f32 2: 0.0 -0.0   | 0 | false = f32 -: -0.0
    argmax | f32 0x2:       | 0 | false = i64 2: 0 0
    argmax | f32 2: -0.0 0.0 | 0 | false = i64 -: 0
    any | f32 2: nan 0.0    | 0 | false = bool -: true
    sum | f16 4: 2048.0 1.0 1.0 1.0 | 0 | false = f16 -: 2052.0
    sum | f32 3: 1e30 1.0 -1e30 | 0 | false = f32 -: 0.0
    sum | f32 3: 100000000.0 1.0 -100000000.0 | 0 | false = f32 -: 1.0
    sum | i8 2: 127 1       | 0 | false = i8 -: -128
    sum | bool 2: true true | 0 | false = bool -: true
    take | f32 2: 1.0 2.0 | u64 2: 18446744073709551615 0 | 0 = f32 2: 2.0 1.0
    take | f32 2: 1.0 2.0 | i64 2: -9223372036854775808 -2 | 0 = f32 2: 1.0 1.0
    scatter_add | f16 1: 2048.0 | i32 3: 0 0 0 | f16 3: 1.0 1.0 1.0 | 0 = f16 1: 2052.0
    dynamic_slice | i8 3: 1 2 3 | 9223372036854775807 | 2 = i8 2: 2 3
    slice | i8 3: 1 2 3 | 2 | -1 | -9223372036854775808 = i8 1: 3
    sum_to | f32 0x3:       | 3         = f32 3: 0.0 0.0 0.0
    elementwise | select(x, y, z) | bool 2: true false | f32 -: 1.0 | f32 2x1: 5.0 6.0 = f32 2x2: 1.0 5.0 1.0 6.0
    elementwise | cast(x) | f32 3: nan 300.0 -1.5 = i8 3: 0 127 -1
    elementwise | (cast(x) - cast(y)) * z | u8 2: 3 250 | u8 -: 5 | f32 -: 0.5 = f32 2: -1.0 122.5
    elementwise | x + y | f32 1x0: | f32 3x1: 1.0 2.0 3.0 = f32 3x0:
    elementwise | pi = f32 -: 3.1415927
    dot_general | i8 2: 100 100 | i8 2: 100 100 | - | - | 0 | 0 = i32 -: 20000
    dot_general | bool 2: true false | bool 2: false true | - | - | 0 | 0 = bool -: false
    dot_general | bf16 3: 256.0 1.0 1.0 | bf16 3: 1.0 1.0 1.0 | - | - | 0 | 0 = bf16 -: 258.0
";

/// Operands that inference would not let through, and a part of the error.
const WRONG: &str = "
    sum | f32 2: 1.0 2.0 | 1 | false = axis 1 is out of range for rank 1
    sum | f32 2: 1.0 2.0 | 0,0 | false = axis 0 is named twice
    reshape | f32 2: 1.0 2.0 | 3 = does not reshape
    transpose | f32 2x1: 1.0 2.0 | 0 = does not order
    broadcast_in_dim | f32 2: 1.0 2.0 | 3 | 0 = does not broadcast
    slice | f32 2: 1.0 2.0 | 0 | 3 | 1 = outside of dim 0
    slice | f32 2: 1.0 2.0 | 0 | 2 | 0 = the stride of dim 0 is 0
    concat | 0 | f32 1: 1.0 | f32 1x1: 1.0 = do not concatenate
    concat | 0 = nothing to concatenate
    take | f32 1: 1.0 | f32 1: 0.0 | 0 = indices must be integers
    scatter_add | f32 1: 1.0 | i32 1: 0 | f32 2: 1.0 1.0 | 0 = do not match the indices
    dynamic_slice | f32 1: 1.0 | 0 | 2 = does not fit
    sum_to | f32 2: 1.0 2.0 | 3 = does not broadcast
    elementwise | x + y | f32 2: 1.0 2.0 | f32 3: 1.0 2.0 3.0 = do not broadcast
    elementwise | x + y | f32 1: 1.0 | f64 1: 1.0 = operand 1 is f64, another is f32
    elementwise | select(x, y, y) | f32 1: 1.0 | f32 1: 1.0 = operand 0 must be bool
    elementwise | y + 1 | f32 1: 1.0 = unknown name `y`
    dot_general | f32 2: 1.0 2.0 | f32 3: 1.0 2.0 3.0 | - | - | 0 | 0 = contracted dims differ
";

fn run(case: &Case, out: DType) -> Result<Array, String> {
    let x = || case.array(0);
    let axis = |i: usize| match case.fields[i].as_str() {
        "none" => None,
        _ => Some(case.get(i)),
    };
    match case.name.as_str() {
        "sum" => reduce::sum(&x(), &case.list(1), case.get(2), reduce::accumulator(x().dtype), out),
        "prod" => reduce::prod(&x(), &case.list(1), case.get(2), out),
        "max" => reduce::max(&x(), &case.list(1), case.get(2)),
        "min" => reduce::min(&x(), &case.list(1), case.get(2)),
        "any" => reduce::any(&x(), &case.list(1), case.get(2)),
        "all" => reduce::all(&x(), &case.list(1), case.get(2)),
        "argmax" => reduce::argmax(&x(), axis(1), case.get(2)),
        "argmin" => reduce::argmin(&x(), axis(1), case.get(2)),
        "sum_to" => reduce::sum_to(&x(), &case.list(1)),
        "cumsum" => cumulate::cumsum(&x(), case.get(1), case.get(2)),
        "cumprod" => cumulate::cumprod(&x(), case.get(1), case.get(2)),
        "sort" => sort::sort(&x(), case.get(1), case.get(2)),
        "argsort" => sort::argsort(&x(), case.get(1), case.get(2)),
        "elementwise" | "dot_general" => run_computing(case, out),
        _ => run_moving(case),
    }
}

fn run_computing(case: &Case, out: DType) -> Result<Array, String> {
    if case.name == "dot_general" {
        let dims = DotDims {
            lhs_batch: case.list(2),
            rhs_batch: case.list(3),
            lhs_contract: case.list(4),
            rhs_contract: case.list(5),
        };
        let acc = reduce::accumulator(case.array(0).dtype);
        return dot_general(&case.array(0), &case.array(1), &dims, acc, out);
    }
    let inputs: Vec<Array> = (1..case.fields.len()).map(|i| case.array(i)).collect();
    let expr = Expr::parse(&case.fields[0], &["x", "y", "z"][..inputs.len()], &[])?;
    elementwise(&expr, out, &inputs.iter().collect::<Vec<_>>(), &[])
}

fn run_moving(case: &Case) -> Result<Array, String> {
    let x = || case.array(0);
    let list = |i| case.list::<i64>(i);
    match case.name.as_str() {
        "iota" => layout::iota(&case.list(0), case.get(1), dtype(&case.fields[2])),
        "reshape" => layout::reshape(&x(), &case.list(1)),
        "transpose" => layout::transpose(&x(), &case.list(1)),
        "broadcast_in_dim" => layout::broadcast_in_dim(&x(), &case.list(1), &case.list(2)),
        "slice" => layout::slice(&x(), &list(1), &list(2), &list(3)),
        "concat" => {
            let parts: Vec<Array> = (1..case.fields.len()).map(|i| case.array(i)).collect();
            layout::concat(&parts.iter().collect::<Vec<_>>(), case.get(0))
        }
        "pad" => layout::pad(&x(), &case.array(1), &list(2), &list(3), &list(4)),
        "take" => index::take(&x(), &case.array(1), case.get(2)),
        "take_along_axis" => index::take_along_axis(&x(), &case.array(1), case.get(2)),
        "scatter_add" => index::scatter_add(&x(), &case.array(1), &case.array(2), case.get(3)),
        "scatter_add_along" => {
            let (indices, updates) = (case.array(1), case.array(2));
            index::scatter_along(Prim::Add, &x(), &indices, &updates, case.get(3))
        }
        "dynamic_slice" => index::dynamic_slice(&x(), &list(1), &case.list(2)),
        "dynamic_update_slice" => index::dynamic_update_slice(&x(), &case.array(1), &list(2)),
        name => panic!("no kernel {name}"),
    }
}

fn check(text: &str) {
    for case in cases(text) {
        let want = tensor(&case.want);
        let got = run(&case, want.dtype()).unwrap_or_else(|e| panic!("{e}: {}", case.text));
        assert_eq!(Tensor::from(&got), want, "{}", case.text);
    }
}

#[test]
fn results_match_numpy_and_jax() {
    check(include_str!("golden/kernels.txt"));
}

#[test]
fn defined_results() {
    check(DEFINED);
}

#[test]
fn mismatches_are_errors() {
    for case in cases(WRONG) {
        let error = run(&case, DType::F32).expect_err(&case.text);
        assert!(error.contains(&case.want), "{}: {error}", case.text);
    }
}

/// Sums and products of the same numbers by what they are accumulated in.
#[test]
fn each_step_rounds_to_the_accumulator() {
    let copies = |value: f64, count: usize| std::iter::repeat_n(value, count);
    let ones: Vec<f64> = copies(1.0, 3000).collect();
    let large = copies(32768.0, 512).chain(copies(1.0, 8)).chain(copies(-32768.0, 512));
    let large: Vec<f64> = large.collect();
    let single = [16777216.0, 1.0, 1.0, -16777216.0];
    let cases = [
        // Beyond 2048 a half-precision total does not grow by one.
        (DType::F16, &ones[..], DType::F16, 2048.0),
        (DType::BF16, &ones, DType::BF16, 256.0),
        (DType::F16, &ones, DType::F32, 3000.0),
        (DType::F16, &large, DType::F32, 0.0),
        (DType::F16, &large, DType::F64, 8.0),
        (DType::F32, &single, DType::F32, 0.0),
        (DType::F32, &single, DType::F64, 2.0),
        (DType::I8, &ones, DType::I8, 3000i64 as i8 as f64),
        (DType::I8, &ones, DType::I32, 3000i64 as i8 as f64),
    ];
    for (dtype, values, acc, want) in cases {
        let x = Array::from_f64s(dtype, vec![values.len()], values);
        let one = Array::from_f64s(dtype, vec![values.len()], &vec![1.0; values.len()]);
        let want = Array::from_f64s(dtype, vec![], &[want]);
        assert_eq!(reduce::sum(&x, &[0], false, acc, dtype), Ok(want.clone()), "{dtype} in {acc}");
        let dims = DotDims { lhs_contract: vec![0], rhs_contract: vec![0], ..DotDims::default() };
        assert_eq!(dot_general(&x, &one, &dims, acc, dtype), Ok(want), "{dtype} in {acc}");
    }
    let defaults = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I8];
    let accumulators = [DType::F32, DType::F32, DType::F64, DType::F64, DType::I64];
    assert_eq!(defaults.map(reduce::accumulator), accumulators);
}

/// The same through `acc` of the operations, and without.
#[test]
fn acc_attribute_sets_the_accumulator_dtype() {
    for (acc, want) in [("", 3000.0), ("acc = f16", 2048.0), ("acc = f64", 3000.0)] {
        let text = format!(
            "mithril 1 func @main(%x: tensor<n x f16>, %y: tensor<n x f16>)
                 -> (sum: tensor<f16>, dot: tensor<f16>) {{
               %0 = sum(%x) {{{acc}}}
               %1 = dot_general(%x, %y) {{x_contract = [0], y_contract = [0], {acc}}}
               return %0, %1
             }}"
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let ones = Tensor::from_f64s(DType::F16, vec![3000], &[1.0; 3000]);
        let main = module.entry().expect("there is a function");
        let results = evaluate(&module, main, &[ones.clone(), ones]).expect("it runs");
        assert!(results.iter().all(|r| r.to_f64s() == [want]), "{acc}: {results:?}");
    }
}

/// ⟨scatter(u), v⟩ = ⟨u, take(v)⟩ for any indices, out of range too.
#[test]
fn scatters_are_transposes_of_takes() {
    let v = Array::from_f64s(DType::F64, vec![3, 2], &[1.0, -2.0, 3.0, 5.0, -7.0, 11.0]);
    let zero = Array::full(DType::F64, vec![3, 2], Scalar::F(0.0));
    let u = Array::from_f64s(DType::F64, vec![4, 2], &[2.0, 3.0, 5.0, 7.0, -1.0, 4.0, 6.0, 9.0]);
    let dot = |a: &Array, b: &Array| -> f64 {
        a.elements().zip(b.elements()).map(|(a, b)| a.float() * b.float()).sum()
    };
    let rows = Array::from_f64s(DType::I32, vec![4], &[-1.0, 7.0, -9.0, 1.0]);
    let all =
        Array::from_f64s(DType::I32, vec![4, 2], &[-1.0, 7.0, -9.0, 1.0, 0.0, 2.0, 2.0, -3.0]);
    let read = index::take(&v, &rows, 0).expect("take");
    let written = index::scatter_add(&zero, &rows, &u, 0).expect("scatter_add");
    assert_eq!(dot(&written, &v), dot(&u, &read));
    let read = index::take_along_axis(&v, &all, 0).expect("take_along_axis");
    let written = index::scatter_along(Prim::Add, &zero, &all, &u, 0).expect("scatter_along");
    assert_eq!(dot(&written, &v), dot(&u, &read));
}
