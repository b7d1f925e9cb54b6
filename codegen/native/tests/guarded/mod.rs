//! Memory that detects accesses out of bounds.

// Each user takes a part of it.
#![allow(dead_code)]

/// Bytes that are followed by a page without access, and surrounded by guard bytes that must not be
/// written.
pub struct Guarded {
    pages: *mut u8,
    size: usize,
    /// Where the bytes begin.
    from: usize,
    bytes: usize,
}

const PAGE: usize = 4096;
const CANARY: u8 = 0xA5;

impl Guarded {
    /// A copy that ends where nothing may be touched.
    pub fn new(bytes: &[u8]) -> Guarded {
        Guarded::from_multiple(bytes, 1)
    }

    /// A copy that begins at a multiple of a line, and ends as near as that lets it.
    pub fn aligned(bytes: &[u8]) -> Guarded {
        Guarded::from_multiple(bytes, 64)
    }

    fn from_multiple(bytes: &[u8], alignment: usize) -> Guarded {
        let size = bytes.len().next_multiple_of(PAGE) + PAGE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: fresh pages, the last of which is closed.
        let pages = unsafe {
            let pages = libc::mmap(std::ptr::null_mut(), size + PAGE, access, kind, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages.byte_add(size), PAGE, libc::PROT_NONE), 0);
            pages.cast::<u8>()
        };
        let from = size - bytes.len().next_multiple_of(alignment);
        let guarded = Guarded { pages, size, from, bytes: bytes.len() };
        // SAFETY: the pages are ours.
        unsafe { pages.write_bytes(CANARY, size) };
        guarded.write(bytes);
        guarded
    }

    pub fn start(&self) -> *mut u8 {
        // SAFETY: within the pages.
        unsafe { self.pages.add(self.from) }
    }

    pub fn write(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes);
        // SAFETY: within the pages.
        unsafe { self.start().copy_from(bytes.as_ptr(), bytes.len()) };
    }

    pub fn read(&self) -> Vec<u8> {
        // SAFETY: the pages are ours.
        let all = unsafe { std::slice::from_raw_parts(self.pages, self.size) };
        let (before, rest) = all.split_at(self.from);
        let (bytes, behind) = rest.split_at(self.bytes);
        for (around, place) in [(before, "before"), (behind, "behind")] {
            assert!(around.iter().all(|&b| b == CANARY), "something wrote {place} a buffer");
        }
        bytes.to_vec()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `from_multiple`.
        unsafe { libc::munmap(self.pages.cast(), self.size + PAGE) };
    }
}
