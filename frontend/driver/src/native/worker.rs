//! A worker thread, which runs jobs that another thread waits for.
//!
//! Threads wait a moment for more before they end. A thread that begins while a library is being
//! loaded would wait for that, as its first use of what belongs to each thread does.

use std::process;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, ThreadId};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that has nothing to do.
struct Idle {
    /// A process that was forked off has not the threads of the one it is from.
    process: u32,
    thread: ThreadId,
    jobs: Sender<Job>,
}

static IDLE: Mutex<Option<Idle>> = Mutex::new(None);
const PATIENCE: Duration = Duration::from_secs(2);

/// What `work` gives, once it is done; nothing comes where it panics.
pub fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (result, end) = mpsc::sync_channel(1);
    let job = Box::new(move || {
        // Nobody may want it any more.
        let _ = result.send(work());
    });
    // Where another thread has the lock, be it in the process that this one was forked off, a new
    // thread does as well.
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

/// Is idle no longer; whether it was until now, and no job is on its way.
fn leave() -> bool {
    let own = thread::current().id();
    let Ok(mut idle) = IDLE.lock() else { return true };
    idle.take_if(|idle| idle.thread == own).is_some()
}
