//! The one form of every error a user can cause: what, where, got and expected, and a hint.

use std::fmt;
use std::ops::Range;

use crate::dim::Symbol;

mod kind;
mod near;

pub use kind::ErrorKind;
pub use near::{did_you_mean, near_misses};

/// What went wrong, where, what was got and expected, and how to fix it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostic {
    pub kind: ErrorKind,
    /// One sentence without a full stop. Messages of some kinds begin with their heading, which is
    /// not part of it.
    pub what: String,
    /// The block path, file or pass it happened in.
    pub place: Option<String>,
    /// Labelled facts in the order they are printed, such as `got` and `expected`.
    pub facts: Vec<(String, String)>,
    pub hint: Option<String>,
    /// The range of bytes in the source text that it points at, where there is a text.
    pub span: Option<Range<usize>>,
    /// Set where the cause is a rank variable of which more must be known.
    pub needs_rank: Option<NeedsRank>,
}

/// What a shape rule needs to know about a rank variable.
#[derive(Clone, Debug, PartialEq)]
pub struct NeedsRank {
    pub lead: Symbol,
    /// How many more trailing dims must be known; `None`: the whole rank.
    pub trailing: Option<usize>,
    /// The only rank with which the value fits, where there is only one.
    pub rank: Option<usize>,
}

pub type Result<T, E = Box<Diagnostic>> = std::result::Result<T, E>;

impl Diagnostic {
    /// An error of the default kind.
    pub fn new(what: impl Into<String>) -> Diagnostic {
        Diagnostic::of(ErrorKind::default(), what)
    }

    pub fn of(kind: ErrorKind, what: impl Into<String>) -> Diagnostic {
        Diagnostic { kind, what: what.into(), ..Diagnostic::default() }
    }

    pub fn at(mut self, place: impl Into<String>) -> Diagnostic {
        self.place = Some(place.into());
        self
    }

    pub fn fact(mut self, label: &str, value: impl fmt::Display) -> Diagnostic {
        self.facts.push((label.to_string(), value.to_string()));
        self
    }

    pub fn got(self, value: impl fmt::Display) -> Diagnostic {
        self.fact("got", value)
    }

    pub fn expected(self, value: impl fmt::Display) -> Diagnostic {
        self.fact("expected", value)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into());
        self
    }

    pub fn span(mut self, span: Range<usize>) -> Diagnostic {
        self.span = Some(span);
        self
    }

    /// The first line of the message.
    pub fn headline(&self) -> String {
        match (self.kind.shows_heading(), self.what.as_str()) {
            (false, what) => what.into(),
            (true, "") => self.kind.heading().into(),
            (true, what) => format!("{}: {what}", self.kind.heading()),
        }
    }

    /// Whether the error is a mismatch of shapes.
    pub fn is_shape_mismatch(&self) -> bool {
        matches!(self.kind, ErrorKind::Shapes | ErrorKind::ShapesAtCall)
    }

    pub fn err<T>(self) -> Result<T> {
        Err(Box::new(self))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.headline())?;
        if let Some(place) = &self.place {
            write!(f, "\n  where: {place}")?;
        }
        for (label, value) in &self.facts {
            write!(f, "\n  {label}: {value}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
