//! Conditions and loops with a condition: Python statements, or the framework's own constructs.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Operation;

use super::body::{Binding, Body, Statement};
use super::expr::{Argument, Expr};

fn call(function: Expr, args: impl IntoIterator<Item = Expr>) -> Expr {
    function.call(args.into_iter().map(Argument::plain))
}

/// A function of `jax.lax`.
fn lax(name: &str) -> Expr {
    Expr::name("jax").attribute("lax").attribute(name)
}

impl<'m> Body<'_, 'm> {
    /// The test of a statement: lazy frameworks compute a condition only where it is read.
    fn test(&self, condition: Expr) -> Expr {
        match self.file.backend.lazy {
            true => call(condition.attribute("item"), []),
            false => condition,
        }
    }

    /// The calls of the two functions of a `cond`, on the operands that each takes.
    fn branches(&mut self, op: &'m Operation, functions: Vec<Expr>) -> Result<Vec<Expr>> {
        let mut calls = Vec::new();
        for (at, function) in functions.into_iter().enumerate() {
            let mut args = Vec::new();
            for own in op.passed(at) {
                // Needs a variable, because only one of the functions reads it.
                self.assign_pending(op.operands[own]);
                args.push(self.array(op.operands[own])?);
            }
            calls.push(call(function, args));
        }
        Ok(calls)
    }

    /// Writes an `if` statement that assigns the results of one of two functions.
    pub fn if_statement(&mut self, op: &'m Operation, functions: Vec<Expr>) -> Result<()> {
        let calls = self.branches(op, functions)?;
        let condition = self.array(op.operands[0])?;
        let targets: Vec<String> = op.results().map(|value| self.target(value)).collect();
        let mut branches = calls
            .into_iter()
            .map(|own| vec![Statement::Line(format!("{} = ", targets.join(", ")), own)]);
        let (then, otherwise) = (branches.next(), branches.next());
        self.comment(op.first);
        let (then, otherwise) = (then.unwrap_or_default(), otherwise.unwrap_or_default());
        let test = self.test(condition);
        self.statements.push(Statement::If(test, then, otherwise));
        Ok(())
    }

    /// Writes a `jax.lax.cond`.
    pub fn own_condition(&mut self, op: &'m Operation, functions: Vec<Expr>) -> Result<()> {
        let calls = self.branches(op, functions)?;
        let condition = self.array(op.operands[0])?;
        let branches = calls.into_iter().map(|own| Expr::Lambda(Vec::new(), Box::new(own)));
        let chosen = call(lax("cond"), [condition].into_iter().chain(branches));
        let targets: Vec<String> = op.results().map(|value| self.target(value)).collect();
        self.write(op.first, format!("{} = ", targets.join(", ")), chosen);
        Ok(())
    }

    /// The condition and the carries of a `while`, and its captures.
    fn loop_operands(&mut self, op: &'m Operation) -> Result<(Vec<Expr>, Vec<Expr>)> {
        let mut operands = Vec::new();
        for (at, value) in op.operands.iter().enumerate() {
            // Captures need variables, because each step reads them.
            if at > op.results as usize {
                self.assign_pending(*value);
            }
            operands.push(self.array(*value)?);
        }
        let captures = operands.split_off(1 + op.results as usize);
        Ok((operands, captures))
    }

    /// Writes a Python loop. The condition and the carries are variables.
    pub fn while_statement(&mut self, op: &'m Operation, step: Expr) -> Result<()> {
        let (state, captures) = self.loop_operands(op)?;
        let condition = match &state[0] {
            Expr::Name(name) if self.is_read_once(op.operands[0]) => Expr::name(name),
            _ => Expr::name(self.names.unique("running")),
        };
        let mut targets = vec![condition.clone()];
        if condition != state[0] {
            self.write(op.first, format!("{condition} = "), state[0].clone());
        }
        for (value, first) in op.results().zip(&state[1..]) {
            let name = self.new_name(value);
            self.write(value, format!("{name} = "), first.clone());
            self.bindings[value.index()] = Binding::Variable(name.clone());
            targets.push(Expr::name(name));
        }
        let names: Vec<String> = targets.iter().map(Expr::to_string).collect();
        let carries = targets.into_iter().skip(1);
        let call = call(step, carries.chain(captures));
        let next = Statement::Line(format!("{} = ", names.join(", ")), call);
        let condition = self.test(condition);
        self.statements.push(match op.attr("max_steps") {
            Attr::Int(most) => {
                let done = Expr::Unary("not ", Box::new(condition));
                let leave = Statement::Line(String::new(), Expr::name("break"));
                let range = Expr::name("range").call([Argument::plain(Expr::int(*most))]);
                let inside = vec![Statement::If(done, vec![leave], Vec::new()), next];
                Statement::Loop("_".to_string(), range, inside)
            }
            _ => Statement::While(condition, vec![next]),
        });
        Ok(())
    }

    /// Writes a `jax.lax.while_loop`. With a maximum of steps, it is a loop that JAX can
    /// differentiate.
    pub fn own_while(&mut self, op: &'m Operation, step: Expr) -> Result<()> {
        let (state, captures) = self.loop_operands(op)?;
        let mut names = self.names.inside();
        let carry = names.unique("carry");
        let name = || Expr::name(&carry);
        let starred = |x: Expr| Expr::Starred(Box::new(x));
        let loop_ = match op.attr("max_steps") {
            Attr::Int(most) => {
                let varying = starred(name());
                let next = call(step, [varying].into_iter().chain(captures));
                let params = vec!["_".to_string(), format!("*{carry}")];
                let step = Expr::Lambda(params, Box::new(next));
                call(Expr::name("_while"), [step, Expr::Tuple(state), Expr::int(*most)])
            }
            _ => {
                let part = |parts: Expr| name().index([parts]);
                let rest = Expr::Range([Some(Box::new(Expr::int(1))), None, None]);
                let next = call(step, [starred(part(rest))].into_iter().chain(captures));
                let function = |x: Expr| Expr::Lambda(vec![carry.clone()], Box::new(x));
                let running = function(part(Expr::int(0)));
                call(lax("while_loop"), [running, function(next), Expr::Tuple(state)])
            }
        };
        let targets: Vec<String> = op.results().map(|value| self.target(value)).collect();
        self.write(op.first, format!("_, {} = ", targets.join(", ")), loop_);
        Ok(())
    }
}
