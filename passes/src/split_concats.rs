//! `split-concats`: splits concatenations of many values into nested ones.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::access::{Access, Pieces};

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

/// The maximum number of operands of a concatenation. A kernel copies each with a separate loop,
/// and compile time grows faster than the number of loops: LLVM takes 0.1 s for 64 of them.
const MAX_OPERANDS: usize = 64;

pass! {
    /// Splits a concatenation of more than 64 values into nested concatenations of at most 64, so
    /// that kernels stay small. Equal concatenations share a kernel.
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
    matches!(op.op.access, Access::Pieces(Pieces::Concat)) && op.operands.len() > MAX_OPERANDS
}

fn split(rebuild: &mut Rebuild, op: &Operation) -> Result<()> {
    let mut parts = rebuild.operands(op).to_vec();
    rebuild.builder.set_loc(op.loc.clone());
    while parts.len() > 1 {
        let joined = parts.chunks(MAX_OPERANDS).map(|some| match some {
            [one] => Ok(*one),
            _ => rebuild.builder.push(op.op, some, op.attrs.clone()),
        });
        parts = joined.collect::<Result<_>>()?;
    }
    rebuild.replace(op.result(), parts[0]);
    Ok(())
}
