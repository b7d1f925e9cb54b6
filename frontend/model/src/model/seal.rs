//! Turns a model into a definition: chooses names, sorts children, and derives terminals from
//! wires.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;
use mithril_ir::op::Class;
use rustc_hash::FxHashMap;

use super::graph::{Graph, Port, Wire};
use super::order::order;
use super::readers::{Readers, is_learned};
use crate::definition::{Definition, Outlet, Terminal};
use crate::identity::ParamId;
use crate::init::Init;
use crate::literal::Literal;
use crate::lower::DimSpec;
use crate::naming::{Sibling, Unique, fold_of, siblings};
use crate::numerics::Numerics;
use crate::place::Place;

/// The contents of a model.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Composite {
    pub parts: Vec<Part>,
    pub nets: Vec<Net>,
    /// The net of each input of the definition.
    pub inputs: Vec<u32>,
    pub outputs: Vec<u32>,
    /// Indices of the parts in topological order.
    pub order: Vec<u32>,
    /// The input that is the model's key, from which the keys of all parts are derived.
    pub key: Option<u32>,
}

/// A block inside a model.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub name: Arc<str>,
    /// The value folded into the model's key for this part.
    pub fold: u32,
    pub definition: Arc<Definition>,
    /// Whether the backward pass recomputes inner values.
    pub checkpoint: bool,
    /// The author's gradient of the part. `None`: it is derived from the blocks inside.
    pub gradient: Option<Arc<Definition>>,
    /// Where the part runs.
    pub place: Place,
    pub numerics: Numerics,
    pub inputs: Vec<Feed>,
    /// The nets of each output: one, or one per element of a list.
    pub outputs: Vec<Vec<u32>>,
}

impl Part {
    /// The nets that are states of this part.
    pub fn states(&self) -> impl Iterator<Item = u32> {
        let inputs = self.definition.inputs.iter().zip(&self.inputs);
        inputs
            .filter(|(terminal, _)| terminal.role == Role::State)
            .flat_map(|(_, f)| f.nets())
            .copied()
    }
}

/// The source of a part's input.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum Feed {
    Absent,
    Net(u32),
    List(Vec<u32>),
    /// The model's key, with the part's `fold` folded in.
    Key,
}

impl Feed {
    /// The nets that this feed reads.
    pub fn nets(&self) -> &[u32] {
        match self {
            Feed::Absent | Feed::Key => &[],
            Feed::Net(net) => std::slice::from_ref(net),
            Feed::List(nets) => nets,
        }
    }
}

/// A value inside a model.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Net {
    pub name: Option<Arc<str>>,
    pub from: NetSource,
    pub shape: Option<Arc<[DimSpec]>>,
    pub dtype: Option<DType>,
}

#[derive(PartialEq, Eq, Hash)]
pub(crate) enum NetSource {
    Input(u32),
    Part { part: u32, output: u32 },
    Value(Literal),
}

/// The result of sealing: the parts of a definition that come from a model.
pub(crate) struct Sealed {
    pub inputs: Vec<Terminal>,
    /// The param or state that each input stands for.
    pub ids: Vec<ParamId>,
    pub outputs: Vec<Outlet>,
    pub standard_input: Option<u32>,
    pub standard_output: Option<u32>,
    pub composite: Composite,
}

/// The names of children in paths, and the names from which their key folds are derived.
pub(crate) fn child_names(graph: &Graph) -> Result<Vec<(Arc<str>, Arc<str>)>> {
    let blocks = graph.children.iter().map(|child| &child.block);
    let own: Vec<Sibling> = blocks
        .map(|b| Sibling { kind: b.kind(), name: b.name.as_ref(), identity: b.identity })
        .collect();
    siblings(&own)
}

/// Seals the graph. Errors: an empty model, cycles, two children of one name.
pub(crate) fn seal(graph: &Graph) -> Result<Sealed> {
    if graph.children.is_empty() {
        return Diagnostic::of(
            ErrorKind::EmptyModel,
            format!("the model `{}` is empty", graph.kind),
        )
        .hint("add a block to it with `+=` or `|=`")
        .err();
    }
    let order = order(graph)?;
    let mut sealing = Sealing {
        graph,
        names: child_names(graph)?,
        nets: Vec::new(),
        of_wire: FxHashMap::default(),
        inputs: Vec::new(),
        ids: Vec::new(),
        input_nets: Vec::new(),
        of_param: FxHashMap::default(),
        key: None,
    };
    sealing.data_inputs(&order);
    let parts = sealing.parts();
    sealing.set_fans(&parts);
    let (outputs, output_nets) = sealing.outputs();
    let standard_input = sealing.standard_input();
    let standard_output = sealing.standard_output(&output_nets);
    Ok(Sealed {
        inputs: sealing.inputs,
        ids: sealing.ids,
        outputs,
        standard_input,
        standard_output,
        composite: Composite {
            parts,
            nets: sealing.nets,
            inputs: sealing.input_nets,
            outputs: output_nets,
            order,
            key: sealing.key,
        },
    })
}

struct Sealing<'a> {
    graph: &'a Graph,
    names: Vec<(Arc<str>, Arc<str>)>,
    nets: Vec<Net>,
    /// The net of each wire that is not merged into another.
    of_wire: FxHashMap<u32, u32>,
    inputs: Vec<Terminal>,
    ids: Vec<ParamId>,
    input_nets: Vec<u32>,
    /// The input of each param and state.
    of_param: FxHashMap<ParamId, u32>,
    key: Option<u32>,
}

impl Sealing<'_> {
    /// Creates the model's inputs: the wires that are read and that have no writer or value.
    fn data_inputs(&mut self, order: &[u32]) {
        let mut readers = Readers::of(self.graph, order);
        for id in 0..self.graph.wires.len() as u32 {
            let wire = &self.graph.wires[id as usize];
            let open = wire.writer.is_none() && wire.value.is_none() && wire.readers > 0;
            if self.graph.find(id) != id || !open {
                continue;
            }
            let (mut terminal, learners) = readers.terminal(id);
            terminal.name = wire.name.clone().expect("an input of a model must have a name");
            terminal.role = wire.role.unwrap_or(terminal.role);
            terminal.optional = wire.optional;
            terminal.dtype = wire.dtype.or(terminal.dtype);
            terminal.shape = wire.shape.clone().or(terminal.shape);
            terminal.device = wire.device.clone().or(terminal.device);
            // If a param of a block is connected to a named input, other uses of the block read the
            // same input, unless they are connected to something else.
            let is_own = is_learned(terminal.role);
            let learners: Vec<ParamId> = wire.id.into_iter().chain(learners).collect();
            let free = |id: &&ParamId| !self.of_param.contains_key(*id);
            let own = ParamId { block: self.graph.identity, input: id };
            let param = learners.iter().find(free).filter(|_| is_own).copied().unwrap_or(own);
            let at = self.inputs.len() as u32;
            let net = self.input(terminal, wire, param);
            self.of_wire.insert(id, net);
            for learner in learners.into_iter().filter(|_| is_own) {
                self.of_param.entry(learner).or_insert(at);
            }
        }
    }

    fn input(&mut self, terminal: Terminal, wire: &Wire, id: ParamId) -> u32 {
        self.ids.push(id);
        let net = Net {
            name: Some(terminal.name.clone()),
            from: NetSource::Input(self.inputs.len() as u32),
            shape: wire.shape.clone(),
            dtype: wire.dtype,
        };
        self.inputs.push(terminal);
        self.nets.push(net);
        let net = self.nets.len() as u32 - 1;
        self.input_nets.push(net);
        net
    }

    fn net(&mut self, id: u32) -> u32 {
        let id = self.graph.find(id);
        if let Some(net) = self.of_wire.get(&id) {
            return *net;
        }
        let wire = &self.graph.wires[id as usize];
        let from = match (&wire.value, wire.writer) {
            (Some(value), _) => NetSource::Value(value.clone()),
            (None, Some(writer)) => NetSource::Part { part: writer.child, output: writer.output },
            (None, None) => {
                unreachable!("a wire without a writer or value is an input, which has a net")
            }
        };
        self.nets.push(Net {
            name: wire.name.clone(),
            from,
            shape: wire.shape.clone(),
            dtype: wire.dtype,
        });
        let net = self.nets.len() as u32 - 1;
        self.of_wire.insert(id, net);
        net
    }

    fn parts(&mut self) -> Vec<Part> {
        let graph = self.graph;
        let mut parts = Vec::with_capacity(graph.children.len());
        for (i, child) in graph.children.iter().enumerate() {
            let definition = child.block.definition.clone();
            let (name, stable) = self.names[i].clone();
            let inputs = definition.inputs.iter().zip(&child.inputs).zip(child.block.ids.iter());
            let inputs = inputs.map(|((terminal, port), id)| self.feed(&name, terminal, port, *id));
            let inputs = inputs.collect();
            let outputs = child.outputs.iter().map(|id| match &graph.wire(*id).elements {
                Some(elements) => elements.iter().map(|e| self.net(*e)).collect(),
                None => vec![self.net(*id)],
            });
            parts.push(Part {
                fold: child.fold.unwrap_or_else(|| fold_of(&stable)),
                outputs: outputs.collect(),
                name,
                definition,
                checkpoint: child.block.checkpoint,
                gradient: child.block.gradient.clone(),
                place: child.block.place.clone(),
                numerics: child.block.numerics,
                inputs,
            });
        }
        parts
    }

    /// The source of a part's input. A param or state that an earlier part also uses is the same
    /// input of the model.
    fn feed(&mut self, part: &Arc<str>, terminal: &Terminal, port: &Port, id: ParamId) -> Feed {
        match port {
            Port::Wire(id) => Feed::Net(self.net(*id)),
            Port::List(ids) => Feed::List(ids.iter().map(|id| self.net(*id)).collect()),
            Port::Open => match terminal.role {
                _ if terminal.optional => Feed::Absent,
                Role::Key => {
                    self.need_key(terminal);
                    Feed::Key
                }
                _ => {
                    if let Some(&at) = self.of_param.get(&id) {
                        self.inputs[at as usize].join(terminal.clone());
                        return Feed::Net(self.input_nets[at as usize]);
                    }
                    let name = format!("{part}.{}", terminal.name).into();
                    let inner = Terminal { name, ..terminal.clone() };
                    self.of_param.insert(id, self.inputs.len() as u32);
                    Feed::Net(self.input(inner, &Wire::default(), id))
                }
            },
        }
    }

    fn need_key(&mut self, terminal: &Terminal) {
        if let Some(key) = self.key {
            self.inputs[key as usize].in_training &= terminal.in_training;
            return;
        }
        let graph = self.graph;
        let name = Unique::default().name("key", |n| graph.names.contains_key(n));
        self.key = Some(self.inputs.len() as u32);
        let id = ParamId { block: graph.identity, input: u32::MAX };
        let key = Terminal { name, ..terminal.clone() };
        self.input(key, &Wire::default(), id);
    }

    /// Sets `start.fan_of` of the model's inputs. Parts give `fan_of` as an index of their own
    /// inputs; this translates it to an index of the model's inputs.
    fn set_fans(&mut self, parts: &[Part]) {
        let input = |sealing: &Sealing, feed: &Feed| match feed {
            Feed::Net(net) => match sealing.nets[*net as usize].from {
                NetSource::Input(at) => Some(at),
                NetSource::Part { .. } | NetSource::Value(_) => None,
            },
            Feed::Absent | Feed::Key | Feed::List(_) => None,
        };
        let mut fan_of: Vec<Option<u32>> = vec![None; self.inputs.len()];
        for part in parts {
            for (terminal, feed) in part.definition.inputs.iter().zip(&part.inputs) {
                let (Some(own), Some(fan)) = (input(self, feed), terminal.start.fan_of) else {
                    continue;
                };
                let found = &mut fan_of[own as usize];
                *found = found.or_else(|| input(self, &part.inputs[fan as usize]));
            }
        }
        for (terminal, fan) in self.inputs.iter_mut().zip(fan_of) {
            terminal.start.fan_of = fan;
        }
    }

    /// Collects the outputs: named terminals that nothing reads, exposed ones, and the last
    /// standard output.
    fn outputs(&mut self) -> (Vec<Outlet>, Vec<u32>) {
        let graph = self.graph;
        let last = graph.last.map(|id| graph.find(id));
        let mut unique = Unique::default();
        let mut found: Vec<(Arc<str>, u32)> = Vec::new();
        let written = graph.children.iter().flat_map(|c| c.outputs.iter());
        let written: Vec<u32> = written.map(|id| graph.find(*id)).collect();
        let valued = (0..graph.wires.len() as u32)
            .filter(|id| graph.wires[*id as usize].value.is_some() && graph.wire(*id).expose);
        for id in written.into_iter().chain(valued) {
            let wire = graph.wire(id);
            let lost = last == Some(id) && wire.name.is_none();
            let shown = wire.expose || (wire.readers == 0 && (wire.name.is_some() || lost));
            let shown = shown && !wire.discard;
            let mut name = || match &wire.name {
                Some(name) => name.clone(),
                None => unique.name("output", |n| graph.names.contains_key(n)),
            };
            let Some(elements) = &wire.elements else {
                if shown {
                    found.push((name(), id));
                }
                continue;
            };
            let list = if shown { name() } else { "".into() };
            for (i, element) in elements.iter().enumerate() {
                let wire = graph.wire(*element);
                if wire.expose || (shown && wire.readers == 0 && !wire.discard) {
                    let own = wire.name.clone();
                    let name = own.unwrap_or_else(|| format!("{list}_{i}").into());
                    found.push((name, *element));
                }
            }
        }
        let nets: Vec<u32> = found.iter().map(|(_, id)| self.net(*id)).collect();
        for ((name, _), net) in found.iter().zip(&nets) {
            self.nets[*net as usize].name.get_or_insert_with(|| name.clone());
        }
        let outlets = found.into_iter().map(|(name, _)| Outlet { name, list: None });
        (outlets.collect(), nets)
    }

    fn standard_input(&self) -> Option<u32> {
        let graph = self.graph;
        let is_data = |at: u32| (self.inputs[at as usize].role == Role::Data).then_some(at);
        let of = |id: u32| match self.nets[*self.of_wire.get(&graph.find(id))? as usize].from {
            NetSource::Input(at) => is_data(at),
            NetSource::Part { .. } | NetSource::Value(_) => None,
        };
        if let Some(chosen) = graph.standard.0 {
            return of(chosen);
        }
        let first = &graph.children[0];
        let port = first.block.definition.standard_input;
        let port = port.map(|at| &first.inputs[at as usize]);
        if let Some(at) = port.and_then(|p| match p {
            Port::Wire(id) => of(*id),
            Port::Open | Port::List(_) => None,
        }) {
            return Some(at);
        }
        let mut data = (0..self.inputs.len() as u32).filter_map(is_data);
        match (data.next(), data.next()) {
            (Some(only), None) => Some(only),
            _ => {
                let at = self.inputs.iter().position(|t| &*t.name == "input")?;
                is_data(at as u32)
            }
        }
    }

    fn standard_output(&self, outputs: &[u32]) -> Option<u32> {
        let graph = self.graph;
        let chosen = graph.standard.1.or(graph.last);
        let net = chosen.and_then(|id| self.of_wire.get(&graph.find(id)));
        let at = net.and_then(|net| outputs.iter().position(|o| o == net));
        at.or((outputs.len() == 1).then_some(0)).map(|at| at as u32)
    }
}

impl Terminal {
    /// A plain data input: nothing but its dtype class is stated.
    pub(crate) fn data(name: impl Into<Arc<str>>, class: Class) -> Terminal {
        Terminal {
            name: name.into(),
            role: Role::Data,
            class,
            own_dtype: false,
            list: false,
            optional: false,
            inferred: false,
            in_training: false,
            mask: false,
            dtype: None,
            shape: None,
            device: None,
            start: Init::Scaled.into(),
        }
    }
}
