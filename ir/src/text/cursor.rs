//! A position in the text, and the tokens that start there.

use std::ops::Range;

use winnow::error::{ContextError, StrContext};
use winnow::prelude::*;
use winnow::token::{one_of, take_while};

use super::is_identifier_char;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::{Dim, parse_dim};

pub type Span = Range<usize>;

/// Reads tokens from the text. Space and comments may precede every token.
///
/// Errors of its methods: the text has something else at this position.
pub struct Cursor<'s> {
    source: &'s str,
    rest: &'s str,
    /// Where the last token ended.
    ended: usize,
}

impl<'s> Cursor<'s> {
    pub fn new(source: &'s str) -> Cursor<'s> {
        Cursor { source, rest: source, ended: 0 }
    }

    fn at(&self) -> usize {
        self.source.len() - self.rest.len()
    }

    /// Moves past a token.
    fn take_to(&mut self, rest: &'s str) {
        self.rest = rest;
        self.ended = self.at();
    }

    /// Skips space and comments.
    pub fn skip(&mut self) {
        loop {
            let space = self.rest.bytes().take_while(u8::is_ascii_whitespace);
            self.rest = &self.rest[space.count()..];
            if self.rest.bytes().next().is_some_and(|b| !b.is_ascii()) {
                self.rest = self.rest.trim_start();
            }
            match self.rest.strip_prefix("//") {
                Some(comment) => {
                    let end = comment.find('\n').unwrap_or(comment.len());
                    self.rest = &comment[end..];
                }
                None => return,
            }
        }
    }

    /// The start of the next token.
    pub fn start(&mut self) -> usize {
        self.skip();
        self.at()
    }

    /// The span from `start` to the end of the last token.
    pub fn since(&self, start: usize) -> Span {
        start..self.ended
    }

    /// The span of the next character, for errors.
    pub fn here(&mut self) -> Span {
        let start = self.start();
        start..start + self.rest.chars().next().map_or(0, char::len_utf8)
    }

    pub fn is_done(&mut self) -> bool {
        self.skip();
        self.rest.is_empty()
    }

    pub fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest.chars().next()
    }

    /// Consumes this punctuation if it is next.
    pub fn eat(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.take_to(rest);
                true
            }
            None => false,
        }
    }

    /// Consumes this word if it is next.
    pub fn eat_word(&mut self, word: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(word) {
            Some(rest) if !rest.starts_with(is_identifier_char) => {
                self.take_to(rest);
                true
            }
            _ => false,
        }
    }

    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        self.expected(&format!("`{token}`"))
    }

    /// An error that says what is expected here.
    pub fn expected<T>(&mut self, what: &str) -> Result<T> {
        let span = self.here();
        let got = match self.rest.chars().next() {
            Some(_) => format!("`{}`", &self.source[self.next_token(span.clone())]),
            None => "the end of the text".to_string(),
        };
        Diagnostic::new(format!("{what} is expected here")).got(got).span(span).err()
    }

    /// The span of the word at `span`, or of its one character.
    fn next_token(&self, span: Span) -> Span {
        let word = self.rest.find(|c| !is_identifier_char(c));
        let length = word.unwrap_or(self.rest.len()).min(32);
        span.start..span.end.max(span.start + length)
    }

    /// Parses a word that needs no quotes.
    pub fn identifier(&mut self, what: &str) -> Result<(&'s str, Span)> {
        let start = self.start();
        let first = one_of(('a'..='z', 'A'..='Z', '_'));
        let word = (first, take_while(0.., is_identifier_char)).take();
        match self.token(word) {
            Some(word) => Ok((word, self.since(start))),
            None => self.expected(what),
        }
    }

    /// Parses `%` and the name or number of a value.
    pub fn label(&mut self) -> Result<(&'s str, Span)> {
        let start = self.start();
        if !self.eat("%") {
            return self.expected("a value such as `%x`");
        }
        match self.token(take_while(1.., is_identifier_char)) {
            Some(word) => Ok((word, self.since(start))),
            None => self.expected("the name of a value"),
        }
    }

    /// Parses the characters of a number or a word; returns an empty text where there are none.
    pub fn scalar(&mut self) -> (&'s str, Span) {
        let start = self.start();
        let word = take_while(0.., |c| is_identifier_char(c) || c == '+' || c == '-');
        let word = self.token(word).unwrap_or("");
        let end = self.since(start).end;
        // An error underlines at least the first character that does not belong to it.
        let span = if word.is_empty() { self.here() } else { start..end };
        (word, span)
    }

    fn token<T>(&mut self, mut parser: impl Parser<&'s str, T, ContextError>) -> Option<T> {
        let mut rest = self.rest;
        let parsed = parser.parse_next(&mut rest).ok()?;
        self.take_to(rest);
        Some(parsed)
    }

    /// Parses a dim, up to the first character that cannot belong to it.
    pub fn dim(&mut self) -> Result<Dim> {
        self.skip();
        let length = self.rest.len();
        self.dim_within(length)
    }

    /// Parses a dim that ends with its line or before a comment: `//` divides only inside brackets.
    pub fn dim_of_line(&mut self) -> Result<Dim> {
        self.skip();
        let mut depth = 0usize;
        let bytes = self.rest.as_bytes();
        let end = bytes.iter().enumerate().position(|(i, byte)| {
            match byte {
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && (*byte == b'\n' || bytes[i..].starts_with(b"//"))
        });
        self.dim_within(end.unwrap_or(bytes.len()))
    }

    fn dim_within(&mut self, length: usize) -> Result<Dim> {
        let start = self.at();
        let mut text = &self.rest[..length];
        let parsed = parse_dim(&mut text);
        let used = length - text.len();
        match parsed {
            Ok(dim) => {
                self.take_to(&self.rest[used..]);
                Ok(dim)
            }
            Err(error) => {
                let context = error.into_inner().map(|e| expected_text(&e));
                let what = context.ok().filter(|text| !text.is_empty());
                self.rest = &self.source[start + used..];
                self.expected(what.as_deref().unwrap_or("a dim"))
            }
        }
    }

    /// The text up to `end`, which is consumed as well; `None` if the line ends first.
    pub fn through(&mut self, end: char) -> Option<&'s str> {
        let stop = self.rest.find([end, '\n'])?;
        let text = &self.rest[..stop];
        let rest = self.rest[stop..].strip_prefix(end)?;
        self.take_to(rest);
        Some(text)
    }

    /// Moves back to an earlier position.
    pub fn back_to(&mut self, start: usize) {
        self.rest = &self.source[start..];
    }

    /// Parses a quoted string and its escapes.
    pub fn string(&mut self, what: &str) -> Result<(String, Span)> {
        let start = self.start();
        if !self.eat("\"") {
            return self.expected(what);
        }
        let mut text = String::new();
        loop {
            let stop = self.rest.find(['"', '\\', '\n']);
            let Some(stop) = stop.filter(|&s| !self.rest[s..].starts_with('\n')) else {
                return Diagnostic::new("the string is not closed on its line")
                    .hint("close it with `\"`; a line break is written `\\n`")
                    .span(start..start + 1)
                    .err();
            };
            text.push_str(&self.rest[..stop]);
            let escaped = self.rest[stop..].starts_with('\\');
            self.take_to(&self.rest[stop + 1..]);
            if !escaped {
                return Ok((text, self.since(start)));
            }
            text.push(self.escape()?);
        }
    }

    /// Parses the character after a backslash.
    fn escape(&mut self) -> Result<char> {
        let start = self.at() - 1;
        let Some(c) = self.rest.chars().next() else {
            return self.expected("an escaped character");
        };
        self.take_to(&self.rest[c.len_utf8()..]);
        let plain = match c {
            '"' | '\\' => Some(c),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => self.unicode(),
            _ => None,
        };
        match plain {
            Some(c) => Ok(c),
            None => Diagnostic::new("the string has an unknown escape")
                .expected("one of \\\" \\\\ \\n \\r \\t \\u{…}")
                .span(self.since(start))
                .err(),
        }
    }

    fn unicode(&mut self) -> Option<char> {
        let rest = self.rest.strip_prefix('{')?;
        let (digits, rest) = rest.split_once('}')?;
        let code = u32::from_str_radix(digits, 16).ok()?;
        self.take_to(rest);
        char::from_u32(code)
    }
}

fn expected_text(error: &ContextError) -> String {
    let each = error.context().filter_map(|context| match context {
        StrContext::Expected(value) => Some(value.to_string()),
        _ => None,
    });
    each.collect::<Vec<_>>().join(" or ")
}
