//! `batch-scans`: replaces scans that are marked as batched by operations with a batch axis.

mod function;
mod independent;

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, Role};
use mithril_ir::op::Gradient;

use crate::call_graph;
use crate::context::PassContext;
use crate::inline::Inline;
use crate::pass::{Limit, Pass};
use crate::rebuild::Rebuild;

pass! {
    /// Replaces scans that are marked as `batched` by operations with one more, leading axis. What
    /// a step computes from the step before stays a scan, and so does each operation that has no
    /// batched form.
    pub struct BatchScans("batch-scans") {}
}

impl Pass for BatchScans {
    /// Errors: none for valid modules.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let marked = |function: &Function| function.ops.iter().any(is_marked);
        if !module.functions.values().any(|function| marked(function)) {
            return Ok(module.clone());
        }
        let mut out = module.clone();
        for name in call_graph::post_order(module)? {
            let Some(function) = out.get(&name).cloned() else { continue };
            if marked(&function) {
                let changed = batched(&mut out, &function, cx)?;
                out.insert(changed);
            }
        }
        Ok(out)
    }
}

/// Whether the operation is a scan whose steps are to be batched.
fn is_marked(operation: &Operation) -> bool {
    matches!(operation.op.gradient, Gradient::Scan)
        && matches!(operation.attr("batched"), Attr::Bool(true))
}

/// The function without marked scans.
fn batched(module: &mut Module, function: &Function, cx: &mut PassContext) -> Result<Function> {
    let lookup = module.clone();
    let mut rebuild = Rebuild::new(&lookup, function);
    for operation in &function.ops {
        if !is_marked(operation) {
            rebuild.keep(operation)?;
            continue;
        }
        rebuild.builder.set_loc(operation.loc.clone());
        let operands = rebuild.operands(operation);
        let body = body(module, operation, cx)?;
        let values = independent::batched(module, &rebuild.builder, operation, &body, &operands)?;
        for (old, new) in operation.results().zip(values) {
            rebuild.replace(old, new);
        }
        cx.log("batch", &operation.loc);
        cx.count("scans-batched", 1);
    }
    rebuild.finish()
}

/// The function that a scan calls. If it draws random numbers, it is inlined: so all draws are in
/// one function, and can be separated from the rest.
fn body(module: &Module, operation: &Operation, cx: &mut PassContext) -> Result<Arc<Function>> {
    let name = operation.functions().next().expect("a scan names its body");
    let body = call_graph::function(module, name)?;
    if !body.args.iter().any(|own| own.role == Role::Key) {
        return Ok(body.clone());
    }
    let mut own = Module::of(Function::clone(body));
    for function in module.functions.values().filter(|own| own.name != body.name) {
        own.insert(Function::clone(function));
    }
    let inline = Inline { limit: Limit::All, checkpoint: true, ..Inline::default() };
    let inlined = inline.run(&own, cx)?;
    call_graph::function(&inlined, name).cloned()
}
