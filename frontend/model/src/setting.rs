//! Settings: the arguments of a block's constructor.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;

use crate::block::Block;
use crate::init::Function;
use crate::model::{Connection, Source};

/// One constructor argument.
#[derive(Clone, Debug)]
pub enum Setting {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Arc<str>),
    DType(DType),
    Tensor(Tensor),
    Block(Block),
    List(Arc<[Setting]>),
    /// `start:stop:step`, each an integer, `None` or a terminal.
    Slice(Arc<[Setting; 3]>),
    Ellipsis,
    /// A scalar that the model computes. A block stores it as [`Setting::Terminal`] and reads it
    /// from an input named after the parameter.
    Connection(Box<Source>),
    /// The block reads this value from one of its inputs.
    Terminal,
    /// A function that draws initial values.
    Function(Function),
}

impl Setting {
    /// Describes the value for messages.
    pub fn describe(&self) -> String {
        match self {
            Setting::None => "None".into(),
            Setting::Bool(v) => format!("the bool {v}"),
            Setting::Int(v) => format!("the integer {v}"),
            Setting::Float(v) => format!("the number {v:?}"),
            Setting::Str(v) => format!("the string {v:?}"),
            Setting::DType(v) => format!("the dtype {v}"),
            Setting::Tensor(v) => format!("an array of {}", v.dtype()),
            Setting::Block(v) => format!("the block {}", v.kind()),
            Setting::List(v) => format!("a list of {}", v.len()),
            Setting::Slice(_) => "a slice".into(),
            Setting::Ellipsis => "...".into(),
            Setting::Connection(_) | Setting::Terminal => "a connection".into(),
            Setting::Function(v) => format!("the function {}", v.name),
        }
    }

    /// The value in Python syntax. Arrays and blocks are shortened.
    pub fn text(&self) -> String {
        let list =
            |items: &[Setting]| items.iter().map(Setting::text).collect::<Vec<_>>().join(", ");
        match self {
            Setting::None => "None".into(),
            Setting::Bool(true) => "True".into(),
            Setting::Bool(false) => "False".into(),
            Setting::Int(v) => v.to_string(),
            Setting::Float(v) => format!("{v:?}"),
            Setting::Str(v) => format!("{v:?}"),
            Setting::DType(v) => format!("mithril.{}", v.array_name()),
            Setting::Tensor(v) => format!("<array of {}>", v.dtype().array_name()),
            Setting::Block(v) => v.text(),
            Setting::List(v) => format!("[{}]", list(v)),
            Setting::Slice(parts) => format!("slice({})", list(&parts[..])),
            Setting::Ellipsis => "...".into(),
            Setting::Connection(_) | Setting::Terminal => "<connection>".into(),
            Setting::Function(v) => format!("<function {}>", v.name),
        }
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Setting::None)
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Setting::Int(v) => Some(*v),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Setting]> {
        match self {
            Setting::List(v) => Some(v),
            _ => None,
        }
    }
}

impl PartialEq for Setting {
    fn eq(&self, other: &Setting) -> bool {
        use Setting::*;
        match (self, other) {
            (None, None) | (Ellipsis, Ellipsis) | (Terminal, Terminal) => true,
            (Bool(a), Bool(b)) => a == b,
            (Int(a), Int(b)) => a == b,
            (Float(a), Float(b)) => a.to_bits() == b.to_bits(),
            (Str(a), Str(b)) => a == b,
            (DType(a), DType(b)) => a == b,
            (Tensor(a), Tensor(b)) => a == b,
            (Block(a), Block(b)) => a == b && a.name() == b.name(),
            (List(a), List(b)) => a == b,
            (Slice(a), Slice(b)) => a == b,
            (Connection(a), Connection(b)) => a.is(b),
            (Function(a), Function(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Setting {}

impl Hash for Setting {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Setting::Bool(v) => v.hash(state),
            Setting::Int(v) => v.hash(state),
            Setting::Float(v) => v.to_bits().hash(state),
            Setting::Str(v) => v.hash(state),
            Setting::DType(v) => v.hash(state),
            Setting::Tensor(v) => v.hash(state),
            Setting::Block(v) => (v, v.name()).hash(state),
            Setting::List(v) => v.hash(state),
            Setting::Slice(v) => v.hash(state),
            Setting::Function(v) => v.hash(state),
            Setting::None | Setting::Ellipsis | Setting::Connection(_) | Setting::Terminal => {}
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident $(as $cast:ty)?),* $(,)?) => {$(
        impl From<$from> for Setting {
            fn from(v: $from) -> Setting {
                Setting::$variant(v $(as $cast)?)
            }
        }
    )*};
}

from! {
    bool => Bool, i64 => Int, i32 => Int as i64, usize => Int as i64, f64 => Float, DType => DType,
    Tensor => Tensor, Block => Block,
}

impl From<Connection> for Setting {
    fn from(connection: Connection) -> Setting {
        Setting::Connection(Box::new(connection.into()))
    }
}

impl From<&str> for Setting {
    fn from(v: &str) -> Setting {
        Setting::Str(v.into())
    }
}

impl<T: Into<Setting>> From<Vec<T>> for Setting {
    fn from(v: Vec<T>) -> Setting {
        Setting::List(v.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Setting>, const N: usize> From<[T; N]> for Setting {
    fn from(v: [T; N]) -> Setting {
        Setting::List(v.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Setting>> From<Option<T>> for Setting {
    fn from(v: Option<T>) -> Setting {
        v.map_or(Setting::None, Into::into)
    }
}
