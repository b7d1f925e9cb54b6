//! The names of operators and methods of connections, and the block that each of them builds.

use std::sync::LazyLock;

use rustc_hash::FxHashSet;

use crate::blocks::{self, Group};
use crate::naming::snake_case;

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

/// Binary operators.
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
    pub name: String,
    pub block: &'static str,
    /// Whether it is read without a call: `x.shape`, `-x`, `~x`.
    pub property: bool,
}

/// Properties: unary operators, and attributes that are read without a call.
const PROPERTIES: &[(&str, &str)] = &[
    ("neg", "Negate"),
    ("invert", "LogicalNot"),
    ("abs", "Absolute"),
    ("shape", "Shape"),
    ("T", "Transpose"),
];

/// Methods for blocks that are not elementwise, and short names for some that are.
const NAMED: &[(&str, &str)] = &[
    ("sum", "Sum"),
    ("mean", "Mean"),
    ("max", "Max"),
    ("min", "Min"),
    ("prod", "Prod"),
    ("var", "Variance"),
    ("std", "Std"),
    ("argmax", "ArgMax"),
    ("argmin", "ArgMin"),
    ("any", "Any"),
    ("all", "All"),
    ("cumsum", "Cumsum"),
    ("softmax", "Softmax"),
    ("flatten", "Flatten"),
    ("exp", "Exponential"),
    ("sin", "Sine"),
    ("cos", "Cosine"),
    ("reshape", "Reshape"),
    ("transpose", "Transpose"),
    ("squeeze", "Squeeze"),
    ("expand_dims", "ExpandDims"),
    ("size", "Size"),
    ("len", "Length"),
    ("split", "Split"),
    ("item", "Indexer"),
];

/// All methods and properties: the named ones, then each elementwise block of the table under its
/// name in snake case.
static METHODS: LazyLock<Vec<Method>> = LazyLock::new(|| {
    let named = |property| {
        move |(name, block): &(&str, &'static str)| Method {
            name: name.to_string(),
            block,
            property,
        }
    };
    let mut methods: Vec<Method> = PROPERTIES.iter().map(named(true)).collect();
    methods.extend(NAMED.iter().map(named(false)));
    let taken: FxHashSet<String> = methods.iter().map(|m| m.name.clone()).collect();
    let elementwise =
        blocks::table().filter(|e| matches!(e.group, Group::Elementwise | Group::Binary));
    let derived = elementwise.map(|e| named(false)(&(&snake_case(e.name), e.name)));
    methods.extend(derived.filter(|m| !taken.contains(&m.name)));
    methods
});

/// All unary operators, methods and properties.
pub fn methods() -> &'static [Method] {
    &METHODS
}
