//! Expressions on connections: each operator makes a block of the table in the model.

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};

use super::{Connection, Source};
use crate::blocks::{self, Kind};
use crate::setting::Setting;

/// An operator of the host language.
pub struct Operator {
    pub symbol: &'static str,
    /// The name in Python's data model, without underscores: `add` for `__add__`.
    pub name: &'static str,
    pub block: &'static str,
    /// Whether it has a reflected form (`__radd__`).
    pub reflected: bool,
}

const fn operator(symbol: &'static str, name: &'static str, block: &'static str) -> Operator {
    Operator { symbol, name, block, reflected: true }
}

const fn comparison(symbol: &'static str, name: &'static str, block: &'static str) -> Operator {
    Operator { reflected: false, ..operator(symbol, name, block) }
}

/// Operators of two connections.
pub const OPERATORS: &[Operator] = &[
    operator("+", "add", "Add"),
    operator("-", "sub", "Subtract"),
    operator("*", "mul", "Multiply"),
    operator("/", "truediv", "Divide"),
    operator("//", "floordiv", "FloorDivide"),
    operator("%", "mod", "Modulo"),
    operator("**", "pow", "Power"),
    operator("@", "matmul", "MatrixMultiply"),
    operator("&", "and", "LogicalAnd"),
    operator("|", "or", "LogicalOr"),
    operator("^", "xor", "LogicalXor"),
    operator("<<", "lshift", "ShiftLeft"),
    operator(">>", "rshift", "ShiftRight"),
    comparison("==", "eq", "Equal"),
    comparison("!=", "ne", "NotEqual"),
    comparison("<", "lt", "Less"),
    comparison("<=", "le", "LessEqual"),
    comparison(">", "gt", "Greater"),
    comparison(">=", "ge", "GreaterEqual"),
];

/// A method of a connection: a block whose first input is the connection.
pub struct Method {
    pub name: &'static str,
    pub block: &'static str,
    /// Read without call: `x.shape`, `-x`, `~x`.
    pub property: bool,
}

const fn method(name: &'static str, block: &'static str) -> Method {
    Method { name, block, property: false }
}

const fn property(name: &'static str, block: &'static str) -> Method {
    Method { property: true, ..method(name, block) }
}

/// Operators of one connection, methods and properties.
pub const METHODS: &[Method] = &[
    property("neg", "Negate"),
    property("invert", "LogicalNot"),
    property("abs", "Absolute"),
    property("shape", "Shape"),
    property("T", "Transpose"),
    method("sum", "Sum"),
    method("mean", "Mean"),
    method("max", "Max"),
    method("min", "Min"),
    method("prod", "Prod"),
    method("var", "Variance"),
    method("std", "Std"),
    method("argmax", "ArgMax"),
    method("argmin", "ArgMin"),
    method("sqrt", "Sqrt"),
    method("exp", "Exponential"),
    method("log", "Log"),
    method("reshape", "Reshape"),
    method("transpose", "Transpose"),
    method("cast", "Cast"),
    method("squeeze", "Squeeze"),
    method("expand_dims", "ExpandDims"),
    method("size", "Size"),
    method("len", "Length"),
    method("split", "Split"),
    method("item", "Indexer"),
];

impl Connection {
    /// `self <symbol> other`. Errors: an unknown operator; a sealed model.
    pub fn operate(&self, symbol: &str, other: impl Into<Source>) -> Result<Connection> {
        self.pair(symbol, self.into(), other.into())
    }

    /// `other <symbol> self`. Errors: an unknown operator; a sealed model.
    pub fn operate_reflected(&self, symbol: &str, other: impl Into<Source>) -> Result<Connection> {
        self.pair(symbol, other.into(), self.into())
    }

    fn pair(&self, symbol: &str, left: Source, right: Source) -> Result<Connection> {
        let Some(operator) = OPERATORS.iter().find(|o| o.symbol == symbol) else {
            return Diagnostic::new(format!("connections have no operator `{symbol}`")).err();
        };
        let block = blocks::build(operator.block, Vec::new(), Vec::new())?;
        self.model.apply(block.connect_in_order(vec![left, right])?)
    }

    /// A method or property by name, with the settings of its block.
    /// Errors: an unknown method; settings; a sealed model.
    pub fn method(
        &self,
        name: &str,
        positional: Vec<Setting>,
        named: Vec<(&str, Setting)>,
    ) -> Result<Connection> {
        let Some(method) = METHODS.iter().find(|m| m.name == name) else {
            let mut error = Diagnostic::new(format!("connections have no method `{name}`"));
            error.hint = did_you_mean(name, METHODS.iter().map(|m| m.name));
            return error.err();
        };
        let parameters = blocks::find(method.block).map_or(&[][..], |entry| entry.parameters);
        let mut shape = None;
        let mut positional = positional;
        for (parameter, value) in parameters.iter().zip(&mut positional) {
            // A whole shape that the model computes is an input of the parameter's name.
            if let (Kind::Dims, Setting::Connection(computed)) = (parameter.kind, &*value) {
                shape = Some((parameter.name, computed.clone()));
                *value = Setting::None;
            }
        }
        let block = blocks::build(method.block, positional, named)?.input(self)?;
        self.model.apply(block.connect(shape)?)
    }
}
