//! Memory for one operand after the other, between pages that may not be touched.

const PAGE: usize = 4096;
/// What lies around the bytes that are handed out, and how far it is looked at.
const CANARY: u8 = 0xA5;
const AROUND: usize = 256;

/// Pages between two that are closed.
pub struct Room {
    pages: *mut u8,
    size: usize,
    from: usize,
    bytes: usize,
}

impl Room {
    pub fn new() -> Room {
        Room::of(1 << 16)
    }

    fn of(bytes: usize) -> Room {
        let size = (bytes + 2 * AROUND).next_multiple_of(PAGE);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: fresh pages, the first and the last of which are closed; no bit of the others is zero.
        let pages = unsafe {
            let pages = libc::mmap(std::ptr::null_mut(), size + 2 * PAGE, access, kind, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages, PAGE, libc::PROT_NONE), 0);
            assert_eq!(libc::mprotect(pages.byte_add(PAGE + size), PAGE, libc::PROT_NONE), 0);
            let pages = pages.cast::<u8>();
            pages.add(PAGE).write_bytes(0xFF, size);
            pages
        };
        Room { pages, size, from: 0, bytes: 0 }
    }

    /// So many bytes, which end or begin at a closed page. They hold what was there before.
    pub fn take(&mut self, bytes: usize, at_end: bool) -> &mut [u8] {
        if bytes + AROUND > self.size {
            *self = Room::of(bytes * 2);
        }
        self.from = if at_end { self.size - bytes } else { 0 };
        self.bytes = bytes;
        let [before, own, behind] = self.parts();
        before.fill(CANARY);
        behind.fill(CANARY);
        own
    }

    pub fn start(&mut self) -> *mut u8 {
        self.parts()[1].as_mut_ptr()
    }

    /// The bytes that were taken.
    ///
    /// Panics: something was written around them.
    pub fn read(&mut self) -> &[u8] {
        let [before, own, behind] = self.parts();
        assert!(before.iter().all(|&byte| byte == CANARY), "something wrote before its memory");
        assert!(behind.iter().all(|&byte| byte == CANARY), "something wrote behind its memory");
        own
    }

    /// What is before the bytes that were taken, as far as it is looked at, they, what is behind.
    fn parts(&mut self) -> [&mut [u8]; 3] {
        let (from, bytes) = (self.from, self.bytes);
        // SAFETY: the pages are ours.
        let all = unsafe { std::slice::from_raw_parts_mut(self.pages.add(PAGE), self.size) };
        let (before, rest) = all.split_at_mut(from);
        let (own, behind) = rest.split_at_mut(bytes);
        let far = before.len().saturating_sub(AROUND);
        let near = behind.len().min(AROUND);
        [&mut before[far..], own, &mut behind[..near]]
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`.
        unsafe { libc::munmap(self.pages.cast(), self.size + 2 * PAGE) };
    }
}
