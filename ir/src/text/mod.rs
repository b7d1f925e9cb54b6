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
//! entry func @gradients(%x: tensor<n x f32>, %y: tensor<n x f32> cotangent) -> (x: tensor<n x f32>) {
//!   return %y
//! }
//! extern func @custom(%x: tensor<*b x f32>) -> (output: tensor<*b x f32>) {
//!   body numpy "e = np.exp(-{x})"
//!     "return {x} / (1 + e)"
//!   body torch "return torch.nn.functional.silu({x})"
//! }
//! ```
//!
//! The first function is called from outside, and so are those marked `entry`.
//! An argument is named after its value unless a string follows its type. Attributes that have
//! their default are left out; types of results may be. A tensor is `dense<tensor<2 x f32>, [1.0,
//! 2.0]>`, one element for all of them, or its bytes as `hex"…"`. `//` begins a comment, but inside
//! brackets it divides. What inference knows beside types is not written: it is found again, and
//! the guards it asks for are added where they are missing. The strings of a body are its lines; see
//! [`TargetBody`](crate::external::TargetBody).

mod attrs;
mod cursor;
mod dot;
mod print;
mod resolve;
mod syntax;
mod version;

use crate::diagnostic::Result;
use crate::graph::Module;

pub use dot::dot;
pub use version::VERSION;

/// The text of the module.
pub fn print(module: &Module) -> String {
    module.to_string()
}

/// The module that the text describes; it is verified.
/// Errors: the first thing that is wrong, with its place in the text.
pub fn parse(source: &str) -> Result<Module> {
    let (text, migrated) = version::current(source)?;
    let parsed = syntax::parse(&text).and_then(|tree| resolve::module(&tree));
    parsed.map_err(|mut error| {
        if migrated {
            // The place is one in the migrated text, which the user does not have.
            error.span = None;
        }
        error
    })
}

/// Whether the name stands in text as it is, without quotes.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| is_identifier_char(b.into()))
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}
