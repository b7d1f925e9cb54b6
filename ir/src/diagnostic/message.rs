//! The text of an error. Names that readers may know by another name are data in it, so that an
//! error of an operation can speak of the block that the operation comes from.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

/// A text in which some names are data. [`message!`](crate::message) writes one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message(SmallVec<[Piece; 3]>);

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(Cow<'static, str>),
    Name(Name),
}

/// A name that an error may replace by the one that its reader knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Name {
    /// An operation, by its name in the op table.
    Operation(&'static str),
    /// An operand of the operation that fails, by its name in the op table.
    Operand(&'static str),
    /// A function of the module.
    Function(Arc<str>),
}

/// A message of pieces: literals, strings and [names](Name), which are shown in backticks.
#[macro_export]
macro_rules! message {
    ($($piece:expr),+ $(,)?) => {
        $crate::diagnostic::Message::of([$($crate::diagnostic::Piece::from($piece)),+])
    };
}

impl Message {
    pub fn of<const N: usize>(pieces: [Piece; N]) -> Message {
        Message(pieces.into_iter().collect())
    }

    /// This message, followed by another.
    pub fn then(mut self, next: impl Into<Message>) -> Message {
        self.0.extend(next.into().0);
        self
    }

    /// Replaces the names for which there is another one.
    pub fn rename(&mut self, other: &dyn Fn(&Name) -> Option<String>) {
        for piece in &mut self.0 {
            if let Piece::Name(name) = piece
                && let Some(new) = other(name)
            {
                *piece = Piece::from(format!("`{new}`"));
            }
        }
    }

    pub fn text(&self) -> String {
        let each = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.to_string(),
            Piece::Name(Name::Operation(name) | Name::Operand(name)) => format!("`{name}`"),
            Piece::Name(Name::Function(name)) => format!("`{name}`"),
        });
        each.collect()
    }
}

impl From<&'static str> for Piece {
    fn from(text: &'static str) -> Piece {
        Piece::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Piece {
        Piece::Text(Cow::Owned(text))
    }
}

impl From<Name> for Piece {
    fn from(name: Name) -> Piece {
        Piece::Name(name)
    }
}

// `Message` and its parts do not implement `Display`, so that this takes any text but loses no name.
impl<T: fmt::Display> From<T> for Message {
    fn from(text: T) -> Message {
        message![text.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_are_replaced_and_text_is_not() {
        let (add, x) = (Name::Operation("add"), Name::Operand("x"));
        let mut message = message!["an `add`: ", add, " has no ", x].then(" and no `x`");
        message.rename(&|name| (*name == Name::Operation("add")).then(|| "Plus".to_string()));
        assert_eq!(message.text(), "an `add`: `Plus` has no `x` and no `x`");
    }
}
