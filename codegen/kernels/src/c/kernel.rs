//! A kernel as a function of C.
//!
//! Values that are used once become part of the expression that uses them; the others are
//! constants with names. What is carried from one turn of a loop to the next is a variable.

use std::fmt::Write;

use mithril_ir::dtype::DType;
use rustc_hash::{FxHashMap, FxHashSet};

use super::expression::{Expr, Level, literal, mentions, variable_type};
use super::functions::Function;
use super::usage::{Usage, usage, writes};
use crate::code::{Code, Inst, Mem, Place, Region, Stmt, V};
use crate::entry::c_type;

/// What a kernel is called, and what it is given.
#[derive(Clone, Debug)]
pub struct Names {
    pub kernel: String,
    /// By the number of the buffer, and of the dim.
    pub buffers: Vec<String>,
    pub dims: Vec<String>,
}

/// A function's text, and which buffers and dims it takes, in this order, behind scratch memory.
#[derive(Clone, Debug)]
pub struct Printed {
    pub text: String,
    pub scratch: bool,
    pub buffers: Vec<usize>,
    pub dims: Vec<usize>,
}

/// The longest expression that becomes a part of another.
const LONGEST: usize = 56;
const COUNTERS: [&str; 8] = ["i", "j", "k", "l", "m", "n", "p", "q"];

/// Prints a kernel; what it calls is added to `functions`.
pub fn print(code: &Code, names: &Names, functions: &mut FxHashSet<Function>) -> Printed {
    let mut printer = Printer {
        code,
        names,
        functions,
        text: String::new(),
        depth: 1,
        usage: usage(code),
        values: vec![None; code.types.len()],
        held: Vec::new(),
        hints: FxHashMap::default(),
        taken: names.buffers.iter().chain(&names.dims).cloned().collect(),
        memories: vec![None; code.memories.len()],
        buffers: FxHashSet::default(),
        dims: FxHashSet::default(),
        scratch: false,
    };
    for &(v, hint) in &code.hints {
        printer.hints.entry(v).or_insert(hint);
    }
    printer.taken.extend(["scratch".to_string(), "NAN".into(), "INFINITY".into()]);
    printer.place_memories();
    printer.block(&code.body);
    printer.finish()
}

pub(super) struct Printer<'a> {
    code: &'a Code,
    names: &'a Names,
    pub(super) functions: &'a mut FxHashSet<Function>,
    text: String,
    depth: usize,
    usage: Usage,
    values: Vec<Option<Expr>>,
    /// Values that are to become a part of what uses them, in order.
    held: Vec<V>,
    hints: FxHashMap<V, &'static str>,
    /// Names of the open blocks.
    taken: Vec<String>,
    memories: Vec<Option<String>>,
    buffers: FxHashSet<usize>,
    dims: FxHashSet<usize>,
    scratch: bool,
}

impl Printer<'_> {
    fn finish(self) -> Printed {
        let list = |set: &FxHashSet<usize>| {
            let mut list: Vec<usize> = set.iter().copied().collect();
            list.sort_unstable();
            list
        };
        let (buffers, dims) = (list(&self.buffers), list(&self.dims));
        let mut parameters = Vec::new();
        if self.scratch {
            parameters.push("void *restrict scratch".to_string());
        }
        let written = writes(self.code);
        for &n in &buffers {
            let memories = self.code.memories.iter().enumerate();
            let mut own = memories.filter(|(_, m)| m.place == Place::Buffer(n as u32));
            let (mut dtype, mut constant) = (DType::U8, "const ");
            if let Some((at, memory)) = own.next() {
                dtype = memory.dtype;
                constant = if written.contains(&Mem(at as u32)) { "" } else { constant };
            }
            let name = &self.names.buffers[n];
            parameters.push(format!("{constant}{} *restrict {name}", c_type(dtype)));
        }
        parameters.extend(dims.iter().map(|&n| format!("int64_t {}", self.names.dims[n])));
        let mut text = String::new();
        let line = format!("static void {}({})", self.names.kernel, parameters.join(", "));
        match line.len() < 100 {
            true => text += &line,
            false => {
                let all = parameters.join(",\n    ");
                let _ = write!(text, "static void {}(\n    {all})", self.names.kernel);
            }
        }
        let _ = write!(text, " {{\n{}}}\n", self.text);
        Printed { text, scratch: self.scratch, buffers, dims }
    }

    pub(super) fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:1$}{text}", "", 2 * self.depth);
    }

    // Names.

    fn name(&mut self, base: &str) -> String {
        let plain = (!matches!(base, "at" | "t")).then(|| base.to_string());
        let numbered = (1..).map(|n| format!("{base}_{n}"));
        let names = plain.into_iter().chain(numbered);
        let name = names.into_iter().find(|name| !self.taken.contains(name));
        let name = name.unwrap_or_else(|| base.to_string());
        self.taken.push(name.clone());
        name
    }

    fn counter(&mut self) -> String {
        let free = COUNTERS.iter().find(|c| !self.taken.iter().any(|taken| taken == *c));
        match free {
            Some(&counter) => {
                self.taken.push(counter.into());
                counter.into()
            }
            None => self.name("i"),
        }
    }

    /// What a value is named after: an operation, or an address.
    fn base(&self, v: V) -> String {
        match self.hints.get(&v) {
            // C has functions of many of these names.
            Some(hint) => format!("{hint}_"),
            None if self.code.ty(v).dtype == DType::I64 => "at".into(),
            None => "t".into(),
        }
        .trim_end_matches('_')
        .to_string()
    }

    fn name_of(&mut self, v: V) -> String {
        let base = self.base(v);
        match is_function(&base) {
            true => self.name(&format!("{base}_x")),
            false => self.name(&base),
        }
    }

    // Values.

    /// The expression of a value; what was held is used up.
    pub(super) fn take(&mut self, v: V) -> Expr {
        self.held.retain(|held| *held != v);
        self.values[v.0 as usize].clone().unwrap_or_else(|| Expr::atom("0"))
    }

    /// The expression of a value, so simple that it may be written twice.
    pub(super) fn take_name(&mut self, v: V) -> Expr {
        if self.held.contains(&v) {
            self.settle(v);
        }
        self.take(v)
    }

    pub(super) fn dtype(&self, v: V) -> DType {
        self.code.ty(v).dtype
    }

    /// Gives a value that is held a name.
    fn settle(&mut self, v: V) {
        let expr = self.take(v);
        let (name, ty) = (self.name_of(v), variable_type(self.dtype(v)));
        self.line(&format!("const {ty} {name} = {};", expr.text));
        self.values[v.0 as usize] = Some(Expr::atom(name));
    }

    /// Names what is held; where `all` is false, only what reads memory.
    fn flush(&mut self, all: bool) {
        for v in self.held.clone() {
            if all || self.values[v.0 as usize].as_ref().is_some_and(|expr| expr.reads) {
                self.settle(v);
            }
        }
    }

    fn define(&mut self, v: V, expr: Expr) {
        let (once, long) = (self.usage.values[v.0 as usize] == 1, expr.text.len() > LONGEST);
        let simple = expr.level <= Level::Unary && !expr.reads && expr.text.len() < 12;
        let named = simple && !expr.text.contains('(');
        self.values[v.0 as usize] = Some(expr);
        if named {
            return;
        }
        self.held.push(v);
        if !once || long {
            self.settle(v);
        }
    }

    // Memory.

    /// Buffers and arrays have their names from the start, scratch memory once its place is known.
    fn place_memories(&mut self) {
        for at in 0..self.code.memories.len() {
            let memory = self.code.memories[at];
            if !self.usage.memories.contains(&Mem(at as u32)) {
                continue;
            }
            match memory.place {
                Place::Buffer(n) => {
                    self.memories[at] = Some(self.names.buffers[n as usize].clone())
                }
                Place::Local(count) => {
                    let name = self.name("sums");
                    self.line(&format!("{} {name}[{count}];", variable_type(memory.dtype)));
                    self.memories[at] = Some(name);
                }
                Place::Scratch(_) => {}
            }
        }
    }

    fn place_scratch(&mut self) {
        for at in 0..self.code.memories.len() {
            let memory = self.code.memories[at];
            let (Place::Scratch(offset), None) = (memory.place, &self.memories[at]) else {
                continue;
            };
            if !self.usage.memories.contains(&Mem(at as u32)) {
                continue;
            }
            let Some(expr) = self.values[offset.0 as usize].clone() else { continue };
            self.scratch = true;
            let (name, ty) = (self.name("kept"), c_type(memory.dtype));
            let place = match expr.text.as_str() {
                "0" => format!("({ty} *)scratch"),
                _ => format!("({ty} *)((char *)scratch + {})", expr.at(Level::Product)),
            };
            self.line(&format!("{ty} *const {name} = {place};"));
            self.memories[at] = Some(name);
        }
    }

    pub(super) fn element(&mut self, mem: Mem, at: V) -> Expr {
        let memory = self.code.memories[mem.0 as usize];
        if let Place::Buffer(n) = memory.place {
            self.buffers.insert(n as usize);
        }
        let at = self.take(at);
        let name = self.memories[mem.0 as usize].clone().unwrap_or_default();
        let element = Expr::atom(format!("{name}[{}]", at.text)).reading(true);
        match memory.dtype {
            DType::Bool => {
                let zero = Expr::atom("0");
                Expr::binary(&element, "!=", &zero, Level::Comparison)
            }
            _ => element,
        }
    }

    fn store(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) {
        let value = self.take(value);
        let element = self.element(mem, at);
        let element = element.text.trim_end_matches(" != 0").to_string();
        let mask = mask.map(|mask| self.take(mask));
        self.flush(false);
        let store = format!("{element} = {};", value.text);
        match mask {
            Some(mask) => self.line(&format!("if ({}) {store}", mask.text)),
            None => self.line(&store),
        }
    }

    pub(super) fn dim(&mut self, n: u32) -> Expr {
        self.dims.insert(n as usize);
        Expr::atom(self.names.dims[n as usize].clone())
    }

    // Statements.

    fn block(&mut self, body: &[Stmt]) {
        for stmt in body {
            self.stmt(stmt);
            self.place_scratch();
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.inst {
            Inst::For { from, to, step, carried, region } => {
                self.repeat(&stmt.results, [*from, *to, *step], carried, region);
            }
            Inst::If { condition, yes, no } => self.choose(&stmt.results, *condition, yes, no),
            Inst::Store { mem, at, value, mask, .. } | Inst::Scatter { mem, at, value, mask } => {
                self.store(*mem, *at, *value, *mask);
            }
            Inst::Prefetch { .. } => {}
            Inst::Const(bits) => {
                let (v, dtype) = (stmt.results[0], self.dtype(stmt.results[0]));
                self.values[v.0 as usize] = Some(literal(dtype, *bits));
            }
            inst => {
                let v = stmt.results[0];
                if self.usage.values[v.0 as usize] > 0 {
                    let expr = self.expression(v, inst);
                    self.define(v, expr);
                }
            }
        }
    }

    /// A block in braces, whose names are free behind it.
    fn inside(&mut self, body: impl FnOnce(&mut Self)) {
        let taken = self.taken.len();
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.taken.truncate(taken);
    }

    fn repeat(&mut self, results: &[V], [from, to, step]: [V; 3], carried: &[V], region: &Region) {
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

    fn choose(&mut self, results: &[V], condition: V, yes: &Region, no: &Region) {
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

/// Names of functions of C's library, which a variable would hide.
fn is_function(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "erf", "exp", "expm1",
        "floor", "log", "log1p", "pow", "round", "sin", "sinh", "sqrt", "tan", "tanh",
    ];
    NAMES.contains(&name)
}
