//! Makes forks safe in a process that compiles. Compiling threads hold locks of LLVM and of
//! Mithril, which would stay locked for ever in the child. So a fork waits until no other thread
//! compiles.

use std::cell::{Cell, RefCell};
use std::sync::{Once, PoisonError, RwLock, RwLockWriteGuard};

use super::queue;

/// A read-write lock: compiling threads hold it shared, a forking thread exclusively.
static COMPILING: RwLock<()> = RwLock::new(());

type ForkLocks = (RwLockWriteGuard<'static, ()>, queue::Guard);

thread_local! {
    static IS_COMPILING: Cell<bool> = const { Cell::new(false) };
    static FORK_LOCKS: RefCell<Option<ForkLocks>> = const { RefCell::new(None) };
}

/// Runs work that may compile, on this thread or on threads that it waits for.
pub fn between_forks<T>(work: impl FnOnce() -> T) -> T {
    static HANDLERS: Once = Once::new();
    // SAFETY: the functions live as long as this code, and take no arguments.
    HANDLERS.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
    });
    if IS_COMPILING.get() {
        return work();
    }
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IS_COMPILING.set(false);
        }
    }
    let _shared = COMPILING.read().unwrap_or_else(PoisonError::into_inner);
    IS_COMPILING.set(true);
    let _leave = Leave;
    work()
}

extern "C" fn before_fork() {
    // A compiling thread forks only to run a compiler or a linker.
    if IS_COMPILING.get() {
        return;
    }
    let exclusive = COMPILING.write().unwrap_or_else(PoisonError::into_inner);
    FORK_LOCKS.set(Some((exclusive, queue::lock())));
}

extern "C" fn after_fork() {
    drop(FORK_LOCKS.take());
}

extern "C" fn in_child() {
    if let Some((exclusive, mut jobs)) = FORK_LOCKS.take() {
        queue::orphan(&mut jobs);
        drop((exclusive, jobs));
    }
}
