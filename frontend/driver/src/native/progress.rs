//! Shows the progress of a long compilation on the terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Compilations that take less time than this show no progress.
const PATIENCE: Duration = Duration::from_millis(500);

/// A progress bar on standard error, if that is a terminal. It is removed when the value is
/// dropped.
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    /// A progress bar for this many kernels.
    pub fn new(kernels: usize) -> Progress {
        let hidden = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(Some(kernels as u64), hidden);
        let style = ProgressStyle::with_template("mithril: {pos} of {len} kernels {wide_bar}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Progress { bar, start: Instant::now() }
    }

    /// Counts a finished kernel.
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
