//! Allocates more stack for recursion over nested functions, however deep they nest and however
//! small the thread's stack is.

/// The minimum stack that one level of recursion needs, in bytes.
const LEVEL: usize = 128 << 10;
/// How much stack is allocated at a time, in bytes.
const SEGMENT: usize = 4 << 20;

/// Runs one level of a recursion over nested models or functions, on a new stack segment if little
/// is left.
pub fn deeper<T>(level: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEVEL, SEGMENT, level)
}
