//! Operations that readers recompute, because storing their results would cost more.

use mithril_ir::op::Kind;
use mithril_ir::op::access::Access;
use mithril_ir::scalar::expr::Node;

use super::Grouping;

impl Grouping<'_> {
    /// Finds elementwise operations on windows. Such a value has several elements for each input
    /// element, so recomputing it from the inputs moves less memory than reading it.
    pub fn find_recomputed(&mut self) {
        let function = self.function;
        // Operations that are not loops over elements read their operands from memory.
        let mut stored = vec![false; function.values.len()];
        function.results.iter().for_each(|result| stored[result.value.index()] = true);
        for (at, op) in function.ops.iter().enumerate().rev() {
            let loops = op.op.kind == Kind::Elementwise || matches!(op.op.access, Access::Fold(_));
            let through = self.views[at] && !stored[op.first.index()];
            if !loops && !through {
                op.operands.iter().for_each(|value| stored[value.index()] = true);
            }
        }
        for (at, op) in function.ops.iter().enumerate() {
            let value = op.first.index();
            let elementwise = op.op.kind == Kind::Elementwise && self.is_cheap(at);
            self.views[at] |= elementwise && self.windowed[value] && !stored[value];
        }
    }

    /// Whether recomputing it costs less than storing and loading it.
    pub fn is_cheap(&self, op: usize) -> bool {
        let op = &self.function.ops[op];
        let simple = |node: &Node| match node {
            Node::Prim(prim, _) => prim.is_cheap(),
            _ => true,
        };
        match mithril_ir::op::expr(op.op) {
            Some(expr) => expr.nodes().iter().all(simple),
            None => op.op.kind == Kind::Index,
        }
    }
}
