//! Frames: the memory that one call in flight needs, and a free list of them.

use super::Error;
use super::prepare::{Base, Loop, Prepared, Slot, Step};
use super::table::Table;
use super::times::Times;
use crate::guard;
use crate::kernel::Kernel;
use crate::memory::{Block, OutOfMemory};
use crate::program::Execution;
use crate::scratch;
use crate::threads::Pool;
use bytes::Bytes;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::time::Instant;

/// The arena and the table of pointers of a call. It is reused for other prepared programs.
#[derive(Default)]
pub struct Frame {
    prepared: Option<Arc<Prepared>>,
    arena: Option<Block>,
    /// The pointers of all slots of the prepared program.
    table: Vec<*mut u8>,
    /// The slots whose pointers change with each call, with their index in the table.
    varying: Vec<(usize, Slot)>,
}

// SAFETY: the pointers are into the arena, into constants that the executable holds, or into memory
// of the last call; the latter are replaced before they are used again.
unsafe impl Send for Frame {}

impl Frame {
    /// Whether the frame is set to the program prepared for these symbols.
    pub fn is_for(&self, symbols: &[i64]) -> bool {
        // Compares element by element: on empty slices libc's memcmp takes 90 ns, as it does a load
        // with an empty mask from an invalid address.
        self.prepared.as_ref().is_some_and(|prepared| prepared.symbols().iter().eq(symbols))
    }

    /// Sets the frame to this prepared program. Replaces the arena only if it is too small.
    pub fn set_program(
        &mut self,
        prepared: Arc<Prepared>,
        constants: &[Bytes],
    ) -> Result<(), OutOfMemory> {
        self.prepared = None;
        let arena = match self.arena.take() {
            // A longer arena is reused, except with guard bytes: they must follow its end.
            Some(arena) if arena.len() == prepared.arena => arena,
            Some(arena) if arena.len() > prepared.arena && !guard::is_on() => arena,
            _ => Block::new(prepared.arena)?,
        };
        self.table.clear();
        self.varying.clear();
        for (index, slot) in prepared.slots.iter().enumerate() {
            let base = match slot.base {
                Base::Arena => arena.as_ptr(),
                Base::Constant(constant) => constants[constant].as_ptr().cast_mut(),
                Base::Argument(_) | Base::Result(_) => {
                    self.varying.push((index, *slot));
                    null_mut()
                }
            };
            self.table.push(base.wrapping_add(slot.offset));
        }
        self.arena = Some(arena);
        self.prepared = Some(prepared);
        Ok(())
    }

    /// Sets the pointers to the arguments and results of one call.
    pub fn set_pointers(&mut self, args: &[*const u8], results: &[*mut u8]) {
        for (index, slot) in &self.varying {
            let base = match slot.base {
                Base::Argument(argument) => args[argument].cast_mut(),
                Base::Result(result) => results[result],
                Base::Arena | Base::Constant(_) => continue,
            };
            self.table[*index] = base.wrapping_add(slot.offset);
        }
    }

    /// Runs all steps, or up to the one after which `stop` returns true, and adds the time that
    /// they take to `times`.
    ///
    /// # Safety
    /// As [`Executable::run`](super::Executable::run), with the pointers given to `set_pointers`.
    pub unsafe fn launch(
        &mut self,
        kernels: &Table,
        times: Option<&Times>,
        pool: &Pool,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let Some(prepared) = &self.prepared else { return Ok(()) };
        if let Some(arena) = self.arena.as_ref().filter(|arena| guard::is_on() && !arena.is_empty())
        {
            // SAFETY: a block is followed by guard bytes.
            unsafe { guard::fill_uninitialized(arena.as_ptr(), arena.len()) };
        }
        if let Some(times) = times {
            times.call();
        }
        let mut run = Run { prepared, table: &mut self.table, kernels, times, pool, stop };
        // SAFETY: guaranteed by the caller.
        unsafe { run.run_parts(&prepared.execution) }
    }
}

/// One run of the steps.
struct Run<'a> {
    prepared: &'a Prepared,
    table: &'a mut [*mut u8],
    kernels: &'a Table,
    times: Option<&'a Times>,
    pool: &'a Pool,
    /// Called after each step; true ends the call.
    stop: &'a mut dyn FnMut() -> bool,
}

impl Run<'_> {
    /// Runs these parts of the program in order.
    ///
    /// # Safety
    /// As [`Frame::launch`].
    unsafe fn run_parts(&mut self, parts: &[Execution]) -> Result<(), Error> {
        let prepared = self.prepared;
        for part in parts {
            // SAFETY: guaranteed by the caller.
            unsafe {
                match part {
                    Execution::Launch(at) => self.step(&prepared.steps[*at])?,
                    Execution::Loop(at, body) => self.iterate(&prepared.loops[*at], body)?,
                }
            }
        }
        Ok(())
    }

    /// Runs all iterations of a loop, and restores the table of pointers.
    ///
    /// # Safety
    /// As [`Frame::launch`].
    unsafe fn iterate(&mut self, loop_: &Loop, body: &[Execution]) -> Result<(), Error> {
        let (mut done, mut outcome) = (0, Ok(()));
        while done < loop_.trips && outcome.is_ok() && self.goes_on(loop_) {
            // SAFETY: guaranteed by the caller.
            outcome = unsafe { self.run_parts(body) };
            self.advance_rows(loop_, 1);
            done += 1;
        }
        self.advance_rows(loop_, -done);
        outcome
    }

    /// Whether the condition of a loop holds.
    fn goes_on(&self, loop_: &Loop) -> bool {
        loop_.condition.is_none_or(|(slot, expected)| {
            // SAFETY: the program says that the buffer has a byte, which launches before have
            // written.
            (unsafe { *self.table[slot] } != 0) == expected
        })
    }

    fn advance_rows(&mut self, loop_: &Loop, rows: i64) {
        for &(slot, bytes) in &loop_.moves {
            self.table[slot] = self.table[slot].wrapping_offset(bytes * rows as isize);
        }
    }

    /// Runs all tasks of a step.
    ///
    /// # Safety
    /// As [`Frame::launch`].
    unsafe fn step(&mut self, step: &Step) -> Result<(), Error> {
        if step.tasks <= 0 {
            return Ok(());
        }
        let Run { prepared, table, kernels, times, pool, stop } = self;
        let call = Call {
            step,
            // Read once: one kernel does all tasks of a launch, even if it is replaced.
            kernel: kernels.get(step.kernel),
            buffers: table[step.slots..].as_ptr(),
            dims: prepared.dims[step.dims..].as_ptr(),
            failed: AtomicBool::new(false),
            overwritten: AtomicBool::new(false),
        };
        let timed = times.map(|times| (times, Instant::now()));
        // SAFETY: the pool's ranges are tasks of the step; the caller guarantees the rest.
        pool.run(step.tasks, step.grain, &|lo, hi, _| unsafe { call.tasks(lo, hi) });
        if let Some((times, start)) = timed {
            times.add(step.kernel, start);
        }
        if call.failed.load(Relaxed) {
            return Err(OutOfMemory { bytes: step.scratch }.into());
        }
        if guard::is_on() {
            call.check()?;
        }
        match stop() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

/// One step, as the threads that run it share it.
struct Call<'a> {
    step: &'a Step,
    kernel: Kernel,
    buffers: *const *mut u8,
    dims: *const i64,
    /// Whether the scratch of a thread could not be allocated.
    failed: AtomicBool,
    /// Whether the guard bytes after a thread's scratch were overwritten.
    overwritten: AtomicBool,
}

// SAFETY: threads only read the tables behind the pointers.
unsafe impl Sync for Call<'_> {}

impl Call<'_> {
    /// Errors: the step overwrote guard bytes.
    fn check(&self) -> Result<(), Error> {
        let bytes = self.step.scratch;
        let scratch = || Some(format!("after its scratch of {bytes} bytes"));
        let place = if self.overwritten.load(Relaxed) { scratch() } else { guard::find_damage() };
        place.map_or(Ok(()), |place| Err(Error::Overrun { kernel: self.step.kernel, place }))
    }

    /// # Safety
    /// As [`Frame::launch`]; `lo..hi` are tasks of the step.
    unsafe fn tasks(&self, lo: i64, hi: i64) {
        match scratch::of_thread(self.step.scratch) {
            // SAFETY: guaranteed by the caller.
            Ok(scratch) => unsafe {
                (self.kernel)(scratch, self.buffers, self.dims, lo, hi);
                if !scratch::is_intact(scratch, self.step.scratch) {
                    self.overwritten.store(true, Relaxed);
                }
            },
            Err(_) => self.failed.store(true, Relaxed),
        }
    }
}

/// A free list of frames. Neither taking nor putting locks or allocates.
#[derive(Default)]
pub struct Frames([AtomicPtr<Frame>; 16]);

impl Frames {
    pub fn take(&self) -> Option<Box<Frame>> {
        let full = self.0.iter().filter(|slot| !slot.load(Relaxed).is_null());
        let mut taken = full.map(|slot| slot.swap(null_mut(), Acquire));
        let frame = taken.find(|frame| !frame.is_null())?;
        // SAFETY: the pointer came from a box in `put`, and is no longer in its slot.
        Some(unsafe { Box::from_raw(frame) })
    }

    /// Keeps a frame if a slot is empty, and drops it otherwise.
    pub fn put(&self, frame: Box<Frame>) {
        let frame = Box::into_raw(frame);
        let empty = self.0.iter().filter(|slot| slot.load(Relaxed).is_null());
        let mut kept = empty.map(|s| s.compare_exchange(null_mut(), frame, Release, Relaxed));
        if !kept.any(|kept| kept.is_ok()) {
            // SAFETY: the pointer came from a box, and no slot holds it.
            drop(unsafe { Box::from_raw(frame) });
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}
