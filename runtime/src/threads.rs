//! A pool of threads that share the tasks of one job at a time.

mod futex;
mod job;

use job::{Claim, Job, Shared};
use std::mem;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Once, OnceLock};
use std::thread::{self, JoinHandle};

/// Threads that work together on what one of them is asked to run.
///
/// The threads start at the first run that needs them; idle ones sleep. A caller takes part and
/// needs nobody else to finish. While one run is under way, others, be they from other threads or
/// from within the run, are done by their caller alone; and so are all in the child of a fork.
pub struct Pool {
    threads: usize,
    shared: Arc<Shared>,
    workers: OnceLock<Workers>,
}

struct Workers {
    handles: Vec<JoinHandle<()>>,
    /// `FORKS` when they were started.
    forks: u32,
}

/// Pieces to each thread: enough that one which is held up leaves its share to the others.
const PIECES: usize = 4;

impl Pool {
    /// A pool of this many threads, callers included; of one, if it is 0.
    pub fn new(threads: usize) -> Pool {
        let threads = threads.clamp(1, 1 << 16);
        Pool { threads, shared: Arc::new(Shared::default()), workers: OnceLock::new() }
    }

    /// How many threads there are, a caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work(lo, hi, worker)` for ranges that together are `0..tasks`, and returns when all
    /// calls have. Ranges have `grain` tasks or more, if there are so many; `worker` is less than
    /// `threads()`, and no two calls of this run at one time have the same.
    ///
    /// If a call panics, so does this one, once the others have returned.
    pub fn run(&self, tasks: i64, grain: i64, work: &(dyn Fn(i64, i64, usize) + Sync)) {
        if self.threads > 1 && tasks > grain {
            let pieces = (tasks / grain.max(1)).min((self.threads * PIECES) as i64);
            if pieces > 1 && self.alive() && self.shared.enter() {
                return self.share(Job::new(tasks, pieces as u32, work));
            }
        }
        if tasks > 0 {
            work(0, tasks, 0);
        }
    }

    fn share(&self, job: Job) {
        self.workers.get_or_init(|| Workers::start(self.threads, &self.shared));
        // SAFETY: `run` has entered, and what the job borrows outlives it, as `finish` waits for all of it.
        unsafe { self.shared.publish(job) };
        while let Claim::Piece(piece) = self.shared.claim() {
            self.shared.perform(piece, 0);
        }
        let panicked = self.shared.finish();
        self.shared.leave();
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    /// Whether the workers, if they were started, are threads of this process.
    fn alive(&self) -> bool {
        self.workers.get().is_none_or(|workers| workers.forks == FORKS.load(Relaxed))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let alive = self.alive();
        let Some(workers) = self.workers.take() else { return };
        if !alive {
            // Handles of threads that this process does not have: not even to be detached.
            mem::forget(workers.handles);
            return;
        }
        self.shared.stop();
        for handle in workers.handles {
            // Workers catch what panics.
            let _ = handle.join();
        }
    }
}

impl Workers {
    /// Starts all but the caller; fewer if the system gives no more.
    fn start(threads: usize, shared: &Arc<Shared>) -> Workers {
        let forks = count_forks();
        // Who spins where there are more threads than cores keeps another from its work.
        let cores = thread::available_parallelism().map_or(1, |n| n.get());
        let patient = threads <= cores;
        let spawn = |worker: usize| {
            let shared = shared.clone();
            let thread = thread::Builder::new().name(format!("mithril-{worker}"));
            thread.spawn(move || serve(&shared, worker, patient)).ok()
        };
        Workers { handles: (1..threads).map_while(spawn).collect(), forks }
    }
}

fn serve(shared: &Shared, worker: usize, patient: bool) {
    loop {
        match shared.claim() {
            Claim::Piece(piece) => shared.perform(piece, worker),
            Claim::Nothing => shared.idle(patient),
            Claim::Stop => return,
        }
    }
}

/// How many forks lie between this process and the one that first started workers.
static FORKS: AtomicU32 = AtomicU32::new(0);

fn count_forks() -> u32 {
    extern "C" fn child() {
        FORKS.fetch_add(1, Relaxed);
    }
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        // SAFETY: the handler does nothing but an atomic operation.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
    FORKS.load(Relaxed)
}
