//! Taking a block in under the empty path, as if what is inside had been added here.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::graph::Role;

use super::graph::{Child, Graph, Port};
use super::{Connection, IoKey, Model, Source};
use crate::block::Block;
use crate::model::seal::Composite;

/// The name of a block that adds nothing to paths, whose parts share names with its siblings.
/// No other block can have it.
pub(crate) const ABSORBED: &str = "";

impl Model {
    /// Adds a block that adds nothing to names: its inputs, what it learns included, become
    /// terminals of the same names, and its outputs stay outputs of the same names.
    /// Errors: connections; a list terminal; a name that is written here already.
    pub(crate) fn absorb(&self, block: Block) -> Result<()> {
        if !block.given.is_empty() {
            return Diagnostic::new(format!("{} is to keep its terminals", block.describe()))
                .got("a block with connections")
                .expected("a block without")
                .hint("connections belong to the model around a block")
                .err();
        }
        let definition = block.definition.clone();
        let list = definition.inputs.iter().find(|t| t.list && !t.optional);
        if let Some(list) = list {
            return Diagnostic::new(format!(
                "`{}` of {} takes a list of connections, and nothing was given",
                list.name,
                block.describe()
            ))
            .hint("put the block into a model and connect it")
            .err();
        }
        let mut graph = self.open()?;
        let mut written = Vec::new();
        let outputs: Vec<Source> = definition
            .outputs
            .iter()
            .map(|outlet| {
                Source::from(IoKey {
                    expose: true,
                    ..IoKey::new(&outlet.name)
                })
            })
            .collect();
        for (outlet, source) in definition.outputs.iter().zip(&outputs) {
            self.check_output(&graph, &block, outlet, source, &mut written)?;
        }
        let mut inputs = Vec::with_capacity(definition.inputs.len());
        for terminal in &definition.inputs {
            // The key stays one of the model's own, which it shares with what is added later.
            inputs.push(match terminal.role {
                Role::Key => Port::Open,
                _ if terminal.optional => Port::Open,
                _ => Port::Wire(read_named(&mut graph, &terminal.name)),
            });
        }
        let child = graph.children.len() as u32;
        graph.children.push(Child {
            block: Block {
                name: Some(ABSORBED.into()),
                ..block
            },
            inputs,
            outputs: Vec::new(),
        });
        let outputs: Vec<u32> = definition
            .outputs
            .iter()
            .zip(&outputs)
            .enumerate()
            .map(|(i, (outlet, source))| {
                super::attach::write(&mut graph, child, i as u32, outlet, Some(source))
            })
            .collect();
        if let Some(at) = definition.standard_output {
            graph.last = Some(outputs[at as usize]);
        }
        graph.children[child as usize].outputs = outputs;
        Ok(())
    }

    /// Makes a connection the terminal of this name, and the model's last standard output.
    /// Errors: the name is taken; a used model.
    pub(crate) fn finish_with(&self, connection: &Connection, name: &str) -> Result<()> {
        crate::naming::check_name(name, "terminal")?;
        let mut graph = self.open()?;
        if graph.names.contains_key(name) {
            return Diagnostic::new(format!("the model has a terminal `{name}` already")).err();
        }
        let id = graph.find(connection.id);
        graph.names.insert(name.into(), id);
        graph.wire_mut(id).name = Some(name.into());
        graph.last = Some(id);
        Ok(())
    }
}

fn read_named(graph: &mut Graph, name: &Arc<str>) -> u32 {
    let id = graph.named(name);
    graph.wire_mut(id).readers += 1;
    id
}

/// The names that the parts of absorbed blocks have in paths, which siblings must not take.
pub(super) fn taken(graph: &Graph) -> Vec<&str> {
    let mut names = Vec::new();
    for child in &graph.children {
        if child.block.name.as_deref() == Some(ABSORBED) {
            names.extend(parts(child.block.definition.composite.as_ref()));
        }
    }
    names
}

fn parts(composite: Option<&Composite>) -> Vec<&str> {
    let mut names = Vec::new();
    for part in composite.iter().flat_map(|c| &c.parts) {
        match &*part.name {
            ABSORBED => names.extend(parts(part.definition.composite.as_ref())),
            name => names.push(name),
        }
    }
    names
}
