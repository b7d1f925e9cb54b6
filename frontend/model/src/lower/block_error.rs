//! Errors inside nested blocks, with their context: the path of the block and the origins of its
//! operands. Each enclosing block extends the context.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Fact, Label, Name};
use mithril_ir::op;
use mithril_ir::shape::Shape;

use crate::blocks::Meaning;
use crate::definition::Definition;
use crate::model::seal::{Composite, Feed, NetSource};

/// An error inside a block. The enclosing blocks complete its context.
pub(super) struct BlockError {
    pub diagnostic: Box<Diagnostic>,
    /// From the outermost block to the one that failed.
    path: Vec<Arc<str>>,
    kind: Option<Arc<str>>,
    pub operands: Vec<OperandContext>,
    /// The param or state of the block whose shape differs from the one that the block needs.
    wrong_shape: Option<Arc<str>>,
}

/// An operand of the block that failed.
pub(super) struct OperandContext {
    pub terminal: String,
    /// The type or the value, for the message.
    pub text: String,
    /// `None` for a literal.
    pub shape: Option<Shape>,
    pub fix_its: Vec<FixIt>,
    pub origin: Origin,
}

/// A fix for an operand: set this axis to this dim.
pub(super) struct FixIt {
    pub axis: usize,
    pub dim: i64,
}

/// The origin of an operand, relative to the block that the error has propagated to.
#[derive(Clone)]
pub(super) enum Origin {
    Input(u32),
    Block { path: Vec<Arc<str>>, terminal: Arc<str> },
    Constant,
}

pub(super) type BlockResult<T> = std::result::Result<T, Box<BlockError>>;

impl From<Box<Diagnostic>> for Box<BlockError> {
    fn from(diagnostic: Box<Diagnostic>) -> Box<BlockError> {
        Box::new(BlockError {
            diagnostic,
            path: Vec::new(),
            kind: None,
            operands: Vec::new(),
            wrong_shape: None,
        })
    }
}

impl From<Diagnostic> for Box<BlockError> {
    fn from(diagnostic: Diagnostic) -> Box<BlockError> {
        Box::new(diagnostic).into()
    }
}

impl BlockError {
    /// The error for a param or state whose shape differs from the one that its block needs.
    pub fn wrong_shape(terminal: &Arc<str>, needed: &Shape) -> Box<BlockError> {
        let what = format!("`{terminal}` has the wrong shape");
        let error = Diagnostic::of(ErrorKind::Shapes, what);
        let mut error: Box<BlockError> = error.expected(format!("{terminal}: {needed}")).into();
        error.wrong_shape = Some(terminal.clone());
        error
    }

    /// Attributes the error to this block.
    pub fn of_block(
        mut self: Box<BlockError>,
        name: &Arc<str>,
        definition: &Definition,
        operands: Vec<OperandContext>,
    ) -> Box<BlockError> {
        self.path.insert(0, name.clone());
        self.kind = Some(definition.kind.clone());
        self.operands = operands;
        self.diagnostic.place = None;
        // The message lists the operands by terminal and origin, so the operation's list of
        // operands is removed.
        if !self.operands.is_empty() {
            self.diagnostic.facts.retain(|fact| fact.label != Label::Operands);
        }
        self.diagnostic.rename(&|name| known_name(definition, name));
        self
    }

    /// Extends the context when the error propagates out of part `part` of a model.
    pub fn out_of(mut self: Box<BlockError>, composite: &Composite, part: u32) -> Box<BlockError> {
        let own = &composite.parts[part as usize];
        for operand in &mut self.operands {
            operand.origin = match &operand.origin {
                Origin::Input(i) => match &own.inputs[*i as usize] {
                    Feed::Net(net) => origin(composite, *net),
                    Feed::Key | Feed::Absent | Feed::List(_) => Origin::Constant,
                },
                Origin::Block { path, terminal } => Origin::Block {
                    path: std::iter::once(&own.name).chain(path).cloned().collect(),
                    terminal: terminal.clone(),
                },
                Origin::Constant => Origin::Constant,
            };
        }
        self.path.insert(0, own.name.clone());
        self
    }

    /// The complete message, once the error has reached the model that is compiled.
    pub fn report(self, root: &Definition) -> Box<Diagnostic> {
        let hint = self.shared_param(root).or_else(|| self.suggestion(root));
        let mut error = self.diagnostic;
        error.hint = error.hint.or(hint);
        let path = join(&self.path);
        error.place = match (&self.kind, path.is_empty()) {
            (Some(kind), true) => Some(format!("`{kind}`")),
            (Some(kind), false) => Some(format!("block `{path}` ({kind})")),
            (None, true) => error.place,
            (None, false) => Some(format!("block `{path}`")),
        };
        let operands = self.operands.into_iter().map(|operand| {
            let from = match &operand.origin {
                Origin::Input(i) => format!("the input `{}`", root.inputs[*i as usize].name),
                Origin::Block { path, terminal } => match join(path) {
                    path if path.is_empty() => format!("`{terminal}`"),
                    path => format!("`{path}.{terminal}`"),
                },
                Origin::Constant => "a constant".to_string(),
            };
            let value = format!("{} from {from}", operand.text).into();
            Fact { label: Label::Other(operand.terminal), value }
        });
        let rest = std::mem::take(&mut error.facts);
        error.facts = operands.chain(rest).collect();
        error
    }
}

impl BlockError {
    /// The hint for a shared param whose shape does not fit a block: use a copy of the block.
    fn shared_param(&self, root: &Definition) -> Option<String> {
        let wrong_shape = self.wrong_shape.as_deref()?;
        let operand = self.operands.iter().find(|operand| operand.terminal == wrong_shape)?;
        let Origin::Input(input) = operand.origin else { return None };
        let (name, own) = (&root.inputs[input as usize].name, join(&self.path));
        let is_shared =
            **name != format!("{own}.{}", operand.terminal) && **name != *operand.terminal;
        is_shared.then(|| {
            format!("`{name}` is shared; use `block.copy()` to get a block with its own params")
        })
    }
}

/// Translates a name of the block's operation to the name that the user knows: that of the block,
/// or of the terminal.
fn known_name(definition: &Definition, name: &Name) -> Option<String> {
    let (entry, _) = definition.origin.as_ref()?;
    match (name, entry.meaning) {
        (Name::Operation(_), _) => Some(entry.name.to_string()),
        (Name::Operand(own), Meaning::Op(op)) => {
            let mut inputs = op::get(op).operands.iter().zip(entry.inputs);
            inputs.find(|(operand, _)| operand.name == *own).map(|(_, input)| input.name.into())
        }
        (
            Name::Operand(_),
            Meaning::Lower(_) | Meaning::Compose(_) | Meaning::Body(_) | Meaning::Wrap(_),
        )
        | (Name::Function(_), _) => None,
    }
}

pub(super) fn join(path: &[Arc<str>]) -> String {
    let parts: Vec<&str> = path.iter().map(|p| &**p).filter(|p| !p.is_empty()).collect();
    parts.join(".")
}

/// The origin of a net of a model.
pub(super) fn origin(composite: &Composite, net: u32) -> Origin {
    match &composite.nets[net as usize].from {
        NetSource::Input(i) => Origin::Input(*i),
        NetSource::Value(_) => Origin::Constant,
        NetSource::Part { part, output } => {
            let part = &composite.parts[*part as usize];
            Origin::Block {
                path: vec![part.name.clone()],
                terminal: part.definition.outputs[*output as usize].name.clone(),
            }
        }
    }
}
