//! `dce`: removes operations that no result needs, and unreachable functions.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Symbol;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use rustc_hash::FxHashSet;

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;

pass! {
    /// Removes operations that no result needs, and functions that no entry reaches.
    pub struct Dce("dce") {}
}

impl Pass for Dce {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let mut out = module.clone();
        for function in out.functions.values_mut() {
            if let Some(swept) = without_dead_operations(function) {
                cx.count("ops-removed", function.ops.len() - swept.ops.len());
                *function = Arc::new(swept);
            }
        }
        let used = call_graph::reachable(&out)?;
        out.functions.retain(|name, _| used.contains(name));
        let removed = module.functions.len() - out.functions.len();
        cx.count("functions-removed", removed);
        Ok(out)
    }
}

/// The function without dead operations; `None` if there are none. Every operation is pure, so a
/// function has no effect other than its results.
pub fn without_dead_operations(function: &Function) -> Option<Function> {
    let live = live_values(function);
    let lives = |op: &Operation| op.results().any(|v| live[v.index()]);
    if function.ops.iter().all(lives) {
        return None;
    }
    let count = function.args.len();
    let mut out = Function {
        values: function.values[..count].to_vec(),
        ops: Vec::new(),
        results: Vec::new(),
        args: function.args.clone(),
        name: function.name.clone(),
        guards: function.guards.clone(),
        constraints: function.constraints.clone(),
        external: function.external,
        bodies: function.bodies.clone(),
        computes: function.computes.clone(),
    };
    let mut map: Vec<Value> = (0..function.values.len() as u32).map(Value).collect();
    for op in function.ops.iter().filter(|op| lives(op)) {
        let first = Value(out.values.len() as u32);
        for (i, old) in op.results().enumerate() {
            map[old.index()] = Value(first.0 + i as u32);
            out.values.push(function.info(old).clone());
        }
        out.ops.push(Operation {
            operands: op.operands.iter().map(|v| map[v.index()]).collect(),
            first,
            ..op.clone()
        });
    }
    let moved = |r: &ResultDef| ResultDef { value: map[r.value.index()], ..r.clone() };
    out.results = function.results.iter().map(moved).collect();
    drop_guards(&mut out);
    Some(out)
}

fn live_values(function: &Function) -> Vec<bool> {
    let mut live = vec![false; function.values.len()];
    for result in &function.results {
        live[result.value.index()] = true;
    }
    for op in function.ops.iter().rev() {
        if op.results().any(|v| live[v.index()]) {
            for operand in &op.operands {
                live[operand.index()] = true;
            }
        }
    }
    live
}

/// Removes guards on symbols that no value binds any more, because nothing could check them.
fn drop_guards(function: &mut Function) {
    if function.guards.is_empty() {
        return;
    }
    let mut bound: FxHashSet<Symbol> = FxHashSet::default();
    for info in &function.values {
        info.ty.shape.for_each_symbol(&mut |symbol| {
            bound.insert(symbol.clone());
        });
    }
    function.guards.retain(|guard| {
        let mut known = true;
        for dim in [&guard.left, &guard.right] {
            dim.for_each_symbol(&mut |symbol| known &= bound.contains(symbol));
        }
        known
    });
}
