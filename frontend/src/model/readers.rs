//! What those that read a model's inputs say about them: role, dtype, shape, first values.

use mithril_ir::graph::Role;
use mithril_ir::op::Class;
use rustc_hash::FxHashMap;

use super::graph::{Graph, Port};
use crate::block::Terminal;

/// For each wire that is read the terminal it would be as an input of the model.
pub(super) struct Readers {
    of_wire: FxHashMap<u32, Terminal>,
}

impl Readers {
    /// Walks children backwards, so that a block which keeps its operand's dtype passes on what is
    /// expected of its result.
    pub fn of(graph: &Graph, order: &[u32]) -> Readers {
        let mut readers = Readers { of_wire: FxHashMap::default() };
        for &at in order.iter().rev() {
            let child = &graph.children[at as usize];
            let definition = &child.block.definition;
            let keeps = definition.origin.as_ref().is_some_and(|(e, _)| e.keeps_dtype());
            let expected = child.outputs.first().filter(|_| keeps);
            let expected = expected.and_then(|id| readers.of_wire.get(&graph.find(*id)));
            let expected = expected.map(|t| t.class);
            for (terminal, port) in definition.inputs.iter().zip(&child.inputs) {
                let mut terminal = terminal.clone();
                if let (false, Some(class)) = (terminal.apart, expected) {
                    terminal.class = narrower(terminal.class, class);
                }
                match port {
                    Port::Open => {}
                    Port::Wire(id) => readers.add(graph.find(*id), terminal),
                    Port::List(ids) => {
                        terminal.list = false;
                        for id in ids {
                            readers.add(graph.find(*id), terminal.clone());
                        }
                    }
                }
            }
        }
        readers
    }

    fn add(&mut self, id: u32, terminal: Terminal) {
        use std::collections::hash_map::Entry;
        match self.of_wire.entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(Terminal { optional: false, apart: false, ..terminal });
            }
            Entry::Occupied(mut occupied) => {
                let own = occupied.get_mut();
                own.class = narrower(own.class, terminal.class);
                // What is learned is typed by any reader that can; data by the first one, which
                // waits for no other.
                let learned = |t: &Terminal| t.ruled && t.role != Role::Data;
                own.ruled = match (own.role, terminal.role) {
                    (Role::Data, Role::Data) => terminal.ruled,
                    _ => learned(own) || learned(&terminal),
                };
                // One reader that learns it makes it learned, and gives it its first values.
                if own.role == Role::Data && terminal.role != Role::Data {
                    (own.role, own.init) = (terminal.role, terminal.init);
                }
                own.in_training &= terminal.in_training;
                own.dtype = own.dtype.or(terminal.dtype);
                own.shape = own.shape.take().or(terminal.shape);
            }
        }
    }

    /// What the wire would be as an input; its name is still to be set.
    pub fn terminal(&mut self, id: u32) -> Terminal {
        self.of_wire.remove(&id).unwrap_or_else(|| Terminal::data("", Class::Any))
    }
}

fn narrower(a: Class, b: Class) -> Class {
    let breadth = |class: Class| match class {
        Class::Any => 2,
        Class::Number | Class::Bits => 1,
        Class::Float | Class::Int | Class::Bool | Class::Key => 0,
    };
    if breadth(b) < breadth(a) { b } else { a }
}
