//! Prints loops and branches.

use mithril_ir::dtype::DType;

use super::Printer;
use super::sums::unsigned_type;
use crate::c::expression::{Expr, Level, variable_type, words};
use crate::c::loops::ROLLED;
use crate::code::{Region, V};

/// Loops of up to this many iterations may be unrolled completely. GCC's default limit is 17, but
/// options can raise it.
const MAX_UNROLLED: i64 = 32;

/// A variable of C.
struct Variable {
    name: String,
    ty: &'static str,
    /// The expression for the value: the variable, cast to a signed type if it is unsigned.
    value: Expr,
}

impl Printer<'_> {
    /// Prints the statements of a block. Names defined inside are free again after it.
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
            let start = self.assigned(start);
            let named = [param, results[i], region.yields[i]];
            let hinted = named.into_iter().find(|v| self.hints.contains_key(v));
            let name = self.name_of(hinted.unwrap_or(param));
            let variable = self.variable(param, name);
            self.line(&format!("{} {} = {start};", variable.ty, variable.name));
            self.read(param, &variable);
            variables.push(variable);
        }
        self.flush(true);
        let bounds = [&from, &to].map(|expr| expr.text.parse::<i64>().ok());
        let short = matches!(bounds, [Some(from), Some(to)] if to - from <= MAX_UNROLLED);
        let running: Vec<V> = (carried.iter().zip(results))
            .filter(|(start, _)| self.is_running_sum(**start))
            .map(|(_, result)| *result)
            .collect();
        if short && !running.is_empty() {
            self.has_rolled_loops = true;
            self.line(ROLLED.0);
        }
        self.carried.extend(inner.iter().chain(&running));
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
        for (&result, variable) in results.iter().zip(&variables) {
            self.read(result, variable);
        }
    }

    /// Returns the variable of a value that a loop carries or a branch yields.
    fn variable(&self, v: V, name: String) -> Variable {
        let ty = variable_type(self.dtype(v));
        match self.wrapping.contains(&v) {
            true => Variable {
                value: Expr::cast(ty, &Expr::atom(name.clone())),
                ty: unsigned_type(self.dtype(v)),
                name,
            },
            false => Variable { value: Expr::atom(name.clone()), ty, name },
        }
    }

    /// Makes later uses of the value read the variable.
    fn read(&mut self, v: V, variable: &Variable) {
        self.values[v.0 as usize] = Some(variable.value.clone());
        if variable.value.level == Level::Unary {
            self.unsigned.insert(v, variable.name.clone());
        }
    }

    /// Returns the text of a value for an assignment: its unsigned variable, if it has one,
    /// otherwise its expression.
    fn assigned(&mut self, v: V) -> String {
        let text = self.take(v).text;
        self.unsigned.get(&v).cloned().unwrap_or(text)
    }

    /// Whether a loop that starts with this value continues a float sum of an enclosing loop.
    fn is_running_sum(&self, start: V) -> bool {
        matches!(self.dtype(start), DType::F32 | DType::F64) && self.carried.contains(&start)
    }

    /// Assigns the next values to variables, as if simultaneously.
    fn assign(&mut self, variables: &[Variable], values: &[V]) {
        for (i, &value) in values.iter().enumerate() {
            let text = match &self.values[value.0 as usize] {
                Some(expr) => expr.text.clone(),
                None => continue,
            };
            let mut before = variables[..i].iter().zip(values);
            let changed = before.any(|(variable, &v)| {
                let next = self.values[v.0 as usize].as_ref();
                words(&text).any(|word| word == variable.name)
                    && next.is_some_and(|next| next.text != variable.value.text)
            });
            if changed {
                self.pending.retain(|pending| *pending != value);
                self.pending.push(value);
                self.print_constant(value);
            }
        }
        for (Variable { name, value: own, .. }, &value) in variables.iter().zip(values) {
            let expr = self.take(value);
            if expr.text == own.text {
                continue;
            }
            match &expr.sum {
                Some((left, right)) if *left == own.text => {
                    self.line(&format!("{name} += {right};"));
                }
                _ => {
                    let next = self.assigned(value);
                    self.line(&format!("{name} = {next};"));
                }
            }
        }
    }

    pub fn branch(&mut self, results: &[V], condition: V, yes: &Region, no: &Region) {
        let condition = self.take(condition);
        let mut variables = Vec::new();
        for &result in results {
            let name = self.name_of(result);
            let variable = self.variable(result, name);
            self.line(&format!("{} {};", variable.ty, variable.name));
            variables.push(variable);
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
        for (&result, variable) in results.iter().zip(&variables) {
            self.read(result, variable);
        }
    }
}
