//! What a compiled kernel looks like from outside.

use std::slice;

/// A function of compiled code that does a part of a launch's work.
///
/// The work is some number of independent tasks. A call does those from `lo` up to, not
/// including, `hi`; any way of cutting all tasks into calls gives the same bits. `scratch` is
/// 64-byte aligned memory of the thread alone, at least as long as the launch says; `buffers` and
/// `dims` are the launch's, in its order.
///
/// A kernel writes only to scratch and to the buffers it is to produce, does not unwind and does
/// not call the runtime.
pub type Kernel = unsafe extern "C" fn(
    scratch: *mut u8,
    buffers: *const *mut u8,
    dims: *const i64,
    lo: i64,
    hi: i64,
);

/// How many bytes one task of [`copy`] copies.
pub const COPY_BYTES: i64 = 1 << 16;

/// The kernel that copies `dims[0]` bytes from buffer 0 to buffer 1, [`COPY_BYTES`] a task: for
/// results that are arguments or constants themselves. [`Launch::copy`] launches it.
///
/// [`Launch::copy`]: crate::program::Launch::copy
///
/// # Safety
/// `buffers` holds two pointers to `dims[0]` bytes each, and `lo..hi` are tasks of them.
pub unsafe extern "C" fn copy(
    _scratch: *mut u8,
    buffers: *const *mut u8,
    dims: *const i64,
    lo: i64,
    hi: i64,
) {
    // SAFETY: the caller gives two buffers and one dim.
    let (buffers, bytes) = unsafe { (slice::from_raw_parts(buffers, 2), *dims) };
    let (from, to) = (lo * COPY_BYTES, (hi * COPY_BYTES).min(bytes));
    if from < to {
        // SAFETY: both ends lie within the buffers; they may be one and the same.
        unsafe {
            let (source, target) = (buffers[0].offset(from as isize), buffers[1]);
            source.copy_to(target.offset(from as isize), (to - from) as usize);
        }
    }
}
