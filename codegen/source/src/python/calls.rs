//! Operations that call functions: the function becomes a `def`, and the operation a call of it.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::Gradient;

use super::body::{Binding, Body};
use super::expr::{Argument, Expr};

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
            Gradient::Vjp if self.file.backend.differentiates => {
                let mut args = vec![callee];
                args.append(&mut names);
                self.plain_call(op, Expr::name("_custom_gradient"), args)
            }
            Gradient::Again if self.file.backend.differentiates => {
                self.plain_call(op, Expr::name("_checkpoint"), vec![callee])
            }
            Gradient::Vjp
            | Gradient::Again
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
        let targets: Vec<String> = op.results().map(|value| self.target(value)).collect();
        let call = function.call(args.into_iter().map(Argument::plain));
        self.write(op.first, format!("{} = ", targets.join(", ")), call);
        Ok(())
    }

    /// The variable that a result of a call is assigned to; `_` if it is unused.
    pub fn target(&mut self, value: Value) -> String {
        let name = match self.is_used(value) {
            true => self.new_name(value),
            false => "_".to_string(),
        };
        self.held[value.index()] = Binding::Variable(name.clone());
        name
    }
}
