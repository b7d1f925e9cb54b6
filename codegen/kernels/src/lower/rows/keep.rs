//! Keeps expensive values of a row in scratch memory for later passes over the row.

use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::{self, Kind};
use mithril_ir::scalar::expr::Node;
use rustc_hash::FxHashSet;

use super::Rows;
use crate::lower::nest::{Kept, register_dtype};

impl Rows<'_> {
    /// Finds expensive values that several passes need, and allocates scratch memory for them.
    pub fn keep_values(&mut self) {
        if self.reductions.is_empty() || self.outer != self.axis {
            return;
        }
        let passes: Vec<FxHashSet<Value>> =
            (1..=self.last_level()).map(|level| self.needed(level)).collect();
        let f = self.nest.f;
        let moved_values = self.moved_values();
        let mut offset = Dim::Const(0);
        for value in f.ops.iter().map(|op| op.result()) {
            let users = passes.iter().filter(|needed| needed.contains(&value)).count();
            if users < 2 || moved_values.contains(&value) || !self.is_expensive(value) {
                continue;
            }
            let first = passes.iter().position(|needed| needed.contains(&value)).unwrap_or(0) + 1;
            let at = self.nest.dim(&offset);
            let dtype = register_dtype(self.nest.dtype(value));
            let mem = self.nest.b.scratch(dtype, at);
            self.nest.kept.insert(value, Kept { mem, axis: self.axis, stored: false });
            self.first_passes.push((value, first));
            // Leaves room for one more vector, because the last vector is stored unmasked.
            let bytes = &self.space[self.axis] * &Dim::Const(dtype.bytes() as i64);
            let blocks = (&bytes + &Dim::Const(63)).floor_div(&Dim::Const(64));
            offset = &offset + &(&(&blocks + &Dim::Const(2)) * &Dim::Const(64));
        }
        self.scratch = offset;
    }

    /// Returns the values that are read through layout operations, so at other positions than the
    /// current one. They cannot be kept.
    fn moved_values(&self) -> FxHashSet<Value> {
        let mut moved_values = FxHashSet::default();
        for op in self.nest.f.ops.iter().rev() {
            let is_reduction = self.reductions.iter().any(|(_, fold, _)| fold.first == op.first);
            let pointwise = matches!(op.op.kind, Kind::Elementwise | Kind::Barrier);
            let below = op.results().any(|value| moved_values.contains(&value));
            if !is_reduction && (!pointwise || below) {
                moved_values.extend(&op.operands);
            }
        }
        moved_values
    }

    /// Returns the values of the whole space that a pass computes.
    pub fn needed(&self, level: usize) -> FxHashSet<Value> {
        let f = self.nest.f;
        let reductions = self.reductions.iter().filter(|(own, ..)| *own == level);
        let mut open: Vec<Value> = reductions.map(|(_, op, _)| op.operands[0]).collect();
        if level == self.last_level() {
            open.extend(f.results.iter().map(|r| r.value));
        }
        let mut needed = FxHashSet::default();
        while let Some(value) = open.pop() {
            let is_reduction =
                |op: &Operation| self.reductions.iter().any(|(_, fold, _)| fold.first == op.first);
            match self.nest.definition(value) {
                Some(op) if !is_reduction(op) && needed.insert(value) => open.extend(&op.operands),
                _ => {}
            }
        }
        needed
    }

    pub fn is_expensive(&self, value: Value) -> bool {
        let Some(op) = self.nest.definition(value) else {
            return false;
        };
        let expensive = |node: &Node| matches!(node, Node::Prim(prim, _) if !prim.is_cheap());
        let whole = *self.nest.dims(value) == self.space[..];
        let costly = op::expr(op.op).is_some_and(|expr| expr.nodes().iter().any(expensive));
        whole && (costly || op.op.kind == Kind::Random)
    }

    /// Returns the number of the pass that computes and keeps a value, or `None` if it is not kept.
    pub fn first_pass(&self, value: Value) -> Option<usize> {
        let mut kept = self.first_passes.iter();
        kept.find(|(own, _)| *own == value).map(|(_, level)| *level)
    }

    /// Marks the values that the pass has stored, so that later passes load them.
    pub fn mark_stored(&mut self, level: usize) {
        for (value, first) in &self.first_passes {
            if let (true, Some(kept)) = (*first == level, self.nest.kept.get_mut(value)) {
                kept.stored = true;
            }
        }
    }
}
