//! How far a long compilation is, on the terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is done sooner says nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar on standard error, where that is a terminal; it goes with the value.
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    /// Of so many kernels.
    pub fn new(kernels: usize) -> Progress {
        let hidden = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(Some(kernels as u64), hidden);
        let style = ProgressStyle::with_template("mithril: {pos} of {len} kernels {wide_bar}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Progress { bar, start: Instant::now() }
    }

    /// Counts a kernel.
    pub fn step(&self) {
        if self.start.elapsed() >= PATIENCE && self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
