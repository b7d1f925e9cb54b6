//! Memory in which every byte records its origin: an input, a task, or unwritten.

use super::{Lane, Run, Violation, violation};
use crate::code::{Memory, Place};

/// The origin of a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Unwritten,
    /// Written before the kernel ran.
    Input,
    Task(i64),
}

/// A buffer of a launch. It begins at a cache line boundary.
#[derive(Clone, Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    origins: Vec<Origin>,
    /// Whether every byte must have been written at the end.
    result: bool,
}

impl Buffer {
    /// Creates a buffer that a kernel reads.
    pub fn input(bytes: Vec<u8>) -> Buffer {
        Buffer { origins: vec![Origin::Input; bytes.len()], bytes, result: false }
    }

    /// Creates a buffer of this many bytes, all of which a kernel must write.
    pub fn result(bytes: usize) -> Buffer {
        // Fills the buffer with a pattern that is an unlikely result.
        Buffer { bytes: vec![0xa5; bytes], origins: vec![Origin::Unwritten; bytes], result: true }
    }

    /// Turns the buffer into an input of the next kernel.
    pub fn make_input(&mut self) {
        self.origins.fill(Origin::Input);
        self.result = false;
    }

    /// Turns the buffer into a result that a kernel must write anew.
    pub fn make_result(&mut self) {
        self.origins.fill(Origin::Unwritten);
        self.result = true;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Checks that all results are written.
///
/// Errors: a byte of a result has not been written.
pub fn written(buffers: &[Buffer]) -> Run<()> {
    for (number, buffer) in buffers.iter().enumerate().filter(|(_, buffer)| buffer.result) {
        if let Some(at) = buffer.origins.iter().position(|note| *note == Origin::Unwritten) {
            let what = format!(
                "byte {at} of the {} of buffer {number} is not written",
                buffer.bytes.len()
            );
            return Err(Violation { what, places: Vec::new(), task: None });
        }
    }
    Ok(())
}

/// The memory that a task can access.
pub struct Memories<'a> {
    buffers: &'a mut [Buffer],
    /// The bytes of the scratch memory, and whether they are defined.
    scratch: Vec<(u8, bool)>,
    task: i64,
}

impl<'a> Memories<'a> {
    pub fn new(buffers: &'a mut [Buffer], scratch: usize, task: i64) -> Memories<'a> {
        Memories { buffers, scratch: vec![(0xa5, false); scratch], task }
    }

    /// Returns the byte offset of element `at` of a memory that begins at byte `base`.
    fn bytes_of(&self, memory: &Memory, base: i64, at: i64) -> Run<usize> {
        let size = memory.dtype.bytes() as i128;
        let first = i128::from(base) + i128::from(at) * size;
        let (name, all) = match memory.place {
            Place::Buffer(n) => (format!("buffer {n}"), self.buffers[n as usize].bytes.len()),
            Place::Scratch(_) => ("the scratch memory".to_string(), self.scratch.len()),
            Place::Local(_) => return violation("code for C cannot be interpreted"),
        };
        if first < 0 || first + size > all as i128 {
            return violation(format!(
                "out of bounds: {size} bytes at byte {first} of {name}, which has {all} bytes"
            ));
        }
        Ok(first as usize)
    }

    /// Checks the alignment of an access to this many elements.
    ///
    /// Errors: the address is not a multiple of the size of the access.
    pub fn aligned(&self, memory: &Memory, base: i64, at: i64, elements: usize) -> Run<()> {
        let size = memory.dtype.bytes();
        let first = i128::from(base) + i128::from(at) * size as i128;
        match first.rem_euclid((size * elements) as i128) {
            0 => Ok(()),
            _ => violation(format!(
                "misaligned: byte {first}, not a multiple of {}",
                size * elements
            )),
        }
    }

    pub fn load(&self, memory: &Memory, base: i64, at: i64) -> Run<Lane> {
        let size = memory.dtype.bytes();
        let first = self.bytes_of(memory, base, at)?;
        let (mut bits, mut defined) = (0, true);
        for i in (0..size).rev() {
            let (byte, is_defined) = match memory.place {
                Place::Buffer(n) => self.read(n, first + i)?,
                _ => self.scratch[first + i],
            };
            bits = bits << 8 | u64::from(byte);
            defined &= is_defined;
        }
        Ok(Lane { bits, defined })
    }

    fn read(&self, number: u32, at: usize) -> Run<(u8, bool)> {
        let buffer = &self.buffers[number as usize];
        match buffer.origins[at] {
            Origin::Task(other) if other != self.task => violation(format!(
                "buffer {number}: task {other} wrote byte {at}, which this task reads"
            )),
            note => Ok((buffer.bytes[at], note != Origin::Unwritten)),
        }
    }

    pub fn store(&mut self, memory: &Memory, base: i64, at: i64, lane: Lane) -> Run<()> {
        let size = memory.dtype.bytes();
        let first = self.bytes_of(memory, base, at)?;
        let bytes = lane.bits.to_le_bytes();
        let Place::Buffer(number) = memory.place else {
            let places = &mut self.scratch[first..first + size];
            places.iter_mut().zip(bytes).for_each(|(own, byte)| *own = (byte, lane.defined));
            return Ok(());
        };
        if memory.constant {
            return violation(format!("buffer {number} is constant but written"));
        }
        if !lane.defined {
            return violation(format!("the value stored in buffer {number} is undefined"));
        }
        let buffer = &mut self.buffers[number as usize];
        for (at, note) in buffer.origins.iter_mut().enumerate().skip(first).take(size) {
            match note {
                Origin::Task(other) if *other != self.task => {
                    return violation(format!(
                        "buffer {number}: task {other} also wrote byte {at}"
                    ));
                }
                _ => *note = Origin::Task(self.task),
            }
        }
        buffer.bytes[first..first + size].copy_from_slice(&bytes[..size]);
        Ok(())
    }
}
