//! Operations that call functions: the function becomes a `def`, and the operation a call of it.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::Gradient;

use super::body::{Binding, Body};
use super::expr::{Argument, Expr};
use super::names::string;

impl<'m> Body<'_, 'm> {
    /// Writes the statements of an operation that calls functions.
    /// Errors: those of the functions' operations; an external function without a body.
    pub fn call(&mut self, op: &'m Operation) -> Result<()> {
        let mut names = Vec::new();
        for function in op.functions() {
            names.push(Expr::name(self.file.definition(function)?));
        }
        let callee = names.remove(0);
        match op.op.gradient {
            Gradient::Scan if self.file.backend.loops => self.own_loop(op, callee),
            Gradient::Scan => self.python_loop(op, callee),
            Gradient::Branches => {
                let functions = [callee].into_iter().chain(names).collect();
                match self.file.backend.loops {
                    true => self.own_condition(op, functions),
                    false => self.if_statement(op, functions),
                }
            }
            Gradient::While if self.file.backend.loops => self.own_while(op, callee),
            Gradient::While => self.while_statement(op, callee),
            Gradient::Vjp if self.file.is_differentiated("_custom_gradient") => {
                let mut args = vec![callee];
                args.append(&mut names);
                self.plain_call(op, Expr::name("_custom_gradient"), args)
            }
            Gradient::Recompute if self.file.is_differentiated("_checkpoint") => {
                self.plain_call(op, Expr::name("_checkpoint"), vec![callee])
            }
            Gradient::Vjp
            | Gradient::Recompute
            | Gradient::Callee
            | Gradient::Derived
            | Gradient::Partials(_)
            | Gradient::Rule(_)
            | Gradient::Zero => self.plain_call(op, callee, Vec::new()),
        }
    }

    /// `y, z = function(first, …, x, …)`.
    fn plain_call(&mut self, op: &Operation, function: Expr, first: Vec<Expr>) -> Result<()> {
        let mut args = first;
        for value in &op.operands {
            args.push(self.array(*value)?);
        }
        let call = function.call(args.into_iter().map(Argument::plain));
        let call = match self.is_external(op) {
            true => self.declared(op, call),
            false => call,
        };
        let targets: Vec<String> = op.results().map(|value| self.target(value)).collect();
        self.write(op.first, format!("{} = ", targets.join(", ")), call);
        Ok(())
    }

    /// Whether the operation calls a function whose body the user wrote.
    fn is_external(&self, op: &Operation) -> bool {
        let callee = op.functions().next().and_then(|name| self.file.module.get(name));
        callee.is_some_and(|callee| callee.external && callee.computes.is_none())
    }

    /// The call of an external function with a check that its results have the declared shapes, as
    /// far as shapes are known before the call.
    fn declared(&mut self, op: &Operation, call: Expr) -> Expr {
        let shapes: Option<Vec<Expr>> =
            op.results().map(|value| self.declared_shape(&self.function.ty(value).shape)).collect();
        let Some(shapes) = shapes else { return call };
        let place = op.loc.blocks().unwrap_or_else(|| "a custom operation".to_string());
        let args = [call, Expr::Literal(string(&place))].into_iter().chain(shapes);
        Expr::name("_declared").call(args.map(Argument::plain))
    }

    /// The variable that a result of a call is assigned to; `_` if it is unused.
    pub fn target(&mut self, value: Value) -> String {
        let name = match self.is_used(value) {
            true => self.new_name(value),
            false => "_".to_string(),
        };
        self.bindings[value.index()] = Binding::Variable(name.clone());
        name
    }
}
