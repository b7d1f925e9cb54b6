//! Measures how long kernels run, on request.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The total time of each kernel's launches over all calls so far.
pub struct Times {
    calls: AtomicU64,
    nanoseconds: Box<[AtomicU64]>,
}

impl Times {
    /// Times of zero for `kernels` kernels.
    pub fn new(kernels: usize) -> Times {
        let nanoseconds = (0..kernels).map(|_| AtomicU64::new(0)).collect();
        Times { calls: AtomicU64::new(0), nanoseconds }
    }

    /// Counts a call.
    pub fn call(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// Adds a launch of a kernel that began at `start` and ends now.
    pub fn add(&self, kernel: usize, start: Instant) {
        self.nanoseconds[kernel].fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
    }

    /// The mean time of each kernel per call; none before the first call.
    pub fn means(&self) -> Option<Vec<Duration>> {
        let calls = self.calls.load(Relaxed);
        let mean = |all: &AtomicU64| Duration::from_nanos(all.load(Relaxed) / calls);
        (calls > 0).then(|| self.nanoseconds.iter().map(mean).collect())
    }
}
