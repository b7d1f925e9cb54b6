//! Turns blocks back into models, which can be copied and extended. Names stay the same.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;

use super::graph::{Child, Graph, Port, Wire, Writer};
use super::readers::is_learned;
use super::seal::{Composite, Feed, NetSource};
use super::{Connection, Model};
use crate::block::Block;
use crate::definition::Terminal;
use crate::identity::Renewal;

impl Model {
    /// A model that can be changed, with the same parts, names, terminals and settings as a block.
    /// A table block becomes a model that contains only this block, with terminals of the same
    /// names. Errors: a table block with a list terminal.
    pub fn from_block(block: &Block) -> Result<Model> {
        let model = Model::of_kind(block.kind());
        match &block.definition.composite {
            Some(composite) => {
                let mut graph = graph(block, composite);
                graph.name = block.name.clone();
                graph.checkpoint = block.checkpoint;
                graph.place = block.place.clone();
                graph.numerics = block.numerics;
                graph.gradient = block.gradient.clone().map(Block::new);
                *model.graph() = graph;
            }
            None => {
                let nested = |t: &&Terminal| is_learned(t.role) && t.name.contains('.');
                let given = block.inputs().iter().filter(|t| !t.optional && !nested(t));
                let given = given.map(|t| (t.name.clone(), t.name.to_string()));
                let outputs = block.outputs().iter();
                let outputs = outputs.map(|o| (o.name.clone(), o.name.to_string()));
                let (definition, ids) = (block.definition.clone(), block.ids.clone());
                let bare = Block { identity: block.identity, ids, ..Block::new(definition) };
                model.connect(bare.connect(given.chain(outputs))?)?;
                // Params of a body are known by their paths in it.
                let mut graph = model.graph();
                for (at, terminal) in block.inputs().iter().enumerate().filter(|(_, t)| nested(t)) {
                    let id = graph.named(&terminal.name);
                    graph.wire_mut(id).readers += 1;
                    graph.children[0].inputs[at] = Port::Wire(id);
                }
            }
        }
        Ok(model)
    }

    /// A model that contains only this block, with terminals of the same names. Errors: a list
    /// terminal, which the caller would have to connect.
    pub(crate) fn wrapping(block: &Block) -> Result<Model> {
        let names = block.inputs().iter().map(|t| &t.name);
        let names = names.chain(block.outputs().iter().map(|o| &o.name));
        let named: Vec<_> = names.map(|name| (name.clone(), name.to_string())).collect();
        let model = Model::of_kind(block.kind());
        model.connect(Block { given: Vec::new(), ..block.clone() }.connect(named)?)?;
        Ok(model)
    }

    /// Another model with the same content but its own params, which can be changed. Params that
    /// are shared inside the model are shared inside the copy.
    pub fn copy(&self) -> Model {
        let model = self.fork();
        let mut graph = model.graph();
        let mut renewal = Renewal::default();
        graph.identity = renewal.identity(graph.identity);
        for child in &mut graph.children {
            child.block = child.block.renewed(&mut renewal);
        }
        for wire in &mut graph.wires {
            wire.id = wire.id.map(|id| renewal.param(id));
        }
        drop(graph);
        model
    }

    /// A second model with the same content and the same params. Changing one does not affect the
    /// other.
    pub(crate) fn fork(&self) -> Model {
        let mut graph = self.graph().clone();
        graph.sealed = None;
        let model = Model::new();
        *model.graph() = graph;
        model
    }

    /// The connection in this fork that corresponds to one of the original.
    pub(crate) fn corresponding(&self, connection: &Connection) -> Connection {
        self.connection(connection.id)
    }

    /// States that a connection is a scalar.
    pub(crate) fn set_scalar(&self, connection: &Connection) -> Result<()> {
        self.open()?.wire_mut(connection.id).shape = Some([].into());
        Ok(())
    }

    /// Turns a param or state of a child, given by its path, into a connection. `None` if there is
    /// no such input. Errors: a used model.
    pub(crate) fn connect_param(&self, path: &str) -> Result<Option<Connection>> {
        let mut graph = self.open()?;
        let Some((child, inner)) = path.split_once('.') else {
            return Ok(None);
        };
        let names = super::seal::child_names(&graph)?;
        let Some(at) = names.iter().position(|(name, _)| **name == *child) else {
            return Ok(None);
        };
        let inputs = &graph.children[at].block.definition.inputs;
        let Some(input) = inputs.iter().position(|t| &*t.name == inner) else {
            return Ok(None);
        };
        if let Port::Wire(id) = graph.children[at].inputs[input] {
            return Ok(Some(self.connection(id)));
        }
        // A shared param is known only by the path of its first use.
        let own = graph.children[at].block.ids[input];
        let is_open = |child: &Child| {
            let mut ids = child.block.ids.iter().zip(&child.inputs);
            ids.any(|(id, port)| *id == own && matches!(port, Port::Open))
        };
        if graph.children[..at].iter().any(is_open) {
            return Ok(None);
        }
        let id = graph.named(&Arc::from(path));
        graph.wire_mut(id).readers += 1;
        graph.children[at].inputs[input] = Port::Wire(id);
        Ok(Some(self.connection(id)))
    }
}

/// Reconstructs the graph of a composite. Sealing the graph gives an equal composite.
fn graph(block: &Block, composite: &Composite) -> Graph {
    let definition = &*block.definition;
    let mut graph = Graph { kind: definition.kind.clone(), ..Graph::default() };
    // Params that children own and the model's key are left out: sealing creates them again.
    let mut readers = vec![0; composite.nets.len()];
    let mut read_as_data = vec![false; composite.nets.len()];
    for part in &composite.parts {
        for (terminal, feed) in part.definition.inputs.iter().zip(&part.inputs) {
            for net in feed.nets() {
                readers[*net as usize] += 1;
                read_as_data[*net as usize] |= !is_learned(terminal.role);
            }
        }
    }
    let implicit = |input: u32| {
        let dotted = definition.inputs[input as usize].name.contains('.');
        let own = !read_as_data[composite.inputs[input as usize] as usize];
        (dotted && own) || composite.key == Some(input)
    };
    for net in &composite.nets {
        let (mut wire, mut name) = (Wire::default(), net.name.clone());
        (wire.shape, wire.dtype) = (net.shape.clone(), net.dtype);
        match &net.from {
            NetSource::Value(value) => wire.value = Some(value.clone()),
            NetSource::Input(i) if implicit(*i) => name = None,
            NetSource::Input(i) => {
                wire.role = Some(definition.inputs[*i as usize].role);
                wire.device = definition.inputs[*i as usize].device.clone();
                wire.id = Some(block.ids[*i as usize]);
                wire.optional = definition.inputs[*i as usize].optional;
            }
            NetSource::Part { .. } => {}
        }
        wire.name = name.clone();
        let id = graph.add_wire(wire);
        // A named value without readers that is not an output was discarded by the author.
        let discarded = readers[id as usize] == 0 && !composite.outputs.contains(&id);
        graph.wires[id as usize].discard = discarded && matches!(net.from, NetSource::Part { .. });
        if let Some(name) = name {
            graph.names.insert(name, id);
        }
    }
    for (at, part) in composite.parts.iter().enumerate() {
        let child = child(&mut graph, (block, composite), at as u32, part, &implicit);
        graph.children.push(child);
    }
    for (outlet, net) in definition.outputs.iter().zip(&composite.outputs) {
        let wire = graph.wire_mut(*net);
        wire.expose = true;
        if wire.name.is_none() {
            wire.name = Some(outlet.name.clone());
            graph.names.insert(outlet.name.clone(), *net);
        }
    }
    let last = definition.standard_output;
    graph.last = last.map(|at| composite.outputs[at as usize]);
    let first = definition.standard_input;
    graph.standard = (first.map(|at| composite.inputs[at as usize]), graph.last);
    graph
}

fn child(
    graph: &mut Graph,
    (of, composite): (&Block, &Composite),
    at: u32,
    part: &super::seal::Part,
    implicit: &dyn Fn(u32) -> bool,
) -> Child {
    let mut inputs = Vec::with_capacity(part.inputs.len());
    for feed in &part.inputs {
        inputs.push(match feed {
            Feed::Absent | Feed::Key => Port::Open,
            Feed::Net(net) => match composite.nets[*net as usize].from {
                NetSource::Input(i) if implicit(i) => Port::Open,
                _ => Port::Wire(*net),
            },
            Feed::List(nets) => Port::List(nets.clone()),
        });
    }
    for net in inputs.iter().flat_map(Port::wires) {
        graph.wires[*net as usize].readers += 1;
    }
    let mut outputs = Vec::with_capacity(part.outputs.len());
    for (output, nets) in part.outputs.iter().enumerate() {
        let writer = |element| Writer { child: at, output: output as u32, element };
        let is_list = part.definition.outputs[output].list.is_some();
        if !is_list {
            graph.wires[nets[0] as usize].writer = Some(writer(None));
            outputs.push(nets[0]);
            continue;
        }
        for (i, net) in nets.iter().enumerate() {
            graph.wires[*net as usize].writer = Some(writer(Some(i as u32)));
        }
        let list = Wire {
            writer: Some(writer(None)),
            elements: Some(nets.clone()),
            discard: true,
            ..Wire::default()
        };
        outputs.push(graph.add_wire(list));
    }
    let mut block = Block::new(part.definition.clone());
    // Params and states that are inputs of the model keep their ids.
    let ids = part.inputs.iter().zip(block.ids.iter()).map(|(feed, own)| match feed {
        Feed::Net(net) => match composite.nets[*net as usize].from {
            NetSource::Input(i) => of.ids[i as usize],
            NetSource::Part { .. } | NetSource::Value(_) => *own,
        },
        Feed::Absent | Feed::Key | Feed::List(_) => *own,
    });
    block.ids = ids.collect();
    block.name = Some(part.name.clone());
    block.checkpoint = part.checkpoint;
    block.gradient = part.gradient.clone();
    block.place = part.place.clone();
    block.numerics = part.numerics;
    Child { block, inputs, outputs, fold: Some(part.fold) }
}
