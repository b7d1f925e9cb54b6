//! External functions: definitions made from the bodies that the user gives for them.

use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::external::Piece;
use mithril_ir::graph::{Function, Operation, ResultDef};
use mithril_passes::select_bodies::missing;

use super::expr::{Argument, Expr};
use super::layout::Lines;
use super::names::{is_variable, string};
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
        if let Some(decorator) = self.returns(function) {
            self.note(&decorator);
            lines.statement(0, "@", &decorator);
        }
        lines.def(name, &params);
        text.lines().for_each(|line| lines.verbatim(4, line));
        Ok(lines.into_text())
    }

    /// The decorator that checks the dtypes of the results, as far as the framework has these. A
    /// function that the framework computes itself needs none.
    fn returns(&self, function: &Function) -> Option<Expr> {
        let declared = |result: &ResultDef| {
            let dtype = self.declared_dtype(function.ty(result.value).dtype)?;
            Some((string(&result.name), dtype))
        };
        let declared: Vec<_> = function.results.iter().map(declared).collect::<Option<_>>()?;
        let place = format!("the body of `{}` for {}", function.name, self.backend.name());
        let args = [Expr::Literal(string(&place)), Expr::Dict(declared)].map(Argument::plain);
        function.computes.is_none().then(|| Expr::name("_returns").call(args))
    }

    /// The framework's dtype; a tuple of both dtypes where it has either. Without 64-bit types, JAX
    /// has 32 bits in their place, until other code turns them on.
    fn declared_dtype(&self, dtype: DType) -> Option<Expr> {
        let narrow = || self.dtype(dtype).ok();
        match self.backend.narrow && !self.wide && dtype == DType::I64 {
            true => {
                let wide = self.backend.dtype(dtype, true).ok()?;
                let (_, name) = wide.split_once('.')?;
                let wide = Expr::name(self.backend.module).attribute(name);
                Some(Expr::Tuple(vec![wide, narrow()?]))
            }
            false => narrow(),
        }
    }
}
