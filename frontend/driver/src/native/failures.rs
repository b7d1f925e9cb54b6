//! Kernels that LLVM failed to compile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use mithril_ir::diagnostic::Diagnostic;
use mithril_ir::loc::Loc;

/// Why no object of a kernel was made.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The same holds for every kernel, such as a missing library.
    Every(Box<Diagnostic>),
    /// What LLVM says of this kernel.
    Kernel(String),
}

impl Failure {
    /// The error of a kernel (its number, and the blocks it comes from) that nothing compiles.
    pub fn error(self, kernel: usize, loc: &Loc) -> Box<Diagnostic> {
        match self {
            Failure::Every(error) => error,
            Failure::Kernel(why) => Box::new(
                Diagnostic::new("Native code cannot be made: LLVM failed on a kernel")
                    .at(place(kernel, loc))
                    .got(why)
                    .hint("please report it, with the model; `ml.CBackend()` does without LLVM"),
            ),
        }
    }

    /// The warning for a kernel that runs as Cranelift's code instead.
    pub fn warning(self, kernel: usize, loc: &Loc) -> String {
        match self {
            Failure::Every(error) => {
                format!("kernels stay as they were made in an instant: {error}")
            }
            Failure::Kernel(why) => {
                let what = "LLVM failed on a kernel: Cranelift compiled it, with the same results but slower";
                let error = Diagnostic::new(what).at(place(kernel, loc)).got(why);
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

/// Warnings, each of which is given to one caller.
#[derive(Debug, Default)]
pub struct Warnings {
    texts: Mutex<Vec<String>>,
    count: AtomicUsize,
    given: AtomicUsize,
}

impl Warnings {
    /// Adds a warning, if it is not there.
    pub fn add(&self, text: String) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if !texts.contains(&text) {
            texts.push(text);
            self.count.store(texts.len(), Ordering::Release);
        }
    }

    /// Those that nobody was given.
    pub fn take(&self) -> Vec<String> {
        let count = self.count.load(Ordering::Acquire);
        if self.given.load(Ordering::Relaxed) == count {
            return Vec::new();
        }
        let from = self.given.swap(count, Ordering::Relaxed);
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.get(from..count).unwrap_or_default().to_vec()
    }

    /// The first line of the first one.
    pub fn first(&self) -> Option<String> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.first().and_then(|text| text.lines().next()).map(str::to_string)
    }
}
