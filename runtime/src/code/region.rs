//! The memory that an object is loaded into.

use super::Error;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

/// A mapping of whole pages.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region owns its memory.
unsafe impl Send for Region {}
// SAFETY: writing through a region requires a unique borrow.
unsafe impl Sync for Region {}

/// The access that pages have once they are no longer writable.
pub enum Access {
    Read,
    Execute,
}

/// The size of a page in bytes.
pub fn page() -> usize {
    // SAFETY: `sysconf` takes no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

impl Region {
    /// Zeroed memory, readable and writable; `bytes` is a multiple of the page size.
    pub fn new(bytes: usize) -> Result<Region, Error> {
        let bytes = bytes.max(page());
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping anywhere.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::OutOfMemory { bytes });
        }
        let start = NonNull::new(start.cast()).ok_or(Error::OutOfMemory { bytes })?;
        Ok(Region { start, bytes })
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The whole region; only to be used for parts that are not yet protected.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: mapped, zeroed, and borrowed uniquely.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Makes these pages read-only, or executable and read-only.
    pub fn protect(&mut self, pages: Range<usize>, access: Access) -> Result<(), Error> {
        let access = match access {
            Access::Read => libc::PROT_READ,
            Access::Execute => libc::PROT_READ | libc::PROT_EXEC,
        };
        let part = &mut self.as_mut_slice()[pages];
        if part.is_empty() {
            return Ok(());
        }
        // SAFETY: pages of this mapping, and no reference into them is left.
        let done = unsafe { libc::mprotect(part.as_mut_ptr().cast(), part.len(), access) };
        if done == 0 {
            return Ok(());
        }
        let why = std::io::Error::last_os_error();
        Err(Error::Unsupported(format!("the system forbids memory to be made executable: {why}")))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped, and no references into it are left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
