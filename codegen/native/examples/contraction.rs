//! Compiles one contraction to a library, and says how: `contraction m n k [key=value…] library`.

use std::path::Path;

#[path = "../tests/matmul/mod.rs"]
mod matmul;

use matmul::{Case, PLAIN, host, link};
use mithril_ir::dtype::DType;
use mithril_kernels::contract::Layout;
use mithril_kernels::mlir;
use mithril_native::{Stage, compile};

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let library = args.pop().expect("a library to write");
    let mut case = PLAIN;
    let mut sizes = Vec::new();
    for arg in &args {
        match arg.split_once('=') {
            None => sizes.push(arg.parse().expect("a size")),
            Some(("x", layout)) => case.x = parse(layout),
            Some(("y", layout)) => case.y = parse(layout),
            Some(("batch", n)) => case.batch = n.parse().expect("a number"),
            Some(("dynamic", which)) => {
                case.dynamic = std::array::from_fn(|i| which.contains(&"bmnk"[i..=i]));
            }
            Some(("dtype", name)) => {
                let named = DType::ALL.into_iter().find(|d| d.name() == name);
                case.dtype = named.expect("a dtype");
                case.acc = case.dtype;
            }
            _ => panic!("what is `{arg}`?"),
        }
    }
    [case.m, case.n, case.k] = sizes.try_into().expect("three sizes");
    build(&case, Path::new(&library));
}

fn parse(layout: &str) -> Layout {
    match layout {
        "k" => Layout::AlongK,
        "outer" => Layout::AlongOuter,
        "packed" => Layout::Packed,
        _ => panic!("what is the layout `{layout}`?"),
    }
}

fn build(case: &Case, library: &Path) {
    let (options, isa) = host();
    // The first module that a process compiles pays for what all share.
    let (code, plan) = case.code(&isa);
    let text = mlir::print(&code);
    let stage = |stage| compile(&text, &options, stage).unwrap_or_else(|e| panic!("{e}\n{text}"));
    stage(Stage::Object);
    let start = seconds();
    let object = stage(Stage::Object);
    let ms = (seconds() - start) * 1e3;
    link(&object, library);
    if std::env::var_os("SHOW").is_some() {
        for (stage_, extension) in
            [(Stage::Mlir, "mlir"), (Stage::Optimized, "ll"), (Stage::Assembly, "s")]
        {
            std::fs::write(library.with_extension(extension), stage(stage_))
                .expect("it is written");
        }
    }
    if case.y == Layout::Packed {
        let text = mlir::print(&case.pack_code(Layout::AlongOuter, &plan));
        let object = compile(&text, &options, Stage::Object).unwrap_or_else(|e| panic!("{e}"));
        link(&object, &library.with_extension("pack.so"));
    }
    println!(
        "tasks={} scratch={} strip={} ms={ms:.1} text={} object={} # {plan:?}",
        case.tasks(&plan),
        plan.scratch_bytes(),
        plan.strip(),
        text.len(),
        object.len(),
    );
}

/// How long the processor has worked for this process.
fn seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
