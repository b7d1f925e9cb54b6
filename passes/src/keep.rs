//! `keep`: inner values as results.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use rustc_hash::FxHashSet;

use crate::context::PassContext;
use crate::pass::Pass;

pass! {
    /// Adds what blocks and named terminals give to the results of the entry, whose calls must be
    /// inlined: what is looked at on the way is a result like any other.
    pub struct Keep("keep") {
        /// Names of terminals, or paths of blocks. A block that gives one value gives the result of
        /// its path; of several, each with a number behind it.
        paths: Vec<String> = Vec::new(),
    }
}

impl Pass for Keep {
    /// Errors: a path that is neither; a terminal that nothing computes.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let Some(entry) = module.entry().filter(|_| !self.paths.is_empty()) else {
            return Ok(module.clone());
        };
        let mut function = Function::clone(entry);
        for path in &self.paths {
            for (name, value) in found(entry, path)? {
                if !function.results.iter().any(|result| result.name == name) {
                    function.results.push(ResultDef { name, value, state: None });
                    cx.count("values-kept", 1);
                }
            }
        }
        let mut out = module.clone();
        out.insert(function);
        Ok(out)
    }
}

fn found(function: &Function, path: &str) -> Result<Vec<(Arc<str>, Value)>> {
    if function.args.iter().any(|argument| *argument.name == *path) {
        return Diagnostic::new(format!("`{path}` is an input: nothing writes it"))
            .hint("a `Buffer` gives an input back as an output")
            .err();
    }
    let made = || function.ops.iter().flat_map(Operation::results);
    if let Some(value) = made().find(|v| function.info(*v).name.as_deref() == Some(path)) {
        return Ok(vec![(path.into(), value)]);
    }
    if !function.ops.iter().any(|operation| lies_in(operation, path)) {
        return missing(function, path);
    }
    match &leaving(function, path)[..] {
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

/// The values that a block makes and that others read.
fn leaving(function: &Function, path: &str) -> Vec<Value> {
    let inside = |operation: &&Operation| lies_in(operation, path);
    let outside = function.ops.iter().filter(|operation| !inside(operation));
    let read = outside.flat_map(|operation| operation.operands.iter().copied());
    let read: FxHashSet<Value> = read.chain(function.results.iter().map(|r| r.value)).collect();
    let made = function.ops.iter().filter(inside).flat_map(Operation::results);
    made.filter(|value| read.contains(value)).collect()
}

fn missing<T>(function: &Function, path: &str) -> Result<T> {
    let paths = function.ops.iter().filter_map(|operation| operation.loc.shortest());
    let named = function.values.iter().filter_map(|info| info.name.as_deref());
    let mut error = Diagnostic::new(format!(
        "Terminal not found: the model has no terminal and no block `{path}`"
    ));
    error.hint = did_you_mean(path, named.chain(paths));
    error.err()
}
