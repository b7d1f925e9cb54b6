//! What lowering makes of a kernel.

use mithril_ir::dim::Dim;
use mithril_passes::outline::Kernel;

use crate::code::Code;

/// A kernel ready to be printed, and how it is launched. Dims are in the kernel's symbols.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub code: Code,
    /// How many tasks there are.
    pub tasks: Dim,
    /// The fewest tasks worth a thread of their own.
    pub grain: i64,
    /// Bytes of scratch memory.
    pub scratch: Dim,
    /// Results that another kernel finishes.
    pub partials: Vec<Partial>,
}

/// A result that is not written, but numbers by which another kernel has it.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The number of the result. Its buffer is one of so many bytes instead.
    pub result: usize,
    pub bytes: Dim,
    /// Takes that buffer, as `count` rows of `length` numbers, and gives the result; its dims `d0`
    /// and `d1` are these.
    pub rest: Kernel,
    pub count: Dim,
    pub length: Dim,
}
