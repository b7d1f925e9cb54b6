//! `keep`: makes inner values results.

use std::sync::Arc;

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use rustc_hash::FxHashSet;

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::Rebuild;
use crate::transfer::Transfer;

pass! {
    /// Adds the values of blocks and named terminals to the results of the entry, into which the
    /// blocks around them must be inlined: a kept value is a result like any other.
    pub struct Keep("keep") {
        /// Names of terminals, or paths of blocks. A block with one value gives a result named by
        /// its path; a block with several gives one result each, with a number appended.
        paths: Vec<String> = Vec::new(),
        /// The same for values that are only observed: no gradient flows back from them, not even
        /// one of zeros, which would be undefined where a derivative is infinite.
        watched: Vec<String> = Vec::new(),
    }
}

impl Pass for Keep {
    /// Errors: a path that is neither a terminal nor a block; a terminal that nothing computes.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let none = self.paths.is_empty() && self.watched.is_empty();
        let Some(entry) = module.entry().filter(|_| !none) else {
            return Ok(module.clone());
        };
        let mut function = Function::clone(entry);
        let watched = self.watched.iter().map(|path| (path, true));
        for (path, watched) in self.paths.iter().map(|path| (path, false)).chain(watched) {
            let (next, values) = kept(module, function, "", path)?;
            let (next, values) =
                if watched { without_gradients(module, &next, values)? } else { (next, values) };
            function = next;
            for (name, value) in values {
                add(&mut function, name, value);
                cx.count("values-kept", 1);
            }
        }
        let mut out = module.clone();
        out.insert(function);
        Ok(out)
    }
}

/// Adds a result before the states. If a result has the name already, it is either the same value,
/// and nothing is added, or another one, and the name gets a suffix.
fn add(function: &mut Function, name: Arc<str>, value: Value) {
    let results = &mut function.results;
    let known = results.iter().find(|result| result.name == name);
    let name = match known.map(|known| known.value == value) {
        None => name,
        Some(true) => return,
        Some(false) => format!("{name}.0").into(),
    };
    let at = results.iter().position(|result| result.state.is_some()).unwrap_or(results.len());
    results.insert(at, ResultDef { name, value, state: None });
}

/// Values with the names of their results.
type Kept = Vec<(Arc<str>, Value)>;

/// The values that a path names in a function; `within` is the path of the function, empty for the
/// model. The values inside a block with a custom gradient are computed a second time, outside that
/// block, from operands through which no gradient flows.
fn kept(module: &Module, function: Function, within: &str, path: &str) -> Result<(Function, Kept)> {
    let Some((at, block)) = enclosing_custom_gradient(&function, path) else {
        let values = find_values(&function, within, path)?;
        return Ok((function, values));
    };
    let call = &function.ops[at];
    let callee = call.functions().next().expect("a custom gradient names its callee");
    let callee = Function::clone(call_graph::function(module, callee)?);
    let inner = path[block.len()..].trim_start_matches('.');
    let (callee, values) = kept(module, callee, &format!("{within}{block}."), inner)?;
    let mut rebuild = Rebuild::new(module, &function);
    let mut results = Vec::new();
    for (number, op) in function.ops.iter().enumerate() {
        rebuild.keep(op)?;
        if number == at {
            let transfer = copy_of_callee(module, &rebuild, op, &callee)?;
            let named = |(name, value): &(Arc<str>, Value)| {
                (format!("{block}.{name}").into(), transfer.value(*value))
            };
            results = values.iter().map(named).collect();
        }
    }
    Ok((rebuild.finish()?, results))
}

/// Wraps the values so that no gradient flows back from them.
fn without_gradients(
    module: &Module,
    function: &Function,
    values: Kept,
) -> Result<(Function, Kept)> {
    let mut rebuild = Rebuild::new(module, function);
    for op in &function.ops {
        rebuild.keep(op)?;
    }
    let stop_gradient =
        |(name, value)| Ok((name, stop_gradient(&rebuild.builder, rebuild.value(value))?));
    let values = values.into_iter().map(stop_gradient).collect::<Result<_>>()?;
    Ok((rebuild.finish()?, values))
}

fn stop_gradient(builder: &Builder, value: Value) -> Result<Value> {
    match builder.ty(value).dtype.is_float() {
        true => builder.op("stop_gradient", &[value], &[]),
        false => Ok(value),
    }
}

/// Copies the body of `callee`, applied to the operands of `call` without gradients.
fn copy_of_callee<'f>(
    module: &Module,
    rebuild: &Rebuild,
    call: &Operation,
    callee: &'f Function,
) -> Result<Transfer<'f>> {
    let builder = &rebuild.builder;
    builder.set_loc(call.loc.clone());
    let operands = rebuild.operands(call).into_iter();
    let args: Vec<Value> = operands.map(|v| stop_gradient(builder, v)).collect::<Result<_>>()?;
    let mut transfer = Transfer::new(callee, builder, &args)?;
    for op in &callee.ops {
        builder.set_loc(op.loc.inside(&call.loc));
        let inner = op.functions().next().map(|name| call_graph::function(module, name));
        transfer.emit(builder, op, inner.transpose()?.map(|f| &**f))?;
    }
    Ok(transfer)
}

/// The operation with a custom gradient whose block contains the path, and the path of that block.
fn enclosing_custom_gradient(function: &Function, path: &str) -> Option<(usize, Arc<str>)> {
    let block = |operation: &Operation| {
        let within =
            |own: &&Arc<str>| path.strip_prefix(&***own).is_some_and(|r| r.starts_with('.'));
        let custom = operation.op.name == "custom_gradient";
        operation.loc.paths().iter().find(within).filter(|_| custom).cloned()
    };
    (function.ops.iter().enumerate()).find_map(|(at, op)| Some((at, block(op)?)))
}

fn find_values(function: &Function, within: &str, path: &str) -> Result<Kept> {
    let named = |value: Value| function.info(value).name.as_deref() == Some(path);
    if function.arguments().any(|(value, argument)| *argument.name == *path || named(value)) {
        return Diagnostic::of(
            ErrorKind::Connection,
            format!("`{within}{path}` is an input: nothing writes it"),
        )
        .hint("use a `Buffer` to return an input as an output")
        .err();
    }
    let values = || function.ops.iter().flat_map(Operation::results);
    let is_block = function.ops.iter().any(|operation| lies_in(operation, path));
    let is_result = function.results.iter().any(|result| *result.name == *path);
    match values().find(|value| named(*value)) {
        // A block may have the same name as a result.
        Some(value) if !(is_block && is_result) => return Ok(vec![(path.into(), value)]),
        None if !is_block => return missing(function, within, path),
        _ => {}
    }
    match &block_outputs(function, path)[..] {
        [value] => Ok(vec![(path.into(), *value)]),
        values => {
            let numbered = |(i, value): (usize, &Value)| (format!("{path}.{i}").into(), *value);
            Ok(values.iter().enumerate().map(numbered).collect())
        }
    }
}

fn lies_in(operation: &Operation, path: &str) -> bool {
    let within = |rest: &str| rest.is_empty() || rest.starts_with('.');
    operation.loc.paths().iter().any(|own| own.strip_prefix(path).is_some_and(within))
}

/// The values that a block computes and others read, except next values of states.
fn block_outputs(function: &Function, path: &str) -> Vec<Value> {
    let inside = |operation: &&Operation| lies_in(operation, path);
    let outside = function.ops.iter().filter(|operation| !inside(operation));
    let read = outside.flat_map(|operation| operation.operands.iter().copied());
    let results = function.results.iter().filter(|result| result.state.is_none());
    let read: FxHashSet<Value> = read.chain(results.map(|result| result.value)).collect();
    let values = function.ops.iter().filter(inside).flat_map(Operation::results);
    values.filter(|value| read.contains(value)).collect()
}

fn missing<T>(function: &Function, within: &str, path: &str) -> Result<T> {
    let path = format!("{within}{path}");
    let paths = function.ops.iter().filter_map(|operation| operation.loc.shortest());
    let named = function.values.iter().filter_map(|info| info.name.as_deref());
    let known: Vec<String> = named.chain(paths).map(|name| format!("{within}{name}")).collect();
    let mut error = Diagnostic::of(
        ErrorKind::Terminal,
        format!("the model has no terminal and no block `{path}`"),
    );
    error.hint = did_you_mean(&path, known.iter().map(String::as_str));
    error.err()
}
