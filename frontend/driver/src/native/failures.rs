//! Kernels that LLVM failed to compile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::loc::Loc;

/// The reason why LLVM made no object of a kernel.
#[derive(Clone, Debug)]
pub enum Failure {
    /// A problem that affects every kernel, such as a missing library.
    Every(Box<Diagnostic>),
    /// LLVM's error for this kernel.
    Kernel(String),
}

impl Failure {
    /// The error for a kernel that neither LLVM nor Cranelift compiles. `kernel` is its index;
    /// `loc` gives its blocks.
    pub fn error(self, kernel: usize, loc: &Loc) -> Box<Diagnostic> {
        match self {
            Failure::Every(error) => error,
            Failure::Kernel(why) => Box::new(
                Diagnostic::of(
                    ErrorKind::Native,
                    "Native code cannot be generated: LLVM failed on a kernel",
                )
                .at(place(kernel, loc))
                .got(why)
                .hint("please report it, with the model; `ml.CBackend()` does not need LLVM"),
            ),
        }
    }

    /// The warning for a kernel that runs Cranelift's code instead.
    pub fn warning(self, kernel: usize, loc: &Loc) -> String {
        match self {
            Failure::Every(error) => {
                format!("kernels keep Cranelift's code: {error}")
            }
            Failure::Kernel(why) => {
                let what = "LLVM failed on a kernel: Cranelift compiled it, with the same results but slower";
                let error = Diagnostic::of(ErrorKind::Native, what).at(place(kernel, loc)).got(why);
                error.hint("please report it, with the model").to_string()
            }
        }
    }
}

fn place(kernel: usize, loc: &Loc) -> String {
    match loc.blocks() {
        Some(blocks) => format!("kernel k{kernel}, {blocks}"),
        None => format!("kernel k{kernel}"),
    }
}

/// Warnings, each of which is returned to one caller only.
#[derive(Debug, Default)]
pub struct Warnings {
    texts: Mutex<Vec<String>>,
    count: AtomicUsize,
    returned: AtomicUsize,
}

impl Warnings {
    /// Adds a warning, unless it has been added before.
    pub fn add(&self, text: String) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if !texts.contains(&text) {
            texts.push(text);
            self.count.store(texts.len(), Ordering::Release);
        }
    }

    /// The warnings that were not returned before.
    pub fn take(&self) -> Vec<String> {
        let count = self.count.load(Ordering::Acquire);
        if self.returned.load(Ordering::Relaxed) == count {
            return Vec::new();
        }
        let from = self.returned.swap(count, Ordering::Relaxed);
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.get(from..count).unwrap_or_default().to_vec()
    }

    /// The first line of the first warning.
    pub fn first(&self) -> Option<String> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.first().and_then(|text| text.lines().next()).map(str::to_string)
    }
}
