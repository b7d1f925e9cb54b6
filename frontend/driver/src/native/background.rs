//! Work that is done behind calls: by one thread that has less of the machine than they, while
//! there is some.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::Ordering;
use std::sync::{Once, PoisonError};
use std::thread;

use super::fork::between_forks;
use super::queue::{Job, ORPHANED, RESTS, lock};

/// How much less of the machine the thread has: a third of what a thread of calls has, where they are
/// too many for the cores.
const NICENESS: i32 = 5;

/// Has jobs done, in their order, after those that wait. Those that have not begun when the process
/// ends are not done.
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

/// Has the jobs done that a fork left without a thread.
pub fn resume() {
    if ORPHANED.load(Ordering::Relaxed) && ORPHANED.swap(false, Ordering::Relaxed) {
        add([]);
    }
}

/// Begins no job any more, and waits for the one that is being done: libraries that it uses are
/// taken down when a process ends.
pub fn close() {
    let mut queue = lock();
    queue.closed = true;
    let left = std::mem::take(&mut queue.jobs);
    let own = process::id();
    while queue.worker == Some(own) {
        queue = RESTS.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
    drop((queue, left));
}

/// Has [`close`] called when the process ends, before what was registered earlier: a library that a
/// job uses registers its own end when it is loaded.
pub fn close_at_exit() {
    // SAFETY: the function is there as long as this code, and takes nothing.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    close();
}

fn work() {
    // SAFETY: both are of this thread alone; where the second fails, it is as others are.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, own + NICENESS);
    }
    // A fork waits for the job that is being done, and finds the others in the queue.
    while between_forks(next) {}
}

/// Does the next job, if there is one.
fn next() -> bool {
    let job = {
        let mut queue = lock();
        let job = queue.jobs.pop_front();
        if job.is_none() {
            queue.worker = None;
            RESTS.notify_all();
        }
        job
    };
    // A job says itself what went wrong; the others are done anyway.
    job.map(|job| catch_unwind(AssertUnwindSafe(job))).is_some()
}
