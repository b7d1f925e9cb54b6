//! The one form of every error a user can cause: what, where, got and expected, and a hint.

use std::fmt;
use std::ops::Range;

use crate::dim::Symbol;

mod kind;
mod message;
mod near;

pub use kind::ErrorKind;
pub use message::{Message, Name, Piece};
pub use near::{did_you_mean, near_misses};

/// What went wrong, where, what was got and expected, and how to fix it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostic {
    pub kind: ErrorKind,
    /// One sentence without a full stop. Messages of some kinds begin with their heading, which is
    /// not part of it.
    pub what: Message,
    /// The block path, file or pass it happened in.
    pub place: Option<String>,
    /// In the order they are printed.
    pub facts: Vec<Fact>,
    pub hint: Option<String>,
    /// The range of bytes in the source text that it points at, where there is a text.
    pub span: Option<Range<usize>>,
    /// Set where the cause is a rank variable of which more must be known.
    pub needs_rank: Option<NeedsRank>,
}

/// A labelled line of an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    pub label: Label,
    pub value: Message,
}

/// What a fact is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// The operands of the operation, with their types.
    Operands,
    Got,
    Expected,
    Other(String),
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
    pub fn new(what: impl Into<Message>) -> Diagnostic {
        Diagnostic::of(ErrorKind::default(), what)
    }

    pub fn of(kind: ErrorKind, what: impl Into<Message>) -> Diagnostic {
        Diagnostic { kind, what: what.into(), ..Diagnostic::default() }
    }

    pub fn at(mut self, place: impl Into<String>) -> Diagnostic {
        self.place = Some(place.into());
        self
    }

    pub fn fact(self, label: impl Into<String>, value: impl Into<Message>) -> Diagnostic {
        self.labelled(Label::Other(label.into()), value)
    }

    /// Adds the operands of the operation, with their types.
    pub fn operands(self, operands: impl Into<Message>) -> Diagnostic {
        self.labelled(Label::Operands, operands)
    }

    pub fn got(self, value: impl Into<Message>) -> Diagnostic {
        self.labelled(Label::Got, value)
    }

    pub fn expected(self, value: impl Into<Message>) -> Diagnostic {
        self.labelled(Label::Expected, value)
    }

    fn labelled(mut self, label: Label, value: impl Into<Message>) -> Diagnostic {
        self.facts.push(Fact { label, value: value.into() });
        self
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
        let what = self.what.text();
        match (self.kind.shows_heading(), what.is_empty()) {
            (false, _) => what,
            (true, true) => self.kind.heading().into(),
            (true, false) => format!("{}: {what}", self.kind.heading()),
        }
    }

    /// Replaces the names for which there is another one.
    pub fn rename(&mut self, other: &dyn Fn(&Name) -> Option<String>) {
        self.what.rename(other);
        self.facts.iter_mut().for_each(|fact| fact.value.rename(other));
    }

    /// The error of a compilation for shapes that come from a call.
    pub fn at_call(mut self: Box<Diagnostic>) -> Box<Diagnostic> {
        if self.kind == ErrorKind::Shapes {
            self.kind = ErrorKind::ShapesAtCall;
        }
        self
    }

    /// Whether the error is a mismatch of shapes.
    pub fn is_shape_mismatch(&self) -> bool {
        matches!(self.kind, ErrorKind::Shapes | ErrorKind::ShapesAtCall)
    }

    pub fn err<T>(self) -> Result<T> {
        Err(Box::new(self))
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let label = match &self.label {
            Label::Operands => "operands",
            Label::Got => "got",
            Label::Expected => "expected",
            Label::Other(label) => label,
        };
        write!(f, "{label}: {}", self.value.text())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.headline())?;
        if let Some(place) = &self.place {
            write!(f, "\n  where: {place}")?;
        }
        for fact in &self.facts {
            write!(f, "\n  {fact}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}
