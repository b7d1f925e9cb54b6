//! A planted fault is found from the numbers only.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module};
use mithril_ir::op;
use mithril_ir::tensor::Tensor;
use mithril_ir::text::parse;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::bisect::{bisect, difference};
use mithril_passes::canonicalize::Canonicalize;
use mithril_passes::context::PassContext;
use mithril_passes::cse::Cse;
use mithril_passes::pass;
use mithril_passes::pass::Pass;
use mithril_passes::pipeline::Pipeline;

pass! {
    /// Makes differences of sums in the functions from the `from`th on.
    pub struct Planted("planted") {
        /// The first one.
        from: usize = 0,
        /// Whether it does anything.
        on: bool = true,
    }
}

impl Pass for Planted {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let mut out = module.clone();
        for function in module.called_from_outside().skip(self.from).filter(|_| self.on) {
            let mut function = Function::clone(function);
            for operation in function.ops.iter_mut().filter(|o| o.op == op::get("add")) {
                operation.op = op::get("sub");
                cx.log("x + y → x - y", &operation.loc);
            }
            out.insert(function);
        }
        Ok(out)
    }
}

const TEXT: &str = r#"mithril 1
func @main(%w: tensor<3 x f32> param, %x: tensor<3 x f32>) -> (y: tensor<3 x f32>) {
  %0 = mul(%x, %w) @ "scale"
  %1 = mul(%x, %w) @ "scale"
  %2 = add(%0, %w) @ "shift"
  %y = mul(%2, %1) @ "last"
  return %y
}
"#;

fn arguments() -> Vec<Tensor> {
    let tensor = |values: &[f64]| Tensor::from_f64s("f32".parse().unwrap(), vec![3], values);
    vec![tensor(&[0.5, -1.5, 2.0]), tensor(&[1.0, 2.0, 3.0])]
}

fn found(pipeline: &dyn Fn(&[String]) -> Pipeline) -> Option<(String, Option<(String, String)>)> {
    let module = parse(TEXT).unwrap();
    let culprit = bisect(&module, pipeline, &arguments(), 1e-5).unwrap()?;
    assert!(culprit.error > 0.1, "{culprit:?}");
    let rule = culprit.rule.map(|(rule, places)| (rule.to_string(), places.to_string()));
    Some((culprit.pass.to_string(), rule))
}

#[test]
fn bisect_ignores_correct_passes() {
    let pipeline = |_: &[String]| {
        let gradients = Autodiff { outputs: true, ..Autodiff::default() };
        Pipeline::default().then(Cse::default()).then(gradients).then(Canonicalize::default())
    };
    assert_eq!(found(&pipeline), None);
}

#[test]
fn bisect_finds_a_wrong_rule() {
    let pipeline = |without: &[String]| {
        let planted = Planted { on: !without.contains(&"x + y → x - y".into()), from: 0 };
        Pipeline::default().then(Cse::default()).then(planted).then(Canonicalize::default())
    };
    let rule = Some(("x + y → x - y".to_string(), "shift".to_string()));
    assert_eq!(found(&pipeline), Some(("planted".to_string(), rule)));
}

#[test]
fn bisect_finds_a_wrong_pass() {
    let pipeline = |_: &[String]| Pipeline::default().then(Cse::default()).then(Planted::default());
    assert_eq!(found(&pipeline), Some(("planted".to_string(), None)));
}

#[test]
fn gradients_are_compared_after_the_pass_that_adds_them() {
    let pipeline = |without: &[String]| {
        let gradients = Autodiff { outputs: true, ..Autodiff::default() };
        let planted = Planted { on: without.is_empty(), from: 1 };
        Pipeline::default().then(gradients).then(planted)
    };
    let (pass, rule) = found(&pipeline).unwrap();
    assert_eq!((pass.as_str(), rule.unwrap().0.as_str()), ("planted", "x + y → x - y"));
}

#[test]
fn differences_are_relative_to_the_largest_number() {
    assert_eq!(difference(&[1.0, 2.0], &[1.0, 4.0]), 0.5);
    assert_eq!(difference(&[f64::NAN, f64::INFINITY], &[f64::NAN, f64::INFINITY]), 0.0);
    assert_eq!(difference(&[1.0], &[f64::NAN]), f64::INFINITY);
    assert_eq!(difference(&[f64::INFINITY], &[f64::NEG_INFINITY]), f64::INFINITY);
    assert_eq!(difference(&[], &[]), 0.0);
}
