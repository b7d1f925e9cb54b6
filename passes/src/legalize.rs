//! `legalize`: decomposes the operations that the target does not take.

use mithril_ir::algebra::{Var, expand};
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::evaluate::decompose;
use mithril_ir::graph::{Function, Module, Operation, Value};
use mithril_ir::op::{self, Meaning};

use crate::call_graph;
use crate::context::PassContext;
use crate::pass::Pass;
use crate::rebuild::{Rebuild, each_function};
use crate::target::{self, Target, is_scalar_primitive};

pass! {
    /// Decomposes the operations that the target does not take whole, until it takes all of them.
    pub struct Legalize("legalize") {
        /// The target of the program, or `core` for primitives only.
        target: Target = *target::CORE,
    }
}

impl Pass for Legalize {
    /// Errors: an operation that the target lacks; an external entry function.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        call_graph::entries_have_operations(module)?;
        each_function(module, |function| {
            let mut current: Option<Function> = None;
            // Decomposes one layer of composites at a time; their parts are simpler.
            while let Some(next) = self.layer(module, current.as_ref().unwrap_or(function), cx)? {
                current = Some(next);
            }
            Ok(current)
        })
    }
}

impl Legalize {
    /// Decomposes each operation once; `None` if the target takes all of them.
    fn layer(
        &self,
        module: &Module,
        function: &Function,
        cx: &mut PassContext,
    ) -> Result<Option<Function>> {
        if function.ops.iter().all(|op| (self.target.takes)(function, op)) {
            return Ok(None);
        }
        let mut rebuild = Rebuild::new(module, function);
        for op in &function.ops {
            if (self.target.takes)(function, op) {
                rebuild.keep(op)?;
            } else {
                rebuild.builder.set_loc(op.loc.clone());
                let value = self.parts(&rebuild, op)?;
                let value = with_shape_of(&rebuild, op, value)?;
                rebuild.replace(op.result(), value);
                cx.log("decompose", &op.loc);
                cx.count("ops-decomposed", 1);
            }
        }
        rebuild.finish().map(Some)
    }

    /// Expresses the operation by others.
    fn parts(&self, rebuild: &Rebuild, op: &Operation) -> Result<Value> {
        let (builder, operands) = (&rebuild.builder, rebuild.operands(op));
        match op.op.meaning {
            Meaning::Decompose(_) => decompose(builder, op.op, &operands, &op.attrs),
            Meaning::Scalar(_) if !is_scalar_primitive(op.op) => {
                let expr = op::expr(op.op).expect("a scalar meaning has an expression");
                let shared = (0..operands.len()).find(|&i| op.op.operand(i).shared);
                let dtype = builder.ty(operands[shared.unwrap_or(0)]).dtype;
                let vars: Vec<Var> = operands.iter().map(|v| builder.var(*v)).collect();
                let value = expand(builder, expr, &vars, &op.attrs, dtype).value;
                builder.check()?;
                Ok(value)
            }
            Meaning::Scalar(_) | Meaning::Kernel(_) | Meaning::Call(_) => Err(self.unsupported(op)),
        }
    }

    fn unsupported(&self, op: &Operation) -> Box<Diagnostic> {
        let mut error = Diagnostic::of(
            ErrorKind::Unsupported,
            format!("Backend does not support operation {}", op.op.name),
        )
        .fact("backend", self.target.name)
        .hint(format!(
            "choose another backend, or express the operation by others; the class of a custom \
             backend may have a template for it: `spellings = {{\"{}\": \"@…\"}}`",
            op.op.name
        ));
        if !op.loc.is_unknown() {
            error = error.at(format!("block `{}`", op.loc));
        }
        Box::new(error)
    }
}

/// Broadcasts the value to the shape of the result. The value may have fewer axes, if the
/// expression does not read all operands or is a number.
fn with_shape_of(rebuild: &Rebuild, op: &Operation, value: Value) -> Result<Value> {
    let want = rebuild.source.ty(op.result());
    let have = rebuild.builder.ty(value);
    if have == *want || have.shape.dims.len() >= want.shape.dims.len() {
        return Ok(value);
    }
    let attrs = [("shape", want.shape.clone().into())];
    rebuild.builder.op("broadcast_in_dim", &[value], &attrs)
}
