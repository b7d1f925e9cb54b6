//! A model under construction: children, and the wires between their terminals.

use std::sync::Arc;

use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;
use rustc_hash::FxHashMap;

use crate::block::Block;
use crate::identity::{Identity, ParamId};
use crate::literal::Literal;
use crate::lower::DimSpec;
use crate::naming::Unique;

/// An unordered graph. Wires are merged by forwarding, never removed.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub kind: Arc<str>,
    pub identity: Identity,
    pub name: Option<Arc<str>>,
    /// Whether gradients compute inner values again.
    pub checkpoint: bool,
    /// What gradients are, where they do not follow from what is inside.
    pub gradient: Option<Block>,
    pub children: Vec<Child>,
    pub wires: Vec<Wire>,
    pub names: FxHashMap<Arc<str>, u32>,
    pub unique: Unique,
    /// The children with names of their own, by these.
    pub called: FxHashMap<Arc<str>, u32>,
    /// Expressions that joined the model, by their addresses, with the wires that they became.
    pub expressions: FxHashMap<usize, (Arc<Block>, u32)>,
    /// The standard output of the child added last.
    pub last: Option<u32>,
    /// What the author chose as the model's standard terminals.
    pub standard: (Option<u32>, Option<u32>),
    /// Set when the model has been used as a block.
    pub sealed: Option<Block>,
}

#[derive(Clone)]
pub(crate) struct Child {
    pub block: Block,
    /// By the block's inputs.
    pub inputs: Vec<Port>,
    /// By the block's outputs.
    pub outputs: Vec<u32>,
    /// What the model's key is folded with for it, where that is not to follow from its name.
    pub fold: Option<u32>,
}

impl Port {
    /// The wires that are read.
    pub fn wires(&self) -> &[u32] {
        match self {
            Port::Open => &[],
            Port::Wire(id) => std::slice::from_ref(id),
            Port::List(ids) => ids,
        }
    }
}

/// What an input of a child is connected to.
#[derive(Clone)]
pub(crate) enum Port {
    /// Learned, state or key of its own; or left out.
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
    pub expose: bool,
    pub discard: bool,
    /// A list output: its elements.
    pub elements: Option<Vec<u32>>,
    pub merged: Option<u32>,
    /// The param or state of the block that the model was made from again.
    pub id: Option<ParamId>,
}

/// The output of a child that makes a wire; `element` of it, where it is a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub child: u32,
    pub output: u32,
    pub element: Option<u32>,
}

impl Graph {
    /// The wire that this one has been merged into.
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

    /// The wire of this name, made if there is none.
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

    /// Makes `from` the same wire as `into`. At most one of them is written or has a value.
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
        kept.expose |= old.expose;
        kept.discard |= old.discard;
        kept.elements = kept.elements.take().or(old.elements);
        kept.id = kept.id.or(old.id);
        if kept.name.is_none() {
            kept.name = old.name;
        }
    }

    /// Whether a value comes into the wire from inside.
    pub fn is_made(&self, id: u32) -> bool {
        let wire = self.wire(id);
        wire.writer.is_some() || wire.value.is_some() || wire.elements.is_some()
    }

    /// The kind of the child for messages, with its own name if it has one.
    pub fn describe_child(&self, child: u32) -> String {
        self.children[child as usize].block.describe()
    }
}
