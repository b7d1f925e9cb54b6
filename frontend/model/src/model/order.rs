//! Sorts the children into an order in which they can be computed, or reports a cycle.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::order::needed_first;
use rustc_hash::FxHashSet;

use super::graph::{Graph, Port};

/// The children in topological order: each after those it reads, otherwise in the order of
/// addition. Errors: a cycle; the message lists its blocks in order.
pub(crate) fn order(graph: &Graph) -> Result<Vec<u32>> {
    let reads: Vec<Vec<usize>> = (0..graph.children.len()).map(|c| reads(graph, c)).collect();
    match needed_first(&reads) {
        Ok(order) => Ok(order.into_iter().map(|child| child as u32).collect()),
        Err(mut cycle) => {
            // Puts each block before its reader, starting with the block that was added first.
            cycle.reverse();
            let first = (0..cycle.len()).min_by_key(|i| cycle[*i]);
            cycle.rotate_left(first.unwrap_or(0));
            Err(Box::new(report(graph, &cycle)))
        }
    }
}

/// The children whose outputs a child reads, without duplicates.
fn reads(graph: &Graph, child: usize) -> Vec<usize> {
    let mut seen: FxHashSet<usize> = FxHashSet::default();
    let wires = graph.children[child].inputs.iter().flat_map(Port::wires);
    let writers = wires.filter_map(|id| graph.wire(*id).writer);
    writers.map(|writer| writer.child as usize).filter(|child| seen.insert(*child)).collect()
}

/// The error for a cycle. `cycle` has each child before its reader; the first child reads the last.
fn report(graph: &Graph, cycle: &[usize]) -> Diagnostic {
    let names = super::seal::child_names(graph);
    let name = |c: usize| match &names {
        Ok(names) => names[c].0.to_string(),
        Err(_) => graph.describe_child(c as u32),
    };
    let mut chain: Vec<String> = cycle.iter().map(|c| format!("`{}`", name(*c))).collect();
    chain.extend(chain.first().cloned());
    let wires = cycle.iter().flat_map(|c| &graph.children[*c].outputs);
    let named: Vec<String> =
        wires.filter_map(|id| graph.wire(*id).name.as_ref()).map(|n| format!("`{n}`")).collect();
    let mut error =
        Diagnostic::of(ErrorKind::Cycle, format!("the model `{}` has a cycle", graph.kind))
            .got(chain.join(" → "))
            .expected("blocks that do not read values computed from their own outputs");
    if !named.is_empty() {
        error = error.fact("through", named.join(", "));
    }
    error
}
