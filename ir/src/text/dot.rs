//! Draws modules in the language of Graphviz.

use std::fmt::{self, Display, Formatter};

use petgraph::dot::{Config, Dot};
use petgraph::graph::{DiGraph, NodeIndex};
use rustc_hash::FxHashMap;

use super::print::Attributes;
use crate::graph::{Argument, Function, Module, Operation, ResultDef};
use crate::shape::Type;

/// The text for Graphviz's `dot`: the operations of all functions as boxes, with arrows for values
/// and dotted arrows for calls.
pub fn dot(module: &Module) -> String {
    let mut graph = DiGraph::new();
    let mut functions = FxHashMap::default();
    for (name, function) in &module.functions {
        let node = graph.add_node(Node::Function(function));
        functions.insert(name, node);
    }
    for function in module.functions.values() {
        let own = add(&mut graph, function, functions[&function.name]);
        for (op, node) in function.ops.iter().zip(own) {
            let callees = op.functions().filter_map(|name| functions.get(name));
            callees.for_each(|&callee| _ = graph.add_edge(node, callee, Edge::Name));
        }
    }
    let edge = |_, edge: petgraph::graph::EdgeReference<Edge>| edge.weight().style().to_string();
    let node = |_, (_, node): (NodeIndex, &Node)| node.style().to_string();
    Dot::with_attr_getters(&graph, &[Config::EdgeNoLabel], &edge, &node).to_string()
}

/// Adds the contents of a function to the graph; returns the nodes of its operations.
fn add<'m>(
    graph: &mut DiGraph<Node<'m>, Edge>,
    function: &'m Function,
    name: NodeIndex,
) -> Vec<NodeIndex> {
    let mut makers: Vec<Option<NodeIndex>> = vec![None; function.values.len()];
    for (value, argument) in function.arguments() {
        let node = graph.add_node(Node::Argument(argument, function.ty(value)));
        graph.add_edge(name, node, Edge::Name);
        makers[value.index()] = Some(node);
    }
    let mut own = Vec::with_capacity(function.ops.len());
    for op in &function.ops {
        let node = graph.add_node(Node::Operation(function, op));
        for maker in op.operands.iter().filter_map(|value| makers[value.index()]) {
            graph.add_edge(maker, node, Edge::Value);
        }
        op.results().for_each(|value| makers[value.index()] = Some(node));
        own.push(node);
    }
    for result in &function.results {
        let node = graph.add_node(Node::Result(result));
        if let Some(maker) = makers[result.value.index()] {
            graph.add_edge(maker, node, Edge::Value);
        }
    }
    own
}

enum Node<'m> {
    Function(&'m Function),
    Argument(&'m Argument, &'m Type),
    Operation(&'m Function, &'m Operation),
    Result(&'m ResultDef),
}

impl Node<'_> {
    fn style(&self) -> &'static str {
        match self {
            Node::Function(_) => "shape=plaintext",
            Node::Argument(..) | Node::Result(_) => "shape=ellipse",
            Node::Operation(..) => "shape=box",
        }
    }
}

impl Display for Node<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Node::Function(function) => write!(f, "@{}", function.name),
            Node::Argument(argument, ty) => {
                write!(f, "{}\n{ty}\n{}", argument.name, argument.role.name())
            }
            Node::Operation(function, op) => {
                write!(f, "{}{}", op.op.name, Attributes(op))?;
                for value in op.results() {
                    write!(f, "\n{}", function.ty(value))?;
                }
                op.loc.paths().iter().try_for_each(|path| write!(f, "\n{path}"))
            }
            Node::Result(result) => f.write_str(&result.name),
        }
    }
}

enum Edge {
    Value,
    /// From a function to its arguments, and from a call to its callee.
    Name,
}

impl Edge {
    fn style(&self) -> &'static str {
        match self {
            Edge::Value => "",
            Edge::Name => "style=dotted",
        }
    }
}

impl Display for Edge {
    fn fmt(&self, _: &mut Formatter) -> fmt::Result {
        Ok(())
    }
}
