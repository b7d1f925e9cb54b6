//! Column sums over the first axes of a space, such as the gradient of a bias. A kernel that
//! computes the space row by row accumulates them during the same pass.

use super::{Core, Group, Grouping, axes};
use crate::outline::schedule;

/// The most elements of a column sum: it has to stay in cache while rows are computed.
const MOST: i64 = 1 << 14;

impl Grouping<'_> {
    /// The producer's core and the reader's column sum, if that can be accumulated in the
    /// producer's loops.
    pub fn side(&self, producer: usize, reader: usize) -> Option<(Core, Option<usize>)> {
        let (a, b) = (self.groups[producer].as_ref()?, self.groups[reader].as_ref()?);
        let (&[at], Core::Loops { space, rows }) = (&b.ops[..], &a.core) else {
            return None;
        };
        let op = &self.function.ops[at];
        let first = self.summed_axes(at)?;
        let dims = self.dims(op.operands[0]);
        let small = super::count(&dims[first..]).as_const().is_some_and(|n| n <= MOST);
        let agrees = rows.is_none_or(|rows| rows == first)
            && a.sides.iter().all(|&side| self.summed_axes(side) == Some(first));
        let own = axes(dims);
        let mut read = self.read(op, &own).into_iter().filter(|s| self.of[s.op] == Some(producer));
        let in_line = read.all(|source| {
            let stand = self.stand(&self.function.ops[source.op], space, *rows);
            stand.is_some() && stand == source.places
        });
        (dims == space && small && agrees && in_line).then(|| (a.core.clone(), Some(at)))
    }

    /// Whether the column sums of both groups can be accumulated over the common space.
    pub fn sides_fit(&self, a: &Group, b: &Group, core: &Core) -> bool {
        let mut sides = a.sides.iter().chain(&b.sides).peekable();
        let Some(first) = sides.peek().and_then(|at| self.summed_axes(**at)) else {
            return true;
        };
        let Core::Loops { space, rows } = core else {
            return false;
        };
        rows.is_none_or(|rows| rows == first)
            && sides.all(|&at| {
                let operand = self.function.ops[at].operands[0];
                self.summed_axes(at) == Some(first) && self.dims(operand) == space
            })
    }

    fn summed_axes(&self, at: usize) -> Option<usize> {
        schedule::summed_axes(self.function, &self.function.ops[at])
    }
}
