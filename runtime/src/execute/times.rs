//! How long kernels run, where that is asked for.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What the launches of each kernel took in all calls so far.
pub struct Times {
    calls: AtomicU64,
    nanoseconds: Box<[AtomicU64]>,
}

impl Times {
    /// Of so many kernels.
    pub fn new(kernels: usize) -> Times {
        let nanoseconds = (0..kernels).map(|_| AtomicU64::new(0)).collect();
        Times { calls: AtomicU64::new(0), nanoseconds }
    }

    /// Counts a call.
    pub fn call(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// Adds a launch of a kernel.
    pub fn add(&self, kernel: usize, start: Instant) {
        self.nanoseconds[kernel].fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
    }

    /// What each kernel took in a call, on average; none before the first.
    pub fn means(&self) -> Option<Vec<Duration>> {
        let calls = self.calls.load(Relaxed);
        let mean = |all: &AtomicU64| Duration::from_nanos(all.load(Relaxed) / calls);
        (calls > 0).then(|| self.nanoseconds.iter().map(mean).collect())
    }
}
