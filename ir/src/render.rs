//! Diagnostics with the source text underlined.

use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

use crate::diagnostic::Diagnostic;

impl Diagnostic {
    /// The diagnostic above the lines of `source` it points at, without colours.
    pub fn render(&self, file_name: &str, source: &str) -> String {
        let report = Report {
            diagnostic: self,
            source: NamedSource::new(file_name, source.to_string()),
            label: self.span.clone().map(|span| {
                let start = floor_boundary(source, span.start);
                let end = floor_boundary(source, span.end.max(start));
                LabeledSpan::new(Some("here".to_string()), start, end - start)
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
        f.write_str(&self.diagnostic.what)?;
        if let Some(place) = &self.diagnostic.place {
            write!(f, "\nwhere: {place}")?;
        }
        for (label, value) in &self.diagnostic.facts {
            write!(f, "\n{label}: {value}")?;
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
