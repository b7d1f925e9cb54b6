//! The layout of a thread's scratch memory, in bytes: the block of `y`, the panel of `x`, the
//! results, and the lanes of a vector.

use mithril_ir::dtype::DType;

use super::{Plan, Scheme, up};
use crate::builder::Builder;
use crate::code::Mem;

impl Plan {
    /// The size of a thread's scratch memory, in bytes.
    pub fn scratch_bytes(&self) -> usize {
        (self.lanes_at() + 64) as usize
    }

    pub(in crate::contract) fn y_at(&self) -> i64 {
        0
    }

    /// The elements of a panel of a block of `y`.
    pub(in crate::contract) fn block_elements(&self) -> i64 {
        self.room() * self.block_cols
    }

    pub(in crate::contract) fn x_at(&self) -> i64 {
        let elements = match self.scheme {
            Scheme::Panels => self.block_elements() * self.panels,
            _ => 0,
        };
        up(self.y_at() + elements * self.held.bytes() as i64, 64)
    }

    /// The stride between rows of a panel of `x` that lies along `k`: not a power of two.
    pub(in crate::contract) fn x_pitch(&self) -> i64 {
        up(self.depth, self.wide()) + self.wide()
    }

    /// The number of rows of a panel of `x` that lies along its rows, rounded up to whole vectors.
    pub(in crate::contract) fn x_width(&self) -> i64 {
        up(self.height(), self.register as i64)
    }

    pub(in crate::contract) fn results_at(&self) -> i64 {
        let elements = match self.x_in_place {
            true => 0,
            false => (self.height() * self.x_pitch()).max(self.depth * self.x_width()),
        };
        up(self.x_at() + elements * self.held.bytes() as i64, 64)
    }

    pub(in crate::contract) fn lanes_at(&self) -> i64 {
        let elements = match self.scheme {
            Scheme::Sweep { rows } => rows * self.block_cols,
            _ if self.deep => self.block_tiles * self.height() * self.block_cols,
            _ => self.height() * self.strip(),
        };
        up(self.results_at() + elements * self.work.bytes() as i64, 64)
    }

    pub(in crate::contract) fn scratch(&self, b: &mut Builder, at: i64) -> Mem {
        let at = b.index(at);
        b.scratch(self.work, at)
    }

    /// The scratch memory of a panel.
    pub(in crate::contract) fn panel_scratch(&self, b: &mut Builder, at: i64) -> Mem {
        let at = b.index(at);
        b.scratch(self.held, at)
    }

    pub(in crate::contract) fn lane_scratch(&self, b: &mut Builder, dtype: DType) -> Mem {
        let at = b.index(self.lanes_at());
        b.scratch(dtype, at)
    }
}
