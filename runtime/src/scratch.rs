//! Memory of one thread, for kernels to work in.

use crate::memory::{Block, OutOfMemory};
use std::cell::RefCell;

/// Arrays begin near the start of a page as a rule, and kernels go along them and scratch at one
/// pace. Processors hold up reading where the last twelve bits of the address are those of
/// something that is still being written; half a page away they are not.
const PAGE: usize = 4096;

thread_local! {
    static SCRATCH: RefCell<Block> = const { RefCell::new(Block::empty()) };
}

/// At least this many bytes of the calling thread, from the middle of a page on; good until the
/// thread asks again or ends.
pub fn of_thread(bytes: usize) -> Result<*mut u8, OutOfMemory> {
    if bytes == 0 {
        return Ok(Block::empty().as_ptr());
    }
    let grow = |block: &RefCell<Block>| {
        let mut block = block.borrow_mut();
        if block.len() < bytes + PAGE {
            // First what there is goes back, so that growing needs no more than the new block.
            *block = Block::empty();
            *block = Block::new(bytes + PAGE)?;
        }
        let start = block.as_ptr();
        // SAFETY: that is less than a page into the block.
        Ok(unsafe { start.add((PAGE / 2).wrapping_sub(start.addr()) % PAGE) })
    };
    SCRATCH.try_with(grow).unwrap_or(Err(OutOfMemory { bytes }))
}
