//! Emitted source with its arguments and results, as JSON.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Role};
use mithril_ir::tensor::Tensor;
use mithril_passes::context::PassContext;
use mithril_passes::legalize::Legalize;
use mithril_passes::pass::Pass;
use mithril_source::backends::{Backend, Random};
use mithril_source::python::{Options, emit};
use serde_json::{Map, Value, json};

/// The dicts that an emitted function takes.
pub fn arguments(function: &Function, inputs: &[Tensor]) -> Value {
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
pub fn results(function: &Function, values: &[Tensor]) -> Value {
    let mut dicts = json!({"outputs": {}});
    for (result, value) in function.results.iter().zip(values) {
        match &result.state {
            Some(name) => dicts["state"][&**name] = tensor(value),
            None => dicts["outputs"][&*result.name] = tensor(value),
        }
    }
    dicts
}

/// Adds the source of a module, or why there is none.
pub fn write(case: &mut Value, framework: &'static Backend, module: &Module) {
    match source(framework, module) {
        Ok((text, constants)) => {
            case["text"] = text.into();
            case["constants"] = constants;
        }
        Err(error) => case["error"] = error.to_string().into(),
    }
}

fn source(framework: &'static Backend, module: &Module) -> Result<(String, Value)> {
    let legalize = Legalize { target: framework.target };
    let module = legalize.run(module, &mut PassContext::new("legalize"))?;
    let source =
        emit(&module, framework, &Options { random: Random::Exact, ..Options::default() })?;
    let constants: Map<String, Value> =
        source.constants.iter().map(|(name, t)| (name.clone(), tensor(t))).collect();
    Ok((source.text, constants.into()))
}

pub fn tensor(tensor: &Tensor) -> Value {
    let hex: String = tensor.bytes().iter().map(|b| format!("{b:02x}")).collect();
    json!({"dtype": tensor.dtype().array_name(), "shape": tensor.shape(), "bytes": hex})
}
