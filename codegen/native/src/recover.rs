//! Catches fatal errors and crashes of LLVM and MLIR, which would end the process. Both are called
//! aborts here.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// Maximum length in bytes of an error message from LLVM; the rest is dropped.
const MAX_MESSAGE: usize = 1 << 10;
/// Bytes of stack for a compilation. LLVM's passes recurse over the code, and a thread may have a
/// small stack; for comparison, clang's own threads have 8 MB. Untouched pages cost nothing.
const STACK_BYTES: usize = 64 << 20;

unsafe extern "C" {
    fn mithril_recover(
        call: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
        message: *mut c_char,
        size: usize,
    ) -> bool;
}

thread_local! {
    /// Whether LLVM aborted since the compilation began.
    static ABORTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a compilation on a sufficiently large stack.
pub fn compilation<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(STACK_BYTES, || {
        ABORTED.set(false);
        work()
    })
}

/// Runs `call` and returns its result.
///
/// `call` must be one call of LLVM or MLIR. If that aborts, a `siglongjmp` leaves its stack frames
/// without running destructors. The closure is `Copy`, so it owns nothing that would have to be
/// dropped. LLVM's values that are live across the call are [`LlvmValue`].
///
/// Errors: LLVM's message, if it aborts.
pub fn catch<T>(call: impl FnOnce() -> T + Copy) -> Result<T, String> {
    struct Task<F, T> {
        call: F,
        result: Option<T>,
    }
    unsafe extern "C" fn run<T, F: FnOnce() -> T + Copy>(task: *mut c_void) {
        // SAFETY: `task` is the task of `catch`, which waits for this function.
        let task = unsafe { &mut *task.cast::<Task<F, T>>() };
        task.result = Some((task.call)());
    }
    fn entry<T, F: FnOnce() -> T + Copy>(_: &F) -> unsafe extern "C" fn(*mut c_void) {
        run::<T, F>
    }
    let (mut task, mut message) = (Task { call, result: None }, [0u8; MAX_MESSAGE]);
    let run = entry::<T, _>(&task.call);
    // SAFETY: `run` takes the task. The message has the size that is passed, and ends with a zero.
    let returned = unsafe {
        mithril_recover(run, (&raw mut task).cast(), message.as_mut_ptr().cast(), message.len())
    };
    match task.result {
        Some(result) if returned => Ok(result),
        _ => {
            ABORTED.set(true);
            let said = CStr::from_bytes_until_nul(&message).unwrap_or_default();
            Err(said.to_string_lossy().into_owned())
        }
    }
}

/// Whether LLVM aborted in this compilation.
pub fn aborted() -> bool {
    ABORTED.get()
}

/// A value that LLVM or MLIR owns resources for. It is leaked if LLVM aborted during its lifetime,
/// because it may be in an inconsistent state.
pub struct LlvmValue<T>(ManuallyDrop<T>);

impl<T> LlvmValue<T> {
    pub fn new(value: T) -> LlvmValue<T> {
        LlvmValue(ManuallyDrop::new(value))
    }

    /// Takes the value out. Only for compilations in which LLVM did not abort.
    pub fn take(mut self) -> T {
        // SAFETY: the value is not dropped again, since `self` is forgotten.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        std::mem::forget(self);
        value
    }
}

impl<T> Deref for LlvmValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for LlvmValue<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for LlvmValue<T> {
    fn drop(&mut self) {
        if !aborted() {
            // SAFETY: the value is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
