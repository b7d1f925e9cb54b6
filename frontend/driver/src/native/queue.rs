//! The queue of work that is done between calls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub type Job = Box<dyn FnOnce() + Send>;

pub struct Queue {
    pub jobs: VecDeque<Job>,
    /// The process whose thread is at work. One that was forked off has none.
    pub worker: Option<u32>,
    /// Whether the process ends.
    pub closed: bool,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { jobs: VecDeque::new(), worker: None, closed: false });
/// Signals that the thread has stopped working.
pub static RESTS: Condvar = Condvar::new();
/// Whether this process was forked off with jobs that its parent had not begun.
pub static ORPHANED: AtomicBool = AtomicBool::new(false);

/// While there is one, no other thread looks at what is to be done.
pub type Guard = MutexGuard<'static, Queue>;

pub fn lock() -> Guard {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a process that was just forked off: the thread is its parent's, the jobs are its own.
pub fn orphan(queue: &mut Queue) {
    queue.worker = None;
    ORPHANED.store(!queue.jobs.is_empty(), Ordering::Relaxed);
}
