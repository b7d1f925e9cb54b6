//! Scratch memory: one block per thread, for kernels to work in.

use crate::guard;
use crate::memory::{Block, OutOfMemory};
use std::cell::RefCell;

/// The size of a page in bytes. Scratch starts half a page after a page boundary, to avoid 4 KiB
/// aliasing: processors delay a load if the low 12 bits of its address match those of a store in
/// flight. Arrays usually start near a page boundary, and kernels advance through them and through
/// scratch at the same rate.
const PAGE: usize = 4096;

thread_local! {
    static SCRATCH: RefCell<Block> = const { RefCell::new(Block::empty()) };
}

/// At least this many bytes of the calling thread's scratch, starting at the middle of a page. They
/// are valid until the thread calls this again or ends.
pub fn of_thread(bytes: usize) -> Result<*mut u8, OutOfMemory> {
    if bytes == 0 {
        return Ok(Block::empty().as_ptr());
    }
    let grow = |block: &RefCell<Block>| {
        let mut block = block.borrow_mut();
        let needed = bytes + PAGE + guard::width();
        if block.len() < needed {
            // Returns the old block first, so that growing needs only the new one.
            *block = Block::empty();
            *block = Block::new(needed)?;
        }
        let start = block.as_ptr();
        // SAFETY: the start is less than a page into the block.
        let start = unsafe { start.add((PAGE / 2).wrapping_sub(start.addr()) % PAGE) };
        if guard::is_on() {
            // SAFETY: the block has room for guard bytes.
            unsafe { guard::fill_uninitialized(start, bytes) };
        }
        Ok(start)
    };
    SCRATCH.try_with(grow).unwrap_or(Err(OutOfMemory { bytes }))
}

/// Whether the guard bytes after the calling thread's scratch are intact; true if they are off.
///
/// # Safety
/// `scratch` is from the thread's last call of [`of_thread`], with this many bytes.
pub unsafe fn is_intact(scratch: *const u8, bytes: usize) -> bool {
    // SAFETY: guaranteed by the caller.
    !guard::is_on() || bytes == 0 || unsafe { guard::is_intact(scratch, bytes) }
}
