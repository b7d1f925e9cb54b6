//! Writes emitted source for every operation of the table and for the models of the tests, with
//! arguments and the evaluator's results, as JSON for `tests/python/differential.py`:
//! `differential FRAMEWORK [COUNT] > cases.json`.

#[path = "../../../ir/tests/cases/mod.rs"]
mod cases;

use std::process::ExitCode;

use cases::{Case, Random, operations};
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::op::{Class, Kind};
use mithril_ir::shape::{Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::legalize::Legalize;
use mithril_passes::pass::Pass;
use mithril_passes::target;
use mithril_source::python::{Framework, Options, emit};
use serde_json::{Map, Value, json};

/// What every symbol of a model is, and what every rank variable stands for.
const SIZE: i64 = 5;
const LEAD: [i64; 2] = [2, 3];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let framework =
        Framework::ALL.into_iter().find(|f| args.get(1).is_some_and(|name| name == f.name()));
    let Some(framework) = framework else {
        eprintln!("usage: differential numpy|torch|jax [COUNT]");
        return ExitCode::FAILURE;
    };
    let count = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(8);
    let mut all = models(framework);
    for (number, op) in operations().enumerate() {
        let mut random = Random(number as u64);
        for at in 0..count {
            // Half of the cases are floats of the dtypes that models have.
            let dtype = [Some(DType::F32), None, Some(DType::F64), None][at % 4];
            let Some(case) = Case::find(op, &mut random, dtype) else {
                break;
            };
            if !is_meant_to_agree(&case) {
                continue;
            }
            let inputs = inputs(&case, &mut random);
            for form in [case.clone(), case.symbolic()] {
                all.extend(one(framework, &case, &form, &inputs));
            }
        }
    }
    println!("{}", Value::from(all));
    ExitCode::SUCCESS
}

/// Frameworks keep their own results at the corners that an operation's note tells of.
fn is_meant_to_agree(case: &Case) -> bool {
    let empty = |ty: &Type| ty.shape.dims.iter().any(|d| d.as_const() == Some(0));
    // Rounding at each step goes by the framework's order.
    let half = |a: &Attr| matches!(a, Attr::DType(DType::F16 | DType::BF16));
    if matches!(case.op.kind, Kind::Reduce | Kind::Contraction) && case.attrs.iter().any(half) {
        return false;
    }
    let simple = case.op.note.is_empty() && case.op.kind != Kind::Composite;
    simple || !case.operands.iter().any(empty)
}

fn inputs(case: &Case, random: &mut Random) -> Vec<Tensor> {
    let indexed = matches!(case.op.kind, Kind::Index | Kind::Composite);
    let least = case.operands.first().map_or(1, |ty| {
        let dims = ty.shape.dims.iter().filter_map(|d| d.as_const());
        dims.min().unwrap_or(1).max(1)
    });
    let mut tensors = case.tensors(random);
    for (i, tensor) in tensors.iter_mut().enumerate() {
        let operand = case.op.operand(i);
        let index = indexed && operand.class == Class::Int && !operand.shared;
        if operand.class == Class::Key || (!index && case.op.note.is_empty()) {
            continue;
        }
        let values: Vec<f64> = (0..tensor.len())
            .map(|_| match tensor.dtype().is_float() {
                true => random.unit() * 2.0,
                false if index => random.range(0, least) as f64,
                false => random.range(1, 4) as f64,
            })
            .collect();
        *tensor = Tensor::from_f64s(tensor.dtype(), tensor.shape().to_vec(), &values);
    }
    tensors
}

fn one(framework: Framework, fixed: &Case, form: &Case, inputs: &[Tensor]) -> Option<Value> {
    let (function, reference) = (form.function()?, fixed.function()?);
    let expected = evaluate(&Module::new(), &reference, inputs).ok()?;
    let mut case = json!({
        "name": fixed.op.name,
        "form": format!("{form:?}"),
        "random": matches!(fixed.op.kind, Kind::Random),
        "function": "forward",
        "arguments": arguments(&function, inputs),
        "expected": results(&function, &expected),
    });
    written(&mut case, source(framework, &Module::of(function)));
    Some(case)
}

/// The models of the tests, and their gradients where the framework has none of its own.
fn models(framework: Framework) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of models is there")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a model can be read");
        let module = mithril_ir::text::parse(&text).expect("a model is well formed");
        let entry = module.entry().expect("a model has an entry").clone();
        let trained = entry.args.iter().any(|a| a.role == Role::Param);
        let with_gradients = framework == Framework::Numpy && trained;
        let module = match with_gradients {
            true => Autodiff::default().run(&module, &mut PassContext::new("autodiff")),
            false => Ok(module),
        };
        let module = module.expect("a model has gradients");
        let mut functions = vec![("forward", entry)];
        functions.extend(module.get("gradients").cloned().map(|g| ("gradients", g)));
        for (name, function) in functions {
            let mut random = Random(7);
            let inputs: Vec<Tensor> = (0..function.args.len())
                .map(|i| argument(&function.values[i].ty, &mut random))
                .collect();
            let expected = evaluate(&module, &function, &inputs).expect("a model runs");
            let mut case = json!({
                "name": format!("{} of {}", name, path.display()),
                "form": "",
                "random": true,
                "function": name,
                "arguments": arguments(&function, &inputs),
                "expected": results(&function, &expected),
            });
            written(&mut case, source(framework, &module));
            all.push(case);
        }
    }
    all
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

/// The dicts that an emitted function takes.
fn arguments(function: &Function, inputs: &[Tensor]) -> Value {
    let roles = |role: Role| match role {
        Role::Param => "params",
        Role::Data | Role::Key | Role::Constant => "inputs",
        Role::State => "state",
        Role::Cotangent => "output_gradients",
    };
    let mut dicts = json!({"params": {}, "inputs": {}});
    for (arg, input) in function.args.iter().zip(inputs) {
        dicts[roles(arg.role)][&*arg.name] = tensor(input);
    }
    dicts
}

/// The outputs, and the states by the names of their arguments.
fn results(function: &Function, values: &[Tensor]) -> Value {
    let mut dicts = json!({"outputs": {}});
    for (result, value) in function.results.iter().zip(values) {
        match &result.state {
            Some(name) => dicts["state"][&**name] = tensor(value),
            None => dicts["outputs"][&*result.name] = tensor(value),
        }
    }
    dicts
}

fn written(case: &mut Value, source: Result<(String, Value)>) {
    match source {
        Ok((text, constants)) => {
            case["text"] = text.into();
            case["constants"] = constants;
        }
        Err(error) => case["error"] = error.to_string().into(),
    }
}

fn source(framework: Framework, module: &Module) -> Result<(String, Value)> {
    let target = target::find(framework.name()).copied();
    let legalize = Legalize { target: target.unwrap_or(target::TARGETS[0]) };
    let module = legalize.run(module, &mut PassContext::new("legalize"))?;
    let source = emit(&module, framework, &Options::default())?;
    let constants: Map<String, Value> =
        source.constants.iter().map(|(name, t)| (name.clone(), tensor(t))).collect();
    Ok((source.text, constants.into()))
}

fn tensor(tensor: &Tensor) -> Value {
    let hex: String = tensor.bytes().iter().map(|b| format!("{b:02x}")).collect();
    json!({"dtype": tensor.dtype().array_name(), "shape": tensor.shape(), "bytes": hex})
}
