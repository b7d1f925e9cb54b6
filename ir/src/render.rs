//! Renders diagnostics with the source text underlined.

use std::fmt;
use std::ops::Range;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

use crate::diagnostic::Diagnostic;

impl Diagnostic {
    /// The diagnostic, followed by the lines of `source` that it points at, without colours.
    pub fn render(&self, file_name: &str, source: &str) -> String {
        let shown = self.span.clone().map(|span| {
            let start = floor_boundary(source, span.start);
            let end = floor_boundary(source, span.end.max(start));
            Excerpt::of(source, start..end)
        });
        let shown = shown.unwrap_or_default();
        let report = Report {
            diagnostic: self,
            source: NamedSource::new(file_name, shown.text),
            label: self.span.as_ref().map(|_| {
                let length = shown.span.end - shown.span.start;
                LabeledSpan::new(Some(shown.label), shown.span.start, length)
            }),
        };
        let mut out = String::new();
        let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
        match handler.render_report(&mut out, &report) {
            Ok(()) => out,
            Err(fmt::Error) => self.to_string(),
        }
    }
}

/// The maximum length of a line that is shown in full, in bytes. Longer lines are cut, because they
/// would fill the screen.
const MAX_LINE: usize = 1000;
/// The number of bytes of a longer line that are shown before and after the underlined position.
const CONTEXT: usize = 100;

/// An excerpt of the source: its text with long lines cut, and the underlined span in it.
#[derive(Default)]
struct Excerpt {
    text: String,
    span: Range<usize>,
    label: String,
}

impl Excerpt {
    fn of(source: &str, span: Range<usize>) -> Excerpt {
        let mut excerpt = Excerpt { text: String::new(), span: 0..0, label: "here".into() };
        let mut start = 0;
        for line in source.split_inclusive('\n') {
            let end = start + line.len();
            // The end of the text belongs to its last line.
            let here = (start..end).contains(&span.start)
                || (span.start == end && end == source.len() && !line.ends_with('\n'));
            let cut = line.len() > MAX_LINE;
            let from = match cut && here {
                true => floor_boundary(source, span.start.saturating_sub(CONTEXT).max(start)),
                false => start,
            };
            let to = match (cut, here) {
                (false, _) => end,
                (true, false) => floor_boundary(source, start + CONTEXT),
                (true, true) => floor_boundary(source, (span.start + CONTEXT).min(end)),
            };
            if here {
                let at = excerpt.text.len() + span.start - from;
                excerpt.span = at..at + (span.end.min(to) - span.start);
                if cut {
                    let column = source[start..span.start].chars().count() + 1;
                    excerpt.label = format!("here, in column {column} of a truncated line");
                }
            }
            excerpt.text.push_str(&source[from..to]);
            if cut && !excerpt.text.ends_with('\n') {
                excerpt.text.push('\n');
            }
            start = end;
        }
        if span.start >= source.len() && excerpt.span == (0..0) {
            excerpt.span = excerpt.text.len()..excerpt.text.len();
        }
        excerpt
    }
}

fn floor_boundary(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

struct Report<'a> {
    diagnostic: &'a Diagnostic,
    source: NamedSource<String>,
    label: Option<LabeledSpan>,
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.diagnostic.headline())?;
        if let Some(place) = &self.diagnostic.place {
            write!(f, "\nwhere: {place}")?;
        }
        for fact in &self.diagnostic.facts {
            write!(f, "\n{fact}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let hint = self.diagnostic.hint.as_ref()?;
        Some(Box::new(hint))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.label.as_ref().map(|_| &self.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = self.label.clone()?;
        Some(Box::new(std::iter::once(label)))
    }
}
