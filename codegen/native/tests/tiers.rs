//! Cranelift's code and LLVM's give the same bits: every family of kernels in every dtype, and
//! numbers that are easily lost. What both give is compared wherever `machine` runs anything.

mod machine;

use machine::{Native, agree, f};
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;

const FLOATS: [&str; 4] = ["f64", "f32", "f16", "bf16"];
const INTS: [&str; 8] = ["i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"];

#[test]
fn every_dtype_in_every_family() {
    for dtype in FLOATS.iter().chain(&INTS) {
        let text = f(
            &format!(
                "%x: t<n x m x {dtype}>, %y: t<m x {dtype}>, %i: t<5 x i64>) -> (a: t<n x m x {dtype}>, b: t<n x {dtype}>, c: t<m x {dtype}>, d: t<n x 5 x {dtype}>, e: t<n x n x {dtype}>, g: t<m x n x {dtype}>, h: t<n x m x {dtype}>, k: t<n x m x i64>, l: t<n x m x {dtype}>)"
            ),
            "%0 = mul(%x, %y)
             %1 = sub(%0, %x)
             %2 = max(%1) {axes = [1]}
             %3 = sum(%x) {axes = [0]}
             %4 = take(%x, %i) {axis = 1}
             %5 = transpose(%x) {permutation = [1, 0]}
             %6 = matmul(%x, %5)
             %7 = exp(%5)
             %8 = cumsum(%x) {axis = 1}
             %9 = argsort(%x)
             %10 = lt(%x, %y)
             %11 = select(%10, %1, %x)
             return %1, %2, %3, %4, %6, %7, %8, %9, %11",
        );
        let text = match dtype.starts_with(['i', 'u']) {
            true => text.replace("exp(%5)", "mul(%5, %5)"),
            false => text,
        };
        let native = Native::new(&text);
        for (n, m) in [(3, 7), (1, 16), (5, 33), (2, 130)] {
            agree(&native, &[("n", n), ("m", m)]);
        }
    }
}

#[test]
fn empty_arrays_agree() {
    let text = f(
        "%x: t<n x m x f32>) -> (a: t<n x m x f32>, b: t<m x f32>)",
        "%0 = exp(%x)\n%1 = sum(%0) {axes = [0]}\nreturn %0, %1",
    );
    let native = Native::new(&text);
    for (n, m) in [(0, 5), (4, 0), (0, 0)] {
        agree(&native, &[("n", n), ("m", m)]);
    }
}

/// The order in which lanes are folded shows in sums that are rounded, in zeros of both signs, and
/// where one number makes all of it infinite.
#[test]
fn reductions_have_one_order() {
    for dtype in FLOATS {
        for n in [2, 4, 8, 16, 32, 64, 70] {
            let text = f(
                &format!(
                    "%x: t<6 x {n} x {dtype}>) -> (a: t<6 x {dtype}>, b: t<6 x {dtype}>, c: t<6 x {dtype}>, d: t<6 x {dtype}>, e: t<{dtype}>)"
                ),
                "%0 = sum(%x) {axes = [1]}
                 %1 = prod(%x) {axes = [1]}
                 %2 = max(%x) {axes = [1]}
                 %3 = min(%x) {axes = [1]}
                 %4 = sum(%x)
                 return %0, %1, %2, %3, %4",
            );
            let native = Native::new(&text);
            for row in rows(n) {
                let dtype = dtype.parse::<DType>().expect("a dtype");
                native.run(&[Tensor::from_f64s(dtype, vec![6, n], &row)]);
            }
        }
    }
}

/// Six rows of numbers each.
fn rows(n: usize) -> Vec<Vec<f64>> {
    let at = |seed: usize| (seed * 2_654_435_761 % 1009) as f64;
    let all = |number: &dyn Fn(usize) -> f64| (0..6 * n).map(number).collect::<Vec<f64>>();
    let zero = |i: usize| if at(i) < 500.0 { 0.0 } else { -0.0 };
    vec![
        all(&|i| (at(i) - 504.0) * 2f64.powi(at(i + 7) as i32 % 20 - 10) / 3.0),
        all(&zero),
        all(&|i| if at(i) < 20.0 { f64::INFINITY } else { zero(i) }),
        all(&|i| if at(i) < 20.0 { f64::NAN } else { at(i) }),
        all(&|i| if i % 7 == 3 { -0.0 } else { at(i) / 1000.0 }),
    ]
}
