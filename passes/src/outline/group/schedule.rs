//! Chooses the schedule of a group's kernel.

use indexmap::IndexSet;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::{Access, Fold};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::{Core, Group};
use crate::outline::schedule::{
    ColumnReduction, LoopNest, Reduction, Schedule, reduced_rows, summed_axes,
};

impl Group {
    /// The schedule of the kernel with these operations, including views, and these results.
    pub fn schedule(
        &self,
        function: &Function,
        windowed: &[bool],
        ops: &IndexSet<usize, FxBuildHasher>,
        results: &[Value],
    ) -> Schedule {
        let number =
            |op: &usize| ops.get_index_of(op).expect("a kernel has its group's operations");
        match &self.core {
            Core::Loops { space, rows } => {
                let mut loops = LoopNest {
                    rows: *rows,
                    reductions: reductions(function, windowed, ops),
                    column_sums: self.column_sums.iter().map(number).collect(),
                    ..LoopNest::over(space)
                };
                if let Some(&sum) = self.column_sums.first() {
                    loops.rows = summed_axes(function, &function.ops[sum]);
                } else if loops.reductions.is_empty() {
                    loops.columns = self.ops.iter().find_map(|op| {
                        let fold = fold_of(&function.ops[*op])?;
                        Some(ColumnReduction { op: number(op), fold })
                    });
                    // A group that was split may have lost its reductions, and may loop over a
                    // smaller space.
                    let mut shapes = results.iter().map(|value| &function.ty(*value).shape.dims);
                    if let Some(first) = shapes.next()
                        && shapes.all(|dims| dims == first)
                    {
                        (loops.space, loops.rows) = (first.to_vec(), None);
                    }
                }
                Schedule::Loops(loops)
            }
            Core::Separate { space } => Schedule::Loops(LoopNest::over(space)),
            Core::Contraction { reads, .. } => {
                let is_contraction =
                    |op: &&usize| matches!(function.ops[**op].op.access, Access::Contract);
                let op = self.ops.iter().find(is_contraction).expect("the group has one");
                Schedule::Contraction { op: number(op), reads: *reads }
            }
            Core::Library => Schedule::Library { op: number(&self.ops[0]) },
        }
    }
}

/// How an operation combines elements, if it is a reduction.
fn fold_of(op: &Operation) -> Option<Fold> {
    match op.op.access {
        Access::Fold(fold) => Some(fold),
        Access::Meaning
        | Access::Constant(_)
        | Access::View(_)
        | Access::Pieces(_)
        | Access::Gather(_)
        | Access::Contract
        | Access::Scatter(_)
        | Access::Random(_)
        | Access::Library(_) => None,
    }
}

/// The reductions along rows of a kernel.
fn reductions(
    function: &Function,
    windowed: &[bool],
    ops: &IndexSet<usize, FxBuildHasher>,
) -> Vec<Reduction> {
    let mut levels: FxHashMap<Value, usize> = FxHashMap::default();
    let mut reductions = Vec::new();
    for (number, &at) in ops.iter().enumerate() {
        let op = &function.ops[at];
        let needed = op.operands.iter().filter_map(|value| levels.get(value));
        let mut level = needed.copied().max().unwrap_or(0);
        if let Some(fold) = fold_of(op)
            && reduced_rows(function, windowed, op).is_some()
        {
            level += 1;
            reductions.push(Reduction { op: number, fold, level });
        }
        op.results().for_each(|value| _ = levels.insert(value, level));
    }
    reductions
}
