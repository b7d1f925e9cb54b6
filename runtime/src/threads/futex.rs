//! Sleeping until a word in memory changes.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word` is `value`, until woken. May return at any time.
#[cfg(target_os = "linux")]
pub fn wait(word: &AtomicU32, value: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives as long as the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, forever) };
}

/// Wakes at most `threads` of those that sleep on `word`.
#[cfg(target_os = "linux")]
pub fn wake(word: &AtomicU32, threads: u32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel looks at the address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, threads) };
}

/// Elsewhere one looks again after a nap.
#[cfg(not(target_os = "linux"))]
pub fn wait(word: &AtomicU32, value: u32) {
    if word.load(std::sync::atomic::Ordering::Relaxed) == value {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

#[cfg(not(target_os = "linux"))]
pub fn wake(_word: &AtomicU32, _threads: u32) {}
