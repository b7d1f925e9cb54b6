//! The order in which children can be computed, and the cycle where there is none.

use mithril_ir::diagnostic::{Diagnostic, Result};
use rustc_hash::FxHashSet;

use super::graph::{Graph, Port};

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    New,
    Open,
    Done,
}

/// Children after those they read, otherwise as they were added. Errors: a cycle, with its blocks
/// in order.
pub(crate) fn order(graph: &Graph) -> Result<Vec<u32>> {
    let count = graph.children.len();
    let before: Vec<Vec<u32>> = (0..count).map(|c| reads(graph, c)).collect();
    let mut marks = vec![Mark::New; count];
    let mut order = Vec::with_capacity(count);
    // The child and how many of those it reads have been visited: recursion would be as deep as
    // the longest chain.
    let mut stack: Vec<(u32, usize)> = Vec::new();
    for start in 0..count as u32 {
        if marks[start as usize] != Mark::New {
            continue;
        }
        marks[start as usize] = Mark::Open;
        stack.push((start, 0));
        while let Some((child, next)) = stack.last_mut() {
            let at = *child as usize;
            let Some(&other) = before[at].get(*next) else {
                marks[at] = Mark::Done;
                order.push(*child);
                stack.pop();
                continue;
            };
            *next += 1;
            match marks[other as usize] {
                Mark::Done => {}
                Mark::New => {
                    marks[other as usize] = Mark::Open;
                    stack.push((other, 0));
                }
                Mark::Open => {
                    let from = stack.iter().position(|(c, _)| *c == other).unwrap_or(0);
                    let mut cycle: Vec<u32> = stack[from..].iter().rev().map(|(c, _)| *c).collect();
                    // From the block that was added first.
                    let first = (0..cycle.len()).min_by_key(|i| cycle[*i]);
                    cycle.rotate_left(first.unwrap_or(0));
                    return Err(Box::new(report(graph, &cycle)));
                }
            }
        }
    }
    Ok(order)
}

/// The children whose outputs a child reads, once each.
fn reads(graph: &Graph, child: usize) -> Vec<u32> {
    let mut seen: FxHashSet<u32> = FxHashSet::default();
    let wires = graph.children[child].inputs.iter().flat_map(Port::wires);
    let writers = wires.filter_map(|id| graph.wire(*id).writer);
    writers.map(|writer| writer.child).filter(|child| seen.insert(*child)).collect()
}

/// `cycle` has each child before the one that reads it; the first reads the last.
fn report(graph: &Graph, cycle: &[u32]) -> Diagnostic {
    let names = super::seal::child_names(graph);
    let name = |c: u32| match &names {
        Ok(names) => names[c as usize].0.to_string(),
        Err(_) => graph.describe_child(c),
    };
    let mut chain: Vec<String> = cycle.iter().map(|c| format!("`{}`", name(*c))).collect();
    chain.extend(chain.first().cloned());
    let wires = cycle.iter().flat_map(|c| &graph.children[*c as usize].outputs);
    let named: Vec<String> =
        wires.filter_map(|id| graph.wire(*id).name.as_ref()).map(|n| format!("`{n}`")).collect();
    let mut error = Diagnostic::new(format!("the model `{}` has a cycle", graph.kind))
        .got(chain.join(" → "))
        .expected("blocks that do not read what is computed from them");
    if !named.is_empty() {
        error = error.fact("through", named.join(", "));
    }
    error
}
