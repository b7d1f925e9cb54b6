//! Guard bytes around memory. They detect kernels that write out of bounds, and kernels that read
//! uninitialized memory.
//!
//! They are on if the environment has `MITHRIL_GUARD=1`, as tests do. Each block then lies between
//! guard bytes, which are checked after each launch. New blocks are filled with large finite
//! numbers, so that an unwritten result differs from any expected one. Arenas are filled with NaN
//! before each call, and scratch before each launch.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::{slice, thread};

use crate::align::ALIGN;

/// The number of guard bytes on either side of a block: four of the longest vectors.
const WIDTH: usize = 4 * ALIGN;
/// The value of guard bytes.
const CANARY: u8 = 0xA5;
/// The fill byte of new blocks: it reads as -2.6e36 in f32 and bf16, -65376 in f16, -5 in i8.
const NEW_BLOCK: u8 = 0xFB;
/// The fill byte of arenas and scratch: it reads as NaN in all floats, -1 in integers.
const UNINITIALIZED: u8 = 0xFF;

static ON: OnceLock<bool> = OnceLock::new();
/// The address of each live block, and its size in bytes.
static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Whether memory of this process has guard bytes.
pub fn is_on() -> bool {
    *ON.get_or_init(|| env::var_os("MITHRIL_GUARD").is_some_and(|set| set == "1"))
}

/// Turns guard bytes on for this process. This must precede any allocation.
///
/// # Panics
/// Memory was already allocated without guard bytes.
pub fn turn_on() {
    assert!(*ON.get_or_init(|| true), "memory without guard bytes is in use");
}

/// The number of guard bytes on either side of a block; 0 if they are off.
pub(crate) fn width() -> usize {
    if is_on() { WIDTH } else { 0 }
}

/// Fills a new block and the guard bytes around it, and adds it to the blocks that are checked.
///
/// # Safety
/// The bytes of the block, and [`width`] bytes on either side, are writable.
pub(crate) unsafe fn track(block: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        write_guards(block, bytes);
        block.write_bytes(NEW_BLOCK, bytes);
    }
    if let Some(mut blocks) = lock() {
        blocks.insert(block.addr(), bytes);
    }
}

/// Removes a block from those that are checked.
pub(crate) fn untrack(block: *mut u8) {
    if let Some(mut blocks) = lock() {
        blocks.remove(&block.addr());
    }
}

/// Fills an arena or scratch memory with NaN, and writes the guard bytes after it.
///
/// # Safety
/// The bytes, and [`width`] bytes after them, are writable.
pub(crate) unsafe fn fill_uninitialized(memory: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        memory.write_bytes(UNINITIALIZED, bytes);
        memory.add(bytes).write_bytes(CANARY, WIDTH);
    }
}

/// Whether the guard bytes after this memory are intact.
///
/// # Safety
/// As for [`fill_uninitialized`].
pub(crate) unsafe fn is_intact(memory: *const u8, bytes: usize) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(memory.add(bytes), WIDTH) }.iter().all(|b| *b == CANARY)
}

/// Says which block was written out of bounds, if one was since the last call of this, and
/// restores its guard bytes.
pub(crate) fn find_damage() -> Option<String> {
    let blocks = lock()?;
    for (&address, &bytes) in &*blocks {
        let block = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: a block is removed from the list before it is freed.
        unsafe {
            let before = block.sub(WIDTH);
            let place = match (is_intact(before, 0), is_intact(block, bytes)) {
                (true, true) => continue,
                (false, _) => "before",
                (true, false) => "after",
            };
            write_guards(block, bytes);
            return Some(format!("{place} a block of {bytes} bytes"));
        }
    }
    None
}

/// Writes the guard bytes around a block.
///
/// # Safety
/// As for [`track`].
unsafe fn write_guards(block: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        block.sub(WIDTH).write_bytes(CANARY, WIDTH);
        block.add(bytes).write_bytes(CANARY, WIDTH);
    }
}

/// Locks the list of blocks; none in a forked child if the parent held the lock at the fork.
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
