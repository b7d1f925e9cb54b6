//! Draws how the blocks of a model are divided, in the language of Graphviz.

use std::fmt::{self, Display, Formatter};

use indexmap::{IndexMap, IndexSet};
use mithril_ir::graph::{Function, Role, Value};
use petgraph::dot::Dot;
use petgraph::graph::{DiGraph, EdgeReference, NodeIndex};
use rustc_hash::FxBuildHasher;

use super::blocks::{BlockBill, seconds};
use super::layout::{Layout, Mesh};
use super::problem::{first_of_gradients, of_inputs};

/// Fills of boxes, one for each layout: light colors that are told apart without red and green.
const COLORS: [&str; 8] =
    ["#a6cee3", "#fdbf6f", "#cab2d6", "#ffff99", "#b2df8a", "#fb9a99", "#d9d9d9", "#80cdc1"];

/// What is drawn.
pub struct Picture<'a> {
    pub function: &'a Function,
    pub mesh: &'a Mesh,
    /// The layouts of the function's values.
    pub values: &'a [Layout],
    pub blocks: &'a [BlockBill],
}

struct Node {
    label: String,
    /// The layout that colors it.
    layout: Option<String>,
    is_input: bool,
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&self.label)
    }
}

type Blocks = IndexMap<String, Vec<usize>, FxBuildHasher>;

impl Picture<'_> {
    /// The text for Graphviz's `dot`: blocks down to `depth` as boxes, with the layouts of their
    /// params, the layout of what they compute, which colors them, and their time; arrows have the
    /// shapes of values.
    pub fn dot(&self, depth: usize) -> String {
        let function = self.function;
        let (blocks, of_inputs) = (self.operations(depth), of_inputs(function));
        let mut graph: DiGraph<Node, String> = DiGraph::new();
        let mut makers: Vec<Option<NodeIndex>> = vec![None; function.values.len()];
        for (value, argument) in function.arguments().filter(|(_, own)| own.role == Role::Data) {
            let label = format!("{}\n{}", argument.name, self.text(value));
            let layout = Some(self.text(value));
            makers[value.index()] = Some(graph.add_node(Node { label, layout, is_input: true }));
        }
        for (path, operations) in &blocks {
            let node = graph.add_node(self.node(path, operations, &of_inputs));
            for at in operations {
                function.ops[*at].results().for_each(|own| makers[own.index()] = Some(node));
            }
        }
        let mut drawn: IndexSet<(NodeIndex, NodeIndex, String), FxBuildHasher> =
            IndexSet::default();
        for at in blocks.values().flatten() {
            let op = &function.ops[*at];
            let Some(reader) = op.results().find_map(|own| makers[own.index()]) else { continue };
            for value in op.operands.iter().filter(|value| of_inputs[value.index()]) {
                if let Some(maker) = makers[value.index()].filter(|maker| *maker != reader) {
                    let shape = function.ty(*value).shape.to_string();
                    drawn.insert((maker, reader, shape));
                }
            }
        }
        for (from, to, shape) in drawn {
            graph.add_edge(from, to, shape);
        }
        let mut layouts: IndexSet<String, FxBuildHasher> = IndexSet::default();
        layouts.extend(graph.node_weights().filter_map(|node| node.layout.clone()));
        let node = |_, (_, node): (NodeIndex, &Node)| {
            let shape = if node.is_input { "ellipse" } else { "box" };
            let at = node.layout.as_ref().and_then(|own| layouts.get_index_of(own));
            let color = at.map_or("white", |at| COLORS[at % COLORS.len()]);
            format!("shape={shape} style=filled fillcolor=\"{color}\"")
        };
        let edge = |_, _: EdgeReference<String>| String::new();
        Dot::with_attr_getters(&graph, &[], &edge, &node).to_string()
    }

    /// The operations of the forward pass by the paths of their blocks, cut after `depth` names.
    fn operations(&self, depth: usize) -> Blocks {
        let mut blocks = Blocks::default();
        for (at, op) in self.function.ops[..first_of_gradients(self.function)].iter().enumerate() {
            let path = op.loc.shortest().unwrap_or("");
            let end =
                path.match_indices('.').nth(depth.max(1) - 1).map_or(path.len(), |(at, _)| at);
            if !path.is_empty() {
                blocks.entry(path[..end].to_string()).or_default().push(at);
            }
        }
        blocks
    }

    fn node(&self, path: &str, operations: &[usize], of_inputs: &[bool]) -> Node {
        let function = self.function;
        let inside =
            |value: &Value| operations.iter().any(|at| function.ops[*at].operands.contains(value));
        let params = function.arguments().filter(|(value, argument)| {
            let is_divided = !self.values[value.index()].is_replicated();
            argument.role == Role::Param && is_divided && inside(value)
        });
        let mut lines = vec![path.to_string()];
        let own = |name: &str| {
            let rest = name.strip_prefix(path).map(|rest| rest.trim_start_matches('.'));
            rest.unwrap_or(name).to_string()
        };
        lines.extend(
            params
                .map(|(value, argument)| format!("{}: {}", own(&argument.name), self.text(value))),
        );
        let made = operations.iter().flat_map(|at| function.ops[*at].results());
        let last = made.rev().find(|value| of_inputs[value.index()]);
        let layout = last.map(|value| self.text(value));
        lines.extend(layout.iter().map(|own| format!("gives {own}")));
        if let Some(bill) = self.blocks.iter().find(|block| block.path == path) {
            let time = bill.time;
            lines.push(format!("{} + {}", seconds(time.compute), seconds(time.transfer)));
        }
        Node { label: lines.join("\n"), layout, is_input: false }
    }

    fn text(&self, value: Value) -> String {
        self.mesh.text(&self.values[value.index()])
    }
}
