//! Stack for what goes down into nested functions, however deep they are and small the thread's own
//! is.

/// Less stack than this left, in bytes, is too little for one more level.
const LEVEL: usize = 128 << 10;
/// What is allotted at once, in bytes.
const SEGMENT: usize = 4 << 20;

/// Runs one level of a recursion over nested models or functions, on more stack where little is left.
pub fn deeper<T>(level: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEVEL, SEGMENT, level)
}
