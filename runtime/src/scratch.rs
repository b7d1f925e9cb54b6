//! Memory of one thread, for kernels to work in.

use crate::memory::{Block, OutOfMemory};
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Block> = const { RefCell::new(Block::empty()) };
}

/// At least this many bytes of the calling thread, 64-byte aligned; good until the thread asks
/// again or ends.
pub fn of_thread(bytes: usize) -> Result<*mut u8, OutOfMemory> {
    if bytes == 0 {
        return Ok(Block::empty().as_ptr());
    }
    let grow = |block: &RefCell<Block>| {
        let mut block = block.borrow_mut();
        if block.len() < bytes {
            // First what there is goes back, so that growing needs no more than the new block.
            *block = Block::empty();
            *block = Block::new(bytes)?;
        }
        Ok(block.as_ptr())
    };
    SCRATCH.try_with(grow).unwrap_or(Err(OutOfMemory { bytes }))
}
