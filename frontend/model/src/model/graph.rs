//! The graph of a model under construction: child blocks, and the wires between their terminals.

use std::sync::Arc;

use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;
use rustc_hash::FxHashMap;

use crate::block::Block;
use crate::identity::{Identity, ParamId};
use crate::literal::Literal;
use crate::lower::DimSpec;
use crate::naming::Unique;
use crate::numerics::Numerics;
use crate::place::Place;

/// An unordered graph. Merging two wires makes one forward to the other; wires are never removed.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub kind: Arc<str>,
    pub identity: Identity,
    pub name: Option<Arc<str>>,
    /// Whether the backward pass recomputes inner values.
    pub checkpoint: bool,
    pub place: Place,
    pub numerics: Numerics,
    /// The author's gradient of the model. `None`: it is derived from the blocks inside.
    pub gradient: Option<Block>,
    pub children: Vec<Child>,
    pub wires: Vec<Wire>,
    pub names: FxHashMap<Arc<str>, u32>,
    pub unique: Unique,
    /// The children with a given name, by that name.
    pub named_children: FxHashMap<Arc<str>, u32>,
    /// The expressions that have been added to the model, and the wires of their results. The key
    /// is the address of the expression's block.
    pub expressions: FxHashMap<usize, (Arc<Block>, u32)>,
    /// The standard output of the most recently added child.
    pub last: Option<u32>,
    /// The standard input and output that the author chose.
    pub standard: (Option<u32>, Option<u32>),
    /// Set when the model has been used as a block.
    pub sealed: Option<Block>,
}

#[derive(Clone)]
pub(crate) struct Child {
    pub block: Block,
    /// Indexed by the block's inputs.
    pub inputs: Vec<Port>,
    /// Indexed by the block's outputs.
    pub outputs: Vec<u32>,
    /// The value folded into the model's key for this child. `None`: it is derived from the child's
    /// name.
    pub fold: Option<u32>,
}

impl Port {
    /// The wires that this port reads.
    pub fn wires(&self) -> &[u32] {
        match self {
            Port::Open => &[],
            Port::Wire(id) => std::slice::from_ref(id),
            Port::List(ids) => ids,
        }
    }
}

/// The connection of a child's input.
#[derive(Clone)]
pub(crate) enum Port {
    /// A param, state or key that the child owns, or an input that was left out.
    Open,
    Wire(u32),
    List(Vec<u32>),
}

#[derive(Clone, Default)]
pub(crate) struct Wire {
    pub name: Option<Arc<str>>,
    pub writer: Option<Writer>,
    pub readers: u32,
    pub value: Option<Literal>,
    pub shape: Option<Arc<[DimSpec]>>,
    pub dtype: Option<DType>,
    pub role: Option<Role>,
    pub device: Option<Arc<str>>,
    pub expose: bool,
    pub discard: bool,
    /// Whether the input may be left out.
    pub optional: bool,
    /// The elements of a list output.
    pub elements: Option<Vec<u32>>,
    pub merged: Option<u32>,
    /// The param or state, in a model that was made from a block.
    pub id: Option<ParamId>,
}

/// The output of a child that writes a wire; if the output is a list, the index of its element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub child: u32,
    pub output: u32,
    pub element: Option<u32>,
}

impl Graph {
    /// The representative of the wire: follows merges to the end.
    pub fn find(&self, mut id: u32) -> u32 {
        while let Some(into) = self.wires[id as usize].merged {
            id = into;
        }
        id
    }

    pub fn wire(&self, id: u32) -> &Wire {
        &self.wires[self.find(id) as usize]
    }

    pub fn wire_mut(&mut self, id: u32) -> &mut Wire {
        let id = self.find(id);
        &mut self.wires[id as usize]
    }

    pub fn lookup(&self, name: &str) -> Option<u32> {
        self.names.get(name).map(|id| self.find(*id))
    }

    pub fn add_wire(&mut self, wire: Wire) -> u32 {
        self.wires.push(wire);
        self.wires.len() as u32 - 1
    }

    /// The wire of this name; creates it if none exists.
    pub fn named(&mut self, name: &Arc<str>) -> u32 {
        if let Some(id) = self.lookup(name) {
            return id;
        }
        let id = self.add_wire(Wire { name: Some(name.clone()), ..Wire::default() });
        self.names.insert(name.clone(), id);
        id
    }

    /// A new input of the model, named after a terminal.
    pub fn fresh_input(&mut self, base: &str) -> u32 {
        let names = &self.names;
        let name = self.unique.name(base, |n| names.contains_key(n));
        self.named(&name)
    }

    /// Merges wire `from` into `into`. At most one of them may have a writer or a value.
    pub fn merge(&mut self, from: u32, into: u32) {
        let (from, into) = (self.find(from), self.find(into));
        if from == into {
            return;
        }
        let old = std::mem::take(&mut self.wires[from as usize]);
        self.wires[from as usize].merged = Some(into);
        let kept = &mut self.wires[into as usize];
        kept.writer = kept.writer.or(old.writer);
        kept.readers += old.readers;
        kept.value = kept.value.take().or(old.value);
        kept.shape = kept.shape.take().or(old.shape);
        kept.dtype = kept.dtype.or(old.dtype);
        kept.role = kept.role.or(old.role);
        kept.device = kept.device.take().or(old.device);
        kept.expose |= old.expose;
        kept.discard |= old.discard;
        kept.optional |= old.optional;
        kept.elements = kept.elements.take().or(old.elements);
        kept.id = kept.id.or(old.id);
        if kept.name.is_none() {
            kept.name = old.name;
        }
    }

    /// Whether the wire has a writer, a value or elements, so that it is not an input.
    pub fn is_made(&self, id: u32) -> bool {
        let wire = self.wire(id);
        wire.writer.is_some() || wire.value.is_some() || wire.elements.is_some()
    }

    /// Describes the child for messages: its kind, and its name if it was given one.
    pub fn describe_child(&self, child: u32) -> String {
        self.children[child as usize].block.describe()
    }
}
