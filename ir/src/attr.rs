//! Attributes: the compile-time parameters of an operation.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::dtype::DType;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The value of an attribute. Floats compare and hash by their bits. Large values are behind an
/// `Arc`, so that an attribute is small: most operations have none, but each has inline space for
/// two.
#[derive(Clone, Debug)]
pub enum Attr {
    /// An optional attribute that was not given.
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Arc<str>),
    DType(DType),
    Ints(Arc<[i64]>),
    Shape(Arc<Shape>),
    /// The name of a function of the module.
    Function(Arc<str>),
    Tensor(Arc<Tensor>),
}

/// The type of an attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttrKind {
    Bool,
    Int,
    Float,
    Str,
    DType,
    Ints,
    Shape,
    Function,
    Tensor,
}

impl AttrKind {
    /// The name in messages and in the op reference.
    pub fn name(self) -> &'static str {
        match self {
            AttrKind::Bool => "bool",
            AttrKind::Int => "int",
            AttrKind::Float => "float",
            AttrKind::Str => "string",
            AttrKind::DType => "dtype",
            AttrKind::Ints => "list of ints",
            AttrKind::Shape => "shape",
            AttrKind::Function => "function",
            AttrKind::Tensor => "tensor",
        }
    }
}

impl Attr {
    /// The kind of the value; `None` has none.
    pub fn kind(&self) -> Option<AttrKind> {
        Some(match self {
            Attr::None => return None,
            Attr::Bool(_) => AttrKind::Bool,
            Attr::Int(_) => AttrKind::Int,
            Attr::Float(_) => AttrKind::Float,
            Attr::Str(_) => AttrKind::Str,
            Attr::DType(_) => AttrKind::DType,
            Attr::Ints(_) => AttrKind::Ints,
            Attr::Shape(_) => AttrKind::Shape,
            Attr::Function(_) => AttrKind::Function,
            Attr::Tensor(_) => AttrKind::Tensor,
        })
    }

    /// The shape. Like the methods below it is for the rules of the op table, which read attributes
    /// of the kinds that the table declares: these are checked when an operation is made.
    ///
    /// Panics: an attribute of another kind.
    pub fn as_shape(&self) -> &Shape {
        match self {
            Attr::Shape(shape) => shape,
            other => other.is_not(AttrKind::Shape),
        }
    }

    /// Panics: an attribute of another kind.
    pub fn as_tensor(&self) -> &Tensor {
        match self {
            Attr::Tensor(tensor) => tensor,
            other => other.is_not(AttrKind::Tensor),
        }
    }

    /// The float, or the integer as a float.
    ///
    /// Panics: an attribute of another kind.
    pub fn as_float(&self) -> f64 {
        match self {
            Attr::Float(number) => *number,
            Attr::Int(number) => *number as f64,
            other => other.is_not(AttrKind::Float),
        }
    }

    /// The integer. In a kernel this may be a dim, which is known when the kernel runs.
    ///
    /// Panics: an attribute of another kind.
    pub fn as_int(&self) -> i64 {
        match self {
            Attr::Int(number) => *number,
            Attr::Shape(shape) if shape.dims.len() == 1 => {
                shape.dims[0].as_const().expect("dims of kernels are known when they run")
            }
            other => other.is_not(AttrKind::Int),
        }
    }

    fn is_not(&self, kind: AttrKind) -> ! {
        panic!("an attribute is declared as {}, and is {self:?}", kind.name())
    }

    pub fn ints(values: impl IntoIterator<Item = i64>) -> Attr {
        Attr::Ints(values.into_iter().collect())
    }
}

impl PartialEq for Attr {
    fn eq(&self, other: &Attr) -> bool {
        match (self, other) {
            (Attr::None, Attr::None) => true,
            (Attr::Bool(a), Attr::Bool(b)) => a == b,
            (Attr::Int(a), Attr::Int(b)) => a == b,
            (Attr::Float(a), Attr::Float(b)) => a.to_bits() == b.to_bits(),
            (Attr::Str(a), Attr::Str(b)) | (Attr::Function(a), Attr::Function(b)) => a == b,
            (Attr::DType(a), Attr::DType(b)) => a == b,
            (Attr::Ints(a), Attr::Ints(b)) => a == b,
            (Attr::Shape(a), Attr::Shape(b)) => a == b,
            (Attr::Tensor(a), Attr::Tensor(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Attr {}

impl Hash for Attr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Attr::None => {}
            Attr::Bool(v) => v.hash(state),
            Attr::Int(v) => v.hash(state),
            Attr::Float(v) => v.to_bits().hash(state),
            Attr::Str(v) | Attr::Function(v) => v.hash(state),
            Attr::DType(v) => v.hash(state),
            Attr::Ints(v) => v.hash(state),
            Attr::Shape(v) => v.hash(state),
            Attr::Tensor(v) => v.hash(state),
        }
    }
}
impl From<bool> for Attr {
    fn from(v: bool) -> Attr {
        Attr::Bool(v)
    }
}

impl From<i64> for Attr {
    fn from(v: i64) -> Attr {
        Attr::Int(v)
    }
}

impl From<f64> for Attr {
    fn from(v: f64) -> Attr {
        Attr::Float(v)
    }
}

impl From<DType> for Attr {
    fn from(v: DType) -> Attr {
        Attr::DType(v)
    }
}

impl From<Shape> for Attr {
    fn from(v: Shape) -> Attr {
        Attr::Shape(v.into())
    }
}

impl From<Tensor> for Attr {
    fn from(v: Tensor) -> Attr {
        Attr::Tensor(v.into())
    }
}

impl From<&[i64]> for Attr {
    fn from(v: &[i64]) -> Attr {
        Attr::Ints(v.into())
    }
}

impl From<&str> for Attr {
    fn from(v: &str) -> Attr {
        Attr::Str(v.into())
    }
}

impl<T: Into<Attr>> From<Option<T>> for Attr {
    fn from(v: Option<T>) -> Attr {
        v.map_or(Attr::None, Into::into)
    }
}
