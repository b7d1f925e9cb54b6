//! The state that the threads of a pool share: one job, whose pieces are claimed one at a time.

use super::futex;
use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, PoisonError};

/// How many times the owner of a job checks for its end before it sleeps: about 50 µs.
const SPINS: u32 = 1500;
/// How many times an idle worker checks for work before it sleeps: about 250 µs. This bridges the
/// gaps between the runs of a caller's loop, as waking a thread takes long.
const IDLE_SPINS: u32 = 5 * SPINS;

/// The value of `unclaimed` that tells workers to end.
const STOP: u32 = u32::MAX;

type Work = dyn Fn(i64, i64, usize) + Sync;

/// A number of tasks and the function that does them.
pub struct Job {
    work: *const Work,
    tasks: i64,
    pieces: u32,
}

impl Job {
    /// A job of `tasks` tasks in `pieces` ranges of at least one task each.
    pub fn new(tasks: i64, pieces: u32, work: &(dyn Fn(i64, i64, usize) + Sync)) -> Job {
        // SAFETY: only the lifetime changes; the caller of `publish` ensures that it suffices.
        let work =
            unsafe { transmute::<*const (dyn Fn(i64, i64, usize) + Sync + '_), *const Work>(work) };
        Job { work, tasks, pieces }
    }

    /// The first task of a piece. The lengths of pieces differ by at most one.
    fn start(&self, piece: u32) -> i64 {
        let (pieces, piece) = (i64::from(self.pieces), i64::from(piece));
        self.tasks / pieces * piece + (self.tasks % pieces).min(piece)
    }
}

/// The outcome of an attempt to claim a piece.
pub enum Claim {
    Piece(u32),
    Nothing,
    Stop,
}

/// A word in its own cache lines, to avoid false sharing.
#[repr(align(128))]
#[derive(Default)]
struct CacheAligned<T>(T);

/// A slot for one job, and its state.
///
/// A thread reads the job after it has claimed a piece. The owner replaces the job only after all
/// pieces are finished, so a thread always reads the job of its piece, however late it comes.
#[derive(Default)]
pub struct Shared {
    /// The number of unclaimed pieces; idle workers sleep on this word while it is 0.
    unclaimed: CacheAligned<AtomicU32>,
    /// The number of unfinished pieces; the owner sleeps on this word.
    unfinished: CacheAligned<AtomicU32>,
    /// The number of workers that sleep or are about to.
    sleepers: CacheAligned<AtomicU32>,
    /// Whether the owner sleeps or is about to.
    owner_sleeps: AtomicBool,
    busy: AtomicBool,
    job: UnsafeCell<Option<Job>>,
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: only its owner writes the job, between `enter` and the store to `unclaimed`. Only threads
// that claimed a piece after that store read it. Its work is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in the job is dereferenced only while its owner waits.
unsafe impl Send for Shared {}

impl Shared {
    /// Makes the caller the owner of the slot; false if it has an owner.
    pub fn enter(&self) -> bool {
        !self.busy.load(Relaxed) && !self.busy.swap(true, Acquire)
    }

    /// Gives up the ownership that `enter` gave.
    pub fn leave(&self) {
        self.busy.store(false, Release);
    }

    /// Offers a job to all threads.
    ///
    /// # Safety
    /// The caller has entered, and the job's work lives until `finish` has returned.
    pub unsafe fn publish(&self, job: Job) {
        let pieces = job.pieces;
        // SAFETY: the last job is finished, so no thread reads it.
        unsafe { *self.job.get() = Some(job) };
        self.unfinished.0.store(pieces, Relaxed);
        self.unclaimed.0.store(pieces, SeqCst);
        // A worker increments `sleepers` before `wait` reads `unclaimed`, so either it is counted
        // here, or it sees the pieces and does not sleep.
        let sleepers = self.sleepers.0.load(SeqCst);
        if sleepers > 0 {
            futex::wake(&self.unclaimed.0, sleepers.min(pieces - 1));
        }
    }

    /// Takes a piece of the current job.
    pub fn claim(&self) -> Claim {
        let mut left = self.unclaimed.0.load(Acquire);
        loop {
            match left {
                0 => return Claim::Nothing,
                STOP => return Claim::Stop,
                _ => {}
            }
            match self.unclaimed.0.compare_exchange_weak(left, left - 1, AcqRel, Acquire) {
                Ok(_) => return Claim::Piece(left - 1),
                Err(now) => left = now,
            }
        }
    }

    /// Runs a claimed piece.
    pub fn perform(&self, piece: u32, worker: usize) {
        // SAFETY: the piece is one of the job's and not finished, so the job is not replaced.
        if let Some(job) = unsafe { &*self.job.get() } {
            let (lo, hi) = (job.start(piece), job.start(piece + 1));
            // SAFETY: the owner keeps the work until all pieces are finished.
            let work = AssertUnwindSafe(|| unsafe { (*job.work)(lo, hi, worker) });
            if let Err(payload) = catch_unwind(work) {
                *self.panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
            }
        }
        if self.unfinished.0.fetch_sub(1, SeqCst) == 1 && self.owner_sleeps.load(SeqCst) {
            futex::wake(&self.unfinished.0, 1);
        }
    }

    /// Waits until all pieces are finished, and returns the payload of a panic, if there was one.
    pub fn finish(&self) -> Option<Box<dyn Any + Send>> {
        if !spin_until(SPINS, || self.unfinished.0.load(Acquire) == 0) {
            self.owner_sleeps.store(true, SeqCst);
            loop {
                match self.unfinished.0.load(SeqCst) {
                    0 => break,
                    left => futex::wait(&self.unfinished.0, left),
                }
            }
            self.owner_sleeps.store(false, Relaxed);
        }
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until there may be a piece to claim. If `may_spin` is set, the worker spins for a
    /// while before it sleeps.
    pub fn idle(&self, may_spin: bool) {
        if may_spin && spin_until(IDLE_SPINS, || self.unclaimed.0.load(Relaxed) != 0) {
            return;
        }
        self.sleepers.0.fetch_add(1, SeqCst);
        futex::wait(&self.unclaimed.0, 0);
        self.sleepers.0.fetch_sub(1, SeqCst);
    }

    /// Ends the workers. No job may be under way or be published later.
    pub fn stop(&self) {
        self.unclaimed.0.store(STOP, SeqCst);
        futex::wake(&self.unclaimed.0, i32::MAX as u32);
    }
}

fn spin_until(spins: u32, done: impl Fn() -> bool) -> bool {
    (0..spins).any(|_| {
        spin_loop();
        done()
    })
}
