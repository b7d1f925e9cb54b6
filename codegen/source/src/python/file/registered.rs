//! What files for registered backends need beyond those of built-in ones: imports of their own, and
//! functions that their preludes may lack.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};

use super::{File, IMPORTS};
use crate::python::prelude::defines;

/// Functions of preludes that no template calls.
const CALLED: [&str; 5] = ["_stack", "_split", "_while", "_custom_gradient", "_checkpoint"];

/// Whether every file may import a module under this name.
pub fn has_module(name: &str) -> bool {
    IMPORTS.iter().any(|(module, ..)| *module == name)
}

impl File<'_> {
    /// Errors: the prelude lacks a function that a loop, a checkpoint or a gradient calls. The
    /// functions that templates call are checked when a backend is registered.
    pub(super) fn check_prelude(&self) -> Result<()> {
        let backend = self.backend;
        let lacking = |name: &&&str| self.used.contains(**name) && !defines(backend.prelude, name);
        let Some(name) = CALLED.iter().find(lacking) else { return Ok(()) };
        let what = name.trim_start_matches('_');
        Diagnostic::of(ErrorKind::Unsupported, format!("Backend does not support operation {what}"))
            .fact("backend", backend.name())
            .got(format!("a prelude of {} without `{name}`", backend.label))
            .hint(format!("define `{name}` in the prelude of the backend"))
            .err()
    }

    /// The imports of a file, with those of the backend's own modules that the rest of the file
    /// names. They replace others of the same name.
    pub(super) fn with_own_imports(
        &self,
        imports: String,
        constants: &str,
        definitions: &[String],
    ) -> String {
        let own = self.backend.imports;
        if own.is_empty() {
            return imports;
        }
        let texts = || definitions.iter().map(String::as_str).chain([constants]);
        let used = own.iter().filter(|(name, _)| texts().any(|text| names(text, name)));
        let replaced = |line: &&str| {
            let same = |(name, other, _): &&(&str, &str, bool)| {
                other == line && own.iter().any(|(own, _)| own == name)
            };
            IMPORTS.iter().any(|import| same(&import))
        };
        let is_import = |line: &&str| line.starts_with("import ") || line.starts_with("from ");
        let in_python = |line: &&str| IMPORTS.iter().any(|(_, own, first)| own == line && *first);
        let (mut first, mut others): (Vec<&str>, Vec<&str>) =
            imports.lines().filter(is_import).partition(in_python);
        first.retain(|line| !replaced(line));
        others.retain(|line| !replaced(line));
        others.extend(used.map(|(_, line)| *line));
        others.sort_by_key(|line| (line.starts_with("from "), *line));
        let groups = [first, others].into_iter().filter(|lines| !lines.is_empty());
        let mut text: String = groups.map(|lines| format!("\n{}\n", lines.join("\n"))).collect();
        for line in imports.lines().filter(|line| !is_import(line) && !line.is_empty()) {
            text.push_str(&format!("\n{line}\n"));
        }
        // An assignment follows an import after one empty line, a function after two.
        let assigned = definitions.first().is_some_and(|first| first.starts_with('_'));
        if assigned && constants.is_empty() {
            text.pop();
        }
        text
    }
}

/// Whether a text uses a module of this name, or calls a function of this name.
fn names(text: &str, name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "_.\"'".contains(c);
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    code.into_iter().any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let after = &line[at + name.len()..];
            !line[..at].ends_with(is_letter) && after.starts_with(['.', '('])
        })
    })
}
