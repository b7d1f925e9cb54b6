//! What the threads of a pool share: one job, cut into pieces that are claimed one by one.

use super::futex;
use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, PoisonError};

/// How often one looks for the end of the work before one sleeps: some 50 µs.
const SPINS: u32 = 1500;
/// How often one looks for work: some 250 µs. Who calls in a loop does other things in between, and
/// it takes long to be woken.
const IDLE_SPINS: u32 = 5 * SPINS;

/// In place of a number of pieces: workers are to end.
const STOP: u32 = u32::MAX;

type Work = dyn Fn(i64, i64, usize) + Sync;

/// A range of tasks and what does them.
pub struct Job {
    work: *const Work,
    tasks: i64,
    pieces: u32,
}

impl Job {
    /// `tasks` tasks in `pieces` ranges; at least one task in each.
    pub fn new(tasks: i64, pieces: u32, work: &(dyn Fn(i64, i64, usize) + Sync)) -> Job {
        // SAFETY: only the lifetime changes; who publishes the job sees to it.
        let work =
            unsafe { transmute::<*const (dyn Fn(i64, i64, usize) + Sync + '_), *const Work>(work) };
        Job { work, tasks, pieces }
    }

    /// The first task of a piece. Lengths differ by at most one.
    fn start(&self, piece: u32) -> i64 {
        let (pieces, piece) = (i64::from(self.pieces), i64::from(piece));
        self.tasks / pieces * piece + (self.tasks % pieces).min(piece)
    }
}

/// What a thread gets to do.
pub enum Claim {
    Piece(u32),
    Nothing,
    Stop,
}

/// A word that other words' traffic does not slow down.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

/// One slot for a job, and its state.
///
/// Who claims a piece reads the job after that. As the job's owner waits for all pieces to finish
/// before anything else, what is read is the job of the piece, however late a thread comes.
#[derive(Default)]
pub struct Shared {
    /// Pieces that nobody has claimed; idle workers sleep on it while it is 0.
    unclaimed: Apart<AtomicU32>,
    /// Pieces that are not finished; the owner sleeps on it.
    unfinished: Apart<AtomicU32>,
    /// Workers that sleep or are about to.
    sleepers: Apart<AtomicU32>,
    /// Whether the owner sleeps or is about to.
    waits: AtomicBool,
    busy: AtomicBool,
    job: UnsafeCell<Option<Job>>,
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the job is written by its owner alone, between `enter` and the store to `unclaimed`, and
// read by those that then took a piece from it; its work is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in the job is followed only while its owner waits.
unsafe impl Send for Shared {}

impl Shared {
    /// Makes the caller the owner of the slot, unless there is one.
    pub fn enter(&self) -> bool {
        !self.busy.load(Relaxed) && !self.busy.swap(true, Acquire)
    }

    /// Ends what `enter` began.
    pub fn leave(&self) {
        self.busy.store(false, Release);
    }

    /// Offers a job to all threads.
    ///
    /// # Safety
    /// The caller has entered, and the job's work lives until `finish` has returned.
    pub unsafe fn publish(&self, job: Job) {
        let pieces = job.pieces;
        // SAFETY: the last job is finished, so nobody reads.
        unsafe { *self.job.get() = Some(job) };
        self.unfinished.0.store(pieces, Relaxed);
        self.unclaimed.0.store(pieces, SeqCst);
        // A worker counts itself before it looks at `unclaimed` for the last time: so either it
        // is counted here, or it sees the pieces.
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

    /// Does a claimed piece.
    pub fn perform(&self, piece: u32, worker: usize) {
        // SAFETY: the piece is not finished, so the job stays; its number is one of the job's.
        if let Some(job) = unsafe { &*self.job.get() } {
            let (lo, hi) = (job.start(piece), job.start(piece + 1));
            // SAFETY: the owner keeps the work until all pieces are finished.
            let work = AssertUnwindSafe(|| unsafe { (*job.work)(lo, hi, worker) });
            if let Err(payload) = catch_unwind(work) {
                *self.panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
            }
        }
        if self.unfinished.0.fetch_sub(1, SeqCst) == 1 && self.waits.load(SeqCst) {
            futex::wake(&self.unfinished.0, 1);
        }
    }

    /// Waits until all pieces are finished; what the work panicked with, if it did.
    pub fn finish(&self) -> Option<Box<dyn Any + Send>> {
        if !spin_until(SPINS, || self.unfinished.0.load(Acquire) == 0) {
            self.waits.store(true, SeqCst);
            loop {
                match self.unfinished.0.load(SeqCst) {
                    0 => break,
                    left => futex::wait(&self.unfinished.0, left),
                }
            }
            self.waits.store(false, Relaxed);
        }
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns when there may be something to claim; a patient worker looks a while before it
    /// sleeps.
    pub fn idle(&self, patient: bool) {
        if patient && spin_until(IDLE_SPINS, || self.unclaimed.0.load(Relaxed) != 0) {
            return;
        }
        self.sleepers.0.fetch_add(1, SeqCst);
        futex::wait(&self.unclaimed.0, 0);
        self.sleepers.0.fetch_sub(1, SeqCst);
    }

    /// Ends the workers. No job is under way, and none comes after.
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
