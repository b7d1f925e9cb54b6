//! External functions: definitions made from the bodies that the user gives for them.

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::external::{Piece, TargetBody};
use mithril_ir::graph::{Function, Operation};

use super::layout::Lines;
use super::prelude::words;
use super::unit::File;

impl File<'_> {
    /// The definition of an external function, made from its body for the framework.
    /// Errors: it has no such body.
    pub fn external(&mut self, function: &Function, name: &str, op: &Operation) -> Result<String> {
        let target = self.framework.name();
        let Some(body) = function.body_for(target) else {
            return missing(function, op, target).err();
        };
        let pieces = body.pieces()?;
        let mut names = self.names.inside();
        for piece in &pieces {
            if let Piece::Text(text) = piece {
                // Reserves the words of the body, so that no parameter takes the name of one of its
                // variables.
                for word in words(text) {
                    names.reserve(word);
                    self.note_word(word);
                }
            }
        }
        let params: Vec<String> = function.args.iter().map(|arg| names.unique(&arg.name)).collect();
        let argument = |name: &str| function.args.iter().position(|arg| *arg.name == *name);
        let text: String = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => *text,
                Piece::Argument(name) => argument(name).map_or("", |at| &*params[at]),
            })
            .collect();
        let mut lines = Lines::default();
        lines.def(name, &params);
        text.lines().for_each(|line| lines.verbatim(4, line));
        Ok(lines.into_text())
    }
}

fn missing(function: &Function, op: &Operation, target: &str) -> Diagnostic {
    let targets: Vec<&str> =
        function.bodies.iter().map(|body: &TargetBody| &*body.target).collect();
    let got = match targets.is_empty() {
        true => "no bodies".to_string(),
        false => format!("bodies for {}", targets.join(", ")),
    };
    let mut error =
        Diagnostic::new(format!("Backend does not support operation {}", function.name))
            .got(got)
            .expected(format!("a body for {target}"))
            .hint(format!(
                "write `body {target} \"return …\"` into `extern func @{}`",
                function.name
            ));
    if !op.loc.is_unknown() {
        error = error.at(format!("block `{}`", op.loc));
    }
    error
}
