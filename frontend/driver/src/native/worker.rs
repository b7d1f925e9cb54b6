//! A worker thread, which runs jobs that another thread waits for.
//!
//! An idle thread waits two seconds for another job before it ends, because starting a thread can
//! be slow: while a library is being loaded, a new thread's first use of thread-local storage waits
//! for the loader.

use std::process;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, ThreadId};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// An idle worker thread.
struct Idle {
    /// The process of the thread. A forked process does not have the threads of its parent.
    process: u32,
    thread: ThreadId,
    jobs: Sender<Job>,
}

static IDLE: Mutex<Option<Idle>> = Mutex::new(None);
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `work` on a worker thread. The receiver gets the result, or nothing if `work` panics.
pub fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (result, end) = mpsc::sync_channel(1);
    let job = Box::new(move || {
        // The receiver may have been dropped.
        let _ = result.send(work());
    });
    // If the lock is held, possibly by a thread that was not forked with this process, a new thread
    // is started.
    let idle = IDLE.try_lock().ok().and_then(|mut idle| idle.take());
    match idle.filter(|idle| idle.process == process::id()) {
        Some(idle) => idle.jobs.send(job).expect("a thread that is idle waits"),
        None => drop(thread::spawn(|| serve(job))),
    }
    end
}

fn serve(mut job: Job) {
    loop {
        job();
        let (jobs, next) = mpsc::channel();
        let own = Idle { process: process::id(), thread: thread::current().id(), jobs };
        match IDLE.lock() {
            Ok(mut idle) if idle.is_none() => *idle = Some(own),
            _ => return,
        }
        let more = match next.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) if !leave() => next.recv().ok(),
            more => more.ok(),
        };
        match more {
            Some(more) => job = more,
            None => return,
        }
    }
}

/// Removes this thread from `IDLE`. Returns false if another thread has taken it and will send a
/// job.
fn leave() -> bool {
    let own = thread::current().id();
    let Ok(mut idle) = IDLE.lock() else { return true };
    idle.take_if(|idle| idle.thread == own).is_some()
}
