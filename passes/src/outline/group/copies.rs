//! Views that contractions and loops cannot read through.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::access::Access;

use super::Grouping;
use crate::outline::views::{is_one, is_view};
use crate::outline::{is_scan, strides};

impl Grouping<'_> {
    /// Operands of contractions and of attention whose elements do not lie in steps.
    pub fn find_copies(&mut self) {
        for op in &self.function.ops {
            if is_scan(op) {
                // Its rows lie one behind the other.
                op.operands.iter().for_each(|&operand| self.copy(operand));
                continue;
            }
            let axes = match (self.library)(op) {
                None if op.op.access == Access::Contract => ["x_contract", "y_contract"],
                Some(kernel) if kernel.reads_views => [""; 2],
                _ => continue,
            };
            for (&operand, axes) in op.operands.iter().zip(axes.iter().cycle()) {
                let at = self.definitions[operand.index()].map(|at| at as usize);
                if let Some(at) = at.filter(|&at| is_view(self.function, &self.function.ops[at])) {
                    self.copied[at] |= !self.in_steps(op, operand, axes);
                }
            }
        }
    }

    fn copy(&mut self, value: Value) {
        if let Some(at) = self.definitions[value.index()].map(|at| at as usize) {
            self.copied[at] |= is_view(self.function, &self.function.ops[at]);
        }
    }

    /// Whether the loops of a contraction can read its operands: in steps, with the contracted axes
    /// as one.
    pub fn is_strided(&self, op: &Operation) -> bool {
        op.operands.iter().zip(["x_contract", "y_contract"]).all(|(&operand, axes)| {
            let at = self.definitions[operand.index()].map(|at| at as usize);
            at.is_some_and(|at| self.is_view(at)) || {
                let dims = self.dims(operand);
                self.contracted(op, axes, dims, &strides::dense(dims)) == 1
            }
        })
    }

    /// Whether a value is another's elements in steps, and its contracted axes are as one.
    fn in_steps(&self, op: &Operation, operand: Value, axes: &str) -> bool {
        let Some(strided) = strides::strided(self.function, &self.definitions, operand) else {
            return false;
        };
        let real = self.definitions[strided.root.index()]
            .is_none_or(|at| !is_view(self.function, &self.function.ops[at as usize]));
        let dims = self.dims(operand);
        real && self.contracted(op, axes, dims, &strided.strides) == 1
    }

    /// How many runs the contracted axes of an operand make.
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
