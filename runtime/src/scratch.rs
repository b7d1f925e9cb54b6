//! Memory of one thread, for kernels to work in.

use crate::guard;
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
        let needed = bytes + PAGE + guard::width();
        if block.len() < needed {
            // First what there is goes back, so that growing needs no more than the new block.
            *block = Block::empty();
            *block = Block::new(needed)?;
        }
        let start = block.as_ptr();
        // SAFETY: that is less than a page into the block.
        let start = unsafe { start.add((PAGE / 2).wrapping_sub(start.addr()) % PAGE) };
        if guard::is_on() {
            // SAFETY: the block has room for guard bytes.
            unsafe { guard::open(start, bytes) };
        }
        Ok(start)
    };
    SCRATCH.try_with(grow).unwrap_or(Err(OutOfMemory { bytes }))
}

/// Whether nobody wrote behind so many bytes of the calling thread's, as far as guard bytes show.
///
/// # Safety
/// The thread got them from [`of_thread`], and has not asked again.
pub unsafe fn holds(scratch: *const u8, bytes: usize) -> bool {
    // SAFETY: the caller's.
    !guard::is_on() || bytes == 0 || unsafe { guard::holds(scratch, bytes) }
}
