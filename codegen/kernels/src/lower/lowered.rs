//! The result of lowering a kernel.

use mithril_ir::dim::Dim;
use mithril_passes::outline::Kernel;

use crate::code::Code;

/// A kernel that is ready for code generation, and how it is launched. Dims are in the kernel's
/// symbols.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub code: Code,
    /// The number of tasks.
    pub tasks: Dim,
    /// The smallest number of tasks that is worth a thread.
    pub grain: i64,
    /// Bytes of scratch memory.
    pub scratch: Dim,
    /// Results that another kernel finishes.
    pub partials: Vec<Partial>,
}

/// A result for which the kernel writes partial results only; another kernel computes it from them.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The index of the result. Its buffer holds `bytes` bytes of partial results instead.
    pub result: usize,
    pub bytes: Dim,
    /// The kernel that computes the result from that buffer, which it takes as `count` rows of
    /// `length` numbers. Its dims 0 and 1 are `count` and `length`.
    pub rest: Kernel,
    pub count: Dim,
    pub length: Dim,
}
