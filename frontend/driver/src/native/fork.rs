//! Makes forks safe in a process that compiles. Compiling threads hold locks, of LLVM and our own,
//! which would stay locked for ever in the child. So a fork waits until no other thread compiles.

use std::cell::{Cell, RefCell};
use std::sync::{Once, PoisonError, RwLock, RwLockWriteGuard};

use super::queue;

/// A read-write lock: compiling threads hold it shared, a forking thread exclusively.
static COMPILING: RwLock<()> = RwLock::new(());

type Held = (RwLockWriteGuard<'static, ()>, queue::Guard);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Runs work that may compile, on this thread or on threads that it waits for.
pub fn between_forks<T>(work: impl FnOnce() -> T) -> T {
    static HANDLERS: Once = Once::new();
    // SAFETY: the functions live as long as this code, and take no arguments.
    HANDLERS.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(in_child));
    });
    if INSIDE.get() {
        return work();
    }
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
    let _shared = COMPILING.read().unwrap_or_else(PoisonError::into_inner);
    INSIDE.set(true);
    let _leave = Leave;
    work()
}

extern "C" fn before() {
    // A thread that forks while it compiles does so to run a compiler or a linker.
    if INSIDE.get() {
        return;
    }
    let alone = COMPILING.write().unwrap_or_else(PoisonError::into_inner);
    HELD.set(Some((alone, queue::lock())));
}

extern "C" fn after() {
    drop(HELD.take());
}

extern "C" fn in_child() {
    if let Some((alone, mut jobs)) = HELD.take() {
        queue::orphan(&mut jobs);
        drop((alone, jobs));
    }
}
