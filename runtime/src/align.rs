//! The alignment of buffers.

/// The alignment of every block in bytes: a cache line, which is also the longest vector.
pub const ALIGN: usize = 64;
