//! A whole file: imports, constants, preludes and functions.

use std::fmt::Write;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::{Argument, Function, Role};

use super::body::{Body, Statement};
use super::expr::Expr;
use super::layout::{Lines, WIDTH};
use super::names::{doc_line, identifier, string};
use super::prelude::{needed, words};
use super::survey::called;
use super::unit::{File, missing};
use super::{Options, Source};
use joint::is_joint;
use release::release;

mod distribute;
mod joint;
mod registered;
mod release;

pub use registered::has_module;

/// Modules that files may import, in the order of their lines: name, import line, and whether the
/// module is part of Python.
const IMPORTS: [(&str, &str, bool); 13] = [
    ("hashlib", "import hashlib", true),
    ("math", "import math", true),
    ("Path", "from pathlib import Path", true),
    ("jax", "import jax", false),
    ("jnp", "import jax.numpy as jnp", false),
    ("ml_dtypes", "import ml_dtypes", false),
    ("mx", "import mlx.core as mx", false),
    ("np", "import numpy as np", false),
    ("tinygrad", "import tinygrad", false),
    ("torch", "import torch", false),
    ("F", "import torch.nn.functional as F", false),
    ("Tensor", TENSOR, false),
    ("dtypes", DTYPES, false),
];

/// The names that are imported from tinygrad. They are common words elsewhere.
const CLASSES: [&str; 3] = ["Tensor", "dtypes", "tinygrad"];
const TENSOR: &str = "from tinygrad import Tensor";
const DTYPES: &str = "from tinygrad import dtypes";
/// Both by one line.
const BOTH: &str = "from tinygrad import Tensor, dtypes";

/// Forward functions with at least this many arrays of their own delete those that they no longer
/// need. Shorter ones are easier to read without.
const MANY: usize = 6;

impl<'m> File<'m> {
    /// Writes the definitions of all functions that a function calls, directly or indirectly,
    /// callees before their callers.
    /// Errors: those of their operations; an external function without a body for the framework.
    fn define_called(&mut self, function: &'m Function) -> Result<()> {
        // An explicit stack, because calls may nest deeper than Rust's stack allows.
        let mut open = vec![(None, called(function).into_iter())];
        while let Some((under_way, callees)) = open.last_mut() {
            let Some((callee, op)) = callees.next() else {
                let done: Option<&'m Function> = *under_way;
                open.pop();
                if let Some(function) = done {
                    self.define(function)?;
                }
                continue;
            };
            if self.definitions.contains_key(callee) {
                continue;
            }
            let function: &'m Function = self.module.get(callee).ok_or_else(|| missing(callee))?;
            match function.external {
                true => {
                    let name = self.definition(callee)?;
                    let text = self.external(function, &name, op)?;
                    self.definitions.insert(callee.clone(), text);
                }
                false => open.push((Some(function), called(function).into_iter())),
            }
        }
        Ok(())
    }

    /// Writes the definition of a called function. Its callees must be defined already.
    /// Errors: those of its operations.
    fn define(&mut self, function: &'m Function) -> Result<()> {
        let name = self.definition(&function.name)?;
        let callee = &function.name;
        let mut body = Body::new(self, function, "");
        body.operations()?;
        let mut results = Vec::new();
        for result in &function.results {
            results.push(body.array(result.value)?);
        }
        let params = body.parameters();
        let mut statements = std::mem::take(&mut body.statements);
        let arrays = body.computed_arrays();
        let is_forward = self.called_by_entry.contains(callee);
        if self.backend.eager && (!is_forward || arrays.len() >= MANY) {
            release(&mut [&mut statements], &arrays, &results.iter().collect::<Vec<_>>());
        }
        let mut lines = Lines::default();
        lines.def(&name, &params);
        self.write_body(&mut lines, 4, &statements);
        results.iter().for_each(|result| self.note(result));
        lines.listed(4, "return ", results);
        let text = lines.into_text();
        self.definitions.insert(callee.clone(), text);
        Ok(())
    }

    /// Writes the forward function or the function of the gradients, which take and return dicts.
    fn entry(&mut self, name: &str, function: &'m Function, state: bool) -> Result<String> {
        let gradients = function.args.iter().any(|a| a.role == Role::Cotangent);
        let suffix = if gradients { "_gradient" } else { "" };
        self.define_called(function)?;
        let mut body = Body::new(self, function, suffix);
        body.operations()?;
        let mut outputs = Vec::new();
        let mut states: Vec<(String, Expr)> = Vec::new();
        for result in &function.results {
            let value = body.array(result.value)?;
            match &result.state {
                Some(argument) => states.push((string(argument), value)),
                None => outputs.push((string(&result.name), value)),
            }
        }
        for (value, arg) in function.arguments().filter(|(_, a)| a.role == Role::State) {
            let key = string(&arg.name);
            if !gradients && !states.iter().any(|(name, _)| *name == key) {
                states.push((key, body.array(value)?));
            }
        }
        if body.file.backend.eager && !gradients {
            let arrays = body.computed_arrays();
            let states = states.iter().map(|(_, value)| value);
            let results: Vec<&Expr> =
                outputs.iter().map(|(_, value)| value).chain(states).collect();
            if arrays.len() >= MANY {
                release(&mut [&mut body.statements], &arrays, &results);
            }
        }
        let header = body.header(&["params", "inputs", "state", "output_gradients"]);
        let statements = std::mem::take(&mut body.statements);
        let mut params = vec!["params".to_string(), "inputs".to_string()];
        params.extend(state.then(|| "state".to_string()));
        params.extend(gradients.then(|| "output_gradients".to_string()));
        let mut lines = Lines::default();
        lines.def(name, &params);
        self.write_body(&mut lines, 4, &header);
        self.write_body(&mut lines, 4, &statements);
        self.write_return(&mut lines, outputs, (state && !gradients).then_some(states));
        Ok(lines.into_text())
    }

    fn write_return(
        &mut self,
        lines: &mut Lines,
        outputs: Vec<(String, Expr)>,
        states: Option<Vec<(String, Expr)>>,
    ) {
        let outputs = Expr::Dict(outputs);
        let Some(states) = states else {
            self.note(&outputs);
            return lines.statement(4, "return ", &outputs);
        };
        let states = Expr::Dict(states);
        self.note(&outputs);
        self.note(&states);
        if "    return , ".len() + outputs.width() + states.width() <= WIDTH {
            let both = Expr::Name(format!("{outputs}, {states}"));
            return lines.statement(4, "return ", &both);
        }
        lines.statement(4, "outputs = ", &outputs);
        lines.statement(4, "state = ", &states);
        lines.statement(4, "return ", &Expr::name("outputs, state"));
    }

    fn write_body(&mut self, lines: &mut Lines, indent: usize, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Comment(text) => lines.comment(indent, text),
                Statement::Line(prefix, expr) => {
                    self.note(expr);
                    lines.statement(indent, prefix, expr);
                }
                Statement::Assert(test, message) => {
                    self.note(test);
                    lines.assertion(indent, test, message);
                }
                Statement::Delete(names) => lines.listed(indent, "del ", names.clone()),
                Statement::Loop(variables, over, inside) => {
                    self.note(over);
                    lines.head(indent, &format!("for {variables} in "), over);
                    self.write_body(lines, indent + 4, inside);
                }
                Statement::While(test, inside) => {
                    self.note(test);
                    lines.head(indent, "while ", test);
                    self.write_body(lines, indent + 4, inside);
                }
                Statement::If(test, then, otherwise) => {
                    self.note(test);
                    lines.head(indent, "if ", test);
                    self.write_body(lines, indent + 4, then);
                    if !otherwise.is_empty() {
                        lines.verbatim(indent, "else:");
                        self.write_body(lines, indent + 4, otherwise);
                    }
                }
            }
        }
    }

    /// Records the modules and prelude functions that an expression names.
    pub fn note(&mut self, expr: &Expr) {
        expr.visit(&mut |e| {
            if let Expr::Name(name) = e {
                if name.starts_with('_') {
                    self.used.insert(name.clone());
                }
                self.note_word(name);
            }
        });
    }

    /// Records the module that a word names, if it names one.
    pub fn note_word(&mut self, word: &str) {
        if self.imports_word(word) {
            self.used.insert(word.into());
        }
    }

    /// Whether a word of code names a module, or a class of the file's framework.
    fn imports_word(&self, word: &str) -> bool {
        let own = !CLASSES.contains(&word) || self.backend.module == CLASSES[0];
        own && IMPORTS.iter().any(|(module, ..)| *module == word)
    }

    /// Writes the entry and the gradients, and returns the whole file.
    pub fn finish(mut self, options: &Options) -> Result<Source> {
        let module = self.module;
        let Some(entry) = module.entry() else {
            return Diagnostic::new("the module has no function to emit").err();
        };
        let state = entry.args.iter().any(|a| a.role == Role::State);
        let mut functions = vec![self.entry("forward", entry, state)?];
        for other in module.called_from_outside().skip(1) {
            let name = identifier(&other.name);
            match is_joint(entry, other) {
                true => functions.extend(self.joint(&name, entry.results.len(), other, state)?),
                false => functions.push(self.entry(&name, other, state)?),
            }
        }
        functions.extend(self.distribute(entry));
        let constants = self.written_constants(options);
        self.check_prelude()?;
        let definitions: Vec<String> = needed(self.backend.prelude, &self.used)
            .iter()
            .map(|d| format!("{}\n", d.text))
            .chain(self.definitions.values().cloned())
            .chain(functions)
            .collect();
        for definition in needed(self.backend.prelude, &self.used) {
            // A function may import from a module by itself.
            let is_import = |line: &&str| line.trim_start().starts_with("from ");
            let lines = definition.text.lines().filter(|line| !is_import(line));
            let modules = lines.flat_map(words).filter(|word| self.imports_word(word));
            self.used.extend(modules.map(String::from).collect::<Vec<_>>());
        }
        let mut text = format!(
            "\"\"\"{}, compiled for {} by Mithril.\"\"\"\n",
            doc_line(&options.summary),
            self.backend.label
        );
        let imports = self.imports();
        text.push_str(&self.with_own_imports(imports, &constants, &definitions));
        text.push_str(&constants);
        for definition in definitions {
            let _ = write!(text, "\n\n{definition}");
        }
        Ok(Source { text, constants: self.constants })
    }

    fn written_constants(&mut self, options: &Options) -> String {
        let mut lines = Lines::default();
        if !self.constants.is_empty() {
            let file = string(&format!("{}.npz", options.stem));
            let path = format!("np.load(Path(__file__).with_name({file}))");
            lines.statement(0, "_constants = ", &Expr::Name(path));
            self.used.extend(["np".to_string(), "Path".to_string()]);
        }
        for (name, expr) in std::mem::take(&mut self.assignments) {
            self.note(&expr);
            lines.statement(0, &format!("{name} = "), &expr);
        }
        match lines.into_text() {
            text if text.is_empty() => text,
            text => format!("\n{text}"),
        }
    }

    fn imports(&mut self) -> String {
        let wide = self.backend.narrow && self.wide;
        if wide {
            self.used.insert("jax".into());
        }
        let mut text = String::new();
        for own in [true, false] {
            let used = IMPORTS
                .iter()
                .filter(|(name, _, brought)| *brought == own && self.used.contains(*name));
            let mut lines: Vec<&str> = used.map(|(_, line, _)| *line).collect();
            if CLASSES[..2].iter().all(|name| self.used.contains(*name)) {
                lines.retain(|line| *line != DTYPES);
                lines.iter_mut().filter(|line| **line == TENSOR).for_each(|line| *line = BOTH);
            }
            if !lines.is_empty() {
                let _ = write!(text, "\n{}\n", lines.join("\n"));
            }
        }
        if wide {
            text.push_str("\njax.config.update(\"jax_enable_x64\", True)\n");
        }
        text
    }
}

/// The dict that an argument is read from, by its role.
fn dict(arg: &Argument) -> &'static str {
    match arg.role {
        Role::Param => "params",
        Role::Data | Role::Key | Role::Constant => "inputs",
        Role::State => "state",
        Role::Cotangent => "output_gradients",
    }
}

impl Body<'_, '_> {
    /// The variables of all arguments.
    fn parameters(&self) -> Vec<String> {
        let names = self.bindings.iter().take(self.function.args.len());
        names
            .map(|binding| match binding {
                super::body::Binding::Variable(name) => name.clone(),
                _ => "_".to_string(),
            })
            .collect()
    }

    /// The statements that read the arguments from these dicts: a single one per dict if its
    /// arguments are few.
    fn header(&self, groups: &[&str]) -> Vec<Statement> {
        let mut statements = Vec::new();
        let names = self.parameters();
        for &group in groups {
            let read: Vec<(&String, Expr)> = self
                .function
                .args
                .iter()
                .zip(&names)
                .zip(&self.read_arguments)
                .filter(|((arg, _), read)| **read && dict(arg) == group)
                .map(|((arg, name), _)| {
                    let key = Expr::Literal(string(&arg.name));
                    (name, Expr::name(group).index([key]))
                })
                .collect();
            let targets: Vec<&str> = read.iter().map(|(name, _)| name.as_str()).collect();
            let values: Vec<String> = read.iter().map(|(_, e)| e.to_string()).collect();
            let joined = (format!("{} = ", targets.join(", ")), values.join(", "));
            let short = joined.0.len() + joined.1.len() + 4 <= WIDTH - 8;
            if (2..=3).contains(&read.len()) && short {
                statements.push(Statement::Line(joined.0, Expr::Name(joined.1)));
                continue;
            }
            for (name, expr) in read {
                statements.push(Statement::Line(format!("{name} = "), expr));
            }
        }
        statements
    }
}
