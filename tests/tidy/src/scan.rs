//! A lexical look at Rust source: no comments, no literals, where functions begin and end.

/// A function, by its name and number of lines.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// Rust source with comments and the inside of literals removed; line breaks stay.
pub fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest, '"'),
            'r' if starts_word(&out) => raw_string(rest).unwrap_or(0),
            '\'' => character(rest),
            _ => 0,
        };
        if skipped == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            rest = &rest[skipped..];
        }
    }
    out
}

/// Whether a new word starts after `out`. A `b` before a raw string belongs to the literal.
fn starts_word(out: &str) -> bool {
    !out.trim_end_matches(['b', 'c']).ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|b| *b == b'#').count();
    let body = 1 + hashes + 1;
    if text.as_bytes().get(body - 1) != Some(&b'"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()))
}

/// The length of a character literal, 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => quoted(text, '\''),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// The functions with a body in `code`, which has no comments or literals any more.
pub fn functions(code: &str) -> Vec<Function> {
    let starts = code.match_indices("fn ").filter(|(at, _)| starts_word(&code[..*at]));
    starts.filter_map(|(at, _)| function(code, at)).collect()
}

fn function(code: &str, start: usize) -> Option<Function> {
    let head = &code[start + 3..];
    let name: String = head.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() {
        return None;
    }
    let (mut round, mut curly) = (0, 0);
    for (at, c) in head.char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if round == 0 && curly == 0 => return None,
            '{' => curly += 1,
            '}' => {
                curly -= 1;
                if curly <= 0 && round <= 0 {
                    let lines = head[..at].matches('\n').count() + 1;
                    return Some(Function {
                        name,
                        line: 1 + code[..start].matches('\n').count(),
                        lines,
                    });
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_go() {
        let cases = [
            ("a // todo!()\nb", "a \nb"),
            ("a /* x /* y */ \n z */ b", "a \n b"),
            (r#"f("{ \" }") + 'x'"#, "f() + "),
            ("r#\"{ \"\n\"# + for\"}\"", "\n + for"),
            ("br\"{\" 'a: '{' '\\'' 'é'", "b 'a:   "),
            ("&'static str, 'a' .. 'z'", "&'static str,  .. "),
        ];
        for (text, expected) in cases {
            assert_eq!(code(text), expected, "{text}");
        }
    }

    #[test]
    fn functions_have_their_lines() {
        let text = "fn f(x: [u8; 2]) -> fn (u8) -> u8 {\n  if x {\n }\n}\ntrait T { fn g(&self); }\n  pub fn h() {}";
        let found = functions(text);
        let names: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(names, [("f", 1, 4), ("h", 6, 1)]);
    }
}
