//! What those that read a model's inputs say about them: role, dtype, shape, first values.

use mithril_ir::graph::Role;
use mithril_ir::op::Class;
use rustc_hash::FxHashMap;

use super::graph::{Graph, Port};
use crate::block::Terminal;
use crate::identity::ParamId;

/// For each wire that is read the terminal it would be as an input of the model, and the params and
/// states of the blocks that learn it.
pub(super) struct Readers {
    of_wire: FxHashMap<u32, (Terminal, Vec<ParamId>)>,
}

/// Whether inputs of this role have values of their own.
pub(crate) fn is_learned(role: Role) -> bool {
    matches!(role, Role::Param | Role::State)
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
            let expected = expected.map(|(t, _)| (t.class, t.mask));
            let moves = moves_any(&definition.inputs);
            let inputs = definition.inputs.iter().zip(child.block.ids.iter());
            for ((terminal, id), port) in inputs.zip(&child.inputs) {
                let mut terminal = terminal.clone();
                if let (false, Some((class, mask))) = (terminal.apart, expected) {
                    terminal.class = narrower(terminal.class, class);
                    terminal.mask |= mask && moves;
                }
                match port {
                    Port::Open => {}
                    Port::Wire(wire) => readers.add(graph.find(*wire), terminal, Some(*id)),
                    Port::List(ids) => {
                        terminal.list = false;
                        for id in ids {
                            readers.add(graph.find(*id), terminal.clone(), None);
                        }
                    }
                }
            }
        }
        readers
    }

    fn add(&mut self, wire: u32, terminal: Terminal, id: Option<ParamId>) {
        use std::collections::hash_map::Entry;
        let id = id.filter(|_| is_learned(terminal.role));
        match self.of_wire.entry(wire) {
            Entry::Vacant(vacant) => {
                let own = Terminal { optional: false, apart: false, ..terminal };
                vacant.insert((own, id.into_iter().collect()));
            }
            Entry::Occupied(mut occupied) => {
                let (own, learners) = occupied.get_mut();
                own.join(terminal);
                learners.extend(id);
            }
        }
    }

    /// What the wire would be as an input, whose name is still to be set, and the params and states
    /// of the blocks that learn it, in the order they compute in.
    pub fn terminal(&mut self, id: u32) -> (Terminal, Vec<ParamId>) {
        let data = || (Terminal::data("", Class::Any), Vec::new());
        let (terminal, mut learners) = self.of_wire.remove(&id).unwrap_or_else(data);
        learners.reverse();
        (terminal, learners)
    }
}

impl Terminal {
    /// Takes on what another reader says of the same input.
    pub(super) fn join(&mut self, other: Terminal) {
        self.class = narrower(self.class, other.class);
        // What is learned is typed by any reader that can; data by the first one, which waits for
        // no other.
        let learned = |t: &Terminal| t.ruled && t.role != Role::Data;
        self.ruled = match (self.role, other.role) {
            (Role::Data, Role::Data) => other.ruled,
            _ => learned(self) || learned(&other),
        };
        // One reader that learns it makes it learned, and gives it its first values.
        if self.role == Role::Data && other.role != Role::Data {
            (self.role, self.start) = (other.role, other.start);
        }
        self.in_training &= other.in_training;
        // A reader that computes with it decides its dtype.
        self.mask &= other.mask;
        self.dtype = self.dtype.or(other.dtype);
        self.shape = self.shape.take().or(other.shape);
    }
}

/// Whether a block has one operand, of any dtype: where it keeps the dtype, it only moves elements.
fn moves_any(inputs: &[Terminal]) -> bool {
    let mut operands = inputs.iter().filter(|terminal| !terminal.apart);
    let is_any = |terminal: &Terminal| terminal.class == Class::Any && !terminal.list;
    operands.next().is_some_and(is_any) && operands.next().is_none()
}

fn narrower(a: Class, b: Class) -> Class {
    let breadth = |class: Class| match class {
        Class::Any => 2,
        Class::Number | Class::Bits => 1,
        Class::Float | Class::Int | Class::Bool | Class::Key => 0,
    };
    if breadth(b) < breadth(a) { b } else { a }
}
