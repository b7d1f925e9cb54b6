//! Writes emitted source for every operation of the table, with inputs and the evaluator's results,
//! as JSON for `tests/python/differential.py`: `differential FRAMEWORK COUNT > cases.json`.

#[path = "../../../ir/tests/cases/mod.rs"]
mod cases;

use std::process::ExitCode;

use cases::{Case, Random, operations};
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::graph::{Function, Module};
use mithril_ir::op::{Class, Kind};
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use mithril_passes::context::PassContext;
use mithril_passes::legalize::Legalize;
use mithril_passes::pass::Pass;
use mithril_passes::target;
use mithril_source::python::{Framework, Options, emit};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let framework = Framework::ALL
        .into_iter()
        .find(|f| args.get(1).is_some_and(|name| name == f.name()));
    let Some(framework) = framework else {
        eprintln!("usage: differential numpy|torch|jax [COUNT]");
        return ExitCode::FAILURE;
    };
    let count = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(8);
    let mut all = Vec::new();
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
    let function = form.function()?;
    let expected = evaluate(&Module::new(), &fixed.function()?, inputs).ok()?;
    let mut case = json!({
        "op": fixed.op.name,
        "note": fixed.op.note,
        "form": format!("{form:?}"),
        "inputs": inputs.iter().map(tensor).collect::<Vec<_>>(),
        "expected": tensor(&expected[0]),
    });
    match source(framework, function) {
        Ok((text, constants)) => {
            case["text"] = text.into();
            case["constants"] = constants;
        }
        Err(error) => case["error"] = error.to_string().into(),
    }
    Some(case)
}

fn source(
    framework: Framework,
    function: Function,
) -> mithril_ir::diagnostic::Result<(String, Value)> {
    let target = target::find(framework.name()).copied();
    let legalize = Legalize {
        target: target.unwrap_or(target::TARGETS[0]),
    };
    let module = legalize.run(&Module::of(function), &mut PassContext::new("legalize"))?;
    let source = emit(&module, framework, &Options::default())?;
    let constants = source.constants.iter();
    let constants = constants.map(|(name, t)| (name.clone(), tensor(t)));
    Ok((source.text, Value::Object(constants.collect())))
}

fn tensor(tensor: &Tensor) -> Value {
    let hex: String = tensor.bytes().iter().map(|b| format!("{b:02x}")).collect();
    json!({"dtype": tensor.dtype().array_name(), "shape": tensor.shape(), "bytes": hex})
}
