//! `inline`: puts the bodies of small functions in the place of their calls.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::{self, Kind, Op};
use rustc_hash::{FxHashMap, FxHashSet};

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
        /// Functions called more than once are inlined below this many operations alone.
        repeated: Limit = Limit::All,
        /// Whether `checkpoint` gives way to its callee, too.
        checkpoint: bool = false,
        /// Whether `custom_gradient` does: once gradients are taken.
        custom: bool = false,
        /// Where there are some, calls give way only for blocks that these paths lie in.
        around: Vec<String> = Vec::new(),
    }
}

impl Inline {
    /// Leaves no call but those of external functions.
    pub const ALL: Inline = Inline {
        limit: Limit::All,
        repeated: Limit::All,
        checkpoint: true,
        custom: true,
        around: Vec::new(),
    };
}

impl Pass for Inline {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let takes =
            [("call", true), ("checkpoint", self.checkpoint), ("custom_gradient", self.custom)];
        let inlined = takes.iter().filter(|(_, taken)| *taken).map(|(name, _)| op::get(name));
        let inlined: Vec<Op> = inlined.collect();
        let mut out = module.clone();
        let calls = call_counts(module);
        for name in call_graph::post_order(module)? {
            let function = call_graph::function(&out, &name)?;
            let site = Sites { pass: self, plain: &inlined, calls: &calls };
            if let Some(changed) = site.function(&out, function, cx)? {
                out.insert(changed);
            }
        }
        Ok(out)
    }
}

/// How often each function is called.
fn call_counts(module: &Module) -> FxHashMap<Arc<str>, usize> {
    let mut counts = FxHashMap::default();
    let ops = module.functions.values().flat_map(|f| &f.ops);
    for name in ops.flat_map(Operation::functions) {
        *counts.entry(name.clone()).or_default() += 1;
    }
    counts
}

/// Which calls give way.
struct Sites<'a> {
    pass: &'a Inline,
    plain: &'a [Op],
    calls: &'a FxHashMap<Arc<str>, usize>,
}

impl Sites<'_> {
    fn callee<'m>(&self, module: &'m Module, op: &Operation) -> Option<&'m Function> {
        if op.op.kind != Kind::Call || !self.plain.contains(&op.op) || !self.is_around(op) {
            return None;
        }
        let callee: &Arc<Function> = module.get(op.functions().next()?)?;
        let count = callee.ops.len();
        let once = self.calls.get(&callee.name).copied().unwrap_or(0) < 2;
        let small = self.pass.limit.above(count) && (once || self.pass.repeated.above(count));
        (!callee.external && small).then_some(callee)
    }

    fn is_around(&self, op: &Operation) -> bool {
        let lies_in = |path: &String| {
            let mut blocks = op.loc.paths().iter().filter_map(|own| path.strip_prefix(&**own));
            blocks.any(|rest| rest.starts_with('.'))
        };
        self.pass.around.is_empty() || self.pass.around.iter().any(lies_in)
    }

    fn function(
        &self,
        module: &Module,
        function: &Function,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        let calls = |op: &Operation| self.callee(module, op).is_some();
        if !function.ops.iter().any(calls) {
            return Ok(None);
        }
        let names = function.values.iter().filter_map(|v| v.name.clone());
        let mut names: FxHashSet<Arc<str>> = names.collect();
        let mut rebuild = Rebuild::new(module, function);
        for op in &function.ops {
            match self.callee(module, op) {
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
    rebuild.builder.set_loc(call.loc.clone());
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
