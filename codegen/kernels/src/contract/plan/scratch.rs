//! The layout of a thread's scratch memory: the block of `y`, the panel of `x`, the sums, and the
//! lanes of a vector. Offsets are in bytes.

use mithril_ir::dtype::DType;

use super::{Plan, Scheme, round_up};
use crate::builder::Builder;
use crate::code::Mem;

impl Plan {
    /// The size of a thread's scratch memory, in bytes.
    pub fn scratch_bytes(&self) -> usize {
        (self.lanes_offset() + 64) as usize
    }

    pub(in crate::contract) fn y_offset(&self) -> i64 {
        0
    }

    /// The number of elements of one panel of a block of `y`.
    pub(in crate::contract) fn block_elements(&self) -> i64 {
        self.padded_depth() * self.block_cols
    }

    pub(in crate::contract) fn x_offset(&self) -> i64 {
        let elements = match self.scheme {
            Scheme::Panels => self.block_elements() * self.panels,
            _ => 0,
        };
        round_up(self.y_offset() + elements * self.panel_dtype.bytes() as i64, 64)
    }

    /// The stride between rows of a panel of `x` that is contiguous along `k`. It is not a power of
    /// two, to avoid cache conflicts.
    pub(in crate::contract) fn x_pitch(&self) -> i64 {
        round_up(self.depth, self.register_elements()) + self.register_elements()
    }

    /// The stride along `k` of a panel of `x` whose rows are contiguous: the tile's height, rounded
    /// up to whole vectors.
    pub(in crate::contract) fn x_width(&self) -> i64 {
        round_up(self.height(), self.register as i64)
    }

    pub(in crate::contract) fn results_offset(&self) -> i64 {
        let elements = match self.x_in_place {
            true => 0,
            false => (self.height() * self.x_pitch()).max(self.depth * self.x_width()),
        };
        round_up(self.x_offset() + elements * self.panel_dtype.bytes() as i64, 64)
    }

    pub(in crate::contract) fn lanes_offset(&self) -> i64 {
        let elements = match self.scheme {
            Scheme::Sweep { rows } => rows * self.block_cols,
            _ if self.several_panels => self.block_tiles * self.height() * self.block_cols,
            _ => self.height() * self.strip(),
        };
        round_up(self.results_offset() + elements * self.work.bytes() as i64, 64)
    }

    pub(in crate::contract) fn scratch(&self, b: &mut Builder, at: i64) -> Mem {
        let at = b.index(at);
        b.scratch(self.work, at)
    }

    /// The scratch memory of a panel.
    pub(in crate::contract) fn panel_scratch(&self, b: &mut Builder, at: i64) -> Mem {
        let at = b.index(at);
        b.scratch(self.panel_dtype, at)
    }

    pub(in crate::contract) fn lane_scratch(&self, b: &mut Builder, dtype: DType) -> Mem {
        let at = b.index(self.lanes_offset());
        b.scratch(dtype, at)
    }
}
