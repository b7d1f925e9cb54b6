//! `--verify-diagnostics`: compares errors with the comments that expect them.

use mithril_ir::diagnostic::Diagnostic;

/// An expected error: its line (`None` if it has no location) and a part of its text.
#[derive(PartialEq, Debug)]
struct Expected<'s> {
    /// The line of the comment.
    at: usize,
    line: Option<usize>,
    part: &'s str,
}

/// The mismatches, each with its line: unexpected errors, and expected errors that did not occur.
pub fn check(source: &str, error: Option<&Diagnostic>) -> Vec<String> {
    let (mut unmatched, mut problems) = expected_errors(source);
    if let Some(error) = error {
        let line = error.span.clone().map(|span| line_of(source, span.start));
        let text = error.to_string();
        let fits = |e: &Expected| e.line == line && text.contains(e.part);
        match unmatched.iter().position(fits) {
            Some(at) => drop(unmatched.remove(at)),
            None => {
                let line = line.map_or("unknown".to_string(), |line| line.to_string());
                problems.push(format!("{line}: unexpected error: {text}"));
            }
        }
    }
    let missing = |e: &Expected| format!("{}: the expected error did not occur: {}", e.at, e.part);
    problems.extend(unmatched.iter().map(missing));
    problems
}

fn line_of(source: &str, at: usize) -> usize {
    let before = &source.as_bytes()[..at.min(source.len())];
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// The expected errors, and messages for comments that cannot be parsed.
fn expected_errors(source: &str) -> (Vec<Expected<'_>>, Vec<String>) {
    let (mut found, mut malformed) = (Vec::new(), Vec::new());
    for (i, text) in source.lines().enumerate() {
        let comment = text.find("//").map_or("", |at| &text[at..]);
        for rest in comment.split("expected-error").skip(1) {
            match read(rest, i + 1) {
                Some(expected) => found.push(expected),
                None => malformed.push(format!("{}: `expected-error` without `{{{{…}}}}`", i + 1)),
            }
        }
    }
    (found, malformed)
}

/// Parses the rest of an `expected-error` comment: `@+1 {{…}}`. `at` is the line of the comment.
fn read(rest: &str, at: usize) -> Option<Expected<'_>> {
    let (offset, rest) = rest.split_once("{{")?;
    let (part, _) = rest.split_once("}}")?;
    let line = match offset.trim().strip_prefix('@') {
        None if offset.trim().is_empty() => Some(at),
        None => return None,
        Some("unknown") => None,
        Some("above") => Some(at.checked_sub(1)?),
        Some("below") => Some(at + 1),
        Some(offset) => Some(at.checked_add_signed(offset.parse().ok()?)?),
    };
    Some(Expected { at, line, part })
}

#[cfg(test)]
mod tests {
    use super::check;
    use mithril_ir::diagnostic::Diagnostic;

    #[test]
    fn errors_are_compared_with_comments() {
        let source = "a\nb // expected-error {{no b}}\n// expected-error@-2 {{no a}}\n";
        let error = |at: usize, what: &str| Diagnostic::new(what).span(at..at + 1);
        assert_eq!(check(source, None).len(), 2);
        assert_eq!(
            check(source, Some(&error(2, "no b here"))),
            ["3: the expected error did not occur: no a"]
        );
        assert_eq!(check("// expected-error@+1 {{x}}\ny", Some(&error(27, "x"))), [""; 0]);
        assert_eq!(check("y", Some(&Diagnostic::new("x"))), ["unknown: unexpected error: x"]);
        assert_eq!(check("// expected-error@unknown {{x}}", Some(&Diagnostic::new("x"))), [""; 0]);
    }
}
