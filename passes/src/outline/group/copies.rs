//! How contractions and attention read their operands, and which views of them are copied first.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::access::Access;

use super::{Grouping, count};
use crate::outline::is_call;
use crate::outline::schedule::Read;
use crate::outline::strides::{self, Strided};
use crate::outline::views::{is_one, is_view};

/// The attributes that hold the contracted axes of each operand of a contraction.
const CONTRACTED: [&str; 2] = ["x_contract", "y_contract"];

impl Grouping<'_> {
    /// Finds the views that contractions, attention and calls cannot read in place, and marks them
    /// to be copied to memory.
    pub fn find_copies(&mut self) {
        for op in &self.function.ops {
            if is_call(op) {
                // Calls read contiguous memory.
                op.operands.iter().for_each(|&operand| self.copy(operand));
                continue;
            }
            let axes = match (self.library)(op) {
                None if matches!(op.op.access, Access::Contract) => CONTRACTED,
                Some(kernel) if kernel.reads_views => [""; 2],
                _ => continue,
            };
            for (&operand, axes) in op.operands.iter().zip(axes.iter().cycle()) {
                let gathers = !axes.is_empty() && self.is_gathered(op, operand, axes);
                if !gathers && !self.is_strided(op, operand, axes) {
                    self.copy(operand);
                }
            }
        }
    }

    fn copy(&mut self, value: Value) {
        if let Some(at) = self.definitions[value.index()].map(|at| at as usize) {
            self.views[at] = false;
        }
    }

    /// How a contraction reads its operands. Must be called after [`Self::find_copies`].
    pub fn reads(&self, op: &Operation) -> [Read; 2] {
        let read = |index: usize| {
            let (operand, axes) = (op.operands[index], CONTRACTED[index]);
            let at = self.definitions[operand.index()].map(|at| at as usize);
            let strided = match at.is_some_and(|at| self.is_view(at)) {
                true => self.is_strided(op, operand, axes),
                false => self.is_dense(op, operand, axes),
            };
            if strided { Read::Strided } else { Read::Gathered }
        };
        [read(0), read(1)]
    }

    /// Whether a contraction gathers the elements of a view. It does if a copy would repeat
    /// elements, or if the elements of the copy would have to be gathered as well.
    fn is_gathered(&self, op: &Operation, operand: Value, axes: &str) -> bool {
        let own = strides::padded(self.function, &self.definitions, operand);
        let Some(own) = own.filter(|own| self.is_materialized(own)) else {
            return false;
        };
        if self.is_strided(op, operand, axes) {
            return false;
        }
        let (here, there) = (count(self.dims(operand)), count(self.dims(own.root)));
        let repeats = match (here.as_const(), there.as_const()) {
            (Some(here), Some(there)) => here > there,
            _ => here != there,
        };
        repeats || !self.is_dense(op, operand, axes)
    }

    /// Whether the contracted axes of a value in dense memory collapse into one.
    fn is_dense(&self, op: &Operation, operand: Value, axes: &str) -> bool {
        let dims = self.dims(operand);
        self.contracted(op, axes, dims, &strides::dense(dims)) == 1
    }

    /// Whether a value is a strided view of another, and its contracted axes collapse into one.
    fn is_strided(&self, op: &Operation, operand: Value, axes: &str) -> bool {
        let own = strides::strided(self.function, &self.definitions, operand);
        own.filter(|own| self.is_materialized(own))
            .is_some_and(|own| self.contracted(op, axes, self.dims(operand), &own.strides) == 1)
    }

    /// Whether the root of a strided view is a value in memory, not another view.
    fn is_materialized(&self, own: &Strided) -> bool {
        self.definitions[own.root.index()]
            .is_none_or(|at| !is_view(self.function, &self.function.ops[at as usize]))
    }

    /// The number of axes that the contracted axes of an operand collapse into.
    fn contracted(&self, op: &Operation, axes: &str, dims: &[Dim], strides: &[Dim]) -> usize {
        match op.op.attr_index(axes).map(|i| &op.attrs[i]) {
            Some(Attr::Ints(axes)) => {
                let axes = axes.iter().map(|a| a.rem_euclid(dims.len() as i64) as usize);
                strides::collapse(axes.map(|a| (dims[a].clone(), strides[a].clone()))).len()
            }
            _ => usize::from(strides.last().is_none_or(is_one)),
        }
    }
}
