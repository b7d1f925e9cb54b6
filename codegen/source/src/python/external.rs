//! External functions: definitions made from the bodies that the user gives for them.

use mithril_ir::diagnostic::Result;
use mithril_ir::external::Piece;
use mithril_ir::graph::{Function, Operation};
use mithril_passes::select_bodies::missing;

use super::layout::Lines;
use super::names::is_variable;
use super::prelude::words;
use super::unit::File;

impl File<'_> {
    /// The definition of an external function, made from its body for the framework.
    /// Errors: it has no such body.
    pub fn external(&mut self, function: &Function, name: &str, op: &Operation) -> Result<String> {
        let target = &self.backend.target;
        let Some(body) = target.body(function) else {
            return missing(function, &op.loc, target).err();
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
        // A body without placeholders reads the arguments by their own names.
        let own = !pieces.iter().any(|piece| matches!(piece, Piece::Argument(_)));
        let mut param = |name: &str| match own && is_variable(name) {
            true => name.to_string(),
            false => names.unique(name),
        };
        let args = function.args.iter().map(|arg| &*arg.name);
        let params: Vec<String> = args.map(&mut param).collect();
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
