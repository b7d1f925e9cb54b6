//! Fused arithmetic on processors without it: nearly what one rounding gives, and no call.

use mithril_ir::dtype::DType;
use mithril_kernels::builder::Builder;
use mithril_kernels::legalize::fma::expand_fma;
use mithril_kernels::loops::Loops;
use mithril_kernels::mlir;
use mithril_native::{Options, Stage, compile};
use mithril_runtime::code::Code;

/// `x * y + z` of arrays, two elements at a time, as object code for level 2 of x86-64.
fn object(dtype: DType) -> Code {
    let mut b = Builder::new(4, 1);
    let inputs = [0, 1, 2].map(|at| b.buffer(at, dtype, true));
    let output = b.buffer(3, dtype, false);
    let (zero, n) = (b.index(0), b.dim(0));
    b.each(zero, n, 2, |b, i| {
        let [x, y, z] = inputs.map(|input| b.load(input, i, 2, None));
        let value = b.fma(x, y, z);
        b.store(output, i, value, None);
    });
    let mut code = b.finish();
    expand_fma(&mut code);
    let options =
        Options { cpu: "x86-64-v2".into(), features: String::new(), ..Options::default() };
    let object = compile(&mlir::print(&code), &options, Stage::Object);
    // An object that calls `fma` does not load.
    Code::load(&object.unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"))
}

fn run<T: Copy + Default>(code: &Code, cases: &[[T; 3]]) -> Vec<T> {
    let columns = [0, 1, 2].map(|at| cases.iter().map(|case| case[at]).collect::<Vec<T>>());
    let mut results = vec![T::default(); cases.len()];
    let inputs = columns.iter().map(|column| column.as_ptr().cast_mut().cast::<u8>());
    let buffers: Vec<*mut u8> = inputs.chain([results.as_mut_ptr().cast()]).collect();
    let kernel = code.kernel("kernel").expect("the kernel");
    let dims = [cases.len() as i64];
    // SAFETY: the kernel reads and writes as many elements of each array as the dim says.
    unsafe { kernel(std::ptr::null_mut(), buffers.as_ptr(), dims.as_ptr(), 0, 1) };
    results
}

/// Numbers of all sizes, some of which cancel.
fn cases(mut state: u64, spread: f64) -> Vec<[f64; 3]> {
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let number =
        |next: &mut dyn FnMut() -> f64| (next() - 0.5) * 2f64.powf((next() - 0.5) * spread);
    let mut cases = Vec::new();
    for _ in 0..10_000 {
        let [x, y, z] = [0; 3].map(|_| number(&mut next));
        cases.extend([[x, y, z], [x, y, -(x * y)], [x, y, -(x * y) * (1.0 + f64::EPSILON)]]);
    }
    let special = [0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    // Products beyond the largest number, of which enough is taken off.
    for _ in 0..1_000 {
        let (x, y) = (number(&mut next).signum() * f64::MAX, 1.0 + f64::EPSILON);
        let (small, large) = (2f64.powi(-900) * number(&mut next), f64::MAX * (0.5 + next() / 2.0));
        cases.extend([[x, y, -x], [x, -y, x], [x, 2.0, -x], [x, 1.0, small], [large, 1.5, -x]]);
        cases.extend([[small, small, x], [large, small, x]]);
    }
    cases.extend(special.iter().flat_map(|&x| special.iter().map(move |&z| [x, 2.0, z])));
    cases
}

fn near(got: f64, want: f64, epsilon: f64) -> bool {
    got.to_bits() == want.to_bits()
        || (got.is_nan() && want.is_nan())
        || (got == want && want != 0.0)
        || (got - want).abs() <= want.abs() * epsilon
}

#[test]
fn doubles() {
    let cases = cases(1, 300.0);
    for (case, got) in cases.iter().zip(run(&object(DType::F64), &cases)) {
        let want = case[0].mul_add(case[1], case[2]);
        assert!(near(got, want, f64::EPSILON), "{case:?}: {got:e}, {want:e}");
    }
}

#[test]
fn singles() {
    let cases: Vec<[f32; 3]> =
        cases(2, 40.0).iter().map(|case| case.map(|number| number as f32)).collect();
    for (case, got) in cases.iter().zip(run(&object(DType::F32), &cases)) {
        let want = case[0].mul_add(case[1], case[2]);
        assert!(near(got.into(), want.into(), f32::EPSILON.into()), "{case:?}: {got:e}, {want:e}");
    }
}
