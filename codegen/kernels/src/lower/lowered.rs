//! The result of lowering a kernel.

use mithril_ir::dim::Dim;
use mithril_passes::outline::Kernel;

use crate::code::Code;

/// A kernel that is ready for code generation, and the parameters of its launch. Dims are expressed
/// in the kernel's symbols.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub code: Code,
    /// The number of tasks.
    pub tasks: Dim,
    /// The minimum number of tasks per thread. With fewer, starting a thread does not pay.
    pub grain: i64,
    /// Scratch memory in bytes.
    pub scratch: Dim,
    /// Results that another kernel finishes.
    pub partials: Vec<Partial>,
}

/// A result that is computed in two steps: this kernel writes partial results, and a second kernel
/// reduces them.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The index of the result. Its buffer holds the partial results instead, `bytes` bytes.
    pub result: usize,
    pub bytes: Dim,
    /// The second kernel. It reads the buffer as `count` rows of `length` numbers. Its dims 0 and 1
    /// are `count` and `length`.
    pub second: Kernel,
    pub count: Dim,
    pub length: Dim,
}
