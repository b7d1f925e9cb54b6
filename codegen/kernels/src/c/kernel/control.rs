//! Loops and choices.

use super::Printer;
use crate::c::expression::{Expr, Level, mentions, variable_type};
use crate::code::{Region, V};

impl Printer<'_> {
    /// A block in braces, whose names are free behind it.
    fn inside(&mut self, body: impl FnOnce(&mut Self)) {
        let taken = self.taken.len();
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.taken.truncate(taken);
    }

    pub fn repeat(
        &mut self,
        results: &[V],
        [from, to, step]: [V; 3],
        carried: &[V],
        region: &Region,
    ) {
        let (from, step) = (self.take(from), self.take(step));
        let to = self.take_name(to);
        let (&counter, inner) = region.params.split_first().expect("a counter");
        let mut variables = Vec::new();
        for (i, (&start, &param)) in carried.iter().zip(inner).enumerate() {
            let start = self.take(start);
            let named = [param, results[i], region.yields[i]];
            let hinted = named.into_iter().find(|v| self.hints.contains_key(v));
            let name = self.name_of(hinted.unwrap_or(param));
            self.line(&format!("{} {name} = {};", variable_type(self.dtype(param)), start.text));
            self.values[param.0 as usize] = Some(Expr::atom(name.clone()));
            variables.push(name);
        }
        self.flush(true);
        let taken = self.taken.len();
        let i = self.counter();
        let next =
            if step.text == "1" { format!("{i}++") } else { format!("{i} += {}", step.text) };
        let to = to.at(Level::Sum);
        self.line(&format!("for (int64_t {i} = {}; {i} < {to}; {next}) {{", from.text));
        self.values[counter.0 as usize] = Some(Expr::atom(i));
        self.inside(|own| {
            own.block(&region.body);
            own.assign(&variables, &region.yields);
        });
        self.line("}");
        self.taken.truncate(taken);
        for (&result, name) in results.iter().zip(variables) {
            self.values[result.0 as usize] = Some(Expr::atom(name));
        }
    }

    /// Gives variables their next values, all at once.
    fn assign(&mut self, variables: &[String], values: &[V]) {
        for (i, &value) in values.iter().enumerate() {
            let text = match &self.values[value.0 as usize] {
                Some(expr) => expr.text.clone(),
                None => continue,
            };
            let mut before = variables[..i].iter().zip(values);
            let changed = before.any(|(name, &v)| {
                mentions(&text, name)
                    && self.values[v.0 as usize].as_ref().is_some_and(|e| e.text != *name)
            });
            if changed {
                self.held.retain(|held| *held != value);
                self.held.push(value);
                self.settle(value);
            }
        }
        for (name, &value) in variables.iter().zip(values) {
            let expr = self.take(value);
            if expr.text == *name {
                continue;
            }
            match &expr.sum {
                Some((left, right)) if left == name => self.line(&format!("{name} += {right};")),
                _ => self.line(&format!("{name} = {};", expr.text)),
            }
        }
    }

    pub fn choose(&mut self, results: &[V], condition: V, yes: &Region, no: &Region) {
        let condition = self.take(condition);
        let mut variables = Vec::new();
        for &result in results {
            let name = self.name_of(result);
            self.line(&format!("{} {name};", variable_type(self.dtype(result))));
            variables.push(name);
        }
        self.flush(true);
        self.line(&format!("if ({}) {{", condition.text));
        self.inside(|own| {
            own.block(&yes.body);
            own.assign(&variables, &yes.yields);
        });
        if !results.is_empty() || !no.body.is_empty() {
            self.line("} else {");
            self.inside(|own| {
                own.block(&no.body);
                own.assign(&variables, &no.yields);
            });
        }
        self.line("}");
        for (&result, name) in results.iter().zip(variables) {
            self.values[result.0 as usize] = Some(Expr::atom(name));
        }
    }
}
