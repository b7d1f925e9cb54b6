//! The one shape of every error a user can cause: what, where, got and expected, a hint.

use std::fmt;
use std::ops::Range;

use crate::dim::Symbol;

/// What went wrong, where, what was got and expected, and what would mend it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostic {
    /// One sentence without a full stop; a documented heading, if any, comes first.
    pub what: String,
    /// The block path, file or pass it happened in.
    pub place: Option<String>,
    /// Labelled facts in the order they are printed, such as `got` and `expected`.
    pub facts: Vec<(String, String)>,
    pub hint: Option<String>,
    /// The bytes of the source text it points at, where there is a text.
    pub span: Option<Range<usize>>,
    /// A rank variable that would have to show so many more trailing dims.
    pub needs_rank: Option<(Symbol, usize)>,
}

pub type Result<T, E = Box<Diagnostic>> = std::result::Result<T, E>;

impl Diagnostic {
    pub fn new(what: impl Into<String>) -> Diagnostic {
        Diagnostic { what: what.into(), ..Diagnostic::default() }
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

    /// Whether shapes are what does not fit.
    pub fn is_misfit(&self) -> bool {
        self.what.starts_with("Incompatible shapes")
    }

    pub fn err<T>(self) -> Result<T> {
        Err(Box::new(self))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.what)?;
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

/// The candidates nearest to `name` by edit distance, best first, at most three: for hints.
pub fn near_misses<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let count = name.chars().count();
    // Of a short name, half must be there to be meant.
    let limit = (1 + count / 3).min((count / 2).max(1));
    // What begins with the other, or has it as a word, is meant: `dim` for `dimension`.
    let begins = |a: &str, b: &str| b.len() >= 3 && a.split('_').any(|word| word.starts_with(b));
    let mut scored: Vec<(usize, &str)> = candidates
        .map(|candidate| match begins(candidate, name) || begins(name, candidate) {
            true => (0, candidate),
            false => (edit_distance(name, candidate), candidate),
        })
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    scored.sort();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// ``did you mean `a` or `b`?`` for the nearest candidates; `None` where none is near.
pub fn did_you_mean<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = near_misses(name, candidates);
    let quoted: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
    (!quoted.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
