//! The values that a terminal can be connected to.

use std::sync::Arc;

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;

use super::Connection;
use crate::block::Block;
use crate::literal::Literal;
use crate::lower::DimSpec;

/// The other end of a connection that a block is added with.
#[derive(Clone, Debug)]
pub enum Source {
    /// The terminal of this name; it is created if none exists.
    Name(Arc<str>),
    Connection(Connection),
    /// A constant, for inputs only.
    Literal(Literal),
    /// For list terminals.
    List(Vec<Source>),
    Key(Box<IoKey>),
    /// The result of a block that joins the model at the first read. An expression that is read
    /// several times is computed once.
    Expression(Arc<Block>),
}

/// A connection with the properties that are stated for it. A name makes it a terminal of the
/// model.
#[derive(Clone, Debug, Default)]
pub struct IoKey {
    pub name: Option<Arc<str>>,
    pub value: Option<Literal>,
    pub shape: Option<Arc<[DimSpec]>>,
    pub dtype: Option<DType>,
    /// Whether it is learned. `None`: its readers decide.
    pub differentiable: Option<bool>,
    /// The device of the backend where a param lies.
    pub device: Option<Arc<str>>,
    /// Makes it an output of the model even if a block inside reads it.
    pub expose: bool,
    /// Connections that are merged into this one.
    pub connections: Vec<Source>,
}

impl IoKey {
    pub fn new(name: &str) -> IoKey {
        IoKey { name: Some(name.into()), ..IoKey::default() }
    }
}

impl From<&str> for Source {
    fn from(name: &str) -> Source {
        Source::Name(name.into())
    }
}

impl From<String> for Source {
    fn from(name: String) -> Source {
        Source::Name(name.into())
    }
}

impl From<Connection> for Source {
    fn from(connection: Connection) -> Source {
        Source::Connection(connection)
    }
}

impl From<&Connection> for Source {
    fn from(connection: &Connection) -> Source {
        Source::Connection(connection.clone())
    }
}

impl From<Literal> for Source {
    fn from(literal: Literal) -> Source {
        Source::Literal(literal)
    }
}

impl From<f64> for Source {
    fn from(v: f64) -> Source {
        Source::Literal(v.into())
    }
}

impl From<i64> for Source {
    fn from(v: i64) -> Source {
        Source::Literal(v.into())
    }
}

impl From<Tensor> for Source {
    fn from(v: Tensor) -> Source {
        Source::Literal(v.into())
    }
}

impl From<&Source> for Source {
    fn from(source: &Source) -> Source {
        source.clone()
    }
}

impl From<IoKey> for Source {
    fn from(key: IoKey) -> Source {
        Source::Key(Box::new(key))
    }
}

impl<S: Into<Source>> From<Vec<S>> for Source {
    fn from(list: Vec<S>) -> Source {
        Source::List(list.into_iter().map(Into::into).collect())
    }
}
