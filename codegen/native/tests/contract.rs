//! Contractions as machine code give what the evaluator gives, on every layout, dtype and edge.

mod amx;
mod guarded;
mod instant;
mod matmul;

use std::sync::atomic::{AtomicUsize, Ordering};

use guarded::Guarded;
use libloading::Library;
use matmul::{Case, PAIRS, PLAIN, link};
use mithril_ir::dtype::DType;
use mithril_ir::eval::array::{Array, Data};
use mithril_ir::eval::contract::{DotDims, dot_general};
use mithril_ir::scalar::round;
use mithril_ir::tensor::Tensor;
use mithril_kernels::code::Code;
use mithril_kernels::contract::Layout::{self, AlongK, AlongOuter, Packed, Strided};
use mithril_kernels::host::{self, Host};
use mithril_kernels::isa::Isa;
use mithril_kernels::mlir;
use mithril_native::{Options, Stage, compile};

type Entry = unsafe extern "C" fn(*mut u8, *const *mut u8, *const i64, i64, i64);

/// Compiles a kernel and runs it over ranges of tasks: by LLVM, and by Cranelift, which writes the
/// same.
fn run(
    code: &Code,
    options: &Options,
    buffers: &[&Guarded],
    dims: &[i64],
    scratch: usize,
    ranges: &[(i64, i64)],
) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let text = mlir::print(code);
    let object = compile(&text, options, Stage::Object).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("mithril-contract-{}-{number}", std::process::id());
    let library = std::env::temp_dir().join(name).with_extension("so");
    link(&object, &library);
    let before: Vec<Vec<u8>> = buffers.iter().map(|b| b.read()).collect();
    let starts: Vec<*mut u8> = buffers.iter().map(|b| b.start()).collect();
    let call = |entry: Entry| {
        let scratch = Guarded::new(&vec![0; scratch.next_multiple_of(64)]);
        for &(first, last) in ranges {
            // SAFETY: it is a kernel for these buffers.
            unsafe { entry(scratch.start(), starts.as_ptr(), dims.as_ptr(), first, last) };
        }
        scratch.read();
    };
    // SAFETY: the library is a kernel.
    unsafe {
        let library = Library::new(&library).expect("the library is loaded");
        call(*library.get::<Entry>(b"kernel").expect("the kernel is there"));
    }
    // Products of pairs and tiles are LLVM's.
    if !text.contains("dpbf16") {
        let after: Vec<Vec<u8>> = buffers.iter().map(|b| b.read()).collect();
        buffers.iter().zip(&before).for_each(|(buffer, bytes)| buffer.write(bytes));
        let instant = instant::instant(code, &options.cpu);
        call(instant.kernel("kernel").expect("the kernel"));
        let same = buffers.iter().zip(&after).all(|(buffer, bytes)| buffer.read() == *bytes);
        assert!(same, "Cranelift's code writes something else\n{text}");
    }
    for extension in ["o", "so"] {
        std::fs::remove_file(library.with_extension(extension)).expect("it was there");
    }
}

/// Small whole numbers, whose sums are exact in every order.
fn numbers(dtype: DType, count: i64, seed: u32) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        ((state >> 24) % 7) as f64 - if dtype.is_unsigned_int() { 0.0 } else { 3.0 }
    };
    let values: Vec<f64> = (0..count).map(|_| next()).collect();
    Tensor::from_f64s(dtype, vec![count as usize], &values)
}

/// Elements between neighbours of an operand: of the batch, the outer axis and `k`.
fn strides(layout: Layout, outer: i64, k: i64) -> [i64; 3] {
    match layout {
        Layout::AlongK => [outer * k, k, 1],
        Layout::AlongOuter => [outer * k, 1, outer],
        Layout::Strided => [outer * k * 2, k * 2, 2],
        Layout::Packed => unreachable!("it is packed from another"),
        Layout::Gathered => unreachable!("these cases lie in steps"),
    }
}

fn view(memory: &Tensor, shape: [i64; 3], strides: [i64; 3]) -> Array {
    let (shape, strides) = (shape.map(|s| s as usize), strides.map(|s| s as isize));
    Array::from(memory).view(shape.to_vec(), &strides, 0)
}

fn expected(case: &Case, x: &Array, y: &Array, bias: &Tensor) -> Tensor {
    let axes = |axis: usize| vec![axis];
    let dims = DotDims {
        lhs_batch: axes(0),
        rhs_batch: axes(0),
        lhs_contract: axes(2),
        rhs_contract: axes(2),
    };
    let mut product = dot_general(x, y, &dims, case.acc, case.acc).expect("operands that match");
    let n = case.n as usize;
    match (&mut product.data, Array::from(bias).data) {
        (Data::Float(values), Data::Float(bias)) => {
            let add =
                |(i, v): (usize, &mut f64)| *v = round::round(case.acc, *v + bias[i % n]).max(0.0);
            values.iter_mut().enumerate().for_each(add);
        }
        (Data::Int(values), Data::Int(bias)) => {
            let add = |(i, v): (usize, &mut i64)| {
                *v = round::wrap(case.acc, v.wrapping_add(bias[i % n]));
            };
            values.iter_mut().enumerate().for_each(add);
        }
        _ => unreachable!("both are of the same dtype"),
    }
    Tensor::from(&product)
}

fn check(case: &Case) {
    check_on(case, &matmul::host());
}

fn check_on(case: &Case, (options, isa): &(Options, Isa)) {
    let [batch, m, n, k] = case.sizes();
    let y_layout = if case.y == Packed { AlongK } else { case.y };
    let (xs, mut ys) = (strides(case.x, m, k), strides(y_layout, n, k));
    if case.shared {
        ys[0] = 0;
    }
    let stretch = |layout: Layout| if layout == Strided { 2 } else { 1 };
    let x = numbers(case.dtype, batch * m * k * stretch(case.x), 1);
    let y = numbers(case.dtype, batch * n * k * stretch(case.y), 2);
    let bias = numbers(case.acc, n, 3);
    let want = expected(case, &view(&x, [batch, m, k], xs), &view(&y, [batch, n, k], ys), &bias);
    let (code, plan) = case.code(isa);
    let [gx, mut gy, gbias] = [&x, &y, &bias].map(|t| Guarded::new(&t.bytes()));
    if case.y == Packed {
        assert_eq!(batch, 1);
        let strips = (n + plan.strip() - 1) / plan.strip();
        let depth = (k as u64).next_multiple_of(plan.unit as u64) as i64;
        let size = strips * plan.strip() * depth * plan.panel_dtype.bytes() as i64;
        let to = Guarded::new(&vec![0; size as usize]);
        let pack = case.pack_code(AlongK, &plan);
        run(&pack, options, &[&gx, &gy, &to], &case.sizes(), 64, &[(0, strips)]);
        gy = to;
    }
    let tasks = case.tasks(&plan);
    let split = tasks / 3;
    for ranges in [vec![(0, tasks)], vec![(split, tasks), (0, split)]] {
        let result = Guarded::new(&vec![0xCC; want.bytes().len()]);
        let buffers = [&gx, &gy, &gbias, &result];
        run(&code, options, &buffers, &case.sizes(), plan.scratch_bytes(), &ranges);
        let got = Tensor::from_bytes(case.acc, want.shape().to_vec(), result.read());
        let got = got.expect("as many bytes");
        if got != want {
            let pairs = want.to_f64s().into_iter().zip(got.to_f64s());
            let at = pairs.enumerate().find(|(_, (w, g))| w != g);
            panic!("{case:?}\n{plan:?}\n{ranges:?}: (place, (want, got)) {at:?}");
        }
    }
}

const SIZES: [[i64; 3]; 16] = [
    [1, 1, 1],
    [8, 8, 8],
    [7, 17, 33],
    [33, 17, 127],
    [1, 100, 333],
    [3, 37, 50],
    [100, 1, 45],
    [50, 333, 77],
    [129, 200, 64],
    [20, 70, 3000],
    [300, 40, 1100],
    [5, 300, 260],
    [9, 20, 4500],
    [0, 5, 3],
    [5, 0, 3],
    [40, 33, 0],
];

fn shapes() -> impl Iterator<Item = Case> {
    SIZES.into_iter().map(|[m, n, k]| Case { m, n, k, ..PLAIN })
}

#[test]
fn layouts() {
    for case in shapes() {
        for x in [AlongK, AlongOuter] {
            for y in [AlongOuter, AlongK] {
                check(&Case { x, y, ..case.clone() });
            }
        }
    }
    for case in shapes().step_by(3) {
        check(&Case { x: Strided, y: Strided, ..case });
    }
}

#[test]
fn extents_at_run_time() {
    for case in shapes() {
        for dynamic in [[true; 4], [false, true, false, false], [false, false, true, true]] {
            for y in [AlongOuter, AlongK] {
                check(&Case { dynamic, y, ..case.clone() });
            }
        }
    }
}

#[test]
fn constants_that_were_packed() {
    for case in shapes() {
        for dynamic in [[false; 4], [false, true, false, false]] {
            check(&Case { y: Packed, dynamic, ..case.clone() });
        }
    }
}

#[test]
fn batches() {
    for shared in [false, true] {
        for [m, n, k] in [[1, 9, 20], [8, 8, 8], [40, 33, 20], [20, 70, 1500]] {
            for (y, dynamic) in [(AlongOuter, [false; 4]), (AlongK, [true; 4])] {
                check(&Case { batch: 5, m, n, k, shared, y, dynamic, ..PLAIN });
            }
        }
    }
}

#[test]
fn dtypes() {
    for (dtype, acc) in PAIRS {
        for ([m, n, k], x, y) in [
            ([1, 40, 33], AlongK, AlongK),
            ([7, 17, 20], AlongK, AlongOuter),
            ([50, 70, 65], AlongOuter, AlongOuter),
            ([50, 33, 65], AlongK, AlongK),
        ] {
            check(&Case { m, n, k, x, y, dtype, acc, ..PLAIN });
        }
    }
}

/// A processor by its name. None: this machine lacks something of it.
fn level(name: &str) -> Option<(Options, Isa)> {
    let Host { level, isa, features } = Host::parse(name).unwrap_or_else(|e| panic!("{e}"));
    host::chosen(Some(name))
        .is_ok()
        .then(|| (Options { cpu: level.cpu.into(), features, ..Options::default() }, isa))
}

#[test]
fn pairs_of_bf16() {
    let Some(host) = level("v4+avx512bf16") else { return };
    shapes().step_by(2).for_each(|case| check_bf16(case, &host));
}

/// A contraction of bf16 in several layouts.
fn check_bf16(case: Case, host: &(Options, Isa)) {
    let case = Case { dtype: DType::BF16, ..case };
    for (x, y) in [(AlongK, AlongOuter), (AlongOuter, AlongK), (Strided, Strided)] {
        check_on(&Case { x, y, ..case.clone() }, host);
        check_on(&Case { x, y, dynamic: [true; 4], ..case.clone() }, host);
    }
    check_on(&Case { y: Packed, ..case.clone() }, host);
    check_on(&Case { y: Packed, dynamic: [false, true, false, false], ..case }, host);
}

#[test]
fn tiles_of_bf16() {
    if !std::is_x86_feature_detected!("avx512bw") {
        return;
    }
    let host = amx::processor();
    shapes().step_by(3).for_each(|case| check_bf16(case, &host));
    // Rows where they are, with strides that are no powers of two and that are.
    for [m, n, k] in [[48, 40, 96], [128, 70, 1184], [32, 16, 1024]] {
        let case = Case { m, n, k, batch: 2, ..PLAIN };
        check_bf16(Case { y: AlongK, batch: 1, ..case.clone() }, &host);
        check_on(&Case { dtype: DType::BF16, shared: true, y: AlongK, ..case }, &host);
    }
    assert!(!amx::in_use(), "kernels give the tiles back");
}

#[test]
fn processors_of_shorter_vectors() {
    for host in ["v3", "x86-64"].into_iter().filter_map(level) {
        for case in shapes().step_by(2) {
            check_on(&case, &host);
            check_on(&Case { y: AlongK, dynamic: [true; 4], ..case }, &host);
        }
    }
}
