//! `infer-shapes`: infers the types of all operations again.

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::infer::{Infer, infer};
use mithril_ir::shape::Type;
use mithril_ir::signature::{CallTypes, call_types};
use smallvec::SmallVec;

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::Rebuild;

pass! {
    /// Infers the type of every operation from those of the arguments, so that unknown dims become
    /// known where possible.
    pub struct InferShapes("infer-shapes") {}
}

impl Pass for InferShapes {
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let mut out = module.clone();
        for name in call_graph::post_order(module)? {
            let function = call_graph::function(&out, &name)?;
            if let Some(changed) = refresh(&out, function, cx)? {
                out.insert(changed);
            }
        }
        Ok(out)
    }
}

/// Infers the types of a function; `None` if they are all up to date.
fn refresh(module: &Module, function: &Function, cx: &mut PassContext) -> Result<Option<Function>> {
    let mut rebuild = Rebuild::new(module, function);
    let mut count = 0;
    for op in &function.ops {
        let operands = rebuild.operands(op);
        let declared = op.results().map(|v| function.ty(v));
        match inferred(module, &rebuild, op, &operands)? {
            Some(types) if !types.iter().eq(declared) => {
                count += 1;
                rebuild.infer(op, &operands)?;
            }
            _ => rebuild.keep_on(op, operands)?,
        }
    }
    cx.count("types-refined", count);
    if count == 0 {
        return Ok(None);
    }
    rebuild.finish().map(Some)
}

/// The types of the results; `None` if they contain fresh symbols, in which case the operation
/// keeps the names it has.
fn inferred(
    module: &Module,
    rebuild: &Rebuild,
    op: &Operation,
    operands: &[Value],
) -> Result<Option<Vec<Type>>> {
    let mut open = false;
    let mut guards = Vec::new();
    let types = rebuild.builder.with(|f| {
        let mut fresh = || {
            open = true;
            Symbol::from("_")
        };
        let types: SmallVec<[&Type; 4]> = operands.iter().map(|v| f.ty(*v)).collect();
        if op.op.kind == Kind::Call {
            let name = op.functions().next().expect("a call names its callee");
            let cx = CallTypes {
                callee: call_graph::function(module, name)?,
                operands: &types,
                attrs: &op.attrs,
                guards: &mut guards,
                fresh: &mut fresh,
            };
            return call_types(op.op, cx);
        }
        let known: SmallVec<[Option<&[Dim]>; 4]> =
            operands.iter().map(|v| f.info(*v).known.as_deref()).collect();
        let mut cx = Infer {
            op: op.op,
            operands: &types,
            attrs: &op.attrs,
            known: &known,
            guards: &mut guards,
            fresh: &mut fresh,
        };
        infer(&mut cx).map(|ty| vec![ty])
    })?;
    Ok((!open).then_some(types))
}
