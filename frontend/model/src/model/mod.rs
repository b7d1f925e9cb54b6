//! Models: mutable builders to which blocks are added in any order. A model that is used as a block
//! is sealed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType;

use crate::block::{Block, quoted};
use crate::identity::Identity;
use crate::lower::DimSpec;
use crate::naming::check_name;
use crate::numerics::Numerics;
use crate::place::Place;
use graph::Graph;
use seal::Sealed;

mod attach;
mod dtypes;
mod expression;
pub(crate) mod graph;
mod operators;
pub(crate) mod order;
pub(crate) mod readers;
mod reopen;
pub(crate) mod seal;
mod source;

pub use operators::{Method, OPERATORS, Operator, methods};
pub use source::{IoKey, Source};

/// A model under construction. Clones are handles to the same model.
///
/// A name may be read before it is written; blocks are sorted when the model is compiled or used as
/// a block. A model that has been used as a block can no longer be changed.
#[derive(Clone)]
pub struct Model {
    graph: Arc<Mutex<Graph>>,
}

/// A value inside a model: a named terminal, or the result of an expression.
#[derive(Clone)]
pub struct Connection {
    model: Model,
    id: u32,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    pub fn new() -> Model {
        Model::of_kind("Model")
    }

    /// A model whose block has the kind `kind`, such as the name of a class.
    pub fn of_kind(kind: &str) -> Model {
        let graph = Graph { kind: kind.into(), ..Graph::default() };
        Model { graph: Arc::new(Mutex::new(graph)) }
    }

    pub(crate) fn graph(&self) -> MutexGuard<'_, Graph> {
        // A panic never leaves the graph half changed: changes are checked before they are made.
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn kind(&self) -> Arc<str> {
        self.graph().kind.clone()
    }

    /// The name that the model was given, if any.
    pub fn name(&self) -> Option<Arc<str>> {
        self.graph().name.clone()
    }

    /// Names the block that the model becomes. Errors: an empty name, or one with dots; a used
    /// model.
    pub fn set_name(&self, name: &str) -> Result<()> {
        check_name(name, "block")?;
        self.open()?.name = Some(name.into());
        Ok(())
    }

    /// Sets whether the backward pass recomputes the model's inner values instead of keeping them,
    /// once the model is a block of another one. Errors: a used model.
    pub fn set_checkpoint(&self, checkpoint: bool) -> Result<()> {
        self.open()?.checkpoint = checkpoint;
        Ok(())
    }

    /// Sets where the model runs, once it is a block of another one. Errors: a used model.
    pub fn set_place(&self, place: Place) -> Result<()> {
        self.open()?.place = place;
        Ok(())
    }

    /// Sets the dtypes in which the model computes, once it is a block of another one. Errors: a used
    /// model.
    pub fn set_numerics(&self, numerics: Numerics) -> Result<()> {
        self.open()?.numerics = numerics;
        Ok(())
    }

    /// Gives the model a custom gradient, as [`Block::with_gradient`] does. The gradient is checked
    /// when the model is used as a block. Errors: a used model.
    pub fn set_gradient(&self, gradient: &Block) -> Result<()> {
        self.open()?.gradient = Some(gradient.clone());
        Ok(())
    }

    /// Whether the model has been used as a block.
    pub fn is_sealed(&self) -> bool {
        self.graph().sealed.is_some()
    }

    /// The number of blocks added so far.
    pub fn len(&self) -> usize {
        self.graph().children.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The graph, for changing it. Errors: the model has been used as a block.
    fn open(&self) -> Result<MutexGuard<'_, Graph>> {
        let graph = self.graph();
        if graph.sealed.is_none() {
            return Ok(graph);
        }
        Diagnostic::of(
            ErrorKind::ModelInUse,
            format!(
                "`{}` has been used, as a block or by `TrainModel`, and can no longer be changed",
                graph.kind
            ),
        )
        .hint(
            "add missing blocks before the model is used, or continue with its `copy()`, which \
             has its own params",
        )
        .err()
    }

    /// `model |= block`: adds the block with only the connections that it was given. Each remaining
    /// data input becomes an input of the model, named after the terminal. Errors: two writers of
    /// one name; a list terminal connected to something that is not a list; a used model.
    pub fn connect(&self, block: impl Into<Block>) -> Result<()> {
        self.attach(block.into(), false).map(drop)
    }

    /// `model += block`: like [`Model::connect`], but also connects the block's standard input to
    /// the model's last standard output, unless it was given. Errors: those of [`Model::connect`].
    pub fn extend(&self, block: impl Into<Block>) -> Result<()> {
        self.attach(block.into(), true).map(drop)
    }

    /// Adds the block and returns its standard output. Operators and methods of connections use
    /// this. Errors: those of [`Model::connect`]; a block without an output.
    pub fn apply(&self, block: Block) -> Result<Connection> {
        Ok(self.apply_with(block, "")?.0)
    }

    /// Adds the block. Returns its standard output, and its output named `other` if there is one.
    /// Errors: those of [`Model::apply`].
    pub(crate) fn apply_with(
        &self,
        block: Block,
        other: &str,
    ) -> Result<(Connection, Option<Connection>)> {
        let definition = block.definition.clone();
        let described = block.describe();
        let child = self.attach(block, false)?;
        let Some(standard) = definition.standard_output else {
            return Diagnostic::of(
                ErrorKind::Connection,
                format!("{described} has no standard output"),
            )
            .err();
        };
        let outputs = self.graph().children[child as usize].outputs.clone();
        let mut named = definition.outputs.iter().zip(&outputs).enumerate();
        let found = named.find(|(at, (o, _))| *at != standard as usize && *o.name == *other);
        let found = found.map(|(_, (_, id))| self.connection(*id));
        Ok((self.connection(outputs[standard as usize]), found))
    }

    fn connection(&self, id: u32) -> Connection {
        Connection { model: self.clone(), id }
    }

    /// Looks up a terminal by name. Errors: "Terminal not found".
    pub fn terminal(&self, name: &str) -> Result<Connection> {
        let graph = self.graph();
        Ok(self.connection(lookup(&graph, name)?))
    }

    /// The last standard output, from which `+=` continues.
    pub fn last(&self) -> Option<Connection> {
        let last = self.graph().last;
        last.map(|id| self.connection(id))
    }

    /// The names of all terminals, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.graph().names.keys().cloned().collect();
        names.sort();
        names
    }

    /// Makes the terminal an output even if a block inside reads it.
    /// Errors: "Terminal not found"; an input; a used model.
    pub fn expose(&self, name: &str) -> Result<()> {
        let mut graph = self.open()?;
        let id = lookup(&graph, name)?;
        if !graph.is_made(id) {
            return Diagnostic::of(
                ErrorKind::Connection,
                format!("`{name}` is an input: nothing writes it"),
            )
            .hint("use a `Buffer` to return an input as an output")
            .err();
        }
        let wire = graph.wire_mut(id);
        (wire.expose, wire.discard) = (true, false);
        Ok(())
    }

    /// Removes the terminal from the outputs. Errors: "Terminal not found"; an input; a used model.
    pub fn discard(&self, name: &str) -> Result<()> {
        let mut graph = self.open()?;
        let id = lookup(&graph, name)?;
        if !graph.is_made(id) {
            return Diagnostic::of(
                ErrorKind::Connection,
                format!("`{name}` is an input: only outputs can be discarded"),
            )
            .err();
        }
        let wire = graph.wire_mut(id);
        (wire.discard, wire.expose) = (true, false);
        Ok(())
    }

    /// Renames a terminal. Errors: "Terminal not found"; the name is taken; a used model.
    pub fn rename(&self, old: &str, new: &str) -> Result<()> {
        check_name(new, "terminal")?;
        let mut graph = self.open()?;
        let id = lookup(&graph, old)?;
        if graph.names.contains_key(new) {
            return Diagnostic::of(
                ErrorKind::Name,
                format!("the model has a terminal `{new}` already"),
            )
            .err();
        }
        graph.names.remove(old);
        graph.names.insert(new.into(), id);
        graph.wire_mut(id).name = Some(new.into());
        Ok(())
    }

    /// States the shapes of terminals: sizes, names of dims, or `Any` for a dim that may vary.
    /// Errors: "Terminal not found"; a used model.
    pub fn set_shapes<N: AsRef<str>>(
        &self,
        shapes: impl IntoIterator<Item = (N, Vec<DimSpec>)>,
    ) -> Result<()> {
        let mut graph = self.open()?;
        for (name, shape) in shapes {
            let id = lookup(&graph, name.as_ref())?;
            graph.wire_mut(id).shape = Some(shape.into());
        }
        Ok(())
    }

    /// States the dtypes of terminals. Errors: "Terminal not found"; a used model.
    pub fn set_types<N: AsRef<str>>(
        &self,
        types: impl IntoIterator<Item = (N, DType)>,
    ) -> Result<()> {
        let mut graph = self.open()?;
        for (name, dtype) in types {
            let id = lookup(&graph, name.as_ref())?;
            graph.wire_mut(id).dtype = Some(dtype);
        }
        Ok(())
    }

    /// Chooses the standard input and output of the model as a block, which `+=` connects.
    /// Errors: "Terminal not found"; a used model.
    pub fn set_standard(&self, input: Option<&str>, output: Option<&str>) -> Result<()> {
        let mut graph = self.open()?;
        let find = |name: Option<&str>| name.map(|n| lookup(&graph, n)).transpose();
        let (input, output) = (find(input)?, find(output)?);
        graph.standard = (input.or(graph.standard.0), output.or(graph.standard.1));
        Ok(())
    }

    /// Lets inputs be left out, unless a block needs them.
    pub(crate) fn set_optional<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut graph = self.graph();
        for name in names {
            let Some(id) = graph.lookup(name) else { continue };
            let reads = |port: &graph::Port| port.wires().iter().any(|own| graph.find(*own) == id);
            let terminals =
                graph.children.iter().flat_map(|c| c.block.inputs().iter().zip(&c.inputs));
            let optional = terminals.filter(|(_, port)| reads(port)).all(|(own, _)| own.optional);
            graph.wire_mut(id).optional = optional;
        }
    }

    /// The model as a block, without sealing it: the model can still be extended. Errors: cycles,
    /// unconnected list terminals, an empty model, two blocks of one name.
    pub fn block(&self) -> Result<Block> {
        let graph = self.graph();
        match &graph.sealed {
            Some(block) => Ok(block.clone()),
            None => build(&graph),
        }
    }

    /// The identity and the contents of the model. Errors: those of [`Model::block`].
    pub(crate) fn contents(&self) -> Result<(Identity, Sealed)> {
        let graph = self.graph();
        Ok((graph.identity, seal::seal(&graph)?))
    }

    /// Seals the model and returns it as a block. The model can no longer be changed. Errors: those
    /// of [`Model::block`].
    pub fn seal(&self) -> Result<Block> {
        let mut graph = self.graph();
        if let Some(block) = &graph.sealed {
            return Ok(block.clone());
        }
        let block = build(&graph)?;
        graph.sealed = Some(block.clone());
        Ok(block)
    }
}

fn build(graph: &Graph) -> Result<Block> {
    let mut block = Block::composite(graph.kind.clone(), graph.identity, seal::seal(graph)?);
    (block.name, block.checkpoint) = (graph.name.clone(), graph.checkpoint);
    (block.place, block.numerics) = (graph.place.clone(), graph.numerics);
    match &graph.gradient {
        Some(gradient) => block.with_gradient(gradient),
        None => Ok(block),
    }
}

/// The maximum number of names that a message lists.
const SHOWN: usize = 8;

pub(crate) fn lookup(graph: &Graph, name: &str) -> Result<u32> {
    if let Some(id) = graph.lookup(name) {
        return Ok(id);
    }
    let mut error =
        Diagnostic::of(ErrorKind::Terminal, format!("`{}` has no terminal `{name}`", graph.kind));
    let mut names: Vec<&str> = graph.names.keys().map(|n| &**n).collect();
    names.sort_unstable();
    error.hint = did_you_mean(name, names.iter().copied());
    if error.hint.is_none() && !names.is_empty() {
        let more = if names.len() > SHOWN { ", …" } else { "" };
        names.truncate(SHOWN);
        error = error.expected(format!("one of {}{more}", quoted(&names)));
    }
    error.err()
}

impl Connection {
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The terminal name of the connection, if it has one.
    pub fn name(&self) -> Option<Arc<str>> {
        self.model.graph().wire(self.id).name.clone()
    }

    /// Element `index` of a list output; a negative index counts from the end. Errors: the
    /// connection is not a list; the index is out of range.
    pub fn element(&self, index: i64) -> Result<Connection> {
        let graph = self.model.graph();
        let Some(elements) = &graph.wire(self.id).elements else {
            return Diagnostic::of(ErrorKind::Connection, "only a list output has elements")
                .hint("index the values of a connection with `Indexer`")
                .err();
        };
        let count = elements.len() as i64;
        let at = if index < 0 { index + count } else { index };
        match elements.get(usize::try_from(at).unwrap_or(usize::MAX)) {
            Some(id) => Ok(self.model.connection(*id)),
            None => {
                Diagnostic::of(ErrorKind::Index, "the index is out of range of the list output")
                    .at(attach::describe_writer(&graph, self.id)
                        .unwrap_or_else(|| format!("{self:?}")))
                    .got(index)
                    .expected(format!("an index from {} to {}", -count, count - 1))
                    .err()
            }
        }
    }

    /// The number of elements, if the connection is a list output.
    pub fn elements(&self) -> Option<usize> {
        let graph = self.model.graph();
        graph.wire(self.id).elements.as_ref().map(Vec::len)
    }
}

impl PartialEq for Connection {
    fn eq(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.model.graph, &other.model.graph) && {
            let graph = self.model.graph();
            graph.find(self.id) == graph.find(other.id)
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "Connection({name})"),
            None => write!(f, "Connection(#{})", self.id),
        }
    }
}
