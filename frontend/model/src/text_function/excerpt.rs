//! Errors in text, with their line, column and the line itself.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Fact, Label};

use super::WRONG;

/// The maximum number of characters of a line that are shown.
const SHOWN: usize = 100;

/// Replaces the error's range of bytes by the line and column, and quotes the line.
pub(crate) fn located(mut error: Diagnostic, text: &str) -> Diagnostic {
    error.what = format!("{WRONG}: {}", error.headline()).into();
    error.kind = ErrorKind::FunctionText;
    let Some(span) = error.span.take() else { return error };
    let mut at = span.start.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or("");
    let number = text[..at].matches('\n').count() + 1;
    let column = text[start..at].chars().count() + 1;
    error.place = Some(match error.place.take() {
        Some(place) => format!("line {number}, column {column}, {place}"),
        None => format!("line {number}, column {column}"),
    });
    let shown: String = line.trim().chars().take(SHOWN).collect();
    error.facts.insert(0, Fact { label: Label::Other("text".into()), value: shown.into() });
    error
}
