//! `split-concats`: concatenations of many values become concatenations of some of them first.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::access::{Access, Pieces};

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

/// The most operands of a concatenation. A kernel copies each by a loop of its own, and the time to
/// compile loops grows faster than their number: 64 of them take LLVM 0.1 s.
const MOST: usize = 64;

pass! {
    /// A concatenation of more values than a kernel should read becomes one of concatenations, each
    /// of as many values as that: equal ones share a kernel.
    pub struct SplitConcats("split-concats") {}
}

impl Pass for SplitConcats {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function: &Function| {
            if !function.ops.iter().any(is_split) {
                return Ok(None);
            }
            let mut rebuild = Rebuild::new(module, function);
            for op in &function.ops {
                if is_split(op) {
                    split(&mut rebuild, op)?;
                    cx.count("concats-split", 1);
                } else {
                    rebuild.keep(op)?;
                }
            }
            rebuild.finish().map(Some)
        })
    }
}

fn is_split(op: &Operation) -> bool {
    op.op.access == Access::Pieces(Pieces::Concat) && op.operands.len() > MOST
}

fn split(rebuild: &mut Rebuild, op: &Operation) -> Result<()> {
    let mut parts = rebuild.operands(op).to_vec();
    rebuild.builder.set_loc(op.loc.clone());
    while parts.len() > 1 {
        let joined = parts.chunks(MOST).map(|some| match some {
            [one] => Ok(*one),
            _ => rebuild.builder.push(op.op, some, op.attrs.clone()),
        });
        parts = joined.collect::<Result<_>>()?;
    }
    rebuild.replace(op.result(), parts[0]);
    Ok(())
}
