//! `inline`: puts the bodies of small functions in the place of their calls.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::{self, Kind, Op};
use rustc_hash::FxHashSet;

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::{Limit, Pass};
use crate::rebuild::Rebuild;
use crate::transfer::Transfer;

pass! {
    /// Puts the bodies of functions below `limit` operations in the place of their calls, innermost
    /// first. External functions stay.
    pub struct Inline("inline") {
        /// Functions of fewer operations are inlined; `all` for any number.
        limit: Limit = Limit::At(64),
        /// Whether `custom_gradient` gives way to its callee too: once gradients are taken.
        custom: bool = false,
    }
}

impl Pass for Inline {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let plain = [op::get("call"), op::get("custom_gradient")];
        let inlined = if self.custom { &plain[..] } else { &plain[..1] };
        let mut out = module.clone();
        for name in call_graph::post_order(module)? {
            let function = call_graph::function(&out, &name)?;
            if let Some(changed) = self.function(&out, function, inlined, cx)? {
                out.insert(changed);
            }
        }
        Ok(out)
    }
}

impl Inline {
    fn callee<'m>(&self, module: &'m Module, op: &Operation, plain: &[Op]) -> Option<&'m Function> {
        if op.op.kind != Kind::Call || !plain.contains(&op.op) {
            return None;
        }
        let callee: &Arc<Function> = module.get(op.functions().next()?)?;
        (!callee.external && self.limit.above(callee.ops.len())).then_some(callee)
    }

    fn function(
        &self,
        module: &Module,
        function: &Function,
        plain: &[Op],
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let calls = |op: &Operation| self.callee(module, op, plain).is_some();
        if !function.ops.iter().any(calls) {
            return Ok(None);
        }
        let names = function.values.iter().filter_map(|v| v.name.clone());
        let mut names: FxHashSet<Arc<str>> = names.collect();
        let mut rebuild = Rebuild::new(module, function);
        for op in &function.ops {
            match self.callee(module, op, plain) {
                None => rebuild.keep(op)?,
                Some(callee) => {
                    expand(module, &mut rebuild, op, callee, &mut names)?;
                    cx.count("calls-inlined", 1);
                }
            }
        }
        rebuild.finish().map(Some)
    }
}

/// Puts the body of `callee` where `call` stands. Names go along where they are free.
fn expand(
    module: &Module,
    rebuild: &mut Rebuild,
    call: &Operation,
    callee: &Function,
    names: &mut FxHashSet<Arc<str>>,
) -> Result<()> {
    let args = rebuild.operands(call);
    let before = rebuild.builder.with(|f| f.values.len());
    let mut transfer = Transfer::new(callee, &rebuild.builder, &args)?;
    for op in &callee.ops {
        rebuild.builder.set_loc(op.loc.inside(&call.loc));
        let inner = op.functions().next();
        let inner = inner.map(|name| call_graph::function(module, name));
        let inner = inner.transpose()?.map(|f| &**f);
        transfer.emit(&rebuild.builder, op, inner)?;
    }
    for (old, result) in call.results().zip(&callee.results) {
        let new = transfer.value(result.value);
        // The caller's name goes before the callee's own.
        if new.index() >= before {
            let name = rebuild.source.info(old).name.clone();
            rebuild.builder.set_name(new, name);
        }
        rebuild.replace(old, new);
    }
    for old in callee.ops.iter().flat_map(|op| op.results()) {
        let (new, name) = (transfer.value(old), &callee.info(old).name);
        if let Some(name) = name.as_ref().filter(|name| !names.contains(*name)) {
            if rebuild.builder.with(|f| f.info(new).name.is_none()) {
                names.insert(name.clone());
                rebuild.builder.set_name(new, Some(name.clone()));
            }
        }
    }
    Ok(())
}
