//! `split-reductions`: splits a reduction over all axes into a reduction of each row and a reduction
//! of the results.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation};
use mithril_ir::op::access::{Access, Fold, fold_axes};

use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};

pass! {
    /// Splits a reduction over all axes into a reduction over the last axis and a reduction of its
    /// results. The first one can share a kernel with the producer of the rows. Sums and products of
    /// f16 and bf16 are not split, because the intermediate results would be rounded.
    pub struct SplitReductions("split-reductions") {}
}

impl Pass for SplitReductions {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        each_function(module, |function| {
            if !function.ops.iter().any(|op| is_split(function, op)) {
                return Ok(None);
            }
            let mut rebuild = Rebuild::new(module, function);
            for op in &function.ops {
                if is_split(function, op) {
                    split(&mut rebuild, op)?;
                    cx.count("reductions-split", 1);
                } else {
                    rebuild.keep(op)?;
                }
            }
            rebuild.finish().map(Some)
        })
    }
}

fn is_split(function: &Function, op: &Operation) -> bool {
    let Access::Fold(fold) = op.op.access else {
        return false;
    };
    let (from, to) = (function.ty(op.operands[0]), function.ty(op.result()));
    let rounds = matches!(fold, Fold::Sum | Fold::Product) && from.dtype.bits() < 32;
    let rounds = rounds && from.dtype.is_float();
    let all = fold_axes(op.op, &op.attrs, from, to).folded.iter().all(|folded| *folded);
    let Some((last, rest)) = from.shape.dims.split_last() else {
        return false;
    };
    let is_one = |dim: &mithril_ir::dim::Dim| dim.as_const() == Some(1);
    all && !rounds && !is_one(last) && !rest.iter().all(is_one)
}

fn split(rebuild: &mut Rebuild, op: &Operation) -> Result<()> {
    let operands = rebuild.operands(op);
    rebuild.builder.set_loc(op.loc.clone());
    let attrs = [("axes", Attr::Ints([-1].into())), ("keepdim", true.into())];
    let rows = match op.op.attr_index("axes") {
        Some(_) => {
            let mut attrs_of_step = op.attrs.clone();
            for (name, value) in attrs {
                attrs_of_step
                    [op.op.attr_index(name).expect("reductions over axes may keep them")] = value;
            }
            rebuild.builder.push(op.op, &operands, attrs_of_step)?
        }
        // `sum_to` has a shape instead of axes, so `sum` is used.
        None => rebuild.builder.op("sum", &operands, &attrs)?,
    };
    let whole = rebuild.builder.push(op.op, &[rows], op.attrs.clone())?;
    rebuild.replace(op.result(), whole);
    Ok(())
}
