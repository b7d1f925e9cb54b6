//! Aligned blocks of bytes, and the process-wide pool that dropped blocks return to.
//!
//! The first touch of a large array costs a page fault per 4 KiB, which takes longer than most
//! kernels need to fill it. So the pool keeps free blocks by size class and reuses them. It returns
//! the oldest to the system once it holds more bytes than were ever in use at one time, or more
//! than [`KEPT_BYTES`], so that calls with growing sizes do not leave a block behind for each size.
//! Blocks that last, such as constants, bypass the pool.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::{hint, slice, thread};

use crate::align::ALIGN;
use crate::guard;

/// The maximum number of bytes in free blocks that the pool keeps.
pub const KEPT_BYTES: usize = 1 << 30;

/// The bytes of free blocks that the pool may keep even if fewer were ever in use.
const ALWAYS_KEPT_BYTES: usize = 16 << 20;

/// Blocks of at least this many bytes have their own mapping, with huge pages where the system has
/// them. It is also the alignment of the mapping: the size of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// The requested memory cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: {bytes} bytes asked for")]
pub struct OutOfMemory {
    pub bytes: usize,
}

/// Owned bytes, 64-byte aligned. The contents of a new block are unspecified: often those of an
/// earlier block.
pub struct Block {
    pointer: NonNull<u8>,
    bytes: usize,
    /// Whether the block returns to the pool when it is dropped.
    pooled: bool,
}

/// The memory of empty blocks. Kernels for dynamic sizes may read one element before they know that
/// there is none, so the address must be readable.
static EMPTY: AlignedBytes = AlignedBytes { _bytes: [0; ALIGN] };

#[repr(align(64))]
struct AlignedBytes {
    _bytes: [u8; ALIGN],
}

// SAFETY: a block owns its bytes, as a `Box<[u8]>` does.
unsafe impl Send for Block {}
// SAFETY: as above; writing through a shared block requires a raw pointer.
unsafe impl Sync for Block {}

impl Block {
    /// A block of this many bytes, from the pool if it has one.
    pub fn new(bytes: usize) -> Result<Block, OutOfMemory> {
        if bytes == 0 {
            return Ok(Block::empty());
        }
        let class = Class::of_guarded(bytes).ok_or(OutOfMemory { bytes })?;
        let reused = lock().and_then(|mut free_blocks| free_blocks.take(class));
        let mut pointer = reused.or_else(|| class.allocate()).ok_or(OutOfMemory { bytes })?;
        USED.fetch_add(class.capacity, Ordering::Relaxed);
        if guard::is_on() {
            // SAFETY: the class has room for guard bytes on either side.
            unsafe {
                pointer = pointer.add(guard::width());
                guard::track(pointer.as_ptr(), bytes);
            }
        }
        Ok(Block { pointer, bytes, pooled: true })
    }

    /// A block of no bytes.
    pub const fn empty() -> Block {
        // SAFETY: the address of a static is not null.
        let pointer = unsafe { NonNull::new_unchecked((&raw const EMPTY).cast_mut().cast()) };
        Block { pointer, bytes: 0, pooled: false }
    }

    /// A block of this many zero bytes that bypasses the pool, for data that lasts.
    pub fn lasting(bytes: usize) -> Result<Block, OutOfMemory> {
        let Some(class) = Class::of(bytes) else {
            return if bytes == 0 { Ok(Block::empty()) } else { Err(OutOfMemory { bytes }) };
        };
        let pointer = class.allocate().ok_or(OutOfMemory { bytes })?;
        Ok(Block { pointer, bytes, pooled: false })
    }

    /// A copy of `bytes` in a block that bypasses the pool.
    pub fn copy_of(bytes: &[u8]) -> Result<Block, OutOfMemory> {
        let mut block = Block::lasting(bytes.len())?;
        block.as_mut_slice().copy_from_slice(bytes);
        Ok(block)
    }

    /// The size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address of the first byte. Code that writes to it must ensure that no other code
    /// accesses the block.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the block owns these bytes, which were zeroed when they were first allocated.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the borrow is unique.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        if !self.pooled {
            let Some(class) = Class::of(self.bytes) else { return };
            // SAFETY: the memory was allocated for this class, and nobody else has it.
            return unsafe { class.release(self.pointer) };
        }
        let Some(class) = Class::of_guarded(self.bytes) else { return };
        if guard::is_on() {
            guard::untrack(self.pointer.as_ptr());
            // SAFETY: the guard bytes before it are part of the allocation.
            self.pointer = unsafe { self.pointer.sub(guard::width()) };
        }
        let used = USED.fetch_sub(class.capacity, Ordering::Relaxed);
        let mut evicted = Vec::new();
        match lock() {
            Some(mut free_blocks) => free_blocks.put(class, self.pointer, used, &mut evicted),
            None => evicted.push((class, self.pointer)),
        }
        for (class, pointer) in evicted {
            // SAFETY: the memory was allocated for this class, and is no longer in the pool.
            unsafe { class.release(pointer) }
        }
    }
}

/// The bytes of free blocks that the pool holds.
pub fn kept_bytes() -> usize {
    lock().map_or(0, |free_blocks| free_blocks.bytes)
}

/// A size class: its blocks all have the same capacity in bytes. There are four classes per power
/// of two, from 64 bytes on.
#[derive(Clone, Copy)]
struct Class {
    index: usize,
    capacity: usize,
}

impl Class {
    const COUNT: usize = 4 * 56;

    /// The class for this many bytes; none for 0 bytes, or more than 2^60.
    fn of(bytes: usize) -> Option<Class> {
        if bytes == 0 || bytes > 1 << 60 {
            return None;
        }
        let last = bytes.max(ALIGN) - 1;
        let doubling = last.ilog2();
        let quarter = (last - (1 << doubling)) >> (doubling - 2);
        Some(Class::at((doubling as usize - 5) * 4 + quarter))
    }

    /// The class for this many bytes plus guard bytes on either side, if they are on.
    fn of_guarded(bytes: usize) -> Option<Class> {
        Class::of(bytes.checked_add(2 * guard::width())?)
    }

    fn at(index: usize) -> Class {
        let (doubling, quarter) = (index / 4 + 5, index % 4);
        Class { index, capacity: (1 << doubling) + ((quarter + 1) << (doubling - 2)) }
    }

    /// New memory, zeroed.
    fn allocate(self) -> Option<NonNull<u8>> {
        if self.capacity >= HUGE_PAGE {
            return map(self.capacity);
        }
        let layout = Layout::from_size_align(self.capacity, ALIGN).ok()?;
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    /// # Safety
    /// `pointer` came from `allocate` of this class, and nobody uses it any more.
    unsafe fn release(self, pointer: NonNull<u8>) {
        if self.capacity >= HUGE_PAGE {
            // SAFETY: `map` left exactly this range mapped.
            unsafe { libc::munmap(pointer.as_ptr().cast(), self.capacity) };
        } else if let Ok(layout) = Layout::from_size_align(self.capacity, ALIGN) {
            // SAFETY: the memory was allocated with this layout.
            unsafe { dealloc(pointer.as_ptr(), layout) }
        }
    }
}

/// Maps memory aligned to a huge page.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping anywhere; the unmapped ends are part of it, and nobody refers to them.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), bytes + HUGE_PAGE, access, kind, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let before = start.addr().next_multiple_of(HUGE_PAGE) - start.addr();
        let block = start.add(before);
        if before > 0 {
            libc::munmap(start, before);
        }
        if before < HUGE_PAGE {
            libc::munmap(block.add(bytes), HUGE_PAGE - before);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(block, bytes, libc::MADV_HUGEPAGE);
        NonNull::new(block.cast())
    }
}

/// The free blocks of the pool.
struct FreeBlocks {
    /// The free blocks of each class with the time at which they were freed, oldest first.
    classes: [VecDeque<Free>; Class::COUNT],
    bytes: usize,
    /// The maximum number of bytes that were in use at one time.
    peak_used: usize,
    clock: u64,
}

struct Free {
    freed_at: u64,
    pointer: NonNull<u8>,
}

// SAFETY: nobody else uses the memory of a free block.
unsafe impl Send for Free {}

static FREE_BLOCKS: Mutex<FreeBlocks> = Mutex::new(FreeBlocks {
    classes: [const { VecDeque::new() }; Class::COUNT],
    bytes: 0,
    peak_used: 0,
    clock: 0,
});

/// The bytes of all pooled blocks in use.
static USED: AtomicUsize = AtomicUsize::new(0);

impl FreeBlocks {
    /// The block of this class that was freed last: it is the most likely to be in a cache.
    fn take(&mut self, class: Class) -> Option<NonNull<u8>> {
        let free = self.classes[class.index].pop_back()?;
        self.bytes -= class.capacity;
        Some(free.pointer)
    }

    /// Keeps a free block, and moves the oldest blocks beyond the limit to `evicted`. `used` is the
    /// number of bytes in use, this block included.
    fn put(
        &mut self,
        class: Class,
        pointer: NonNull<u8>,
        used: usize,
        evicted: &mut Vec<(Class, NonNull<u8>)>,
    ) {
        self.clock += 1;
        self.classes[class.index].push_back(Free { freed_at: self.clock, pointer });
        self.bytes += class.capacity;
        self.peak_used = self.peak_used.max(used);
        let limit = self.peak_used.clamp(ALWAYS_KEPT_BYTES, KEPT_BYTES);
        while self.bytes > limit {
            let ages = self.classes.iter().enumerate();
            let oldest = ages.filter_map(|(index, of)| Some((of.front()?.freed_at, index))).min();
            let Some((_, index)) = oldest else { return };
            let Some(free) = self.classes[index].pop_front() else { return };
            let class = Class::at(index);
            self.bytes -= class.capacity;
            evicted.push((class, free.pointer));
        }
    }
}

/// Locks the pool; none if the lock stays taken. In a forked child the lock may never be released,
/// because the thread that held it does not exist there. Callers then do without the pool.
fn lock() -> Option<MutexGuard<'static, FreeBlocks>> {
    for attempt in 0..2000 {
        match FREE_BLOCKS.try_lock() {
            Ok(free_blocks) => return Some(free_blocks),
            Err(TryLockError::Poisoned(free_blocks)) => return Some(free_blocks.into_inner()),
            Err(TryLockError::WouldBlock) if attempt % 16 == 15 => thread::yield_now(),
            Err(TryLockError::WouldBlock) => hint::spin_loop(),
        }
    }
    None
}
