//! `release`: values without their order.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module};
use mithril_ir::op;

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

pass! {
    /// Puts `x` in the place of `after(x, other)`: once nothing is computed only once any more that
    /// is to be computed again.
    pub struct RemoveBarriers("remove-barriers") {}
}

impl Pass for RemoveBarriers {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| released(module, function, cx))
    }
}

fn released(
    module: &Module,
    function: &Function,
    cx: &mut PassContext,
) -> Result<Option<Function>> {
    let after = op::get("optimization_barrier");
    let count = function.ops.iter().filter(|operation| operation.op == after).count();
    if count == 0 {
        return Ok(None);
    }
    cx.count("barriers-removed", count);
    let mut rebuild = Rebuild::new(module, function);
    for operation in &function.ops {
        if operation.op == after {
            let value = rebuild.value(operation.operands[0]);
            rebuild.replace(operation.result(), value);
        } else {
            rebuild.keep(operation)?;
        }
    }
    rebuild.finish().map(Some)
}
