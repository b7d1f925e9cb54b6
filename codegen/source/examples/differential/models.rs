//! The models of the tests, and calls.

use std::path::PathBuf;

use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Argument, Function, Module, Role};
use mithril_ir::op::{self, Kind};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::pass::Pass;
use mithril_source::backends::Backend;
use serde_json::{Value, json};

use crate::cases::{self, Random};
use crate::emitted::{arguments, results, write};

/// What every symbol of a model is, and what every rank variable stands for.
const SIZE: i64 = 5;
const LEAD: [i64; 2] = [2, 3];

/// The models of the tests and the operations that name functions, and their gradients: by
/// `autodiff`, or the framework's own.
pub fn cases(framework: &'static Backend) -> Vec<Value> {
    let mut all = Vec::new();
    for (name, module) in read("models").into_iter().chain(read("calls")) {
        let entry = module.entry().expect("a model has an entry").clone();
        all.push(case(framework, &name, "forward", &module, &entry, &module));
        let trained = |arg: &Argument| arg.role == Role::Param;
        if !entry.args.iter().any(trained) {
            continue;
        }
        let joint = Autodiff::default().run(&module, &mut PassContext::new("autodiff"));
        let joint = joint.expect("a model has gradients");
        let gradients = joint.get("gradients").expect("the pass adds them").clone();
        all.push(match framework.differentiates {
            false => case(framework, &name, "gradients", &joint, &gradients, &joint),
            true => case(framework, &name, "forward", &joint, &gradients, &module),
        });
    }
    all
}

/// Modules by name. There is one call for each operation that names functions.
fn read(folder: &str) -> Vec<(String, Module)> {
    let folder = format!("{}/tests/{folder}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&folder).expect("the folder of models is there").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let module = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a model can be read");
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        (name, mithril_ir::text::parse(&text).expect("a model is well formed"))
    };
    let modules: Vec<(String, Module)> = paths.into_iter().map(module).collect();
    if folder.ends_with("calls") {
        for op in op::table().filter(|op| op.kind == Kind::Call) {
            assert!(modules.iter().any(|(name, _)| name == op.name), "no call of {}", op.name);
        }
    }
    modules
}

/// What the evaluator gives for `function`, and `source` to run for it.
fn case(
    framework: &'static Backend,
    name: &str,
    run: &str,
    module: &Module,
    function: &Function,
    source: &Module,
) -> Value {
    let mut random = Random(7);
    let inputs: Vec<Tensor> =
        (0..function.args.len()).map(|i| argument(&function.values[i].ty, &mut random)).collect();
    let expected = evaluate(module, function, &inputs).expect("a model runs");
    let mut case = json!({
        "name": name,
        "form": "",
        "function": run,
        "arguments": arguments(function, &inputs),
        "expected": results(function, &expected),
    });
    write(&mut case, framework, source);
    case
}

fn argument(ty: &Type, random: &mut Random) -> Tensor {
    let value = |_: &Symbol| Some(Dim::Const(SIZE));
    let lead = |_: &Symbol| Some(Shape::new(LEAD.map(Dim::Const)));
    let shape = ty.shape.substitute(&value, &lead);
    let tensor = cases::tensor(&Type::new(ty.dtype, shape), random);
    match ty.dtype.is_int() {
        // Indices.
        true => {
            let values: Vec<i64> = tensor.to_i64s().into_iter().map(i64::abs).collect();
            Tensor::from_i64s(ty.dtype, tensor.shape().to_vec(), &values)
        }
        // Small enough that no softmax comes near 0 and 1, where it is ill-conditioned.
        false => {
            let values: Vec<f64> = tensor.to_f64s().into_iter().map(|v| v / 16.0).collect();
            Tensor::from_f64s(ty.dtype, tensor.shape().to_vec(), &values)
        }
    }
}
