//! Expressions: each operator or method adds a block from the table. On a connection, the block
//! joins the model at once. On an `IoKey`, which belongs to no model yet, it joins the model that
//! first reads the expression.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};

use super::operators::{OPERATORS, methods};
use super::{Connection, IoKey, Model, Source};
use crate::block::Block;
use crate::blocks::{self, Kind};
use crate::setting::Setting;

impl Source {
    /// `self <symbol> other`: a connection, or an expression if no operand belongs to a model yet.
    /// Errors: an unknown operator; a sealed model.
    pub fn operate(&self, symbol: &str, other: impl Into<Source>) -> Result<Source> {
        let Some(operator) = OPERATORS.iter().find(|o| o.symbol == symbol) else {
            return Diagnostic::new(format!("connections have no operator `{symbol}`")).err();
        };
        Source::of(operator.block, vec![self.clone(), other.into()])
    }

    /// The result of a table block without settings, with its inputs given in order.
    /// Errors: those of [`Block::connect_in_order`]; a sealed model.
    pub fn of(block: &str, inputs: Vec<Source>) -> Result<Source> {
        let block = blocks::build(block, Vec::new(), Vec::new())?;
        block.connect_in_order(inputs)?.applied()
    }

    /// Calls a method or property by name. Positional arguments are the block's other inputs, then
    /// its settings. Errors: an unknown method; invalid settings; a sealed model.
    pub fn method(
        &self,
        name: &str,
        others: Vec<Source>,
        positional: Vec<Setting>,
        named: Vec<(&str, Setting)>,
    ) -> Result<Source> {
        let Some(method) = methods().iter().find(|m| m.name == name) else {
            let mut error = Diagnostic::new(format!("connections have no method `{name}`"));
            error.hint = did_you_mean(name, methods().iter().map(|m| &*m.name));
            return error.err();
        };
        let parameters = blocks::find(method.block).map_or(&[][..], |entry| entry.parameters);
        let mut shape = None;
        let mut positional = positional;
        for (parameter, value) in parameters.iter().zip(&mut positional) {
            // A shape that the model computes as a whole is connected to the input named after the
            // parameter.
            if let (Kind::Dims, Setting::Connection(computed)) = (parameter.kind, &*value) {
                shape = Some((parameter.name, Source::clone(computed)));
                *value = Setting::None;
            }
        }
        let block = blocks::build(method.block, positional, named)?;
        let inputs = std::iter::once(self.clone()).chain(others).collect();
        block.connect_in_order(inputs)?.connect(shape)?.applied()
    }

    /// Whether both are the same value of the same model.
    pub(crate) fn is(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Connection(own), Source::Connection(other)) => own == other,
            (Source::Expression(own), Source::Expression(other)) => Arc::ptr_eq(own, other),
            (Source::Key(own), Source::Key(other)) => own.name.is_some() && own.name == other.name,
            (Source::Name(own), Source::Name(other)) => own == other,
            (
                Source::Connection(_)
                | Source::Expression(_)
                | Source::Key(_)
                | Source::Name(_)
                | Source::Literal(_)
                | Source::List(_),
                _,
            ) => false,
        }
    }

    /// The model that this belongs to, if any.
    fn model(&self) -> Option<&Model> {
        match self {
            Source::Connection(connection) => Some(connection.model()),
            Source::List(items) => items.iter().find_map(Source::model),
            Source::Key(key) => key.connections.iter().find_map(Source::model),
            Source::Name(_) | Source::Literal(_) | Source::Expression(_) => None,
        }
    }

    fn has_expression(&self) -> bool {
        match self {
            Source::Expression(_) => true,
            Source::List(items) => items.iter().any(Source::has_expression),
            Source::Key(_) | Source::Name(_) | Source::Literal(_) | Source::Connection(_) => false,
        }
    }

    /// Errors: an `IoKey` without a name, which would become a new input each time it is read.
    fn check_named(&self) -> Result<()> {
        match self {
            Source::Key(key)
                if key.name.is_none() && key.value.is_none() && key.connections.is_empty() =>
            {
                Diagnostic::of(
                    ErrorKind::Connection,
                    "an expression cannot start from an `IOKey` without a name",
                )
                .got("IOKey()")
                .hint("`IOKey(\"x\")` is the input `x`")
                .err()
            }
            Source::List(items) => items.iter().try_for_each(Source::check_named),
            Source::Key(_)
            | Source::Name(_)
            | Source::Literal(_)
            | Source::Connection(_)
            | Source::Expression(_) => Ok(()),
        }
    }
}

impl Connection {
    /// `self <symbol> other`. Errors: an unknown operator; a sealed model.
    pub fn operate(&self, symbol: &str, other: impl Into<Source>) -> Result<Connection> {
        self.model.resolve(Source::from(self).operate(symbol, other)?)
    }

    /// `other <symbol> self`. Errors: an unknown operator; a sealed model.
    pub fn operate_reflected(&self, symbol: &str, other: impl Into<Source>) -> Result<Connection> {
        self.model.resolve(other.into().operate(symbol, self)?)
    }

    /// Calls a method or property by name, with the settings of its block. Errors: an unknown
    /// method; invalid settings; a sealed model.
    pub fn method(
        &self,
        name: &str,
        positional: Vec<Setting>,
        named: Vec<(&str, Setting)>,
    ) -> Result<Connection> {
        self.model.resolve(Source::from(self).method(name, Vec::new(), positional, named)?)
    }
}

impl Block {
    pub(super) fn reads_expressions(&self) -> bool {
        self.given.iter().any(|(_, source)| source.has_expression())
    }

    /// Adds the block to the model that its connections belong to and returns its result; an
    /// expression if none belongs to a model.
    fn applied(self) -> Result<Source> {
        if let Some(model) = self.given.iter().find_map(|(_, source)| source.model()) {
            return Ok(Source::Connection(model.clone().apply(self)?));
        }
        self.given.iter().try_for_each(|(_, source)| source.check_named())?;
        Ok(Source::Expression(Arc::new(self)))
    }
}

impl Model {
    /// Adds an input with the shape, dtype and differentiability that `key` states. Errors: no
    /// name; a name that a block writes; a used model.
    pub fn add_input(&self, key: impl Into<IoKey>) -> Result<Connection> {
        let key = key.into();
        let Some(name) = key.name.clone() else {
            return Diagnostic::of(ErrorKind::Connection, "an input of a model must have a name")
                .got("none")
                .err();
        };
        let mut graph = self.open()?;
        self.check_merge(&graph, &key, false)?;
        if let Some(writer) =
            graph.lookup(&name).and_then(|id| super::attach::describe_writer(&graph, id))
        {
            return Diagnostic::of(
                ErrorKind::Name,
                format!("the model has a terminal `{name}` already"),
            )
            .got(format!("`{name}`, which {writer} computes"))
            .hint("give the input another name")
            .err();
        }
        let id = super::attach::annotate(&mut graph, key, None);
        Ok(self.connection(id))
    }

    /// Makes a value an output with this name. The value is an expression, or a connection of the
    /// model, which is named if it has no name yet. Errors: two writers of one name; a used model.
    pub fn set_output(&self, name: &str, value: impl Into<Source>) -> Result<()> {
        let mut source = value.into();
        if let Source::Expression(_) = &source {
            source = Source::Connection(self.resolve(source)?);
        }
        let mut key = IoKey { expose: true, ..IoKey::new(name) };
        if let Source::Connection(connection) = &source {
            let mut graph = self.open()?;
            let id = graph.find(self.own_wire(connection)?);
            let named = graph.wire(id).name.is_some();
            if named && graph.lookup(name) == Some(id) {
                if graph.is_made(id) {
                    graph.wire_mut(id).expose = true;
                }
                return Ok(());
            }
            if !named && graph.is_made(id) {
                key.connections.push(source.clone());
                self.check_merge(&graph, &key, false)?;
                super::attach::annotate(&mut graph, key, None);
                return Ok(());
            }
        }
        let block = blocks::build("Buffer", Vec::new(), Vec::new())?;
        self.connect(block.input(source)?.output(key)?)
    }

    /// The connection of an expression in this model. Adds the expression's block, if it has not
    /// been added yet. Errors: those of [`Model::connect`].
    pub fn resolve(&self, source: Source) -> Result<Connection> {
        match source {
            Source::Connection(connection) => Ok(connection),
            Source::Expression(block) => {
                let key = Arc::as_ptr(&block) as usize;
                let known = self.open()?.expressions.get(&key).map(|(_, id)| *id);
                if let Some(id) = known {
                    return Ok(self.connection(id));
                }
                let made = self.apply(Block::clone(&block))?;
                self.open()?.expressions.insert(key, (block, made.id));
                Ok(made)
            }
            Source::Name(_) | Source::Literal(_) | Source::List(_) | Source::Key(_) => {
                let block = blocks::build("Buffer", Vec::new(), Vec::new())?;
                self.apply(block.input(source)?)
            }
        }
    }

    /// The block with its expressions replaced by connections. The output from which `+=` continues
    /// does not change.
    pub(super) fn with_expressions(&self, mut block: Block) -> Result<Block> {
        let last = self.open()?.last;
        for at in 0..block.given.len() {
            let (name, source) = block.given[at].clone();
            if block.inputs().iter().any(|t| t.name == name) {
                block.given[at].1 = self.without_expressions(source)?;
            }
        }
        self.open()?.last = last;
        Ok(block)
    }

    fn without_expressions(&self, source: Source) -> Result<Source> {
        match source {
            Source::Expression(_) => Ok(Source::Connection(self.resolve(source)?)),
            Source::List(items) => {
                let items = items.into_iter().map(|item| self.without_expressions(item));
                Ok(Source::List(items.collect::<Result<_>>()?))
            }
            Source::Name(_) | Source::Literal(_) | Source::Connection(_) | Source::Key(_) => {
                Ok(source)
            }
        }
    }
}

impl From<&str> for IoKey {
    fn from(name: &str) -> IoKey {
        IoKey::new(name)
    }
}
