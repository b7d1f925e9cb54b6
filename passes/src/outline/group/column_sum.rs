//! Column sums over the first axes of a space, such as the gradient of a bias. A kernel that
//! computes the space row by row accumulates them during the same pass.

use super::{Core, Group, Grouping, axes};
use crate::outline::schedule;

/// The maximum number of elements of a column sum, which has to stay in cache while rows are
/// computed.
const MAX_COLUMNS: i64 = 1 << 14;

impl Grouping<'_> {
    /// The producer's core and the reader's column sum, if that can be accumulated in the
    /// producer's loops.
    pub fn column_sum(&self, producer: usize, reader: usize) -> Option<(Core, Option<usize>)> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        let (&[at], Core::Loops { space, rows }) = (&b.ops[..], &a.core) else {
            return None;
        };
        let op = &self.function.ops[at];
        let first = self.summed_axes(at)?;
        let dims = self.dims(op.operands[0]);
        let small = super::count(&dims[first..]).as_const().is_some_and(|n| n <= MAX_COLUMNS);
        let agrees = rows.is_none_or(|rows| rows == first)
            && a.column_sums.iter().all(|&sum| self.summed_axes(sum) == Some(first));
        let own = axes(dims);
        let mut read =
            self.read(op, &own).into_iter().filter(|s| self.group_of[s.op] == Some(producer));
        let is_aligned = read.all(|source| {
            let alignment = self.alignment_in(&self.function.ops[source.op], space, *rows);
            alignment.is_some() && alignment == source.alignment
        });
        (dims == space && small && agrees && is_aligned).then(|| (a.core.clone(), Some(at)))
    }

    /// Whether the column sums of both groups can be accumulated over the common space.
    pub fn column_sums_fit(&self, a: &Group, b: &Group, core: &Core) -> bool {
        let mut column_sums = a.column_sums.iter().chain(&b.column_sums).peekable();
        let Some(first) = column_sums.peek().and_then(|at| self.summed_axes(**at)) else {
            return true;
        };
        let Core::Loops { space, rows } = core else {
            return false;
        };
        rows.is_none_or(|rows| rows == first)
            && column_sums.all(|&at| {
                let operand = self.function.ops[at].operands[0];
                self.summed_axes(at) == Some(first) && self.dims(operand) == space
            })
    }

    fn summed_axes(&self, at: usize) -> Option<usize> {
        schedule::summed_axes(self.function, &self.function.ops[at])
    }
}
