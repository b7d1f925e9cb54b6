//! LLVM's code in place of Cranelift's, once it is there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use mithril_ir::diagnostic::Result;
use mithril_runtime::execute::Executable;

use super::host::Host;
use super::objects::{self, Pending};
use super::{background, invalid};

/// How far the kernels of a program are that run as Cranelift's code.
#[derive(Debug)]
pub struct Swap {
    total: usize,
    done: AtomicUsize,
    /// Why a kernel stays as it is: the first such reason.
    failure: OnceLock<String>,
    told: AtomicBool,
}

impl Swap {
    /// Begins to compile these kernels of a program behind its calls. Each is replaced when it is
    /// ready; one that LLVM fails on stays. Where the program is gone before, that is all.
    pub fn begin(executable: &Arc<Executable>, pending: Vec<Pending>, host: &Host) -> Arc<Swap> {
        let swap = Arc::new(Swap {
            total: pending.len(),
            done: AtomicUsize::new(0),
            failure: OnceLock::new(),
            told: AtomicBool::new(false),
        });
        let job = |pending: Pending| -> Box<dyn FnOnce() + Send> {
            let (swap, host) = (swap.clone(), host.clone());
            let executable = Arc::downgrade(executable);
            Box::new(move || swap.one(&executable, &pending, &host))
        };
        background::add(pending.into_iter().map(job).collect::<Vec<_>>());
        swap
    }

    fn one(&self, executable: &Weak<Executable>, pending: &Pending, host: &Host) {
        if executable.strong_count() == 0 {
            return;
        }
        match replace(executable, pending, host) {
            Ok(()) => {
                self.done.fetch_add(1, Ordering::Release);
            }
            Err(error) => {
                let _ = self.failure.set(error.to_string());
            }
        }
    }

    /// How many kernels there are, and how many of them were replaced.
    pub fn progress(&self) -> (usize, usize) {
        (self.total, self.done.load(Ordering::Acquire))
    }

    /// Why a kernel was not replaced, if one was not.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// The same, to whoever asks first.
    pub fn complaint(&self) -> Option<&str> {
        self.failure().filter(|_| !self.told.swap(true, Ordering::Relaxed))
    }
}

fn replace(executable: &Weak<Executable>, pending: &Pending, host: &Host) -> Result<()> {
    let code = objects::one(&pending.text, &pending.key, host)?;
    let Some(executable) = executable.upgrade() else { return Ok(()) };
    let kernel = code.kernel("kernel").ok_or_else(|| invalid("an object without a kernel"))?;
    // SAFETY: both were made from the same loop code.
    unsafe { executable.replace(pending.kernel, kernel, code) }.map_err(invalid)
}
