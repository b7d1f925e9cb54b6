//! LLVM's code in place of Cranelift's, once it is there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use mithril_ir::diagnostic::Result;
use mithril_runtime::execute::Executable;

use super::host::Host;
use super::objects::{self, Pending};
use super::{background, invalid, library};

/// The kernels of a program that run as Cranelift's code, and how far LLVM is with them.
pub struct Swap {
    total: usize,
    done: AtomicUsize,
    /// Why a kernel stays as it is: the first such reason.
    failure: OnceLock<String>,
    told: AtomicBool,
    begun: AtomicBool,
    waiting: Mutex<Option<Waiting>>,
}

/// What is compiled once it begins.
struct Waiting {
    executable: Weak<Executable>,
    pending: Vec<Pending>,
    host: Host,
}

impl Swap {
    /// Of these kernels of a program.
    pub fn new(executable: &Arc<Executable>, mut pending: Vec<Pending>, host: &Host) -> Swap {
        // The short ones first: a process that ends waits for the one that is being compiled.
        pending.sort_by_key(|pending| pending.text.len());
        let (total, host) = (pending.len(), host.clone());
        let waiting = Waiting { executable: Arc::downgrade(executable), pending, host };
        Swap {
            total,
            done: AtomicUsize::new(0),
            failure: OnceLock::new(),
            told: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            waiting: Mutex::new(Some(waiting)),
        }
    }

    /// Begins to compile behind calls, if that was not begun before: after the first call, which
    /// has the machine for itself. Each kernel is replaced when it is ready; one that LLVM fails on
    /// stays. Where the program is gone before, that is all. A process that was forked off meanwhile
    /// goes on with what its parent had not begun.
    pub fn begin(self: &Arc<Swap>) {
        if self.begun.load(Ordering::Relaxed) || self.begun.swap(true, Ordering::Relaxed) {
            return background::resume();
        }
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Waiting { executable, pending, host }) = waiting else { return };
        let job = |pending: Pending| -> Box<dyn FnOnce() + Send> {
            let (swap, executable, host) = (self.clone(), executable.clone(), host.clone());
            Box::new(move || swap.one(&executable, &pending, &host))
        };
        background::add(pending.into_iter().map(job).collect::<Vec<_>>());
    }

    fn one(&self, executable: &Weak<Executable>, pending: &Pending, host: &Host) {
        if executable.strong_count() == 0 {
            return;
        }
        match replace(executable, pending, host) {
            Ok(()) => {
                if self.done.fetch_add(1, Ordering::Release) + 1 == self.total {
                    library::rest();
                }
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
