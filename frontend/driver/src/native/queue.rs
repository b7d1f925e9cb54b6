//! The queue of background jobs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub type Job = Box<dyn FnOnce() + Send>;

pub struct Queue {
    pub jobs: VecDeque<Job>,
    /// The process whose worker thread is running. A forked process has no worker thread.
    pub worker: Option<u32>,
    /// Whether the process is ending.
    pub closed: bool,
}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { jobs: VecDeque::new(), worker: None, closed: false });
/// Signals that the worker thread has finished a job.
pub static IDLE: Condvar = Condvar::new();
/// Whether this process was forked with jobs that its parent had not started.
pub static ORPHANED: AtomicBool = AtomicBool::new(false);

/// The lock of the queue.
pub type Guard = MutexGuard<'static, Queue>;

pub fn lock() -> Guard {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the jobs of a forked process, which has a copy of the jobs but no worker thread.
pub fn orphan(queue: &mut Queue) {
    queue.worker = None;
    ORPHANED.store(!queue.jobs.is_empty(), Ordering::Relaxed);
}
