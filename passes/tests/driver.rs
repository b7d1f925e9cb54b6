//! The driver and pipelines: text, order, reports and errors.

mod targets;

use std::sync::Arc;

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Fact, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Module, ResultDef, Role};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_ir::text;
use mithril_passes::context::PassContext;
use mithril_passes::driver::{Driver, Moment};
use mithril_passes::legalize::Legalize;
use mithril_passes::pass::{Field, Options, Pass};
use mithril_passes::pipeline::Pipeline;
use mithril_passes::registry::PASSES;
use mithril_passes::target::{CORE, Target, Targets};

use targets::TARGETS;

const VERIFIED: Driver = Driver { verify: true };

fn module(body: &str) -> Module {
    let source = format!(
        "mithril 1\nfunc @main(%x: tensor<2 x f32>) -> (r: tensor<2 x f32>) {{\n{body}\n}}"
    );
    text::parse(&source).unwrap_or_else(|e| panic!("{}", e.render("", &source)))
}

#[test]
fn pipelines_read_back() {
    for text in [
        "",
        "cse",
        "canonicalize,inline{limit=all,custom=true},dce",
        "autodiff{wrt=w,b,into=back}",
        "specialise{shapes=x=[32 x 784],batch=n + 1,outputs=y}",
        "legalize{target=arrays}",
    ] {
        assert_eq!(Pipeline::parse(text, TARGETS).unwrap().to_string(), text);
    }
    let spaced = Pipeline::parse(" cse , inline{ limit = 64, custom } ", TARGETS).unwrap();
    assert_eq!(spaced.to_string(), "cse,inline{custom=true}");
}

#[test]
fn pipeline_errors_have_spans() {
    for (text, what, span) in [
        ("cse,csee", "there is no pass `csee`", 4..8),
        ("cse,,dce", "there is no pass ``", 4..4),
        ("inline{limits=3}", "`inline` has no option `limits`", 7..13),
        ("inline{limit=x}", "the option `limit` of `inline` has an invalid value", 7..12),
        ("cse{}}", "`}` is not matched in the pipeline", 5..6),
        ("inline{limit=3", "`{` is not matched in the pipeline", 6..7),
        ("inline{limit=3}x", "a comma is expected between passes", 0..16),
        ("dce{x}", "`dce` has no option `x`", 4..5),
    ] {
        let error =
            Pipeline::parse(text, TARGETS).err().unwrap_or_else(|| panic!("`{text}` parses"));
        assert_eq!((error.headline().as_str(), error.span.clone()), (what, Some(span)), "`{text}`");
    }
}

#[test]
fn every_pass_describes_itself() {
    for make in PASSES {
        let mut pass = make();
        assert!(!pass.doc().is_empty());
        let name = pass.name();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
        for field in pass.fields() {
            assert!(!field.doc.is_empty(), "{name}: {}", field.name);
            assert_eq!(
                pass.set(&field.name, &field.value, TARGETS),
                Some(Ok(())),
                "{name}: {}",
                field.name
            );
        }
    }
}

#[test]
fn unchanged_functions_stay_the_same_arc() {
    for make in PASSES.iter().filter(|make| make().name() != "autodiff") {
        let module = module("%0 = exp(%x)\nreturn %0");
        let pipeline = Pipeline { passes: vec![make()] };
        let (out, report) = VERIFIED.run(&pipeline, &module).unwrap();
        assert!(Arc::ptr_eq(out.entry().unwrap(), module.entry().unwrap()), "{pipeline}");
        assert!(!report.passes[0].changed);
    }
}

#[test]
fn reports_count_and_observers_see() {
    let module = module("%0 = neg(%x) @ \"a\"\n%1 = neg(%0) @ \"b\"\nreturn %1");
    let pipeline = Pipeline::parse("cse,canonicalize", TARGETS).unwrap();
    let mut seen = Vec::new();
    let (out, report) = VERIFIED
        .run_observed(&pipeline, &module, &mut |pass, moment, module| {
            seen.push((pass.name(), moment, module.entry().unwrap().ops.len()));
        })
        .unwrap();
    assert_eq!(
        seen,
        [
            ("cse", Moment::Before, 2),
            ("cse", Moment::After { changed: false }, 2),
            ("canonicalize", Moment::Before, 2),
            ("canonicalize", Moment::After { changed: true }, 0),
        ]
    );
    assert!(out.entry().unwrap().ops.is_empty());
    let counted = [("rules-applied", 1), ("ops-removed", 2)];
    assert_eq!(report.passes[1].statistics, counted);
    let log: Vec<String> =
        report.rewrites.iter().map(|r| format!("{} @ {}", r.rule, r.loc)).collect();
    assert_eq!(log, ["neg-neg @ b"]);
}

/// Makes an operation read what comes later.
struct Breaks;

impl Options for Breaks {
    fn name(&self) -> &'static str {
        "breaks"
    }

    fn doc(&self) -> String {
        String::new()
    }

    fn fields(&self) -> Vec<Field> {
        Vec::new()
    }

    fn set(&mut self, _: &str, _: &str, _: Targets) -> Option<Result<(), String>> {
        None
    }
}

impl Pass for Breaks {
    fn run(&self, module: &Module, _: &mut PassContext) -> Result<Module> {
        let mut function = (**module.entry().unwrap()).clone();
        function.ops.reverse();
        Ok(Module::of(function))
    }
}

#[test]
fn broken_modules_are_caught_after_their_pass() {
    let module = module("%0 = exp(%x)\n%1 = neg(%0)\nreturn %1");
    let pipeline = Pipeline::default().then(Breaks);
    let error = VERIFIED.run(&pipeline, &module).unwrap_err();
    let facts: Vec<String> = error.facts.iter().map(Fact::to_string).collect();
    let pass = facts.iter().filter(|fact| fact.starts_with("pass: "));
    assert_eq!(pass.collect::<Vec<_>>(), ["pass: breaks, which broke the module"]);
    assert!(Driver { verify: false }.run(&pipeline, &module).is_ok());
}

#[test]
fn targets_may_lack_operations() {
    let module = module("%0 = sigmoid(%x) @ \"head\"\nreturn %0");
    let target = Target { name: "adder", takes: &|_, op| op.op.name == "add", ..*CORE };
    let pipeline = Pipeline::default().then(Legalize { target });
    let error = VERIFIED.run(&pipeline, &module).unwrap_err();
    assert!(error.headline().starts_with("Backend does not support operation "), "{error}");
    assert_eq!(error.place.as_deref(), Some("block `head`"));
}

/// A chain of `n` layers that leave much to simplify.
fn long(n: usize) -> Module {
    let b = Builder::new("main");
    let ty = Type::new(DType::F32, Shape::fixed(&[8, 8]));
    let x = b.arg("x", Role::Data, ty);
    let mut y = x;
    while b.with(|f| f.ops.len()) < n {
        let one = b.constant(Tensor::scalar(DType::F32, 1.0));
        let product = b.op("mul", &[y, one], &[]).unwrap();
        let twice =
            ["neg", "neg", "exp"].iter().fold(product, |v, op| b.op(op, &[v], &[]).unwrap());
        let again = b.op("exp", &[product], &[]).unwrap();
        y = b.op("add", &[twice, again], &[]).unwrap();
    }
    let result = ResultDef { name: "y".into(), value: y, state: None };
    Module::of(b.finish(vec![result]).unwrap())
}

#[test]
fn long_functions_take_linear_time() {
    let pipeline = Pipeline::parse("canonicalize,cse,dce", TARGETS).unwrap();
    let (out, report) = Driver { verify: false }.run(&pipeline, &long(100_000)).unwrap();
    for pass in &report.passes {
        println!("{}: {:?}", pass.pass, pass.time);
        // Minutes, if it were quadratic.
        assert!(pass.time.as_secs() < 5, "{}: {:?}", pass.pass, pass.time);
    }
    assert!(out.entry().unwrap().ops.len() < 40_000);
}

#[test]
fn long_chains_of_calls_do_not_overflow_the_stack() {
    let mut source = "mithril 1\n".to_string();
    let depth = 1000;
    for i in 0..depth {
        source += &format!(
            "func @f{i}(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {{\n%y = call(%x) {{callee = @f{}}}\nreturn %y\n}}\n",
            i + 1
        );
    }
    source += &format!(
        "func @f{depth}(%x: tensor<n x f32>) -> (y: tensor<n x f32>) {{\n%y = exp(%x)\nreturn %y\n}}\n"
    );
    let module = text::parse(&source).unwrap();
    let pipeline =
        Pipeline::parse("specialise{shapes=n=4},infer-shapes,inline{limit=all},dce", TARGETS)
            .unwrap();
    let (out, _) = VERIFIED.run(&pipeline, &module).unwrap();
    assert_eq!((out.functions.len(), out.entry().unwrap().ops.len()), (1, 1));
}
