//! Guard bytes around memory: they find kernels that write outside of it, and kernels that read what
//! was never written.
//!
//! A process has them where the environment has `MITHRIL_GUARD=1`, as tests do. Then each block lies
//! between guard bytes, which are looked at after each launch. New blocks hold large finite numbers,
//! so that a result which is not written differs from any that is expected; arenas and scratch hold
//! NaN before each call and each launch.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::{slice, thread};

use crate::align::ALIGN;

/// The guard bytes on either side of a block: several of the longest vector.
const WIDTH: usize = 4 * ALIGN;
/// What guard bytes are.
const CANARY: u8 = 0xA5;
/// What new blocks hold: -2.6e36 in f32 and bf16, -65376 in f16, -5 in integers of a byte.
const NEW: u8 = 0xFB;
/// What memory holds that kernels work in: NaN in all floats, -1 in integers.
const UNWRITTEN: u8 = 0xFF;

static ON: OnceLock<bool> = OnceLock::new();
/// The addresses of the blocks there are, and their bytes.
static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Whether memory of this process has guard bytes.
pub fn is_on() -> bool {
    *ON.get_or_init(|| env::var_os("MITHRIL_GUARD").is_some_and(|set| set == "1"))
}

/// Gives memory of this process guard bytes. It takes no memory to have been asked for before.
///
/// # Panics
/// Some was, and without guard bytes.
pub fn turn_on() {
    assert!(*ON.get_or_init(|| true), "memory without guard bytes is in use");
}

/// The guard bytes on either side of a block.
pub(crate) fn width() -> usize {
    if is_on() { WIDTH } else { 0 }
}

/// Fills a block and the guard bytes around it, which are looked at from now on.
///
/// # Safety
/// The bytes of the block, and [`width`] of them on either side, can be written.
pub(crate) unsafe fn enter(block: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe {
        close(block, bytes);
        block.write_bytes(NEW, bytes);
    }
    if let Some(mut blocks) = lock() {
        blocks.insert(block.addr(), bytes);
    }
}

/// Forgets a block.
pub(crate) fn leave(block: *mut u8) {
    if let Some(mut blocks) = lock() {
        blocks.remove(&block.addr());
    }
}

/// Fills memory that a kernel works in, and the guard bytes behind it.
///
/// # Safety
/// The bytes, and [`width`] of them behind, can be written.
pub(crate) unsafe fn open(memory: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe {
        memory.write_bytes(UNWRITTEN, bytes);
        memory.add(bytes).write_bytes(CANARY, WIDTH);
    }
}

/// Whether nobody wrote behind memory that was opened.
///
/// # Safety
/// As for [`open`].
pub(crate) unsafe fn holds(memory: *const u8, bytes: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(memory.add(bytes), WIDTH) }.iter().all(|b| *b == CANARY)
}

/// Where somebody wrote outside of a block, if somebody did since this was last asked.
pub(crate) fn damage() -> Option<String> {
    let blocks = lock()?;
    for (&address, &bytes) in &*blocks {
        let block = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: it is one of the blocks, which leave the list before they go.
        unsafe {
            let before = block.sub(WIDTH);
            let place = match (holds(before, 0), holds(block, bytes)) {
                (true, true) => continue,
                (false, _) => "before",
                (true, false) => "behind",
            };
            close(block, bytes);
            return Some(format!("{place} a block of {bytes} bytes"));
        }
    }
    None
}

/// Writes the guard bytes around a block.
///
/// # Safety
/// As for [`enter`].
unsafe fn close(block: *mut u8, bytes: usize) {
    // SAFETY: the caller's.
    unsafe {
        block.sub(WIDTH).write_bytes(CANARY, WIDTH);
        block.add(bytes).write_bytes(CANARY, WIDTH);
    }
}

/// The blocks; none in the child of a fork whose parent held them.
fn lock() -> Option<MutexGuard<'static, BTreeMap<usize, usize>>> {
    for _ in 0..10_000 {
        match BLOCKS.try_lock() {
            Ok(blocks) => return Some(blocks),
            Err(TryLockError::Poisoned(blocks)) => return Some(blocks.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}
