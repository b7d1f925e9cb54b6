//! Replaces Cranelift's code by LLVM's while the program runs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mithril_kernels::host::Host;
use mithril_runtime::execute::Executable;

use super::failures::{Failure, Warnings};
use super::objects::{self, Pending};
use super::{background, invalid, library};

/// The kernels of a program that started with Cranelift's code, and the number of them that LLVM's
/// code has replaced.
pub struct TierUp {
    total: usize,
    finished: AtomicUsize,
    /// For kernels that LLVM failed on; they keep Cranelift's code.
    warnings: Arc<Warnings>,
    started: AtomicBool,
    queue: Mutex<Option<Queue>>,
}

/// The kernels that LLVM has yet to compile.
struct Queue {
    executable: Weak<Executable>,
    pending: Vec<Pending>,
    host: Host,
}

impl TierUp {
    /// The tier-up of these kernels of a program.
    pub fn new(
        executable: &Arc<Executable>,
        mut pending: Vec<Pending>,
        host: &Host,
        warnings: Arc<Warnings>,
    ) -> TierUp {
        // Short kernels come first, because a process that ends waits for the kernel that is being
        // compiled.
        pending.sort_by_key(|pending| pending.text.len());
        let (total, host) = (pending.len(), host.clone());
        let queue = Queue { executable: Arc::downgrade(executable), pending, host };
        TierUp {
            total,
            finished: AtomicUsize::new(0),
            warnings,
            started: AtomicBool::new(false),
            queue: Mutex::new(Some(queue)),
        }
    }

    /// Starts the compilation in the background, once. Callers do so after the first call, so that
    /// this call has all cores. Each kernel is replaced when its code is ready; one that LLVM fails
    /// on keeps its code. If the program is dropped, the remaining kernels are skipped. A forked
    /// process continues with the kernels that its parent had not started.
    pub fn begin(self: &Arc<TierUp>) {
        if self.started.load(Ordering::Relaxed) || self.started.swap(true, Ordering::Relaxed) {
            return background::resume();
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Queue { executable, pending, host }) = queue else { return };
        let job = |pending: Pending| -> Box<dyn FnOnce() + Send> {
            let (tier_up, executable, host) = (self.clone(), executable.clone(), host.clone());
            Box::new(move || tier_up.one(&executable, &pending, &host))
        };
        background::add(pending.into_iter().map(job).collect::<Vec<_>>());
    }

    fn one(&self, executable: &Weak<Executable>, pending: &Pending, host: &Host) {
        if executable.strong_count() == 0 {
            return;
        }
        match replace(executable, pending, host) {
            Ok(()) => {
                if self.finished.fetch_add(1, Ordering::Release) + 1 == self.total {
                    library::release_memory();
                }
            }
            Err(failure) => self.warnings.add(failure.warning(pending.kernel, &pending.loc)),
        }
    }

    /// The number of kernels, and how many of them have been replaced.
    pub fn progress(&self) -> (usize, usize) {
        (self.total, self.finished.load(Ordering::Acquire))
    }
}

fn replace(executable: &Weak<Executable>, pending: &Pending, host: &Host) -> Result<(), Failure> {
    let code = objects::one(&pending.text, &pending.key, host)?;
    let Some(executable) = executable.upgrade() else { return Ok(()) };
    let kernel = code.kernel("kernel").ok_or_else(|| "an object without a kernel".to_string());
    // SAFETY: both were made from the same loop code.
    let replaced = kernel.map(|kernel| unsafe { executable.replace(pending.kernel, kernel, code) });
    replaced.map_err(Failure::Kernel)?.map_err(|error| Failure::Every(invalid(error)))
}
