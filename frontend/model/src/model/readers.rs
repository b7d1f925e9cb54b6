//! Infers a model's inputs from the blocks that read them: role, dtype, shape, initial values.

use mithril_ir::graph::Role;
use mithril_ir::op::Class;
use rustc_hash::FxHashMap;

use super::graph::{Graph, Port};
use crate::definition::Terminal;
use crate::identity::ParamId;

/// For each wire with readers: the terminal that it becomes if it is an input of the model, and the
/// params and states of its readers.
pub(super) struct Readers {
    of_wire: FxHashMap<u32, (Terminal, Vec<ParamId>)>,
}

/// Whether an input of this role keeps a value between calls.
pub(crate) fn is_learned(role: Role) -> bool {
    matches!(role, Role::Param | Role::State)
}

impl Readers {
    /// Visits the children in reverse order. If a block keeps the dtype of its operand, the dtype
    /// class that readers require of its result is passed on to the operand.
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
                if let (false, Some((class, mask))) = (terminal.own_dtype, expected) {
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
                let own = Terminal { optional: false, own_dtype: false, ..terminal };
                vacant.insert((own, id.into_iter().collect()));
            }
            Entry::Occupied(mut occupied) => {
                let (own, learners) = occupied.get_mut();
                own.join(terminal);
                learners.extend(id);
            }
        }
    }

    /// The terminal that the wire would be as an input, with an empty name, and the params and
    /// states of the blocks that read it, in the order of computation.
    pub fn terminal(&mut self, id: u32) -> (Terminal, Vec<ParamId>) {
        let data = || (Terminal::data("", Class::Any), Vec::new());
        let (terminal, mut learners) = self.of_wire.remove(&id).unwrap_or_else(data);
        learners.reverse();
        (terminal, learners)
    }
}

impl Terminal {
    /// Merges in the properties that another reader requires of the same input.
    pub(super) fn join(&mut self, other: Terminal) {
        self.class = narrower(self.class, other.class);
        // Any reader may infer the type of a param or state. The type of data comes from its first
        // reader.
        let learned = |t: &Terminal| t.inferred && t.role != Role::Data;
        self.inferred = match (self.role, other.role) {
            (Role::Data, Role::Data) => other.inferred,
            _ => learned(self) || learned(&other),
        };
        // The input is a param or state if one reader uses it as one. That reader gives the initial
        // value.
        if self.role == Role::Data && other.role != Role::Data {
            (self.role, self.start) = (other.role, other.start);
        }
        self.in_training &= other.in_training;
        // The input is a mask only if all readers use it as a mask. A reader that computes with it
        // determines its dtype.
        self.mask &= other.mask;
        self.dtype = self.dtype.or(other.dtype);
        self.shape = self.shape.take().or(other.shape);
    }
}

/// Whether a block has only one operand, of any dtype. A block that also keeps the dtype only moves
/// elements.
fn moves_any(inputs: &[Terminal]) -> bool {
    let mut operands = inputs.iter().filter(|terminal| !terminal.own_dtype);
    let is_any = |terminal: &Terminal| terminal.class == Class::Any && !terminal.list;
    operands.next().is_some_and(is_any) && operands.next().is_none()
}

fn narrower(a: Class, b: Class) -> Class {
    let breadth = |class: Class| match class {
        Class::Any => 2,
        Class::Number | Class::Bits => 1,
        Class::Float | Class::Wide | Class::Int | Class::Bool | Class::Key => 0,
    };
    if breadth(b) < breadth(a) { b } else { a }
}
