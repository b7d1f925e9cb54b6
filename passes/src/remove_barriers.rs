//! `remove-barriers`: replaces optimization barriers by their first operands.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module};
use mithril_ir::op;

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

pass! {
    /// Replaces each `optimization_barrier(x, other)` by `x`. Runs after CSE, so that recomputed
    /// values are not merged with the original ones.
    pub struct RemoveBarriers("remove-barriers") {}
}

impl Pass for RemoveBarriers {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| without_barriers(module, function, cx))
    }
}

fn without_barriers(
    module: &Module,
    function: &Function,
    cx: &mut PassContext,
) -> Result<Option<Function>> {
    let barrier = op::get("optimization_barrier");
    let count = function.ops.iter().filter(|operation| operation.op == barrier).count();
    if count == 0 {
        return Ok(None);
    }
    cx.count("barriers-removed", count);
    let mut rebuild = Rebuild::new(module, function);
    for operation in &function.ops {
        if operation.op == barrier {
            let value = rebuild.value(operation.operands[0]);
            rebuild.replace(operation.result(), value);
        } else {
            rebuild.keep(operation)?;
        }
    }
    rebuild.finish().map(Some)
}
