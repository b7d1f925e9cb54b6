//! Runs programs: an executor for lists of launches.

mod check;
mod frame;
mod prepare;
mod table;
mod times;

use crate::align::ALIGN;
use crate::code::Code;
use crate::kernel::Kernel;
use crate::memory::{Block, OutOfMemory};
use crate::program::Program;
use crate::threads::Pool;
use bytes::Bytes;
use frame::{Frame, Frames};
pub use prepare::{Memory, Prepared};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use table::Table;
use times::Times;

/// Why a program is rejected or fails to run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The program refers to something that does not exist, or a result has no buffer or several.
    #[error("invalid program: {0}")]
    Invalid(String),
    /// A call has more or fewer arguments, results or symbols than the program.
    #[error("{got} {what} given, {expected} expected")]
    Count { what: &'static str, got: usize, expected: usize },
    /// A size is undefined or not allowed for these values of the symbols.
    #[error("{what} is {size}, which is {} for symbols {symbols:?}", .value.map_or("undefined".into(), |v| v.to_string()))]
    Size { what: String, size: String, value: Option<i64>, symbols: Vec<i64> },
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// A launch overwrote guard bytes; see [`guard`](crate::guard).
    #[error("kernel {kernel} wrote {place}")]
    Overrun { kernel: usize, place: String },
    /// The caller asked to stop, between two launches.
    #[error("the call was interrupted")]
    Interrupted,
}

/// The number of tuples of symbol values whose prepared programs are kept.
const MAX_PREPARED: usize = 64;

/// A program with its kernels and constants, ready to run. Many threads may run it at once.
pub struct Executable {
    program: Program,
    kernels: Table,
    constants: Vec<Bytes>,
    /// The programs prepared for the most recent tuples of symbol values, latest first.
    prepared: Mutex<Vec<Arc<Prepared>>>,
    frames: Frames,
    /// The code of all kernels, kept alive as long as this; replaced kernels may still run.
    code: Mutex<Vec<Arc<Code>>>,
    /// How long kernels run; empty until measuring is turned on.
    times: OnceLock<Times>,
}

impl Executable {
    /// Takes a program, the kernels and constants that it names by index, and the code that the
    /// kernels are in. Constants without the alignment of blocks are copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the program names a buffer, kernel, constant, argument, result or
    /// symbol that does not exist, or a result does not have exactly one buffer. A program
    /// without symbols is also prepared, with the errors of [`Executable::prepare`].
    pub fn new(
        program: Program,
        kernels: Vec<Kernel>,
        code: Vec<Arc<Code>>,
        mut constants: Vec<Bytes>,
    ) -> Result<Executable, Error> {
        check::program(&program, kernels.len(), constants.len())?;
        for constant in &mut constants {
            if constant.is_empty() || !constant.as_ptr().addr().is_multiple_of(ALIGN) {
                *constant = Bytes::from_owner(Block::copy_of(constant)?);
            }
        }
        let (prepared, frames) = (Mutex::default(), Frames::default());
        let (kernels, code) = (Table::new(kernels), Mutex::new(code));
        let times = OnceLock::new();
        let executable = Executable { program, kernels, constants, prepared, frames, code, times };
        if executable.program.symbols == 0 {
            executable.prepare(&[])?;
        }
        Ok(executable)
    }

    /// Replaces the kernel at index `at` for launches that begin from now on, and keeps `code`, the
    /// code of the new kernel, alive. Calls may be running meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the program has no kernel of this index.
    ///
    /// # Safety
    /// The new kernel does the same as the one that it replaces.
    pub unsafe fn replace(&self, at: usize, kernel: Kernel, code: Arc<Code>) -> Result<(), Error> {
        if at >= self.kernels.len() {
            let count = self.kernels.len();
            return Err(Error::Invalid(format!("there is no kernel {at} of {count}")));
        }
        self.code.lock().unwrap_or_else(PoisonError::into_inner).push(code);
        self.kernels.set(at, kernel);
        Ok(())
    }

    /// Measures from now on how long each kernel runs, at a cost of about 50 ns per launch.
    pub fn measure(&self) {
        self.times.get_or_init(|| Times::new(self.kernels.len()));
    }

    /// The mean time per call that each kernel took in all its launches; none before the first
    /// measured call.
    pub fn times(&self) -> Option<Vec<Duration>> {
        self.times.get()?.means()
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The size of each result in bytes for these values of the symbols.
    ///
    /// # Errors
    /// As [`Executable::prepare`].
    pub fn result_bytes(&self, symbols: &[i64]) -> Result<Vec<usize>, Error> {
        Ok(self.prepare(symbols)?.result_bytes().to_vec())
    }

    /// Prepares the program for these values of the symbols; the last 64 tuples are cached.
    ///
    /// # Errors
    /// [`Error::Count`] for too many or too few symbols; [`Error::Size`] if a size is undefined or
    /// negative, an alias ends after the buffer that it is a part of, or a constant is too short.
    pub fn prepare(&self, symbols: &[i64]) -> Result<Arc<Prepared>, Error> {
        check_count("symbols", symbols.len(), self.program.symbols)?;
        let mut kept = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|p| p.symbols() == symbols) {
            kept[..=at].rotate_right(1);
        } else {
            let prepared = Prepared::new(&self.program, &self.constants, symbols)?;
            kept.truncate(MAX_PREPARED - 1);
            kept.insert(0, Arc::new(prepared));
        }
        Ok(kept[0].clone())
    }

    /// Runs the program once. After the first calls with a tuple of symbols this allocates
    /// nothing, unless more calls run at the same time than ever before.
    ///
    /// # Errors
    /// [`Error::Count`] for a wrong number of arguments, results or symbols, the errors of
    /// [`Executable::prepare`], and [`Error::OutOfMemory`]. After `OutOfMemory`, results may be
    /// partly written.
    ///
    /// # Safety
    /// - The kernels do what the program says: they touch only the bytes of their launch's
    ///   buffers and scratch, and do not write to arguments or constants.
    /// - `args` and `results` point to as many bytes as their buffers have for these symbols,
    ///   with the alignment that the kernels assume.
    /// - Until this returns, no other code writes to the arguments or accesses the results, and no
    ///   result overlaps with an argument or another result.
    pub unsafe fn run(
        &self,
        args: &[*const u8],
        symbols: &[i64],
        results: &[*mut u8],
        pool: &Pool,
    ) -> Result<(), Error> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.run_until(args, symbols, results, pool, &mut || false) }
    }

    /// Runs the program once, as [`Executable::run`] does, but calls `stop` after each launch and
    /// ends the call where it returns true.
    ///
    /// # Errors
    /// Those of [`Executable::run`], and [`Error::Interrupted`] if `stop` returned true. Results
    /// may then be partly written.
    ///
    /// # Safety
    /// As for [`Executable::run`].
    pub unsafe fn run_until(
        &self,
        args: &[*const u8],
        symbols: &[i64],
        results: &[*mut u8],
        pool: &Pool,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        check_count("arguments", args.len(), self.program.args)?;
        check_count("results", results.len(), self.program.results)?;
        let mut frame = self.frame(symbols)?;
        frame.set_pointers(args, results);
        // SAFETY: guaranteed by the caller; the frame is set to these symbols and pointers.
        let outcome = unsafe { frame.launch(&self.kernels, self.times.get(), pool, stop) };
        self.frames.put(frame);
        outcome
    }

    /// A frame for these symbols. No lock is taken if the frame was last used for the same ones.
    fn frame(&self, symbols: &[i64]) -> Result<Box<Frame>, Error> {
        let mut frame = self.frames.take().unwrap_or_default();
        if !frame.is_for(symbols) {
            frame.set_program(self.prepare(symbols)?, &self.constants)?;
        }
        Ok(frame)
    }
}

fn check_count(what: &'static str, got: usize, expected: usize) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Count { what, got, expected }) }
}
