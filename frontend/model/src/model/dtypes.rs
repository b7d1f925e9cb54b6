//! The dtypes of connections that are known before a model is compiled.

use mithril_ir::dtype::DType;
use mithril_ir::nesting::deeper;
use mithril_ir::op::{self, DTypeRule};
use rustc_hash::FxHashMap;

use super::Connection;
use super::graph::Graph;
use crate::blocks::Meaning;

impl Connection {
    /// The dtype, if it is stated or follows from stated dtypes. `None` if it is known only at
    /// compile time.
    pub fn dtype(&self) -> Option<DType> {
        let graph = self.model.graph();
        KnownDTypes { graph: &graph, found: FxHashMap::default() }.dtype(self.id)
    }
}

struct KnownDTypes<'a> {
    graph: &'a Graph,
    /// The dtypes by wire. A wire under search is entered as `None`, so that a cycle ends the
    /// search.
    found: FxHashMap<u32, Option<DType>>,
}

impl KnownDTypes<'_> {
    fn dtype(&mut self, id: u32) -> Option<DType> {
        let id = self.graph.find(id);
        if let Some(known) = self.found.get(&id) {
            return *known;
        }
        self.found.insert(id, None);
        let dtype = deeper(|| self.inferred(id));
        self.found.insert(id, dtype);
        dtype
    }

    fn inferred(&mut self, id: u32) -> Option<DType> {
        let wire = self.graph.wire(id);
        if let Some(value) = &wire.value {
            return wire.dtype.or((!value.weak).then(|| value.tensor.dtype()));
        }
        if wire.dtype.is_some() {
            return wire.dtype;
        }
        let child = &self.graph.children[wire.writer?.child as usize];
        let (entry, settings) = child.block.definition.origin.as_ref()?;
        let rule = match entry.meaning {
            Meaning::Op(name) => op::get(name).dtype,
            Meaning::Lower(_) if entry.keeps_dtype() => DTypeRule::Shared,
            Meaning::Lower(_) | Meaning::Compose(_) | Meaning::Body(_) | Meaning::Wrap(_) => {
                return None;
            }
        };
        match rule {
            DTypeRule::Fixed(dtype) => Some(dtype),
            DTypeRule::Attr(name) => settings.dtype(name),
            DTypeRule::Call => None,
            DTypeRule::Shared => {
                let inputs = child.block.inputs().iter().zip(&child.inputs);
                let mut shared = inputs.filter(|(terminal, _)| !terminal.own_dtype);
                shared.find_map(|(_, port)| port.wires().iter().find_map(|id| self.dtype(*id)))
            }
        }
    }
}
