//! The call graph of a module.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::order::needed_first;
use petgraph::graphmap::DiGraphMap;
use petgraph::visit::Dfs;
use rustc_hash::FxHashSet;

/// All functions, callees before their callers.
/// Errors: a callee that does not exist, or recursion.
pub fn post_order(module: &Module) -> Result<Vec<Arc<str>>> {
    let callees: Result<Vec<Vec<usize>>> =
        module.functions.values().map(|f| callees(module, f)).collect();
    let name = |i: usize| module.functions.get_index(i).expect("an index of the module").0.clone();
    match needed_first(&callees?) {
        Ok(order) => Ok(order.into_iter().map(name).collect()),
        Err(circle) => {
            let names: Vec<String> = circle.into_iter().map(|i| format!("`{}`", name(i))).collect();
            Diagnostic::new("functions must not be recursive").got(names.join(" → ")).err()
        }
    }
}

/// The functions that the entries need, including the entries.
/// Errors: a callee that does not exist.
pub fn reachable(module: &Module) -> Result<FxHashSet<Arc<str>>> {
    let mut calls = DiGraphMap::<&str, ()>::new();
    for (name, function) in &module.functions {
        let callees = function.ops.iter().flat_map(Operation::functions);
        callees.for_each(|callee| _ = calls.add_edge(name, callee, ()));
    }
    let mut walk = Dfs::empty(&calls);
    let mut found = FxHashSet::default();
    for root in module.called_from_outside() {
        let root = calls.add_node(&root.name);
        walk.move_to(root);
        while let Some(name) = walk.next(&calls) {
            found.insert(function(module, name)?.name.clone());
        }
    }
    Ok(found)
}

/// Errors: an entry function is external, and so has nothing to compile.
pub fn entries_have_operations(module: &Module) -> Result<()> {
    let Some(external) = module.called_from_outside().find(|function| function.external) else {
        return Ok(());
    };
    Diagnostic::new("an entry function must not be external")
        .at(format!("function `{}`", external.name))
        .got("a declaration, whose body is the target's")
        .expected("a function with operations")
        .hint("write a function that calls it, and put that one first")
        .err()
}

/// The function of this name.
/// Errors: there is none.
pub fn function<'m>(module: &'m Module, name: &str) -> Result<&'m Arc<Function>> {
    module.get(name).ok_or_else(|| missing(module, name))
}

fn callees(module: &Module, function: &Function) -> Result<Vec<usize>> {
    let names = function.ops.iter().flat_map(Operation::functions);
    let number =
        |name: &Arc<str>| module.functions.get_index_of(name).ok_or_else(|| missing(module, name));
    names.map(number).collect()
}

fn missing(module: &Module, name: &str) -> Box<Diagnostic> {
    let mut error = Diagnostic::new(format!("there is no function `{name}`"));
    error.hint = did_you_mean(name, module.functions.keys().map(|k| &**k));
    Box::new(error)
}
