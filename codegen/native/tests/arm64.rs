//! Kernels of every operation and its gradient as objects for arm64, which need no library but
//! what objects may: an instruction that the processor lacks would be a call of one.
//! `tests/python/test_arm64.py` runs such objects by an emulator.

#[path = "../../../ir/tests/cases/mod.rs"]
mod cases;
#[path = "../../kernels/tests/uses/mod.rs"]
mod uses;

use std::collections::HashSet;

use cases::{Case, Random, every, is_sampled, operations};
use mithril_ir::dtype::DType;
use mithril_ir::graph::Module;
use mithril_ir::op::Op;
use mithril_kernels::host::Host;
use mithril_kernels::program;
use mithril_kernels::target::TARGETS;
use mithril_native::{Options, Stage, compile};
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_runtime::code::check;
use uses::{gradients, is_computed, uses};

struct Compiler {
    host: Host,
    options: Options,
    /// The kernels that were compiled.
    known: HashSet<String>,
}

impl Compiler {
    fn new() -> Compiler {
        let host = Host::parse("arm64").unwrap_or_else(|e| panic!("{e}"));
        let options = Options {
            triple: host.level.architecture.triple().into(),
            cpu: host.level.cpu.into(),
            features: host.features.clone(),
        };
        Compiler { host, options, known: HashSet::new() }
    }

    fn compile(&mut self, about: &str, module: &Module) {
        let pipeline = "inline{limit=all,repeated=all},legalize{target=cpu},split-reductions,canonicalize,cse,dce";
        let pipeline = Pipeline::parse(pipeline, TARGETS).expect("the pipeline");
        let (legal, _) = Driver::default().run(&pipeline, module).unwrap_or_else(|e| panic!("{e}"));
        let entry = legal.entry().expect("an entry");
        let plan = program::plan(&legal, entry, &self.host.isa).unwrap_or_else(|e| panic!("{e}"));
        for kernel in &plan.kernels {
            let text = kernel.text();
            if self.known.insert(text.clone()) {
                let object = compile(&text, &self.options, Stage::Object);
                let object = object.unwrap_or_else(|e| panic!("{about}: {e}\n{text}"));
                check(&object).unwrap_or_else(|e| panic!("{about}: {e}\n{text}"));
            }
        }
    }

    /// A sample has some of them.
    fn expect_kernels(&self, least: usize) {
        let least = if every() { least } else { least / 4 };
        assert!(self.known.len() > least, "{} kernels", self.known.len());
    }
}

/// The operations with their numbers, in a sample one in three.
fn sampled() -> impl Iterator<Item = (usize, Op)> {
    operations().enumerate().filter(|(number, _)| is_sampled(*number, 3))
}

#[test]
fn arm64_objects_of_operations() {
    let mut compiler = Compiler::new();
    for (number, op) in sampled() {
        let mut random = Random(500 + number as u64);
        for case in uses(op, &mut random) {
            let form = case.symbolic();
            let Some(function) = form.function() else { continue };
            compiler.compile(&format!("{} {form:?}", op.name), &Module::of(function));
        }
    }
    compiler.expect_kernels(200);
}

#[test]
fn arm64_objects_of_gradients() {
    let mut compiler = Compiler::new();
    for (number, op) in sampled() {
        let mut random = Random(9500 + number as u64);
        for dtype in [DType::F32, DType::F64] {
            let case = Case::find(op, &mut random, Some(dtype)).filter(is_computed);
            let Some(form) = case.map(|case| case.symbolic()) else { continue };
            if let Some(module) = gradients(&form) {
                compiler.compile(&format!("gradient of {} {form:?}", op.name), &module);
            }
        }
    }
    compiler.expect_kernels(100);
}
