//! The text form of modules, `.mir`.
//!
//! ```text
//! mithril 1                              // the version of the format
//! func @main(%x: tensor<batch x 784 x f32>, %w: tensor<784 x 10 x f32> param "layer 0",
//!            %c: tensor<2 x f32> state donated)
//!     -> (output: tensor<batch x 10 x f32>, next: tensor<2 x f32> state "c")
//!     where batch <= 512, a == b {
//!   %0 = matmul(%x, %w) : tensor<batch x 10 x f32> @ "linear_0"
//!   %h = softmax(%0) {axis = 0} : tensor<batch x 10 x f32> @ "a.b", "c"
//!   %1, %2 = call(%x, %w) {callee = @f} : tensor<f32>, tensor<f32>
//!   guard batch == n
//!   return %h, %c
//! }
//! entry func @gradients(%x: tensor<n x f32>, %y: tensor<n x f32> cotangent) -> (x: tensor<n x
//! f32>) {
//!   return %y
//! }
//! extern func @custom(%x: tensor<*b x f32>) -> (output: tensor<*b x f32>) {
//!   body numpy "e = np.exp(-{x})"
//!     "return {x} / (1 + e)"
//!   body torch "return torch.nn.functional.silu({x})"
//! }
//! ```
//!
//! The entry is the first function; those marked `entry` are also called from outside. An argument
//! has the name of its value unless a string follows its type. Attributes with their default are
//! left out; types of results may be left out. A tensor is `dense<tensor<2 x f32>, [1.0, 2.0]>`,
//! with a single element if all are equal, or with its bytes as `hex"…"`. `//` begins a comment,
//! but inside brackets it divides. Inferred facts other than types are not written: they are
//! inferred again, and missing guards are added. The strings of a body are its lines; see
//! [`TargetBody`](crate::external::TargetBody). A function with operations may have bodies, too:
//! a target uses its body instead of the operations. `computes "lstm"` after a signature names the
//! standard function that the operations compute, which a target may have itself.

mod attrs;
mod cursor;
mod dot;
mod print;
mod resolve;
mod syntax;
mod version;

use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::graph::Module;
use syntax::FunctionTree;

pub use cursor::Cursor;
pub use dot::dot;
pub use version::VERSION;

/// The text of the module.
pub fn print(module: &Module) -> String {
    module.to_string()
}

/// Parses and verifies a module.
/// Errors: the first problem, with its position in the text.
pub fn parse(source: &str) -> Result<Module> {
    parse_as(source, None)
}

/// Parses and verifies a module of generic functions, in which the dtype `float` stands for the
/// given one.
/// Errors: the first problem, with its position in the text.
pub fn parse_generic(source: &str, float: DType) -> Result<Module> {
    parse_as(source, Some(float))
}

fn parse_as(source: &str, float: Option<DType>) -> Result<Module> {
    read(source, float, resolve::module)
}

/// Checks that the bodies in a text are for these targets. The names of targets are not part of the
/// language, so parsing accepts any.
/// Errors: the first syntax error, or the first body for another target, with its position.
pub fn check_targets(source: &str, targets: &[&str]) -> Result<()> {
    read(source, Some(DType::F32), |trees| {
        let mut bodies = trees.iter().flat_map(|tree| &tree.bodies);
        bodies.try_for_each(|(body, span)| {
            body.check_target(targets).map_err(|error| resolve::with_span(error, span))
        })
    })
}

/// Parses the functions of a text and passes them on.
fn read<T>(
    source: &str,
    float: Option<DType>,
    then: impl FnOnce(&[FunctionTree]) -> Result<T>,
) -> Result<T> {
    let (text, migrated) = version::current(source)?;
    let read = syntax::parse(&text, float).and_then(|trees| then(&trees));
    read.map_err(|mut error| {
        if migrated {
            // The span is in the migrated text, which the user does not have.
            error.span = None;
        }
        error
    })
}

/// Whether the name can be written without quotes.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| is_identifier_char(b.into()))
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}
