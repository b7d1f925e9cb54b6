//! Functions of many operations: kernels have a bounded size, equal parts share one, and the time
//! to make them grows with the number of operations.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mithril_instant::Machine;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_kernels::host::{Host, chosen};
use mithril_kernels::program::{Plan, plan};
use mithril_kernels::target::TARGETS;
use mithril_native::{Options, Stage, compile};
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_runtime::code::Code;
use mithril_runtime::execute::Executable;
use mithril_runtime::threads::Pool;

const SHAPE: &str = "tensor<8 x 16 x f32>";
const COUNT: usize = 8 * 16;

fn processor() -> Host {
    chosen(None).unwrap_or_else(|e| panic!("{e}"))
}

/// `tanh`, so many times.
fn chain(count: usize) -> String {
    let mut text = format!("mithril 1\n\nfunc @f(%x: {SHAPE}, %y: {SHAPE}) -> (z: {SHAPE}) {{\n");
    let mut last = "%x".to_string();
    for at in 0..count {
        let _ = writeln!(text, "%{at} = tanh({last})");
        last = format!("%{at}");
    }
    text + &format!("return {last}\n}}\n")
}

/// Operations on recent results, or on results of long before.
fn drawn(count: usize) -> String {
    let mut text = format!("mithril 1\n\nfunc @f(%x: {SHAPE}, %y: {SHAPE}) -> (z: {SHAPE}) {{\n");
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut word = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for at in 0..count {
        let mut operand = |recent: bool| match (at, word(8)) {
            (0, even) => ["%x", "%y"][even % 2].to_string(),
            (_, 0) => format!("%{}", word(at)),
            _ if recent => format!("%{}", at - 1),
            _ => format!("%{}", at - 1 - word(at.min(20))),
        };
        let (a, b) = (operand(true), operand(false));
        let op = ["add", "sub", "maximum", "minimum", "tanh", "sigmoid", "abs"][word(7)];
        let _ = match op {
            "tanh" | "sigmoid" | "abs" => writeln!(text, "%{at} = {op}({a})"),
            _ => writeln!(text, "%{at} = {op}({a}, {b})"),
        };
    }
    text + &format!("return %{}\n}}\n", count - 1)
}

fn module(text: &str) -> Module {
    let module = text::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let dead = Pipeline::parse("dce", TARGETS).expect("a pipeline");
    Driver::default().run(&dead, &module).unwrap_or_else(|e| panic!("{e}")).0
}

fn planned(module: &Module) -> Plan {
    plan(module, module.entry().expect("an entry"), &processor().isa)
        .unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn kernels_are_bounded() {
    for text in [chain(10_000), drawn(10_000)] {
        let plan = planned(&module(&text));
        for kernel in &plan.kernels {
            let own = &kernel.outlined.function;
            assert!(own.ops.len() <= 256, "{} operations", own.ops.len());
            assert!(own.args.len() <= 64, "{} operands", own.args.len());
        }
    }
}

#[test]
fn equal_parts_share_a_kernel() {
    let plan = planned(&module(&chain(10_000)));
    assert!(plan.kernels.len() <= 2, "{} kernels", plan.kernels.len());
    assert!(plan.program.launches.len() <= 500, "{} launches", plan.program.launches.len());
}

/// The cost of a cut is the number of values that are read across it: one value between the steps
/// of a running sum.
#[test]
fn kernels_are_cut_where_little_is_read() {
    let mut text = format!("mithril 1\n\nfunc @f(%x: {SHAPE}, %y: {SHAPE}) -> (z: {SHAPE}) {{\n");
    let mut last = "%x".to_string();
    for step in 0..1000 {
        let _ = writeln!(
            text,
            "%a{step} = tanh({last})\n%b{step} = abs(%a{step})\n%c{step} = add({last}, %b{step})"
        );
        last = format!("%c{step}");
    }
    let plan = planned(&module(&(text + &format!("return {last}\n}}\n"))));
    for kernel in &plan.kernels {
        let own = &kernel.outlined.function;
        assert!(own.args.len() <= 1 && own.results.len() == 1, "{}", own.args.len());
    }
}

#[test]
fn time_grows_with_the_number_of_operations() {
    let time = |text: &str| -> Duration {
        let module = module(text);
        let turn = || {
            let start = Instant::now();
            planned(&module);
            start.elapsed()
        };
        (0..5).map(|_| turn()).min().expect("turns")
    };
    for make in [chain, drawn] {
        let [few, many] = [2_000, 8_000].map(|count| time(&make(count)));
        assert!(many < 8 * few, "{few:?} for 2,000 operations, {many:?} for 8,000");
    }
}

#[test]
fn ten_thousand_operations_are_right() {
    for text in [chain(10_000), drawn(10_000)] {
        let module = module(&text);
        let plan = planned(&module);
        let machine = Machine::of(&processor()).expect("a machine that Cranelift knows");
        let code = plan.kernels.iter().map(|kernel| {
            let made = machine.compile(&kernel.lowered.code).unwrap_or_else(|e| panic!("{e}"));
            Arc::new(Code::of_function("kernel", &made).expect("memory"))
        });
        let code: Vec<Arc<Code>> = code.collect();
        let kernels = code.iter().map(|code| code.kernel("kernel").expect("the kernel")).collect();
        let executable = Executable::new(plan.program.clone(), kernels, code, Vec::new());
        let executable = executable.unwrap_or_else(|e| panic!("{e}"));
        let args = [1.0, -0.7].map(|scale| {
            let values: Vec<f64> = (0..COUNT).map(|i| scale * (i as f64 / 40.0 - 1.5)).collect();
            Tensor::from_f64s(DType::F32, vec![8, 16], &values)
        });
        let mut got = vec![0f32; COUNT];
        let from = [args[0].bytes().as_ptr(), args[1].bytes().as_ptr()];
        let to = [got.as_mut_ptr().cast::<u8>()];
        // SAFETY: the arrays have the sizes of the function's types.
        unsafe { executable.run(&from, &[], &to, &Pool::new(1)) }.expect("it runs");
        let entry = module.entry().expect("an entry");
        let want = evaluate(&module, entry, &args).unwrap_or_else(|e| panic!("{e}"));
        for (got, want) in got.iter().zip(want[0].to_f64s()) {
            assert!((f64::from(*got) - want).abs() <= 1e-3 * want.abs().max(1.0), "{got}, {want}");
        }
    }
}

/// What `MOST_VALUES` of a program and `MOST_WORK` of a kernel are for.
#[test]
fn llvm_compiles_the_largest_kernel_of_a_chain() {
    let plan = planned(&module(&chain(1_000)));
    let Host { level, features, .. } = processor();
    let options = Options { cpu: level.cpu.into(), features, ..Options::default() };
    for kernel in &plan.kernels {
        let made = compile(&kernel.text(), &options, Stage::Object);
        assert_eq!(&made.unwrap_or_else(|e| panic!("{e}"))[..4], b"\x7fELF");
    }
}
