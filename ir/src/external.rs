//! Bodies of external functions: source text in the language of each target.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use crate::graph::Function;

/// The body of an external function on one target: the lines of a function body in the target's
/// language. `{x}` stands for the argument `x`; a literal brace is written twice. A body without
/// such a placeholder reads the arguments by their own names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TargetBody {
    pub target: Arc<str>,
    pub text: Arc<str>,
}

/// A piece of a body's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'t> {
    Text(&'t str),
    /// The name of an argument.
    Argument(&'t str),
}

impl TargetBody {
    /// Splits the text into pieces.
    /// Errors: an unmatched brace.
    pub fn pieces(&self) -> Result<Vec<Piece<'_>>> {
        let mut pieces = Vec::new();
        let mut rest = &*self.text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            if from.starts_with("{{") || from.starts_with("}}") {
                pieces.push(Piece::Text(&rest[..at + 1]));
                rest = &from[2..];
                continue;
            }
            let name = from.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let Some((name, after)) = name else {
                return Diagnostic::new(format!(
                    "a brace in the body for {} is not matched",
                    self.target
                ))
                .got(from.lines().next().unwrap_or(from))
                .hint("write an argument as `{x}`, and a brace itself as `{{` or `}}`")
                .err();
            };
            pieces.extend([Piece::Text(before), Piece::Argument(name)]);
            rest = after;
        }
        pieces.push(Piece::Text(rest));
        Ok(pieces)
    }

    /// Checks that the body is for one of these targets.
    /// Errors: it is for another one.
    pub fn check_target(&self, targets: &[&str]) -> Result<()> {
        if targets.contains(&&*self.target) {
            return Ok(());
        }
        let what = format!("there is no target `{}` for a body", self.target);
        let mut error = Diagnostic::of(ErrorKind::Argument, what)
            .expected(format!("one of {}", targets.join(", ")));
        error.hint = did_you_mean(&self.target, targets.iter().copied());
        error.err()
    }

    /// Checks the text. Any name of a target is accepted.
    /// Errors: an empty text, or an argument that the function does not have.
    pub fn check(&self, function: &Function) -> Result<()> {
        if self.text.trim().is_empty() {
            return Diagnostic::new(format!("the body for {} is empty", self.target)).err();
        }
        for piece in self.pieces()? {
            let Piece::Argument(name) = piece else {
                continue;
            };
            if function.args.iter().all(|arg| *arg.name != *name) {
                let names = function.args.iter().map(|arg| &*arg.name);
                let near = did_you_mean(name, names);
                return Diagnostic::new(format!(
                    "the body for {} names `{{{name}}}`, which is not an argument of `{}`",
                    self.target, function.name
                ))
                .hint(near.unwrap_or("write a brace itself as `{{` or `}}`".to_string()))
                .err();
            }
        }
        Ok(())
    }
}
