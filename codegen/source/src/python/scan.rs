//! Scans: Python loops that call the body, or the framework's own loop construct.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Value};

use super::body::{Binding, Body, Statement};
use super::expr::{Argument, Expr};

/// A scan with its operands as expressions.
struct Scan<'m> {
    op: &'m Operation,
    callee: &'m Arc<Function>,
    /// The name of the callee's `def`.
    step: Expr,
    carries: Vec<Expr>,
    sequences: Vec<Expr>,
    captures: Vec<Expr>,
    reverse: bool,
}

impl<'m> Scan<'m> {
    /// `step(…, captures)`.
    fn step(&self, varying: impl IntoIterator<Item = Expr>) -> Expr {
        let args = varying.into_iter().chain(self.captures.iter().cloned());
        self.step.clone().call(args.map(Argument::plain))
    }

    fn stacked(&self) -> impl Iterator<Item = (usize, Value)> + use<'m> {
        self.op.results().enumerate().skip(self.carries.len())
    }

    /// The names of the callee's arguments that receive slices.
    fn row_names(&self) -> impl Iterator<Item = &'m str> + use<'m> {
        let args = self.callee.args.iter().skip(self.carries.len());
        args.take(self.sequences.len()).map(|arg| &*arg.name)
    }
}

impl<'m> Body<'_, 'm> {
    fn scan(&mut self, op: &'m Operation, step: Expr) -> Result<Scan<'m>> {
        let name = op.functions().next();
        let Some(callee) = name.and_then(|name| self.file.module.get(name)) else {
            return Diagnostic::new("a scan names no function of the module").err();
        };
        let mut operands = Vec::new();
        for value in &op.operands {
            // Needs a variable, because each step reads it.
            self.assign_pending(*value);
            operands.push(self.array(*value)?);
        }
        let count = |name| op.attr(name).as_int() as usize;
        let captures = operands.split_off(count("carries") + count("sequences"));
        let sequences = operands.split_off(count("carries"));
        let reverse = matches!(op.attr("reverse"), Attr::Bool(true));
        Ok(Scan { op, callee, step, carries: operands, sequences, captures, reverse })
    }

    /// Writes a Python loop over the slices. Carries are variables, and rows are collected in
    /// lists.
    pub fn python_loop(&mut self, op: &'m Operation, step: Expr) -> Result<()> {
        let scan = self.scan(op, step)?;
        let mut targets = Vec::new();
        for (value, first) in op.results().zip(&scan.carries) {
            let name = self.new_name(value);
            self.write(value, format!("{name} = "), first.clone());
            self.bindings[value.index()] = Binding::Variable(name.clone());
            targets.push(name);
        }
        let carries = targets.iter().map(Expr::name).collect::<Vec<_>>();
        let mut lists = Vec::new();
        let mut appends = Vec::new();
        for (i, value) in scan.stacked() {
            if !self.is_used(value) {
                targets.push("_".to_string());
                continue;
            }
            let name = self.new_name(value);
            let list = self.names.unique(&format!("{name}_rows"));
            let row = self.names.unique(&scan.callee.results[i].name);
            self.write(value, format!("{list} = "), Expr::List(Vec::new()));
            let append = Expr::name(&list).attribute("append");
            appends.push(append.call([Argument::plain(Expr::name(&row))]));
            lists.push((value, name, Expr::Name(list)));
            targets.push(row);
        }
        let rows: Vec<String> = scan.row_names().map(|name| self.names.unique(name)).collect();
        let call = scan.step(carries.into_iter().chain(rows.iter().map(Expr::name)));
        let mut inside = vec![Statement::Line(format!("{} = ", targets.join(", ")), call)];
        // A lazy framework would compute the carries again for each of their readers.
        let kept = targets.iter().take(scan.carries.len()).filter(|_| self.file.backend.lazy);
        inside.extend(kept.map(|name| {
            let stored = Expr::name(name).attribute("contiguous").call([]);
            Statement::Line(format!("{name} = "), stored)
        }));
        inside.extend(appends.into_iter().map(|append| Statement::Line(String::new(), append)));
        self.statements.push(Statement::Loop(rows.join(", "), slices(&scan), inside));
        for (value, name, list) in lists {
            let whole = self.stack(&scan, value, list)?;
            self.write(value, format!("{name} = "), whole);
            self.bindings[value.index()] = Binding::Variable(name);
        }
        Ok(())
    }

    /// Stacks the rows of a list into one array. If the list may be empty, shape and dtype are
    /// given as well.
    fn stack(&mut self, scan: &Scan, value: Value, list: Expr) -> Result<Expr> {
        let rows = match scan.reverse {
            true => {
                let back = Expr::Range([None, None, Some(Box::new(Expr::int(-1)))]);
                list.index([back])
            }
            false => list,
        };
        let ty = self.function.ty(value);
        if ty.shape.dims[0].as_const().is_some_and(|length| length > 0) {
            let stack = Expr::name(self.file.backend.module).attribute("stack");
            return Ok(stack.call([Argument::plain(rows)]));
        }
        let mut shape = vec![Expr::int(0)];
        for dim in &ty.shape.dims[1..] {
            shape.push(match dim {
                Dim::Unknown => Expr::int(0),
                Dim::Const(_) | Dim::Expr(_) => self.dim(dim)?,
            });
        }
        let mut args = vec![rows, Expr::Tuple(shape), self.file.dtype(ty.dtype)?];
        if self.file.backend.devices {
            args.push(self.device());
        }
        Ok(Expr::name("_stack").call(args.into_iter().map(Argument::plain)))
    }

    /// Writes a `jax.lax.scan` of a function from carries and slices to carries and rows.
    pub fn own_loop(&mut self, op: &'m Operation, step: Expr) -> Result<()> {
        let scan = self.scan(op, step)?;
        let (carries, stacked) = (scan.carries.len(), scan.stacked().count());
        // At most one carry and one row need no tuples.
        let plain = carries <= 1 && stacked <= 1;
        let mut names = self.names.inside();
        let carry = match carries {
            1 if plain => names.unique(&scan.callee.args[0].name),
            0 if plain => "_".to_string(),
            _ => names.unique("carry"),
        };
        let rows: Vec<&str> = scan.row_names().collect();
        let row = names.unique(if let [name] = rows[..] { name } else { "row" });
        let varying = |name: &str, single: bool| match single {
            true => Expr::name(name),
            false => Expr::Starred(Box::new(Expr::name(name))),
        };
        let carried = (!plain || carries == 1).then(|| varying(&carry, plain));
        let call = scan.step(carried.into_iter().chain([varying(&row, rows.len() == 1)]));
        let none = || Expr::name("None");
        let pair = match (carries, stacked) {
            (1, 1) => call,
            (1, 0) => Expr::Tuple(vec![call, none()]),
            (0, 1) => Expr::Tuple(vec![none(), call]),
            _ => {
                let args = [call, Expr::int(carries as i64)].map(Argument::plain);
                Expr::name("_split").call(args)
            }
        };
        let first = match &scan.carries[..] {
            [one] if plain => one.clone(),
            [] if plain => none(),
            many => Expr::Tuple(many.to_vec()),
        };
        let sequences = match &scan.sequences[..] {
            [one] => one.clone(),
            many => Expr::Tuple(many.to_vec()),
        };
        let step_is_enough =
            carries == 1 && stacked == 1 && rows.len() == 1 && scan.captures.is_empty();
        let function = match step_is_enough {
            true => scan.step.clone(),
            false => Expr::Lambda(vec![carry, row], Box::new(pair)),
        };
        let mut args: Vec<Argument> =
            [function, first, sequences].into_iter().map(Argument::plain).collect();
        args.extend(scan.reverse.then(|| Argument {
            keyword: Some("reverse".into()),
            ..Argument::plain(Expr::name("True"))
        }));
        let call = Expr::name("jax").attribute("lax").attribute("scan").call(args);
        self.own_results(op, carries, plain, call);
        Ok(())
    }

    /// Names the final carries and the stacked rows.
    fn own_results(&mut self, op: &Operation, carries: usize, plain: bool, call: Expr) {
        let mut groups = Vec::new();
        for (preferred, skipped, count) in
            [("carry", 0, carries), ("stacked", carries, op.results as usize - carries)]
        {
            let values: Vec<Value> = op.results().skip(skipped).take(count).collect();
            let used = values.iter().any(|value| self.is_used(*value));
            let targets: Vec<String> = values.iter().map(|value| self.target(*value)).collect();
            groups.push(match &targets[..] {
                _ if !used => ("_".to_string(), None),
                [one] if plain => (one.clone(), None),
                [one] => (self.names.unique(preferred), Some(format!("({one},)"))),
                many => (self.names.unique(preferred), Some(many.join(", "))),
            });
        }
        let names: Vec<&str> = groups.iter().map(|(name, _)| name.as_str()).collect();
        self.write(op.first, format!("{} = ", names.join(", ")), call);
        for (name, targets) in groups {
            if let Some(targets) = targets {
                self.write(op.first, format!("{targets} = "), Expr::Name(name));
            }
        }
    }
}

/// The iterable of a loop: slices of one sequence, or of several sequences zipped.
fn slices(scan: &Scan) -> Expr {
    let call =
        |name: &str, args: Vec<Expr>| Expr::name(name).call(args.into_iter().map(Argument::plain));
    let in_order = |x: &Expr| match scan.reverse {
        true => call("reversed", vec![x.clone()]),
        false => x.clone(),
    };
    let mut each: Vec<Expr> = scan.sequences.iter().map(in_order).collect();
    match each.len() {
        1 => each.remove(0),
        _ => call("zip", each),
    }
}
