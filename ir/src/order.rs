//! Topological sort: dependencies first. Returns a cycle where there is one.

use petgraph::algo::astar;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{DfsPostOrder, EdgeRef};

/// The indices of nodes in an order where each node follows the nodes it needs; `needs` gives the
/// dependencies of each node. Otherwise nodes are in order of their index, and dependencies in the
/// order listed.
///
/// Errors: the nodes of a cycle. Each one needs the next, and the last one needs the first.
pub fn needed_first(needs: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let edges: usize = needs.iter().map(Vec::len).sum();
    let mut graph = DiGraph::<(), (), usize>::with_capacity(needs.len(), edges);
    let nodes: Vec<NodeIndex<usize>> = needs.iter().map(|_| graph.add_node(())).collect();
    for (node, all) in nodes.iter().zip(needs) {
        for &need in all {
            graph.add_edge(*node, nodes[need], ());
        }
    }
    let mut order = Vec::with_capacity(needs.len());
    let mut place = vec![0; needs.len()];
    let mut walk = DfsPostOrder::empty(&graph);
    for start in nodes {
        walk.move_to(start);
        while let Some(node) = walk.next(&graph) {
            place[node.index()] = order.len();
            order.push(node.index());
        }
    }
    let is_late =
        |node: NodeIndex<usize>, need: NodeIndex<usize>| place[need.index()] >= place[node.index()];
    let Some(back) = graph.edge_references().find(|edge| is_late(edge.source(), edge.target()))
    else {
        return Ok(order);
    };
    let (from, to) = (back.target(), back.source());
    let path = astar(&graph, from, |node| node == to, |_| 1, |_| 0);
    Err(path.into_iter().flat_map(|(_, path)| path).map(NodeIndex::index).collect())
}

#[cfg(test)]
mod tests {
    use super::needed_first;

    #[test]
    fn dependencies_come_first_then_lower_indices() {
        assert_eq!(needed_first(&[vec![2, 1], vec![3], vec![3], vec![]]), Ok(vec![3, 2, 1, 0]));
        assert_eq!(needed_first(&[vec![], vec![], vec![]]), Ok(vec![0, 1, 2]));
        assert_eq!(needed_first(&[]), Ok(vec![]));
    }

    #[test]
    fn cycles_are_reported_in_order() {
        assert_eq!(needed_first(&[vec![1], vec![2], vec![1]]), Err(vec![1, 2]));
        assert_eq!(needed_first(&[vec![0]]), Err(vec![0]));
    }

    #[test]
    fn long_chains_do_not_overflow_the_stack() {
        let chain: Vec<Vec<usize>> =
            (0..200_000).map(|i| if i == 0 { vec![] } else { vec![i - 1] }).collect();
        let reversed: Vec<Vec<usize>> =
            (1..=200_000).map(|i| if i < 200_000 { vec![i] } else { vec![] }).collect();
        assert_eq!(needed_first(&chain), Ok((0..200_000).collect()));
        assert_eq!(needed_first(&reversed), Ok((0..200_000).rev().collect()));
    }
}
