//! A pool of threads that share the tasks of one job at a time.

mod futex;
mod job;

use job::{Claim, Job, Shared};
use std::mem;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Once, OnceLock};
use std::thread::{self, JoinHandle};

/// A pool of worker threads that a caller shares its work with.
///
/// Workers start at the first run that needs them, and sleep while idle. The caller takes part in
/// the work and can finish without workers. While one run is under way, any other run, be it from
/// another thread or nested in the first, is done by its caller alone. The same holds for all runs
/// in a forked child.
pub struct Pool {
    threads: usize,
    shared: Arc<Shared>,
    workers: OnceLock<Workers>,
}

struct Workers {
    handles: Vec<JoinHandle<()>>,
    /// `FORKS` when the workers were started.
    forks: u32,
}

/// The number of pieces per thread: several, so that others take over if a thread is held up.
const PIECES: usize = 4;

impl Pool {
    /// A pool of this many threads, the caller included; 0 means 1.
    pub fn new(threads: usize) -> Pool {
        let threads = threads.clamp(1, 1 << 16);
        Pool { threads, shared: Arc::new(Shared::default()), workers: OnceLock::new() }
    }

    /// The number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work(lo, hi, worker)` for ranges that partition `0..tasks`, and returns when all
    /// calls have returned. Each range has at least `grain` tasks, if there are that many. `worker`
    /// is less than `threads()`, and no two concurrent calls of one run have the same.
    ///
    /// If a call panics, this panics once the other calls have returned.
    pub fn run(&self, tasks: i64, grain: i64, work: &(dyn Fn(i64, i64, usize) + Sync)) {
        if self.threads > 1 && tasks > grain {
            let pieces = (tasks / grain.max(1)).min((self.threads * PIECES) as i64);
            if pieces > 1 && self.workers_exist() && self.shared.enter() {
                return self.run_shared(Job::new(tasks, pieces as u32, work));
            }
        }
        if tasks > 0 {
            work(0, tasks, 0);
        }
    }

    fn run_shared(&self, job: Job) {
        self.workers.get_or_init(|| Workers::start(self.threads, &self.shared));
        // SAFETY: `run` has entered, and `finish` waits for all pieces that use the job's borrows.
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
    fn workers_exist(&self) -> bool {
        self.workers.get().is_none_or(|workers| workers.forks == FORKS.load(Relaxed))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let exist = self.workers_exist();
        let Some(workers) = self.workers.take() else { return };
        if !exist {
            // These threads do not exist in a forked child, so not even detaching them is valid.
            mem::forget(workers.handles);
            return;
        }
        self.shared.stop();
        for handle in workers.handles {
            // Workers catch panics, so `join` returns no error.
            let _ = handle.join();
        }
    }
}

impl Workers {
    /// Starts `threads - 1` workers, or fewer if the system cannot create more.
    fn start(threads: usize, shared: &Arc<Shared>) -> Workers {
        let forks = count_forks();
        // With more threads than cores, a spinning worker would keep another thread from working.
        let cores = thread::available_parallelism().map_or(1, |n| n.get());
        let may_spin = threads <= cores;
        let spawn = |worker: usize| {
            let shared = shared.clone();
            let thread = thread::Builder::new().name(format!("mithril-{worker}"));
            thread.spawn(move || worker_loop(&shared, worker, may_spin)).ok()
        };
        Workers { handles: (1..threads).map_while(spawn).collect(), forks }
    }
}

fn worker_loop(shared: &Shared, worker: usize, may_spin: bool) {
    loop {
        match shared.claim() {
            Claim::Piece(piece) => shared.perform(piece, worker),
            Claim::Nothing => shared.idle(may_spin),
            Claim::Stop => return,
        }
    }
}

/// The number of forks between the process that first started workers and this one.
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
