//! What one call in flight needs for itself, and the list of those not in use.

use super::Error;
use super::prepare::{Base, Loop, Prepared, Slot, Step};
use super::table::Table;
use super::times::Times;
use crate::guard;
use crate::kernel::Kernel;
use crate::memory::{Block, OutOfMemory};
use crate::scratch;
use crate::threads::Pool;
use bytes::Bytes;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::time::Instant;

/// The arena and the table of pointers of a call, for one prepared program after the other.
#[derive(Default)]
pub struct Frame {
    prepared: Option<Arc<Prepared>>,
    arena: Option<Block>,
    /// The pointers of all slots of the prepared program.
    table: Vec<*mut u8>,
    /// The slots that each call gives new pointers, by their place in the table.
    varying: Vec<(usize, Slot)>,
}

// SAFETY: the pointers lie in the arena, in constants that the executable holds, or in memory of
// the last call and are replaced before they are used again.
unsafe impl Send for Frame {}

impl Frame {
    /// Whether it is a frame of the program prepared for these symbols.
    pub fn is_for(&self, symbols: &[i64]) -> bool {
        // One by one: to compare slices of nothing takes libc's memcmp 90 ns, as it loads with
        // an empty mask from an address that is no memory.
        self.prepared.as_ref().is_some_and(|prepared| prepared.symbols().iter().eq(symbols))
    }

    /// Makes it a frame of this prepared program; the arena only grows.
    pub fn aim(&mut self, prepared: Arc<Prepared>, constants: &[Bytes]) -> Result<(), OutOfMemory> {
        self.prepared = None;
        let arena = match self.arena.take() {
            // Guard bytes lie where an arena ends.
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

    /// Sets the pointers of one call.
    pub fn point(&mut self, args: &[*const u8], results: &[*mut u8]) {
        for (index, slot) in &self.varying {
            let base = match slot.base {
                Base::Argument(argument) => args[argument].cast_mut(),
                Base::Result(result) => results[result],
                Base::Arena | Base::Constant(_) => continue,
            };
            self.table[*index] = base.wrapping_add(slot.offset);
        }
    }

    /// Runs all steps, unless `stop` says so between two of them, and notes in `times` how long
    /// they took.
    ///
    /// # Safety
    /// As [`Executable::run`](super::Executable::run), with the pointers given to `point`.
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
            // SAFETY: a block has guard bytes behind it.
            unsafe { guard::open(arena.as_ptr(), arena.len()) };
        }
        if let Some(times) = times {
            times.call();
        }
        let mut run = Run { prepared, table: &mut self.table, kernels, times, pool, stop };
        // SAFETY: the caller's.
        unsafe { run.steps(0..prepared.steps.len(), &prepared.loops) }
    }
}

/// One run of the steps.
struct Run<'a> {
    prepared: &'a Prepared,
    table: &'a mut [*mut u8],
    kernels: &'a Table,
    times: Option<&'a Times>,
    pool: &'a Pool,
    /// Whether the call is to end before the next step.
    stop: &'a mut dyn FnMut() -> bool,
}

impl Run<'_> {
    /// Runs a range of steps that has these loops.
    ///
    /// # Safety
    /// As [`Frame::launch`].
    unsafe fn steps(&mut self, steps: Range<usize>, loops: &[Loop]) -> Result<(), Error> {
        let (mut at, mut rest) = (steps.start, loops);
        // SAFETY: the caller's.
        unsafe {
            while let Some((own, behind)) = rest.split_first() {
                let inside = behind.iter().take_while(|other| other.steps.end <= own.steps.end);
                let inner;
                (inner, rest) = behind.split_at(inside.count());
                self.straight(at..own.steps.start)?;
                self.turns(own, inner)?;
                at = own.steps.end;
            }
            self.straight(at..steps.end)
        }
    }

    /// Runs a loop, and leaves the table as it was.
    ///
    /// # Safety
    /// As [`Frame::launch`].
    unsafe fn turns(&mut self, own: &Loop, inner: &[Loop]) -> Result<(), Error> {
        let (mut done, mut outcome) = (0, Ok(()));
        while done < own.trips && outcome.is_ok() && !own.steps.is_empty() {
            // SAFETY: the caller's.
            outcome = unsafe { self.steps(own.steps.clone(), inner) };
            self.shift(own, 1);
            done += 1;
        }
        self.shift(own, -done);
        outcome
    }

    fn shift(&mut self, own: &Loop, rows: i64) {
        for &(slot, bytes) in &own.moves {
            self.table[slot] = self.table[slot].wrapping_offset(bytes * rows as isize);
        }
    }

    /// Runs steps, each once.
    ///
    /// # Safety
    /// As [`Frame::launch`].
    unsafe fn straight(&mut self, steps: Range<usize>) -> Result<(), Error> {
        let Run { prepared, table, kernels, times, pool, stop } = self;
        for step in &prepared.steps[steps] {
            let call = Call {
                step,
                // All tasks of a launch are done by one kernel.
                kernel: kernels.get(step.kernel),
                buffers: table[step.slots..].as_ptr(),
                dims: prepared.dims[step.dims..].as_ptr(),
                failed: AtomicBool::new(false),
                overran: AtomicBool::new(false),
            };
            let timed = times.map(|times| (times, Instant::now()));
            // SAFETY: the pool's ranges are tasks of the step; the rest is the caller's.
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
            if stop() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }
}

/// One step as its threads see it.
struct Call<'a> {
    step: &'a Step,
    kernel: Kernel,
    buffers: *const *mut u8,
    dims: *const i64,
    /// Whether a thread got no scratch.
    failed: AtomicBool,
    /// Whether guard bytes behind a thread's scratch were written.
    overran: AtomicBool,
}

// SAFETY: threads only read the tables behind the pointers.
unsafe impl Sync for Call<'_> {}

impl Call<'_> {
    /// Whether the step wrote outside of its memory, as far as guard bytes show: it is an error.
    fn check(&self) -> Result<(), Error> {
        let bytes = self.step.scratch;
        let scratch = || Some(format!("behind its scratch of {bytes} bytes"));
        let place = if self.overran.load(Relaxed) { scratch() } else { guard::damage() };
        place.map_or(Ok(()), |place| Err(Error::Overrun { kernel: self.step.kernel, place }))
    }

    /// # Safety
    /// As [`Frame::launch`]; `lo..hi` are tasks of the step.
    unsafe fn tasks(&self, lo: i64, hi: i64) {
        match scratch::of_thread(self.step.scratch) {
            // SAFETY: the caller's.
            Ok(scratch) => unsafe {
                (self.kernel)(scratch, self.buffers, self.dims, lo, hi);
                if !scratch::holds(scratch, self.step.scratch) {
                    self.overran.store(true, Relaxed);
                }
            },
            Err(_) => self.failed.store(true, Relaxed),
        }
    }
}

/// Frames not in use. Taking and putting needs no lock, and no memory.
#[derive(Default)]
pub struct Frames([AtomicPtr<Frame>; 16]);

impl Frames {
    pub fn take(&self) -> Option<Box<Frame>> {
        let full = self.0.iter().filter(|slot| !slot.load(Relaxed).is_null());
        let mut taken = full.map(|slot| slot.swap(null_mut(), Acquire));
        let frame = taken.find(|frame| !frame.is_null())?;
        // SAFETY: it came from a box in `put`, and the slot does not have it any more.
        Some(unsafe { Box::from_raw(frame) })
    }

    /// Keeps a frame, if there is room.
    pub fn put(&self, frame: Box<Frame>) {
        let frame = Box::into_raw(frame);
        let empty = self.0.iter().filter(|slot| slot.load(Relaxed).is_null());
        let mut kept = empty.map(|s| s.compare_exchange(null_mut(), frame, Release, Relaxed));
        if !kept.any(|kept| kept.is_ok()) {
            // SAFETY: no slot took it.
            drop(unsafe { Box::from_raw(frame) });
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}
