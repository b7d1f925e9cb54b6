//! The C function that the library exports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use crate::{Options, Stage, compile};

/// Bytes that are passed from or to a caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub data: *const u8,
    pub len: usize,
}

impl Bytes {
    pub fn of(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    /// `data` must be readable for `len` bytes during `'a`.
    unsafe fn text<'a>(self) -> Result<&'a str, String> {
        // SAFETY: the caller's promise.
        let bytes = match self.len {
            0 => &[],
            len => unsafe { slice::from_raw_parts(self.data, len) },
        };
        std::str::from_utf8(bytes).map_err(|error| error.to_string())
    }
}

/// A callback that takes the output. Its arguments are the caller's `sink` and the bytes.
pub type Take = unsafe extern "C" fn(sink: *mut u8, bytes: Bytes);

/// The type of [`mithril_native_compile`].
pub type Compile = unsafe extern "C" fn(
    text: Bytes,
    triple: Bytes,
    cpu: Bytes,
    features: Bytes,
    stage: u32,
    take: Take,
    sink: *mut u8,
) -> i32;

/// Compiles the MLIR text of a kernel and passes the output of `stage`, an index in [`Stage::ALL`],
/// to `take`. Returns 0, or another number if it passed an error message instead. `sink` is passed
/// on to `take` unchanged.
///
/// # Safety
/// The texts must be readable for their lengths, and `take` must be callable with `sink`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mithril_native_compile(
    text: Bytes,
    triple: Bytes,
    cpu: Bytes,
    features: Bytes,
    stage: u32,
    take: Take,
    sink: *mut u8,
) -> i32 {
    let run = || {
        // SAFETY: the caller's promise.
        let text = unsafe { text.text()? };
        // SAFETY: the same.
        let [triple, cpu, features] =
            unsafe { [triple.text()?.into(), cpu.text()?.into(), features.text()?.into()] };
        let stage = Stage::from_index(stage).ok_or("there is no such stage")?;
        compile(text, &Options { triple, cpu, features }, stage)
    };
    let answer = catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err("the native code generator panicked".into()));
    let (code, bytes) = match answer {
        Ok(bytes) => (0, bytes),
        Err(message) => (1, message.into_bytes()),
    };
    // SAFETY: the caller's promise.
    unsafe { take(sink, Bytes::of(&bytes)) };
    code
}
