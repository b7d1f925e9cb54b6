//! Keeps expensive values of a row for the passes that need them again.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::{self, Kind};
use mithril_ir::scalar::expr::Node;
use rustc_hash::FxHashSet;

use super::Rows;
use crate::lower::nest::{Kept, held};

impl Rows<'_> {
    /// Finds expensive values that several passes need, and allocates scratch memory for them.
    pub fn keep(&mut self) {
        if self.folds.is_empty() || self.outer != self.axis {
            return;
        }
        let sweeps: Vec<FxHashSet<Value>> =
            (1..=self.last_level()).map(|level| self.needed(level)).collect();
        let f = self.nest.f;
        let moved = self.moved();
        let mut offset = Dim::Const(0);
        for value in f.ops.iter().map(|op| op.result()) {
            let users = sweeps.iter().filter(|needed| needed.contains(&value)).count();
            if users < 2 || moved.contains(&value) || !self.is_dear(value) {
                continue;
            }
            let first = sweeps.iter().position(|needed| needed.contains(&value)).unwrap_or(0) + 1;
            let at = self.nest.dim(&offset);
            let dtype = held(self.nest.dtype(value));
            let mem = self.nest.b.scratch(dtype, at);
            self.nest.kept.insert(value, Kept { mem, axis: self.axis, written: false });
            self.first_sweeps.push((value, first));
            // Room for one vector more than there are elements: the last vector is stored unmasked.
            let bytes = &self.space[self.axis] * &Dim::Const(dtype.bytes() as i64);
            let blocks = (&bytes + &Dim::Const(63)).floor_div(&Dim::Const(64));
            offset = &offset + &(&(&blocks + &Dim::Const(2)) * &Dim::Const(64));
        }
        self.scratch = offset;
    }

    /// The values that are read through layout operations, so not only at the current position of
    /// the row.
    fn moved(&self) -> FxHashSet<Value> {
        let mut moved = FxHashSet::default();
        for op in self.nest.f.ops.iter().rev() {
            let along = self.folds.iter().any(|(_, fold, _)| fold.first == op.first);
            let in_line = matches!(op.op.kind, Kind::Elementwise | Kind::Barrier);
            let below = op.results().any(|value| moved.contains(&value));
            if !along && (!in_line || below) {
                moved.extend(&op.operands);
            }
        }
        moved
    }

    /// The values of the whole space that a pass computes.
    pub fn needed(&self, level: usize) -> FxHashSet<Value> {
        let f = self.nest.f;
        let folds = self.folds.iter().filter(|(own, ..)| *own == level);
        let mut open: Vec<Value> = folds.map(|(_, op, _)| op.operands[0]).collect();
        if level == self.last_level() {
            open.extend(f.results.iter().map(|r| r.value));
        }
        let mut needed = FxHashSet::default();
        while let Some(value) = open.pop() {
            let along =
                |op: &Operation| self.folds.iter().any(|(_, fold, _)| fold.first == op.first);
            match self.nest.definition(value) {
                Some(op) if !along(op) && needed.insert(value) => open.extend(&op.operands),
                _ => {}
            }
        }
        needed
    }

    pub fn is_dear(&self, value: Value) -> bool {
        let Some(op) = self.nest.definition(value) else {
            return false;
        };
        let dear = |node: &Node| matches!(node, Node::Prim(prim, _) if !prim.is_cheap());
        let whole = *self.nest.dims(value) == self.space[..];
        let series = op::expr(op.op).is_some_and(|expr| expr.nodes().iter().any(dear));
        whole && (series || op.op.kind == Kind::Random)
    }

    /// The pass that computes a value and keeps it for other passes.
    pub fn first_sweep(&self, value: Value) -> Option<usize> {
        let mut kept = self.first_sweeps.iter();
        kept.find(|(own, _)| *own == value).map(|(_, level)| *level)
    }

    /// After the pass that first needs them, kept values are read from memory.
    pub fn written(&mut self, level: usize) {
        for (value, first) in &self.first_sweeps {
            if let (true, Some(kept)) = (*first == level, self.nest.kept.get_mut(value)) {
                kept.written = true;
            }
        }
    }
}
