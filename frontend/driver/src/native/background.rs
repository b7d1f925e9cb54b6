//! Background work: one thread of low priority, which runs as long as there are jobs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::Ordering;
use std::sync::{Once, PoisonError};
use std::thread;

use super::fork::between_forks;
use super::queue::{IDLE, Job, ORPHANED, lock};

/// The niceness that the thread adds. If there are more threads than cores, it gets about a third
/// of the time of a thread that runs calls.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 5;

/// Queues jobs, which run in order. Jobs that have not started when the process ends are dropped.
pub fn add(jobs: impl IntoIterator<Item = Job>) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(close_at_exit);
    let own = process::id();
    let mut queue = lock();
    queue.worker = queue.worker.filter(|process| *process == own);
    if queue.closed {
        return;
    }
    queue.jobs.extend(jobs);
    if queue.worker.is_none() && !queue.jobs.is_empty() {
        let started = thread::Builder::new().name("mithril compiles".into()).spawn(work);
        queue.worker = started.is_ok().then_some(own);
    }
}

/// Restarts the worker thread in a forked process that inherited jobs without a thread.
pub fn resume() {
    if ORPHANED.load(Ordering::Relaxed) && ORPHANED.swap(false, Ordering::Relaxed) {
        add([]);
    }
}

/// Starts no more jobs and waits for the running job, as the libraries that it uses are unloaded
/// when the process ends.
pub fn close() {
    let mut queue = lock();
    queue.closed = true;
    let left = std::mem::take(&mut queue.jobs);
    let own = process::id();
    while queue.worker == Some(own) {
        queue = IDLE.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    drop((queue, left));
}

/// Registers [`close`] to run at exit, before everything registered earlier. It is called again
/// after a library is loaded, because the library registers its own teardown then.
pub fn close_at_exit() {
    // SAFETY: the function lives as long as this code, and takes no arguments.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    close();
}

/// Lowers the priority of this thread. Other systems than Linux would lower that of the process.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    // SAFETY: both calls affect only this thread; if the second fails, the priority is unchanged.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, own + NICENESS);
    }
}

fn work() {
    yield_to_others();
    // A fork waits only for the running job. The child has the other jobs in its copy of the queue.
    while between_forks(next) {}
}

/// Runs the next job. Returns false if there is none.
fn next() -> bool {
    let job = {
        let mut queue = lock();
        let job = queue.jobs.pop_front();
        if job.is_none() {
            queue.worker = None;
            IDLE.notify_all();
        }
        job
    };
    // A job reports its own errors. If it panics, the other jobs still run.
    job.map(|job| catch_unwind(AssertUnwindSafe(job))).is_some()
}
