//! The calling convention of compiled kernels.

use std::slice;

/// A compiled function that does a part of the work of a launch.
///
/// The work is some number of independent tasks. A call does the tasks `lo..hi`; results are
/// bitwise the same however the tasks are divided into calls. `scratch` is 64-byte aligned memory
/// that only this thread uses, of at least the size that the launch says. `buffers` and `dims` are
/// those of the launch, in its order.
///
/// A kernel writes only to scratch and to its output buffers, does not unwind and does not call
/// the runtime.
pub type Kernel = unsafe extern "C" fn(
    scratch: *mut u8,
    buffers: *const *mut u8,
    dims: *const i64,
    lo: i64,
    hi: i64,
);

/// The number of bytes that one task of [`copy`] copies.
pub const COPY_BYTES: i64 = 1 << 16;

/// Copies `dims[0]` bytes from buffer 0 to buffer 1, [`COPY_BYTES`] per task. It is the kernel for
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
        // SAFETY: the range lies within both buffers, which may be the same buffer.
        unsafe {
            let (source, target) = (buffers[0].offset(from as isize), buffers[1]);
            source.copy_to(target.offset(from as isize), (to - from) as usize);
        }
    }
}
