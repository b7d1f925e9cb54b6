//! Adds a block to a model. Its connections are checked first, so that an error leaves the model
//! unchanged.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::Role;
use rustc_hash::FxHashMap;

use super::graph::{Child, Graph, Port, Wire, Writer};
use super::{Connection, IoKey, Model, Source};
use crate::block::{Block, quoted};
use crate::definition::{Outlet, Terminal};
use crate::literal::Literal;
use crate::naming::check_name;

/// A checked source of an input.
enum CheckedSource {
    Name(Arc<str>),
    Connection(Connection),
    Literal(Literal),
    Key(Box<IoKey>),
}

/// The checked sources of an input. Only list terminals have several.
enum CheckedSources {
    One(CheckedSource),
    List(Vec<CheckedSource>),
}

/// A checked target of an output.
enum CheckedTarget<'a> {
    Name(&'a Arc<str>),
    Connection(&'a Connection),
    Key(&'a IoKey),
}

impl Model {
    /// Adds the block; `chain` connects its standard input to the last standard output.
    pub(super) fn attach(&self, block: Block, chain: bool) -> Result<u32> {
        check_block_name(&*self.open()?, &block)?;
        if !block.reads_expressions() {
            return self.add(block, chain);
        }
        let before = self.open()?.clone();
        let added = self.with_expressions(block).and_then(|block| self.add(block, chain));
        if added.is_err() {
            *self.open()? = before;
        }
        added
    }

    fn add(&self, block: Block, chain: bool) -> Result<u32> {
        let mut graph = self.open()?;
        let definition = block.definition.clone();
        let by_name: FxHashMap<&Arc<str>, &Source> =
            block.given.iter().rev().map(|(name, source)| (name, source)).collect();
        let given = |name: &Arc<str>| by_name.get(name).copied();
        let mut inputs: Vec<Option<CheckedSources>> = Vec::with_capacity(definition.inputs.len());
        for terminal in &definition.inputs {
            inputs.push(match given(&terminal.name) {
                Some(source) => Some(self.check_input(&graph, &block, terminal, source)?),
                None if terminal.list && !terminal.optional => {
                    return empty_list(&block, terminal).err();
                }
                None => None,
            });
        }
        let (mut targets, mut written) = (Vec::new(), Vec::new());
        for outlet in &definition.outputs {
            let check = |source| self.check_output(&graph, &block, outlet, source, &mut written);
            targets.push(given(&outlet.name).map(check).transpose()?);
        }
        if let (true, Some(last)) = (chain, graph.last) {
            match definition.standard_input {
                Some(at) => {
                    let chained =
                        || CheckedSources::One(CheckedSource::Connection(self.connection(last)));
                    inputs[at as usize].get_or_insert_with(chained);
                }
                None => check_connected(&block)?,
            }
        }
        let child = graph.children.len() as u32;
        let ports = inputs.into_iter().zip(&definition.inputs);
        let ports = ports.map(|(sources, terminal)| read(&mut graph, terminal, sources)).collect();
        if let Some(name) = &block.name {
            graph.named_children.insert(name.clone(), child);
        }
        graph.children.push(Child {
            block: Block { given: Vec::new(), ..block.clone() },
            inputs: ports,
            outputs: Vec::new(),
            fold: None,
        });
        let outputs = definition.outputs.iter().zip(targets).enumerate();
        let outputs: Vec<u32> = outputs
            .map(|(i, (outlet, target))| write(&mut graph, child, i as u32, outlet, target))
            .collect();
        if let Some(at) = definition.standard_output {
            graph.last = Some(outputs[at as usize]);
        }
        graph.children[child as usize].outputs = outputs;
        Ok(child)
    }

    pub(super) fn own_wire(&self, connection: &Connection) -> Result<u32> {
        if Arc::ptr_eq(&connection.model.graph, &self.graph) {
            return Ok(connection.id);
        }
        Diagnostic::of(ErrorKind::OtherModel, "a connection of one model is used in another")
            .hint("connect the models' terminals by name")
            .err()
    }

    fn check_input(
        &self,
        graph: &Graph,
        block: &Block,
        terminal: &Terminal,
        source: &Source,
    ) -> Result<CheckedSources> {
        match source {
            Source::List(items) if terminal.list => {
                let single = Terminal { list: false, ..terminal.clone() };
                let sources =
                    items.iter().map(|item| self.check_source(graph, block, &single, item));
                Ok(CheckedSources::List(sources.collect::<Result<_>>()?))
            }
            _ => Ok(CheckedSources::One(self.check_source(graph, block, terminal, source)?)),
        }
    }

    fn check_source(
        &self,
        graph: &Graph,
        block: &Block,
        terminal: &Terminal,
        source: &Source,
    ) -> Result<CheckedSource> {
        let wrong = |got: &str, expected: &str| {
            Diagnostic::of(
                ErrorKind::Connection,
                format!("`{}` of {} cannot be connected to this", terminal.name, block.describe()),
            )
            .got(got)
            .expected(expected)
            .err()
        };
        let bundle = |id: u32| graph.wire(id).elements.is_some();
        match source {
            Source::List(_) => wrong("a list", "one connection, name or value"),
            Source::Name(name) => {
                check_name(name, "terminal")?;
                match graph.lookup(name) {
                    Some(id) if bundle(id) && !terminal.list => {
                        wrong("a list output", "one of its elements, by index")
                    }
                    Some(id) if !bundle(id) && terminal.list => wrong("one name", "a list"),
                    None if terminal.list => wrong("one name", "a list"),
                    _ => Ok(CheckedSource::Name(name.clone())),
                }
            }
            Source::Connection(connection) => {
                match (bundle(self.own_wire(connection)?), terminal.list) {
                    (true, false) => wrong("a list output", "one of its elements, by index"),
                    (false, true) => wrong("one connection", "a list"),
                    _ => Ok(CheckedSource::Connection(connection.clone())),
                }
            }
            Source::Literal(_) if terminal.list => wrong("one value", "a list"),
            Source::Literal(value) => Ok(CheckedSource::Literal(value.clone())),
            Source::Key(_) if terminal.list => wrong("an IOKey", "a list"),
            Source::Key(key) => {
                self.check_merge(graph, key, false)?;
                Ok(CheckedSource::Key(key.clone()))
            }
            Source::Expression(_) => wrong("an expression of no model", "a connection"),
        }
    }

    /// Checks that the connections which an `IoKey` merges have at most one writer or value in
    /// total.
    pub(super) fn check_merge(&self, graph: &Graph, key: &IoKey, written: bool) -> Result<()> {
        let mut writers: Vec<String> = Vec::new();
        let mut add = |id: u32| {
            let id = graph.find(id);
            if let Some(writer) = describe_writer(graph, id) {
                if !writers.contains(&writer) {
                    writers.push(writer);
                }
            }
        };
        if let Some(name) = &key.name {
            check_name(name, "terminal")?;
            if let Some(id) = graph.lookup(name) {
                add(id);
            }
        }
        for source in &key.connections {
            match source {
                Source::Connection(connection) => add(self.own_wire(connection)?),
                Source::Name(name) => add(super::lookup(graph, name)?),
                Source::Literal(_) | Source::List(_) | Source::Key(_) | Source::Expression(_) => {
                    return Diagnostic::of(
                        ErrorKind::Argument,
                        "`connections` of an IOKey takes names and connections",
                    )
                    .err();
                }
            }
        }
        if key.value.is_some() {
            writers.push("its value".into());
        }
        if written {
            writers.push("the block being added".into());
        }
        if writers.len() > 1 {
            let name = key.name.as_deref().unwrap_or("the connection");
            return two_writers(graph, name, &writers[0], &writers[1]);
        }
        match (&key.device, writers.first()) {
            (Some(device), Some(writer)) => placed_value(device, writer),
            _ => Ok(()),
        }
    }

    fn check_output<'a>(
        &self,
        graph: &Graph,
        block: &Block,
        outlet: &Outlet,
        source: &'a Source,
        written: &mut Vec<u32>,
    ) -> Result<CheckedTarget<'a>> {
        let what = || format!("`{}` of {}", outlet.name, block.describe());
        let (target, id) = match source {
            Source::Name(name) => {
                check_name(name, "terminal")?;
                (CheckedTarget::Name(name), graph.lookup(name))
            }
            Source::Connection(connection) => (
                CheckedTarget::Connection(connection),
                Some(graph.find(self.own_wire(connection)?)),
            ),
            Source::Key(key) => {
                self.check_merge(graph, key, true)?;
                (CheckedTarget::Key(key), key.name.as_ref().and_then(|name| graph.lookup(name)))
            }
            Source::Literal(_) | Source::List(_) | Source::Expression(_) => {
                return Diagnostic::of(ErrorKind::Connection, format!("{} is an output", what()))
                    .got("a value")
                    .expected("a name or a connection that it writes")
                    .err();
            }
        };
        let Some(id) = id else { return Ok(target) };
        if let Some(writer) = describe_writer(graph, id) {
            let name = graph.wire(id).name.clone().unwrap_or_else(|| "the connection".into());
            return two_writers(graph, &name, &writer, &block.describe());
        }
        if let Some(device) = &graph.wire(id).device {
            return placed_value(device, &block.describe());
        }
        if written.contains(&id) {
            let name = graph.wire(id).name.clone().unwrap_or_else(|| "the connection".into());
            return two_writers(graph, &name, &what(), "another output of the same block");
        }
        if outlet.list.is_some() && graph.wire(id).readers > 0 {
            return Diagnostic::of(
                ErrorKind::Connection,
                format!("{} is a list, but its connection has been read as one value", what()),
            )
            .hint("add the block that creates the list before those that read it")
            .err();
        }
        written.push(id);
        Ok(target)
    }
}

/// The error that a value which is no param has a device.
fn placed_value<T>(device: &str, writer: &str) -> Result<T> {
    Diagnostic::of(ErrorKind::Connection, "`device` of an IOKey is for params")
        .got(format!("device={device:?} for a value of {writer}"))
        .hint("`device=` of a block says where the block runs")
        .err()
}

fn empty_list(block: &Block, list: &Terminal) -> Diagnostic {
    let name = &list.name;
    let what = format!(
        "`{name}` of {} takes a list of connections, but nothing was given",
        block.describe()
    );
    Diagnostic::of(ErrorKind::Connection, what).hint(format!("{name}=[…]"))
}

/// Checks a block that `+=` adds after others. If it has no standard input, at least one of its
/// data inputs must be connected. Errors: none is.
fn check_connected(block: &Block) -> Result<()> {
    let data = block.inputs().iter().filter(|t| t.role == Role::Data);
    let names: Vec<&Arc<str>> = data.map(|t| &t.name).collect();
    if names.iter().any(|name| block.given.iter().any(|(given, _)| given == *name)) {
        return Ok(());
    }
    let what = match names.is_empty() {
        true => "reads nothing",
        false => "has no standard input",
    };
    let what = format!("`+=` connects a block to the last output, but {} {what}", block.describe());
    let error = Diagnostic::of(ErrorKind::Connection, what);
    match names.first() {
        None => error.hint("`model |= …` adds it without that connection"),
        Some(first) => error.expected(format!("connections of {}", quoted(&names))).hint(format!(
            "`model += block({first}=…)`, or `set_standard(input=\"{first}\")` of the block's model"
        )),
    }
    .err()
}

/// Checks the name of the block. Errors: another object in the model has the same name.
fn check_block_name(graph: &Graph, block: &Block) -> Result<()> {
    let Some(name) = &block.name else { return Ok(()) };
    let Some(&first) = graph.named_children.get(name) else { return Ok(()) };
    let first = &graph.children[first as usize].block;
    if first.identity == block.identity {
        return Ok(());
    }
    let model = graph.name.as_ref().unwrap_or(&graph.kind);
    Diagnostic::of(ErrorKind::Name, format!("two blocks are called `{name}`"))
        .at(format!("the model `{model}`"))
        .got(format!("{} and {}", first.text(), block.text()))
        .expected("one object for each name, which may be used several times")
        .hint("give one of them another name")
        .err()
}

/// Describes the writer of the wire for messages. `None` if it has no writer yet.
pub(super) fn describe_writer(graph: &Graph, id: u32) -> Option<String> {
    let wire = graph.wire(id);
    match (wire.writer, &wire.value) {
        (Some(writer), _) => Some(graph.describe_child(writer.child)),
        (None, Some(value)) => Some(format!("the value {}", value.text())),
        (None, None) => None,
    }
}

fn two_writers<T>(graph: &Graph, name: &str, first: &str, second: &str) -> Result<T> {
    Diagnostic::of(ErrorKind::TwoWriters, format!("two blocks write `{name}`"))
        .at(format!("the model `{}`", graph.name.as_ref().unwrap_or(&graph.kind)))
        .got(format!("{first} and {second}"))
        .expected("one writer for each name")
        .hint("give one of them another name")
        .err()
}

fn read(graph: &mut Graph, terminal: &Terminal, sources: Option<CheckedSources>) -> Port {
    match sources {
        Some(CheckedSources::List(sources)) => {
            let wires = sources.into_iter().map(|source| read_one(graph, terminal, source));
            Port::List(wires.collect())
        }
        Some(CheckedSources::One(source)) if terminal.list => {
            let id = resolve(graph, terminal, source);
            let elements = graph.wire(id).elements.clone().unwrap_or_default();
            for element in &elements {
                graph.wire_mut(*element).readers += 1;
            }
            graph.wire_mut(id).readers += 1;
            Port::List(elements)
        }
        Some(CheckedSources::One(source)) => Port::Wire(read_one(graph, terminal, source)),
        None if terminal.role != Role::Data || terminal.optional => Port::Open,
        None => {
            let id = graph.fresh_input(&terminal.name);
            graph.wire_mut(id).readers += 1;
            Port::Wire(id)
        }
    }
}

fn read_one(graph: &mut Graph, terminal: &Terminal, source: CheckedSource) -> u32 {
    let id = resolve(graph, terminal, source);
    graph.wire_mut(id).readers += 1;
    id
}

fn resolve(graph: &mut Graph, terminal: &Terminal, source: CheckedSource) -> u32 {
    match source {
        CheckedSource::Name(name) => graph.named(&name),
        CheckedSource::Connection(connection) => graph.find(connection.id),
        CheckedSource::Literal(value) => {
            graph.add_wire(Wire { value: Some(value), ..Wire::default() })
        }
        CheckedSource::Key(key) => annotate(graph, *key, Some(terminal)),
    }
}

/// Returns the wire that an `IoKey` describes, after setting the properties that the key states.
pub(super) fn annotate(graph: &mut Graph, key: IoKey, terminal: Option<&Terminal>) -> u32 {
    let joined = key.connections.iter().filter_map(|source| match source {
        Source::Connection(connection) => Some(connection.id),
        Source::Name(name) => graph.names.get(name).copied(),
        // `check_merge` refuses these.
        Source::Literal(_) | Source::List(_) | Source::Key(_) | Source::Expression(_) => None,
    });
    let joined: Vec<u32> = joined.collect();
    let id = match (&key.name, joined.first(), terminal) {
        (Some(name), ..) => graph.named(name),
        (None, Some(id), _) => *id,
        (None, None, Some(terminal)) if key.value.is_none() => {
            if terminal.role == Role::Data {
                graph.fresh_input(&terminal.name)
            } else {
                let base = terminal.name.replace('.', "_");
                graph.fresh_input(&base)
            }
        }
        _ => graph.add_wire(Wire::default()),
    };
    for other in joined {
        graph.merge(other, id);
    }
    let wire = graph.wire_mut(id);
    wire.value = wire.value.take().or(key.value);
    wire.shape = key.shape.or(wire.shape.take());
    wire.dtype = key.dtype.or(wire.dtype);
    wire.device = key.device.or(wire.device.take());
    wire.expose |= key.expose;
    if let Some(learned) = key.differentiable {
        wire.role = Some(if learned { Role::Param } else { Role::Data });
    }
    graph.find(id)
}

fn write(
    graph: &mut Graph,
    child: u32,
    output: u32,
    outlet: &Outlet,
    target: Option<CheckedTarget>,
) -> u32 {
    let id = match target {
        Some(CheckedTarget::Name(name)) => graph.named(name),
        Some(CheckedTarget::Connection(connection)) => graph.find(connection.id),
        Some(CheckedTarget::Key(key)) => annotate(graph, key.clone(), None),
        None => graph.add_wire(Wire::default()),
    };
    let writer = |element| Writer { child, output, element };
    graph.wire_mut(id).writer = Some(writer(None));
    if let Some(count) = outlet.list {
        let elements = (0..count)
            .map(|i| graph.add_wire(Wire { writer: Some(writer(Some(i))), ..Wire::default() }));
        let elements = elements.collect();
        graph.wire_mut(id).elements = Some(elements);
    }
    id
}
