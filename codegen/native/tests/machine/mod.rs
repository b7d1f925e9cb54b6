//! Runs functions as native code of LLVM and of Cranelift, and compares them with the evaluator.

// Each user takes a part of it.
#![allow(dead_code)]

#[path = "../guarded/mod.rs"]
mod guarded;
#[path = "../instant/mod.rs"]
mod instant;

use bytes::Bytes;
use std::collections::HashMap;
use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use guarded::Guarded;
use instant::{difference, instant};
use mithril_ir::dim::Symbol;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_kernels::host::{self, Host};
use mithril_kernels::isa::Isa;
use mithril_kernels::program::{self, Plan};
use mithril_kernels::target::TARGETS;
use mithril_native::{Options, Stage, compile};
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_runtime::code::Code;
use mithril_runtime::execute::Executable;
use mithril_runtime::guard;
use mithril_runtime::kernel::{Kernel, copy};
use mithril_runtime::threads::Pool;

/// A function of this signature and body; `t` stands for `tensor`.
pub fn f(signature: &str, body: &str) -> String {
    let text = format!("mithril 1\n\nfunc @f({signature} {{\n{body}\n}}\n");
    text.replace("t<", "tensor<")
}

/// The level that MITHRIL_CPU names, or this machine's.
pub fn machine() -> (Isa, Options) {
    let host = host::chosen(None).unwrap_or_else(|e| panic!("{e}"));
    // The optional features beyond a level have their own tests.
    let level = Host::parse(host.level.name).unwrap_or_else(|e| panic!("{e}"));
    (
        level.isa,
        Options { cpu: level.level.cpu.into(), features: level.features, ..Options::default() },
    )
}

/// Whether every case of a table runs: at the machine's own level, and where MITHRIL_TESTS is
/// `all`.
pub fn is_whole() -> bool {
    let own = host::machine().is_ok_and(|own| own.level.cpu == machine().1.cpu);
    own || env::var_os("MITHRIL_TESTS").is_some_and(|tests| tests == "all")
}

/// Whether a case of a table runs. MITHRIL_SEED draws one of eight where not all do.
pub fn is_drawn(case: usize) -> bool {
    let seed = env::var("MITHRIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0u64);
    let mut hasher = DefaultHasher::new();
    (seed, machine().1.cpu, case).hash(&mut hasher);
    is_whole() || hasher.finish().is_multiple_of(8)
}

/// The vectors of the level, and of 32 bytes where they are wider: other registers, the same code.
pub fn widths() -> Vec<Isa> {
    let own = machine().0;
    let narrower =
        (own.bytes > 32).then(|| Host::parse("x86-64-v3").unwrap_or_else(|e| panic!("{e}")).isa);
    [own].into_iter().chain(narrower).collect()
}

/// A function by its text, compiled.
pub struct Native {
    pub module: Module,
    pub plan: Plan,
    pub executable: Executable,
    pub kernels: Vec<Kernel>,
    /// The same by Cranelift.
    pub instant: Executable,
    pub instants: Vec<Kernel>,
}

impl Native {
    pub fn new(source: &str) -> Native {
        Native::of(source, machine())
    }

    /// For a processor that has this.
    pub fn of(source: &str, (isa, options): (Isa, Options)) -> Native {
        guard::turn_on();
        let module = text::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let pipeline = "inline{limit=all,repeated=all},legalize{target=cpu},split-reductions,canonicalize,cse,dce";
        let pipeline = Pipeline::parse(pipeline, TARGETS).expect("the pipeline");
        let (legal, _) =
            Driver::default().run(&pipeline, &module).unwrap_or_else(|e| panic!("{e}"));
        let entry = legal.entry().expect("an entry");
        let plan = program::plan(&legal, entry, &isa).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let mut codes = Vec::new();
        let mut kernels: Vec<Kernel> = Vec::new();
        let (mut instants, mut sources) = (Vec::new(), Vec::new());
        for kernel in &plan.kernels {
            let text = kernel.text();
            let object = compile(&text, &options, Stage::Object);
            let shown = || kernel.outlined.to_string();
            let object = object.unwrap_or_else(|e| panic!("{e}\n{}\n{text}", shown()));
            let code = Arc::new(Code::load(&object).unwrap_or_else(|e| panic!("{e}")));
            kernels.push(code.kernel("kernel").expect("the kernel"));
            // Only LLVM supports tiles.
            let quick = match kernel.lowered.code.tiles {
                true => code.clone(),
                false => Arc::new(instant(&kernel.lowered.code, &options.cpu)),
            };
            instants.push(quick.kernel("kernel").expect("the kernel"));
            sources.push(quick);
            codes.push(code);
        }
        if plan.copies {
            kernels.push(copy);
            instants.push(copy);
        }
        let constants = plan.constants.iter().map(|c| c.value().expect("memory").bytes());
        let constants: Vec<Bytes> = constants.collect();
        let made = |kernels, codes| {
            let made = Executable::new(plan.program.clone(), kernels, codes, constants.clone());
            made.unwrap_or_else(|e| panic!("{e}\n{}", plan.program))
        };
        let (executable, instant) = (made(kernels.clone(), codes), made(instants.clone(), sources));
        Native { module, plan, executable, kernels, instant, instants }
    }

    /// What LLVM's code gives, which Cranelift's gives too.
    pub fn run(&self, args: &[Tensor]) -> Vec<Tensor> {
        let results = self.run_on(&self.executable, args);
        let instant = self.run_on(&self.instant, args);
        for (at, (one, other)) in results.iter().zip(&instant).enumerate() {
            if let Some(what) = difference(one.dtype(), &one.bytes(), &other.bytes()) {
                panic!("result {at}: {what}\n{}", self.source());
            }
        }
        results
    }

    fn source(&self) -> String {
        let kernels = self.plan.kernels.iter();
        let kernels = kernels.map(|k| k.outlined.to_string());
        kernels.collect::<Vec<_>>().join("\n")
    }

    fn run_on(&self, executable: &Executable, args: &[Tensor]) -> Vec<Tensor> {
        let entry = self.module.entry().expect("an entry");
        let mut sizes: HashMap<Symbol, i64> = HashMap::new();
        for ((value, _), tensor) in entry.arguments().zip(args) {
            for (dim, size) in entry.ty(value).shape.dims.iter().zip(tensor.shape()) {
                if let Some(symbol) = dim.as_symbol() {
                    sizes.insert(symbol.clone(), *size as i64);
                }
            }
        }
        let symbols: Vec<i64> = self.plan.symbols.iter().map(|s| sizes[s]).collect();
        let bytes = executable.result_bytes(&symbols).expect("sizes");
        let made: Vec<Guarded> = bytes.iter().map(|&n| Guarded::aligned(&vec![0xCC; n])).collect();
        let held: Vec<Guarded> = args.iter().map(|t| Guarded::new(&t.bytes())).collect();
        let from: Vec<*const u8> = held.iter().map(|b| b.start() as *const u8).collect();
        let to: Vec<*mut u8> = made.iter().map(Guarded::start).collect();
        // SAFETY: the blocks have the sizes that the program says.
        unsafe { executable.run(&from, &symbols, &to, &Pool::new(1)) }.expect("it runs");
        let shape_of = |i: usize| -> (DType, Vec<usize>) {
            let ty = entry.ty(entry.results[i].value);
            let dims = ty
                .shape
                .dims
                .iter()
                .map(|d| d.evaluate(&|s| sizes.get(s).copied()).expect("a known dim") as usize);
            (ty.dtype, dims.collect())
        };
        let read = |(i, result): (usize, &Guarded)| {
            let (dtype, shape) = shape_of(i);
            Tensor::from_bytes(dtype, shape, result.read()).expect("the result's size")
        };
        let unchanged = held.iter().zip(args).all(|(held, arg)| held.read() == arg.bytes()[..]);
        assert!(unchanged, "something wrote to an argument\n{}", self.source());
        made.iter().enumerate().map(read).collect()
    }
}

/// Elements that are neither large nor alike.
pub fn draw(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let word = |i: usize| {
        let mut x = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (seed as u64) << 32;
        x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^ (x >> 32)
    };
    if dtype.is_float() {
        let values: Vec<f64> = (0..count).map(|i| (word(i) % 4001) as f64 / 1000.0 - 2.0).collect();
        return Tensor::from_f64s(dtype, shape.to_vec(), &values);
    }
    let range = if dtype == DType::Bool { 2 } else { 7 };
    let values: Vec<i64> = (0..count).map(|i| (word(i) % range) as i64).collect();
    Tensor::from_i64s(dtype, shape.to_vec(), &values)
}

/// Runs a function on drawn arguments, whose symbols have these sizes, and compares.
pub fn check(source: &str, sizes: &[(&str, usize)]) {
    let native = Native::new(source);
    agree(&native, sizes);
}

pub fn agree(native: &Native, sizes: &[(&str, usize)]) {
    let entry = native.module.entry().expect("an entry");
    let sizes: HashMap<&str, usize> = sizes.iter().copied().collect();
    let args: Vec<Tensor> = (entry.arguments().enumerate())
        .map(|(seed, (value, _))| {
            let ty = entry.ty(value);
            let dims = ty.shape.dims.iter().map(|d| {
                d.evaluate(&|s| sizes.get(s.as_str()).map(|n| *n as i64)).expect("sizes") as usize
            });
            draw(ty.dtype, &dims.collect::<Vec<_>>(), seed)
        })
        .collect();
    let want = evaluate(&native.module, entry, &args).unwrap_or_else(|e| panic!("{e}"));
    let got = native.run(&args);
    for (i, (want, got)) in want.iter().zip(&got).enumerate() {
        compare(native, i, want, got);
    }
}

pub fn compare(native: &Native, result: usize, want: &Tensor, got: &Tensor) {
    compare_amplified(native, result, want, got, 0.0);
}

/// Compares where the operation amplifies rounding errors by this factor.
pub fn compare_amplified(
    native: &Native,
    result: usize,
    want: &Tensor,
    got: &Tensor,
    amplified: f64,
) {
    assert_eq!(want.shape(), got.shape());
    if !want.dtype().is_float() {
        let same = want.to_i64s() == got.to_i64s();
        assert!(same, "result {result}\nwant {want:?}\ngot  {got:?}\n{}", native.source());
        return;
    }
    let tolerance = match want.dtype() {
        DType::F64 => f64::max(1e-12, 8.0 * f64::EPSILON * amplified),
        DType::F32 => f64::max(1e-5, 8.0 * f64::from(f32::EPSILON) * amplified),
        DType::F16 => 2e-3,
        _ => 2e-2,
    };
    let largest =
        want.to_f64s().iter().filter(|x| x.is_finite()).fold(1e-30, |a: f64, x| a.max(x.abs()));
    for (i, (w, g)) in want.to_f64s().iter().zip(got.to_f64s()).enumerate() {
        let same = (w.is_nan() && g.is_nan()) || *w == g || (w - g).abs() <= tolerance * largest;
        assert!(
            same,
            "result {result}, element {i}: want {w}, got {g}\n{want:?}\n{got:?}\n{}",
            native.source()
        );
    }
}
