//! Gradients that are given as blocks.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::graph::{Function, ResultDef, Role, Value};
use mithril_ir::op;
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use rustc_hash::FxHashMap;

use super::block_error::BlockResult;
use super::instance::{Generalised, Lowering, Spec};
use crate::definition::Definition;

impl Lowering<'_> {
    /// The backward function of `callee`, computed by the block `gradient`. It takes the arguments,
    /// the results and the cotangents of the float results, and returns the cotangents of the float
    /// arguments.
    ///
    /// Errors: those of lowering the block; a gradient whose type differs from its argument's.
    pub fn vjp(
        &mut self,
        gradient: &Arc<Definition>,
        callee: &Arc<Function>,
    ) -> BlockResult<Arc<Function>> {
        let builder = Builder::new(self.fresh_name(&format!("{}_gradient", callee.name)));
        let mut named: FxHashMap<String, Value> = FxHashMap::default();
        let mut arg = |name: &str, ty: &Type| {
            let value = builder.arg(name, Role::Data, ty.clone());
            named.insert(name.to_string(), value);
        };
        for (value, argument) in callee.arguments() {
            arg(&argument.name, callee.ty(value));
        }
        let results = || callee.results.iter().map(|r| (&*r.name, callee.ty(r.value)));
        results().for_each(|(name, ty)| arg(name, ty));
        let floats = results().filter(|(_, ty)| ty.dtype.is_float());
        floats.for_each(|(name, ty)| arg(&format!("{name}_gradient"), ty));

        let types = gradient.inputs.iter().map(|terminal| match named.get(&*terminal.name) {
            Some(value) => Spec::Typed(builder.ty(*value)),
            None => Spec::Absent,
        });
        let mut specs: Vec<Spec> = types.collect();
        Generalised::of(&mut specs);
        let instance = self.instance(gradient, specs)?;
        let inner = &instance.function;
        let operands: Vec<Value> =
            inner.args.iter().filter_map(|argument| named.get(&*argument.name).copied()).collect();
        let attrs = [Attr::Function(inner.name.clone())].into_iter().collect();
        let given = builder.call(op::get("call"), inner, attrs, &operands)?;

        let mut results = Vec::new();
        for (value, argument) in callee.arguments() {
            let ty = callee.ty(value);
            if !ty.dtype.is_float() {
                continue;
            }
            let name = format!("{}_gradient", argument.name);
            let found = inner.results.iter().position(|result| *result.name == *name);
            let value = match found {
                Some(at) => given[at],
                None => zeros(&builder, ty),
            };
            let own = builder.ty(value);
            if own != *ty {
                let what = format!("`{name}` is not a gradient");
                return Err(Diagnostic::of(ErrorKind::Shapes, what).got(own).expected(ty).into());
            }
            results.push(ResultDef { name: name.into(), value, state: None });
        }
        let function = Arc::new(builder.finish(results)?);
        self.functions.push(function.clone());
        Ok(function)
    }
}

fn zeros(builder: &Builder, ty: &Type) -> Value {
    let zero = builder.var(builder.constant(Tensor::scalar(ty.dtype, 0.0)));
    zero.broadcast_to(ty.shape.clone()).value
}
