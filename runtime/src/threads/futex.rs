//! Futexes: a thread sleeps until a word in memory changes.

use std::sync::atomic::AtomicU32;

/// Sleeps until woken, if `word` is `value`. Spurious returns are possible.
#[cfg(target_os = "linux")]
pub fn wait(word: &AtomicU32, value: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the word lives as long as the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, forever) };
}

/// Wakes at most `threads` of the threads that sleep on `word`.
#[cfg(target_os = "linux")]
pub fn wake(word: &AtomicU32, threads: u32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses only the address, and does not access the memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, threads) };
}

/// Without futexes, sleeps for 50 µs and returns, so that the caller polls.
#[cfg(not(target_os = "linux"))]
pub fn wait(word: &AtomicU32, value: u32) {
    if word.load(std::sync::atomic::Ordering::Relaxed) == value {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

#[cfg(not(target_os = "linux"))]
pub fn wake(_word: &AtomicU32, _threads: u32) {}
