//! Divides the steps of a scan into what depends on the step before, and the rest.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::op::{self, Kind};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::function::batched as batched_function;
use crate::rebuild::copy;

/// Builds the results of a marked scan: carries by a scan of the operations that they depend on, and
/// everything else at once.
/// Errors: none for valid modules.
pub(super) fn batched(
    module: &mut Module,
    builder: &Builder,
    operation: &Operation,
    body: &Function,
    operands: &[Value],
) -> Result<Vec<Value>> {
    let carries = operation.attr("carries").as_int() as usize;
    let sequences = operation.attr("sequences").as_int() as usize;
    let lead = body.values.iter().any(|info| info.ty.shape.lead.is_some());
    if lead {
        return scan(builder, operation, body, operands);
    }
    if carries == 0 {
        let flags: Vec<bool> = (0..operands.len()).map(|at| at < sequences).collect();
        return call(module, builder, body, &flags, operands);
    }
    let dependent = dependent(body, carries);
    if dependent.len() == body.ops.len() {
        return scan(builder, operation, body, operands);
    }
    let shared = shared(body, &dependent, carries);
    let arguments: Vec<Value> = body.arguments().map(|(value, _)| value).collect();
    let is_dependent = |at: usize| dependent.contains(&at);
    let results = body.results[..carries].iter().map(|own| (&*own.name, own.value));
    let names: Vec<String> = (0..shared.len()).map(|at| format!("shared_{at}")).collect();
    let kept = names.iter().map(|name| &**name).zip(shared.iter().copied());
    let results: Vec<(&str, Value)> = results.chain(kept).collect();
    let first = extract(module, body, is_dependent, &arguments, &results)?;
    let mut values = scan(builder, operation, &first, operands)?;
    let stacked = values.split_off(carries);

    let rest: Vec<Value> = shared.iter().chain(&arguments[carries..]).copied().collect();
    let results = body.results[carries..].iter().map(|own| (&*own.name, own.value));
    let results: Vec<(&str, Value)> = results.collect();
    let second = extract(module, body, |at| !dependent.contains(&at), &rest, &results)?;
    let batched = stacked.len() + sequences;
    let inputs: Vec<Value> = stacked.iter().chain(&operands[carries..]).copied().collect();
    let flags: Vec<bool> = (0..inputs.len()).map(|at| at < batched).collect();
    values.extend(call(module, builder, &second, &flags, &inputs)?);
    Ok(values)
}

/// The scan without its mark.
fn scan(
    builder: &Builder,
    operation: &Operation,
    body: &Function,
    operands: &[Value],
) -> Result<Vec<Value>> {
    let mut attrs = operation.attrs.clone();
    attrs[0] = Attr::Function(body.name.clone());
    if let Some(at) = operation.op.attr_index("batched") {
        attrs[at] = Attr::Bool(false);
    }
    Ok(builder.call(operation.op, body, attrs, operands)?.to_vec())
}

fn call(
    module: &mut Module,
    builder: &Builder,
    body: &Function,
    flags: &[bool],
    operands: &[Value],
) -> Result<Vec<Value>> {
    let wanted = vec![true; body.results.len()];
    let made = batched_function(module, body, flags, &wanted)?;
    let attrs = SmallVec::from_iter([Attr::Function(made.function.name.clone())]);
    Ok(builder.call(op::get("call"), &made.function, attrs, operands)?.to_vec())
}

/// The indices of the operations that the next carries depend on, and of random draws with the keys
/// that they derive: each has a key of its own.
fn dependent(body: &Function, carries: usize) -> FxHashSet<usize> {
    let mut wanted: FxHashSet<Value> =
        body.results[..carries].iter().map(|own| own.value).collect();
    let random = body.ops.iter().filter(|operation| operation.op.kind == Kind::Random);
    wanted.extend(random.map(Operation::result));
    let mut found = FxHashSet::default();
    for (at, operation) in body.ops.iter().enumerate().rev() {
        if operation.results().any(|value| wanted.contains(&value)) {
            wanted.extend(operation.operands.iter().copied());
            found.insert(at);
        }
    }
    found
}

/// The values that the rest reads of the carries and of the dependent operations.
fn shared(body: &Function, dependent: &FxHashSet<usize>, carries: usize) -> Vec<Value> {
    let mut own: FxHashSet<Value> = (0..carries as u32).map(Value).collect();
    dependent.iter().for_each(|at| own.extend(body.ops[*at].results()));
    let rest = body.ops.iter().enumerate().filter(|(at, _)| !dependent.contains(at));
    let read = rest.flat_map(|(_, operation)| operation.operands.iter().copied());
    let read = read.chain(body.results[carries..].iter().map(|result| result.value));
    let mut found: Vec<Value> = Vec::new();
    for value in read.filter(|value| own.contains(value)) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// A function of some operations of another. `arguments` and `results` are values of `source`. It is
/// added to the module.
fn extract(
    module: &mut Module,
    source: &Function,
    taken: impl Fn(usize) -> bool,
    arguments: &[Value],
    results: &[(&str, Value)],
) -> Result<Function> {
    let builder = Builder::new(module.fresh_name(&source.name));
    let mut values: FxHashMap<Value, Value> = FxHashMap::default();
    for (at, value) in arguments.iter().enumerate() {
        let argument = source.args.get(value.index());
        let name = argument.map_or_else(|| format!("shared_{at}").into(), |own| own.name.clone());
        let role = argument.map_or(Role::Data, |own| own.role);
        values.insert(*value, builder.arg(name, role, source.ty(*value).clone()));
    }
    for (_, operation) in source.ops.iter().enumerate().filter(|(at, _)| taken(*at)) {
        let operands = operation.operands.iter().map(|value| values[value]).collect();
        let first = copy(&builder, source, operation, operands);
        for (at, value) in operation.results().enumerate() {
            values.insert(value, Value(first.0 + at as u32));
        }
    }
    let results = results.iter().map(|(name, value)| ResultDef {
        name: (*name).into(),
        value: values[value],
        state: None,
    });
    let function = builder.finish(results.collect())?;
    module.insert(function.clone());
    Ok(function)
}
