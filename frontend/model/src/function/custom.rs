//! Custom operations: blocks whose bodies the user writes, for each target or for all of them.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::external::TargetBody;
use mithril_ir::graph::Value;
use mithril_ir::text::is_identifier;

use super::signature;
use crate::block::Block;
use crate::definition::Definition;
use crate::text_function::TextFunction;

/// The first words of errors about arguments.
const WRONG: &str = "Unexpected argument: `custom`";

/// A custom operation under construction.
///
/// ```
/// use mithril_model::Custom;
///
/// # fn main() -> mithril_ir::diagnostic::Result<()> {
/// let swish = Custom::new("swish")
///     .shape("(x: [*b]) -> [*b]")
///     .body("numpy", "return x / (1 + np.exp(-x))")
///     .body("torch", "return F.silu(x)")
///     .block()?;
/// assert_eq!(swish.outputs()[0].name.as_ref(), "output");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Custom {
    name: String,
    mir: Option<String>,
    shape: Option<String>,
    bodies: Vec<(String, String)>,
    gradient: Gradient,
}

#[derive(Clone, Default)]
enum Gradient {
    /// Derived from the operations of the `.mir` text, if there is one.
    #[default]
    Derived,
    Block(Block),
    /// Bodies of a function whose signature follows from the operation's signature.
    Bodies(Vec<(String, String)>),
}

impl Custom {
    pub fn new(name: impl Into<String>) -> Custom {
        Custom { name: name.into(), ..Custom::default() }
    }

    /// Sets the body for all targets without a body: a `.mir` text. The operation is the function
    /// with the operation's name, or else the only function that no other function calls.
    pub fn mir(mut self, text: impl Into<String>) -> Custom {
        self.mir = Some(text.into());
        self
    }

    /// Sets the signature, such as `(x: [*b, n], w: f32[n, m]) -> [*b, m]`. An array without a
    /// dtype has the dtype of the model's floats.
    pub fn shape(mut self, signature: impl Into<String>) -> Custom {
        self.shape = Some(signature.into());
        self
    }

    /// Sets the body for a target: the lines of a function that reads the arguments by their names.
    /// Python code returns the results, C code stores them.
    pub fn body(mut self, target: impl Into<String>, text: impl Into<String>) -> Custom {
        self.bodies.push((target.into(), text.into()));
        self
    }

    /// Sets the block that computes the gradients. Its inputs are named after this block's inputs,
    /// its outputs, or its outputs with the suffix `_gradient`. Its outputs are named after this
    /// block's inputs with the suffix `_gradient`.
    pub fn gradient(mut self, block: &Block) -> Custom {
        self.gradient = Gradient::Block(block.clone());
        self
    }

    /// Sets bodies that compute the gradients, by target. A body reads all inputs, all outputs, and
    /// the gradient `y_gradient` of each float output `y`. It computes the gradient `x_gradient` of
    /// each float input `x`. The target `mir` stands for every target.
    pub fn gradient_bodies(mut self, bodies: Vec<(String, String)>) -> Custom {
        self.gradient = Gradient::Bodies(bodies);
        self
    }

    /// Builds the block. The names of targets are checked when the block is compiled.
    ///
    /// Errors: no body; neither a signature nor `.mir` text, or both; text that cannot be read; a
    /// gradient with terminals of other names.
    pub fn block(self) -> Result<Block> {
        let function = self.function()?;
        let gradient = match &self.gradient {
            Gradient::Derived => None,
            Gradient::Block(block) => Some(block.clone()),
            Gradient::Bodies(bodies) => Some(gradient(&function, bodies)?),
        };
        let block = Block::new(Definition::function(function)?);
        match gradient {
            Some(gradient) => block.with_gradient(&gradient),
            None => Ok(block),
        }
    }

    fn function(&self) -> Result<TextFunction> {
        let what = |rest: &str| Diagnostic::of(ErrorKind::Argument, format!("{WRONG} {rest}"));
        if !is_identifier(&self.name) || self.name.contains('.') {
            return what("needs a valid name for the function")
                .got(format!("`{}`", self.name))
                .expected("letters, digits and underscores")
                .err();
        }
        if self.mir.is_none() && self.bodies.is_empty() {
            return what("has no body")
                .expected("`mir=` for every backend, or bodies by the names of backends")
                .err();
        }
        let bodies = bodies(&self.bodies);
        match (&self.mir, &self.shape) {
            (Some(_), Some(_)) => what("has two signatures")
                .hint("leave out `shape=`, as the text of `mir=` already declares the shapes")
                .err(),
            (None, None) => {
                what("needs `shape=`, as the bodies do not declare the shapes of results")
                    .hint("`shape=\"(x: [*b, n]) -> [*b, n]\"`")
                    .err()
            }
            (Some(text), None) => {
                // If the text has several functions, the name selects one. Otherwise the name is
                // free.
                TextFunction::read(text, None, bodies.clone()).or_else(|error| {
                    TextFunction::read(text, Some(&self.name), bodies).map_err(|_| error)
                })
            }
            (None, Some(shape)) => {
                let (inputs, outputs) = signature::parse(shape)?;
                external(&self.name, &inputs, &outputs, bodies)
            }
        }
    }
}

/// An external function of this signature.
fn external(
    name: &str,
    inputs: &[signature::Slot],
    outputs: &[signature::Slot],
    bodies: Vec<TargetBody>,
) -> Result<TextFunction> {
    let list = |slots: &[signature::Slot], sign: &str| {
        let each = slots.iter().map(|slot| format!("{sign}{}: {}", slot.name, slot.ty));
        each.collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "mithril 1\nextern func @{name}({}) -> ({})\n",
        list(inputs, "%"),
        list(outputs, "")
    );
    TextFunction::read(&text, Some(name), bodies)
}

/// The bodies as templates: braces are literal, and arguments have their own names.
fn bodies(given: &[(String, String)]) -> Vec<TargetBody> {
    let body = |(target, text): &(String, String)| {
        let text = dedented(text).replace('{', "{{").replace('}', "}}");
        TargetBody { target: target.as_str().into(), text: text.into() }
    };
    given.iter().map(body).collect()
}

/// The text without the indentation that all of its lines share, and without empty lines around it.
fn dedented(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let blank = |line: &&str| line.trim().is_empty();
    let lines: Vec<&str> = text.split('\n').collect();
    let first = lines.iter().position(|line| !blank(line)).unwrap_or(0);
    let last = lines.iter().rposition(|line| !blank(line)).map_or(0, |at| at + 1);
    let lines = &lines[first..last.max(first)];
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let least = lines.iter().copied().filter(|line| !blank(line)).map(indent).min().unwrap_or(0);
    let cut = |line: &&str| line.get(least..).unwrap_or("").trim_end().to_string();
    lines.iter().map(cut).collect::<Vec<_>>().join("\n")
}

/// The block of the gradients that are given as bodies.
fn gradient(of: &TextFunction, given: &[(String, String)]) -> Result<Block> {
    let name = format!("{}_gradient", of.name.replace('.', "_"));
    let (mir, rest): (Vec<_>, Vec<_>) =
        given.iter().cloned().partition(|(target, _)| target == "mir");
    let bodies = bodies(&rest);
    let function = match mir.into_iter().next() {
        Some((_, text)) => TextFunction::read(&text, None, bodies)?,
        None => {
            let (inputs, outputs) = gradient_signature(of)?;
            external(&name, &inputs, &outputs, bodies)?
        }
    };
    Ok(Block::new(Definition::function(function)?))
}

type Slots = Vec<signature::Slot>;

/// The arguments and results of the function that computes the gradients.
fn gradient_signature(of: &TextFunction) -> Result<(Slots, Slots)> {
    let types = of.type_texts()?;
    let function = &of.function;
    let slot =
        |name: String, value: Value| signature::Slot { name, ty: types[value.index()].clone() };
    let is_float = |value: Value| function.ty(value).dtype.is_float();
    let (mut inputs, mut outputs) = (Slots::new(), Slots::new());
    for (value, argument) in function.arguments() {
        inputs.push(slot(argument.name.to_string(), value));
        if is_float(value) {
            outputs.push(slot(format!("{}_gradient", argument.name), value));
        }
    }
    for result in &function.results {
        inputs.push(slot(result.name.to_string(), result.value));
    }
    for result in function.results.iter().filter(|result| is_float(result.value)) {
        inputs.push(slot(format!("{}_gradient", result.name), result.value));
    }
    Ok((inputs, outputs))
}
