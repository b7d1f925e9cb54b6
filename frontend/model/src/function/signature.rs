//! Signatures of custom functions, `(x: [*b, n], w: f32[n, m]) -> (y: [*b, m])`, as `.mir` text.

use std::ops::Range;
use std::str::FromStr;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::text::is_identifier;

use crate::text_function::located;

/// A parameter or result of a signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub name: String,
    /// `tensor<*b x n x float>`.
    pub ty: String,
}

/// The name of a single result that the signature leaves unnamed.
const OUTPUT: &str = "output";

/// Parses a signature. Without a dtype, an array has the dtype `float`.
///
/// Errors: text of another form, with the line and the column.
pub(super) fn parse(text: &str) -> Result<(Vec<Slot>, Vec<Slot>)> {
    let mut reader = Reader { text, at: 0 };
    let read = |reader: &mut Reader| {
        let inputs = reader.list()?;
        reader.expect("->")?;
        let outputs = match reader.peek() {
            Some('(') => reader.list()?,
            _ => vec![Slot { name: OUTPUT.into(), ty: reader.ty()? }],
        };
        match reader.peek() {
            None => Ok((inputs, outputs)),
            Some(_) => reader.wrong("the end of the signature"),
        }
    };
    read(&mut reader).map_err(|error| Box::new(located(*error, text)))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&mut self) -> Option<char> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.rest().chars().next()
    }

    fn eat(&mut self, what: &str) -> bool {
        self.peek();
        let found = self.rest().starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn expect(&mut self, what: &str) -> Result<()> {
        match self.eat(what) {
            true => Ok(()),
            false => self.wrong(&format!("`{what}`")),
        }
    }

    fn wrong<T>(&mut self, expected: &str) -> Result<T> {
        let got = match self.peek() {
            Some(c) => format!("`{c}`"),
            None => "the end of the text".into(),
        };
        let span = self.at..self.at + 1;
        Diagnostic::new(format!("{expected} is expected in a signature"))
            .got(got)
            .hint("a signature reads `(x: [*b, n], w: [n, m]) -> [*b, m]`; `i32[n]` has a dtype")
            .span(span)
            .err()
    }

    fn word(&mut self) -> (&'t str, Range<usize>) {
        self.peek();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let start = self.at;
        self.at += end;
        (&rest[..end], start..self.at)
    }

    /// `(x: [n], y: [n])`.
    fn list(&mut self) -> Result<Vec<Slot>> {
        self.expect("(")?;
        let mut slots: Vec<Slot> = Vec::new();
        while !self.eat(")") {
            let (name, span) = self.word();
            if !is_identifier(name) {
                self.at = span.start;
                return self.wrong("a name, made of letters, digits and underscores,");
            }
            if slots.iter().any(|slot| slot.name == name) {
                return Diagnostic::new(format!("`{name}` is declared twice")).span(span).err();
            }
            self.expect(":")?;
            slots.push(Slot { name: name.into(), ty: self.ty()? });
            if !self.eat(",") && self.peek() != Some(')') {
                return self.wrong("`,` or `)`");
            }
        }
        Ok(slots)
    }

    /// `f32[*b, n]`.
    fn ty(&mut self) -> Result<String> {
        let (word, span) = self.word();
        let dtype = match word {
            "" => "float",
            "float" => word,
            _ => match DType::from_str(word) {
                Ok(dtype) => dtype.name(),
                Err(()) => {
                    let mut error =
                        Diagnostic::new(format!("there is no dtype `{word}`")).span(span);
                    error.hint = did_you_mean(word, DType::ALL.into_iter().map(DType::name));
                    return error.err();
                }
            },
        };
        self.expect("[")?;
        let mut dims: Vec<String> = Vec::new();
        while !self.eat("]") {
            let start = self.at;
            let dim = self.dim()?;
            let symbol = dim.strip_prefix('*').unwrap_or(dim).trim();
            if dim.starts_with('*') && !(is_identifier(symbol) && dims.is_empty()) {
                let what = "`*` and a name stand for the dims before all others";
                return Diagnostic::new(what).got(dim).span(start..self.at).err();
            }
            dims.push(match Dim::from_str(symbol) {
                Ok(_) if dim.starts_with('*') => format!("*{symbol}"),
                Ok(_) if is_identifier(symbol) => symbol.into(),
                Ok(dim) if dim.as_const().is_some() => symbol.into(),
                Ok(_) => format!("({symbol})"),
                Err(error) => {
                    let at = start + error.offset;
                    return Diagnostic::new("a dim is a number, a name or a formula of them")
                        .got(format!("`{dim}`"))
                        .expected(error.expected)
                        .span(at..at + 1)
                        .err();
                }
            });
            if !self.eat(",") && self.peek() != Some(']') {
                return self.wrong("`,` or `]`");
            }
        }
        dims.push(dtype.into());
        Ok(format!("tensor<{}>", dims.join(" x ")))
    }

    /// The text of a dim, up to a comma or bracket outside of parentheses.
    fn dim(&mut self) -> Result<&'t str> {
        self.peek();
        let rest = self.rest();
        let mut depth = 0;
        let end = rest.find(|c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            (depth == 0 && matches!(c, ',' | ']')) || depth < 0
        });
        let end = end.unwrap_or(rest.len());
        let dim = rest[..end].trim();
        if dim.is_empty() {
            return self.wrong("a dim");
        }
        self.at += end;
        Ok(dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let (inputs, outputs) = parse(text).unwrap_or_else(|error| panic!("{error}"));
        let list = |slots: &[Slot]| {
            let each: Vec<String> = slots.iter().map(|s| format!("{}: {}", s.name, s.ty)).collect();
            each.join(", ")
        };
        format!("{} -> {}", list(&inputs), list(&outputs))
    }

    #[test]
    fn signatures_are_read() {
        let cases = [
            (
                "(x: [*b, n]) -> [*b, n]",
                "x: tensor<*b x n x float> -> output: tensor<*b x n x float>",
            ),
            (
                "( x : f32[3] , i:i64[], ) -> (y: [n + 1, max(n, 2)])",
                "x: tensor<3 x f32>, i: tensor<i64> -> y: tensor<(n + 1) x (max(n, 2)) x float>",
            ),
            ("() -> float[2]", " -> output: tensor<2 x float>"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn mistakes_are_located() {
        let cases = [
            ("", "column 1", "`(` is expected"),
            ("(x: [n]", "column 8", "`,` or `)`"),
            ("(x: [n]) [n]", "column 10", "`->` is expected"),
            ("(x: n) -> [n]", "column 5", "no dtype `n`"),
            ("(x: [n,, m]) -> [n]", "column 8", "a dim is expected"),
            ("(x: [n, *b]) -> [n]", "column 9", "before all others"),
            ("(x: [n $ 2]) -> [n]", "column 8", "a dim is a number"),
            ("(x: [n], x: [n]) -> [n]", "column 10", "declared twice"),
            ("(x: [n]) -> [n] é", "column 17", "the end of the signature"),
            ("(é: [n]) -> [n]", "column 2", "a name"),
            ("(x: [n", "column 7", "`,` or `]`"),
            ("(x: [n)", "column 7", "`,` or `]`"),
            ("(x: [", "column 6", "a dim is expected"),
        ];
        for (text, column, what) in cases {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(column) && error.contains(what), "{text}: {error}");
        }
    }
}
