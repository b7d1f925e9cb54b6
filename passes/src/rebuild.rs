//! Rewrites a function: copies its operations in order into a fresh builder, changed or unchanged.

use std::sync::Arc;

use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use mithril_ir::op::Kind;
use smallvec::SmallVec;

use crate::call_graph;

/// A function that is being rewritten. Signature, guards and constraints are those of the source.
/// The caller sets the builder's location to that of the current operation.
pub struct Rebuild<'f> {
    pub source: &'f Function,
    pub builder: Builder,
    /// Needed for calls, whose result types depend on the callee.
    module: &'f Module,
    values: Vec<Option<Value>>,
}

impl<'f> Rebuild<'f> {
    /// Starts with the arguments, which keep their indices.
    pub fn new(module: &'f Module, source: &'f Function) -> Rebuild<'f> {
        let mut values = vec![None; source.values.len()];
        for (value, _) in source.arguments() {
            values[value.index()] = Some(value);
        }
        Rebuild { source, builder: Builder::like(source.name.clone(), source), module, values }
    }

    /// The value that replaces a value of the source.
    pub fn value(&self, old: Value) -> Value {
        self.values[old.index()].expect("operands come before their operation")
    }

    /// The operands of an operation of the source, as values of the builder.
    pub fn operands(&self, op: &Operation) -> SmallVec<[Value; 3]> {
        op.operands.iter().map(|v| self.value(*v)).collect()
    }

    /// Replaces a value of the source by `new`, which takes over its name if it has none.
    pub fn replace(&mut self, old: Value, new: Value) {
        self.values[old.index()] = Some(new);
        if let Some(name) = &self.source.info(old).name {
            if self.builder.with(|f| f.info(new).name.is_none()) {
                self.builder.set_name(new, Some(name.clone()));
            }
        }
    }

    /// Copies an operation. Types are inferred again only if the type of an operand has changed, so
    /// that they are never less precise than before.
    /// Errors: types of the operands.
    pub fn keep(&mut self, op: &Operation) -> Result<()> {
        let operands = self.operands(op);
        self.keep_on(op, operands)
    }

    /// Like [`Rebuild::keep`], with these operands instead of its own.
    /// Errors: types of the operands.
    pub fn keep_on(&mut self, op: &Operation, operands: SmallVec<[Value; 3]>) -> Result<()> {
        let source = self.source;
        let same = op.operands.len() == operands.len()
            && self.builder.with(|f| {
                let mut pairs = op.operands.iter().zip(&operands);
                pairs.all(|(old, new)| source.ty(*old) == f.ty(*new))
            });
        if !same {
            return self.infer(op, &operands);
        }
        let first = copy(&self.builder, source, op, operands);
        for (i, old) in op.results().enumerate() {
            self.values[old.index()] = Some(Value(first.0 + i as u32));
        }
        Ok(())
    }

    /// Like [`Rebuild::keep_on`], with its types inferred again.
    /// Errors: types of the operands.
    pub fn infer(&mut self, op: &Operation, operands: &[Value]) -> Result<()> {
        self.builder.set_loc(op.loc.clone());
        let attrs = op.attrs.clone();
        if op.op.kind == Kind::Call {
            let name = op.functions().next().expect("a call names its callee");
            let callee = call_graph::function(self.module, name)?;
            let results = self.builder.call(op.op, callee, attrs, operands)?;
            for (old, new) in op.results().zip(results) {
                self.replace(old, new);
            }
        } else {
            let new = self.builder.push(op.op, operands, attrs)?;
            self.replace(op.result(), new);
        }
        Ok(())
    }

    /// Finishes the function, with the results of the source.
    /// Errors: the first error of operations built through the algebra.
    pub fn finish(self) -> Result<Function> {
        let results = (self.source.results.iter())
            .map(|r| ResultDef { value: self.value(r.value), ..r.clone() })
            .collect();
        self.builder.finish(results)
    }
}

/// Appends an operation of `source` with its types and names, but other operands. Returns its first
/// result.
pub(crate) fn copy(
    builder: &Builder,
    source: &Function,
    op: &Operation,
    operands: SmallVec<[Value; 3]>,
) -> Value {
    builder.with_mut(|f| {
        let first = Value(f.values.len() as u32);
        let infos = &source.values[op.first.index()..][..op.results as usize];
        f.values.extend(infos.iter().cloned());
        f.ops.push(Operation {
            operands,
            first,
            attrs: op.attrs.clone(),
            loc: op.loc.clone(),
            ..*op
        });
        first
    })
}

/// Applies `change` to every function. Functions for which it returns `None` stay the same `Arc`.
/// Errors: the first error of `change`, with the function's name.
pub fn each_function(
    module: &Module,
    mut change: impl FnMut(&Function) -> Result<Option<Function>>,
) -> Result<Module> {
    let mut out = module.clone();
    for (name, function) in &mut out.functions {
        let changed = change(function).map_err(|mut error| {
            error.place.get_or_insert_with(|| format!("function `{name}`"));
            error
        })?;
        if let Some(changed) = changed {
            *function = Arc::new(changed);
        }
    }
    Ok(out)
}
