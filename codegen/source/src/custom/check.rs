//! The checks of a definition: its templates name operands, words and functions that exist.

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dtype::DType;
use mithril_ir::op::Op;

use super::Definition;
use crate::backends::{BACKENDS, array_api};
use crate::python::{
    Alternative, Expr, Guard, MAX_PARTS, Test, defines, has_module, is_variable, parse,
};

/// Slots of every operation that are neither operands nor attributes.
const SLOTS: [&str; 4] = ["dtype", "narrow", "device", "result"];

/// Slots and words that only operations have of which a built-in spelling names them.
const RARE: [&str; 41] = [
    "slices",
    "bounds",
    "padding",
    "widths",
    "pads",
    "summed",
    "kept",
    "target",
    "left",
    "right",
    "equation",
    "contracted",
    "wanted",
    "input",
    "weights",
    "bias",
    "T",
    "linear",
    "mixed",
    "picked",
    "smaller",
    "computed",
    "drawn",
    "fixed",
    "calculated",
    "filled",
    "alike",
    "vacant",
    "scaled",
    "matmul",
    "tensordot",
    "symmetric",
    "few",
    "divided",
    "part",
    "parts",
    "signal",
    "image",
    "volume",
    "same",
    "sizes",
];

/// The longest template, and how deep its brackets may be nested.
const MAX_LENGTH: usize = 4000;
const MAX_DEPTH: usize = 50;

/// What may follow the dot in a slot.
const FORMS: [&str; 11] =
    ["number", "array", "last", "tuple", "front", "word", "args", "dims", "one", "same", "T"];

/// The words of conditions, besides dtypes.
const WORDS: [&str; 48] = [
    "number",
    "array",
    "zero",
    "one",
    "picked",
    "smaller",
    "computed",
    "drawn",
    "fixed",
    "calculated",
    "filled",
    "alike",
    "scalar",
    "vector",
    "matrix",
    "half",
    "index",
    "integer",
    "unsigned",
    "short",
    "float",
    "bool",
    "default",
    "single",
    "empty",
    "natural",
    "missing",
    "vacant",
    "summed",
    "scaled",
    "matmul",
    "tensordot",
    "linear",
    "mixed",
    "symmetric",
    "few",
    "divided",
    "signal",
    "image",
    "volume",
    "sibling",
    "reader",
    "used",
    "sizes",
    "i4",
    "u4",
    "f8e4m3",
    "f8e5m2",
];

/// Names of Python that templates may use.
const PYTHON: [&str; 21] = [
    "None", "True", "False", "...", "len", "int", "float", "bool", "complex", "min", "max", "abs",
    "sum", "tuple", "list", "range", "slice", "sorted", "zip", "round", "reversed",
];

/// Whether the prelude has all functions that a template calls. True for text that is no template.
pub(super) fn calls_only(template: &str, prelude: &[&str]) -> bool {
    let mut all = true;
    for alternative in parse(template).into_iter().flatten() {
        alternative.expr.visit(&mut |expr| {
            if let Expr::Name(name) = expr {
                all &= !name.starts_with('_') || defines(prelude, name);
            }
        });
    }
    all
}

/// The functions of the array module that a template names: `linalg.det` for `@linalg.det({x})`.
pub(super) fn functions(template: &str) -> impl Iterator<Item = String> + use<> {
    let mut found = Vec::new();
    // A text that is too long for a template is refused later.
    if nested(template) <= MAX_DEPTH && template.len() <= MAX_LENGTH {
        for alternative in parse(template).into_iter().flatten() {
            alternative.expr.visit(&mut |expr| found.extend(function(expr)));
        }
    }
    found.into_iter()
}

/// The path of a name in the array module.
fn function(expr: &Expr) -> Option<String> {
    let Expr::Attribute(of, name) = expr else { return None };
    match &**of {
        Expr::Name(module) if module == "@" => Some(name.clone()),
        of => function(of).map(|path| format!("{path}.{name}")),
    }
}

/// How deep the brackets of a text are nested.
fn nested(text: &str) -> usize {
    let (mut depth, mut most) = (0_usize, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

impl Definition {
    /// Errors: no module; a name that is no variable; a line that does not import it.
    pub(super) fn check_imports(&self) -> Result<()> {
        if self.imports.is_empty() {
            return self
                .wrong("`imports` has no module".into())
                .expected("the array module first: `{\"np\": \"import numpy as np\"}`")
                .err();
        }
        for (name, line) in &self.imports {
            let words: Vec<&str> = line.split(' ').collect();
            let (path, bound) = match words[..] {
                ["import", own] => (own, own),
                ["import", path, "as", own] | ["from", path, "import", own] => (path, own),
                _ => ("", ""),
            };
            let imports = bound == name && path.split('.').all(is_variable);
            if !is_variable(name) || name.starts_with('_') || !imports {
                return self
                    .wrong(format!("`imports` does not import `{name}`"))
                    .got(format!("`{line}`"))
                    .expected(format!("a line such as `import module as {name}`"))
                    .err();
            }
        }
        Ok(())
    }

    /// Errors: a template that cannot be read; an alternative that nothing selects; a slot, a word
    /// or a function that does not exist.
    pub(super) fn check_template(&self, op: Op, text: &str, prelude: &[&str]) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let place = format!("the spelling of `{}`", op.0.name);
        let alternatives = self.parsed(&place, text)?;
        if alternatives.last().is_some_and(|last| !last.guards.is_empty()) {
            return self
                .wrong(format!("{place} has no form for some of its uses"))
                .got(format!("`{text}`"))
                .expected("a last alternative without a condition")
                .hint("the last alternative may call a function of the prelude")
                .err();
        }
        for alternative in &alternatives {
            alternative.guards.iter().try_for_each(|guard| self.check_guard(op, &place, guard))?;
            self.check_names(&place, &alternative.expr, prelude, &mut |slot| is_slot(op, slot))
                .map_err(|mut error| {
                    let own = op.0.operands.iter().map(|operand| operand.name);
                    let own = own.chain(op.0.attrs.iter().map(|attr| attr.name)).chain(SLOTS);
                    if let Some(slot) = unknown_slot(&alternative.expr, op) {
                        error.hint = did_you_mean(&slot, own);
                    }
                    error
                })?;
        }
        Ok(())
    }

    /// Errors: those of [`Definition::check_template`], for a template that creates an array.
    pub(super) fn check_creation(&self, name: &str, text: &str) -> Result<()> {
        let place = format!("the template of `{name}`");
        let alternatives = self.parsed(&place, text)?;
        let [only] = &alternatives[..] else {
            return self.wrong(format!("{place} has several alternatives")).got(text).err();
        };
        if !only.guards.is_empty() {
            return self.wrong(format!("{place} has a condition")).got(text).err();
        }
        let slots = ["x", "dtype", "shape", "device"];
        let prelude = [&*self.prelude];
        self.check_names(&place, &only.expr, &prelude, &mut |slot| slots.contains(&slot))
    }

    /// Errors: a text that is too long, or no template; a part of a call that it does not have.
    fn parsed(&self, place: &str, text: &str) -> Result<Vec<Alternative>> {
        if nested(text) > MAX_DEPTH || text.len() > MAX_LENGTH {
            return self
                .wrong(format!("{place} is too long"))
                .got(format!("{} characters", text.len()))
                .expected(format!("at most {MAX_LENGTH}, and {MAX_DEPTH} nested brackets"))
                .hint("write a function into `prelude`, and call it")
                .err();
        }
        let wrong = |why: String| self.wrong(format!("{place} is not a template")).got(why);
        let alternatives = parse(text).map_err(|why| Box::new(wrong(why)))?;
        let mut parts = true;
        for alternative in &alternatives {
            alternative.expr.visit(&mut |expr| parts &= has_parts(expr));
        }
        match parts {
            true => Ok(alternatives),
            false => self
                .wrong(format!("{place} takes a part of a call that it does not have"))
                .got(text)
                .expected(format!("`f(…)[part / count]`, of at most {MAX_PARTS} parts"))
                .err(),
        }
    }

    /// Errors: a slot that is not `known`; a function or a module that does not exist.
    fn check_names(
        &self,
        place: &str,
        expr: &Expr,
        prelude: &[&str],
        known: &mut dyn FnMut(&str) -> bool,
    ) -> Result<()> {
        let mut wrong: Option<Diagnostic> = None;
        expr.visit(&mut |expr| {
            let missing = function(expr).filter(|function| !self.has(function));
            let found = match expr {
                _ if missing.is_some() => {
                    let shown = missing.unwrap_or_default();
                    self.wrong(format!("{place} names `@{shown}`, which the array module lacks"))
                }
                Expr::Slot(slot) if !known(slot) => {
                    self.wrong(format!("{place} has the unknown slot `{{{slot}}}`"))
                }
                Expr::Name(name) if name.starts_with('_') && !defines(prelude, name) => self
                    .wrong(format!("{place} calls `{name}`, which the prelude does not define"))
                    .hint(format!("define it: `def {name}(…):` in `prelude`")),
                Expr::Name(name) if !self.is_known(name) => self
                    .wrong(format!("{place} names `{name}`, which is not imported"))
                    .hint(format!(
                        "write `@{name}` for a function of the array module, or add the \
                                   module to `imports`"
                    )),
                _ => return,
            };
            wrong.get_or_insert(found);
        });
        wrong.map_or(Ok(()), Diagnostic::err)
    }

    /// Whether a name is that of the array module, an imported module, or one of Python's.
    fn is_known(&self, name: &str) -> bool {
        name == "@"
            || name.starts_with('_')
            || PYTHON.contains(&name)
            || has_module(name)
            || self.imports.iter().any(|(own, _)| own == name)
    }

    /// Errors: a condition on what the operation does not have, or with an unknown word.
    fn check_guard(&self, op: Op, place: &str, guard: &Guard) -> Result<()> {
        let of_operation = op.0.operands.iter().any(|operand| operand.name == guard.slot)
            || op.attr_index(&guard.slot).is_some();
        let shown = format!("`{}`", guard.slot);
        let (known, word) = match &guard.test {
            Test::Equals(_) => (op.attr_index(&guard.slot).is_some(), None),
            Test::Is(word) if ["sibling", "reader", "used"].contains(&word.as_str()) => {
                (mithril_ir::op::find(&guard.slot).is_some(), None)
            }
            Test::Is(word) => {
                (of_operation || ["result", "narrow", "device"].contains(&&*guard.slot), Some(word))
            }
        };
        if !known {
            let names = op.0.operands.iter().map(|operand| operand.name);
            let names = names.chain(op.0.attrs.iter().map(|attr| attr.name));
            let mut error = self
                .wrong(format!("{place} has a condition on the unknown {shown}"))
                .expected(names.clone().collect::<Vec<_>>().join(", "));
            error.hint = did_you_mean(&guard.slot, names);
            return error.err();
        }
        let dtypes = || DType::ALL.iter().map(|dtype| dtype.name());
        let is_word = |word: &str| {
            (WORDS.contains(&word) && has_rare(op, word)) || dtypes().any(|dtype| dtype == word)
        };
        match word.filter(|word| !is_word(word)) {
            Some(word) => {
                let what = format!("{place} has a condition with the unknown word `{word}`");
                let mut error = self.wrong(what);
                error.hint = did_you_mean(word, WORDS.iter().copied().chain(dtypes()));
                error.err()
            }
            None => Ok(()),
        }
    }
}

/// Whether an operation has a slot of this name and form.
fn is_slot(op: Op, slot: &str) -> bool {
    let (name, form) = slot.split_once('.').map_or((slot, None), |(name, form)| (name, Some(form)));
    let known = op.0.operands.iter().any(|operand| operand.name == name)
        || op.attr_index(name).is_some()
        || SLOTS.contains(&name)
        || (RARE.contains(&name) && has_rare(op, name));
    let is_form = |form: &str| match name {
        "wanted" => form.parse().is_ok_and(|count: usize| count <= MAX_PARTS),
        _ => (FORMS.contains(&form) || form == "picked") && has_rare(op, form),
    };
    known && form.is_none_or(is_form)
}

/// Whether a word is none of the rare ones, or a built-in spelling of the operation has it.
fn has_rare(op: Op, word: &str) -> bool {
    if !RARE.contains(&word) {
        return true;
    }
    let own = BACKENDS.iter().flat_map(|backend| backend.spellings).chain(array_api::SPELLINGS);
    let mut own = own.filter(|(name, _)| *name == op.0.name);
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    own.any(|(_, text)| text.split(|c| !is_letter(c)).any(|other| other == word))
}

/// Whether an expression takes no part of a call, or one that can exist.
fn has_parts(expr: &Expr) -> bool {
    let Expr::Index(_, items) = expr else { return true };
    match &items[..] {
        [Expr::Binary(at, "/", count)] => {
            let number = |expr: &Expr| match expr {
                Expr::Literal(text) => text.parse().ok(),
                _ => None,
            };
            let count: Option<usize> = number(count);
            let least = number(at).unwrap_or(0);
            count.is_some_and(|count| least < count && count <= MAX_PARTS)
        }
        _ => true,
    }
}

/// The first slot of an expression that the operation does not have.
fn unknown_slot(expr: &Expr, op: Op) -> Option<String> {
    let mut found = None;
    expr.visit(&mut |expr| {
        if let Expr::Slot(slot) = expr {
            if !is_slot(op, slot) {
                found.get_or_insert(slot.clone());
            }
        }
    });
    found
}
