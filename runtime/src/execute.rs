//! Running programs: one executor of launch lists.

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

/// Why a program is refused or does not run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// It names what there is not, or gives a result no place or two.
    #[error("invalid program: {0}")]
    Invalid(String),
    /// A call has more or fewer arguments, results or symbols than the program.
    #[error("{got} {what} given, {expected} expected")]
    Count { what: &'static str, got: usize, expected: usize },
    /// A size has no value, or none that it can have, for these values of the symbols.
    #[error("{what} is {size}, which is {} for symbols {symbols:?}", .value.map_or("undefined".into(), |v| v.to_string()))]
    Size { what: String, size: String, value: Option<i64>, symbols: Vec<i64> },
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// Guard bytes are not what they were before a launch; see [`guard`](crate::guard).
    #[error("kernel {kernel} wrote {place}")]
    Overrun { kernel: usize, place: String },
    /// The caller asked for it, between two launches.
    #[error("the call was interrupted")]
    Interrupted,
}

/// How many tuples of symbol values are kept prepared.
const PREPARED: usize = 64;

/// A program with its kernels and constants, ready to run; from many threads at once.
pub struct Executable {
    program: Program,
    kernels: Table,
    constants: Vec<Bytes>,
    /// What was prepared for the last tuples of symbols, the latest first.
    prepared: Mutex<Vec<Arc<Prepared>>>,
    frames: Frames,
    /// Where the kernels lie, those that were replaced too: they last as long as this does.
    code: Mutex<Vec<Arc<Code>>>,
    /// How long kernels run, once that is measured.
    times: OnceLock<Times>,
}

impl Executable {
    /// Takes a program, the kernels and the constants that it names by index, and what keeps the
    /// kernels alive. Constants that are not aligned as blocks are, are copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the program names a buffer, kernel, constant, argument, result or
    /// symbol that there is not, or a result is not the place of exactly one buffer. A program
    /// without symbols is prepared, too, with those errors.
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

    /// Takes another kernel in place of one, for the launches that begin from now on, and what keeps
    /// it alive. Calls may run meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the program has no kernel of this number.
    ///
    /// # Safety
    /// It does what the kernel does that it replaces.
    pub unsafe fn replace(&self, at: usize, kernel: Kernel, code: Arc<Code>) -> Result<(), Error> {
        if at >= self.kernels.len() {
            let count = self.kernels.len();
            return Err(Error::Invalid(format!("there is no kernel {at} of {count}")));
        }
        self.code.lock().unwrap_or_else(PoisonError::into_inner).push(code);
        self.kernels.set(at, kernel);
        Ok(())
    }

    /// From now on, measures how long each kernel runs; some 50 ns a launch.
    pub fn measure(&self) {
        self.times.get_or_init(|| Times::new(self.kernels.len()));
    }

    /// What all launches of each kernel took in a call, on average; none before a call that was
    /// measured.
    pub fn times(&self) -> Option<Vec<Duration>> {
        self.times.get()?.means()
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// How many bytes each result has for these values of the symbols.
    ///
    /// # Errors
    /// As [`Executable::prepare`].
    pub fn result_bytes(&self, symbols: &[i64]) -> Result<Vec<usize>, Error> {
        Ok(self.prepare(symbols)?.result_bytes().to_vec())
    }

    /// What follows from these values of the symbols: kept for the last 64 tuples.
    ///
    /// # Errors
    /// [`Error::Count`] for too many or too few symbols, [`Error::Size`] if a size has no value or
    /// a negative one, an alias ends after what it is a part of, or a constant is too short.
    pub fn prepare(&self, symbols: &[i64]) -> Result<Arc<Prepared>, Error> {
        count("symbols", symbols.len(), self.program.symbols)?;
        let mut kept = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|p| p.symbols() == symbols) {
            kept[..=at].rotate_right(1);
        } else {
            let prepared = Prepared::new(&self.program, &self.constants, symbols)?;
            kept.truncate(PREPARED - 1);
            kept.insert(0, Arc::new(prepared));
        }
        Ok(kept[0].clone())
    }

    /// Runs the program once. After the first calls with a tuple of symbols this allocates
    /// nothing, except that memory for more calls at one time than ever before is allocated then.
    ///
    /// # Errors
    /// [`Error::Count`] for another number of arguments, results or symbols, the errors of
    /// [`Executable::prepare`], and [`Error::OutOfMemory`]. After the last, results may be
    /// written in part.
    ///
    /// # Safety
    /// - The kernels do what the program says: touch nothing but the bytes of their launch's
    ///   buffers and scratch, and write only what is not an argument or a constant.
    /// - `args` and `results` point to as many bytes as their buffers have for these symbols,
    ///   aligned as the kernels take them to be.
    /// - Until it returns nobody else writes to the arguments or touches the results, and no
    ///   result overlaps with an argument or another result.
    pub unsafe fn run(
        &self,
        args: &[*const u8],
        symbols: &[i64],
        results: &[*mut u8],
        pool: &Pool,
    ) -> Result<(), Error> {
        // SAFETY: the caller's.
        unsafe { self.run_until(args, symbols, results, pool, &mut || false) }
    }

    /// Runs the program once, as [`Executable::run`] does, unless `stop` says so: it is asked after
    /// each launch.
    ///
    /// # Errors
    /// Those of [`Executable::run`]; [`Error::Interrupted`] where `stop` said so. Then results may
    /// be written in part.
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
        count("arguments", args.len(), self.program.args)?;
        count("results", results.len(), self.program.results)?;
        let mut frame = self.frame(symbols)?;
        frame.point(args, results);
        // SAFETY: what the caller vouches for; the frame was aimed at these symbols and pointers.
        let outcome = unsafe { frame.launch(&self.kernels, self.times.get(), pool, stop) };
        self.frames.put(frame);
        outcome
    }

    /// A frame for these symbols. One that was used for them before needs no lock.
    fn frame(&self, symbols: &[i64]) -> Result<Box<Frame>, Error> {
        let mut frame = self.frames.take().unwrap_or_default();
        if !frame.is_for(symbols) {
            frame.aim(self.prepare(symbols)?, &self.constants)?;
        }
        Ok(frame)
    }
}

fn count(what: &'static str, got: usize, expected: usize) -> Result<(), Error> {
    if got == expected { Ok(()) } else { Err(Error::Count { what, got, expected }) }
}
