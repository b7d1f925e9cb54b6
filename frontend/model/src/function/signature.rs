//! Signatures of custom functions, `(x: [*b, n], w: f32[n, m]) -> (y: [*b, m])`, as `.mir` text.

use std::str::FromStr;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dtype::DType;
use mithril_ir::text::Cursor;

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
    read(&mut Cursor::new(text)).map_err(|mut error| {
        if error.hint.is_none() {
            error.hint = Some(FORM.into());
        }
        Box::new(located(*error, text))
    })
}

const FORM: &str = "a signature reads `(x: [*b, n], w: [n, m]) -> [*b, m]`; `i32[n]` has a dtype";

fn read(cursor: &mut Cursor) -> Result<(Vec<Slot>, Vec<Slot>)> {
    let inputs = list(cursor)?;
    cursor.expect("->")?;
    let outputs = match cursor.peek() {
        Some('(') => list(cursor)?,
        _ => vec![Slot { name: OUTPUT.into(), ty: ty(cursor)? }],
    };
    match cursor.is_done() {
        true => Ok((inputs, outputs)),
        false => cursor.expected("the end of the signature"),
    }
}

/// Parses `(x: [n], y: [n])`.
fn list(cursor: &mut Cursor) -> Result<Vec<Slot>> {
    cursor.expect("(")?;
    let mut slots: Vec<Slot> = Vec::new();
    while !cursor.eat(")") {
        let (name, span) = cursor.identifier("a name")?;
        if name.contains('.') {
            let what = "a name is made of letters, digits and underscores";
            return Diagnostic::new(what).got(format!("`{name}`")).span(span).err();
        }
        if slots.iter().any(|slot| slot.name == name) {
            return Diagnostic::new(format!("`{name}` is declared twice")).span(span).err();
        }
        cursor.expect(":")?;
        slots.push(Slot { name: name.into(), ty: ty(cursor)? });
        if !cursor.eat(",") && cursor.peek() != Some(')') {
            return cursor.expected("`,` or `)`");
        }
    }
    Ok(slots)
}

/// Parses `f32[*b, n]`.
fn ty(cursor: &mut Cursor) -> Result<String> {
    let (word, span) = cursor.scalar();
    let dtype = match word {
        "" => "float",
        "float" => word,
        _ => match DType::from_str(word) {
            Ok(dtype) => dtype.name(),
            Err(()) => {
                let mut error = Diagnostic::new(format!("there is no dtype `{word}`")).span(span);
                error.hint = did_you_mean(word, DType::ALL.into_iter().map(DType::name));
                return error.err();
            }
        },
    };
    cursor.expect("[")?;
    let mut dims: Vec<String> = Vec::new();
    while !cursor.eat("]") {
        dims.push(dim(cursor, dims.is_empty())?);
        if !cursor.eat(",") && cursor.peek() != Some(']') {
            return cursor.expected("`,` or `]`");
        }
    }
    dims.push(dtype.into());
    Ok(format!("tensor<{}>", dims.join(" x ")))
}

/// Parses a dim, or `*b`, which only the first one may be. Returns it as `.mir` text.
fn dim(cursor: &mut Cursor, first: bool) -> Result<String> {
    let start = cursor.start();
    if cursor.eat("*") {
        let (name, _) = cursor.identifier("a name")?;
        return match first {
            true => Ok(format!("*{name}")),
            false => Diagnostic::new("`*` and a name stand for the dims before all others")
                .got(format!("`*{name}`"))
                .span(cursor.since(start))
                .err(),
        };
    }
    let dim = cursor.dim()?;
    match dim.as_const().is_some() || dim.as_symbol().is_some() {
        true => Ok(dim.to_string()),
        false => Ok(format!("({dim})")),
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
            ("(x: [n $ 2]) -> [n]", "column 8", "`,` or `]`"),
            ("(x: [n + ]) -> [n]", "column 10", "is expected here"),
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
