//! Prepares a program for one tuple of symbol values: evaluates sizes and places temporaries.

use super::Error;
use crate::plan::{Plan, Request, lifetimes};
use crate::program::{Execution, Place, Program};
use crate::size::Size;
use bytes::Bytes;

/// A program with all sizes evaluated for one tuple of symbol values.
#[derive(Debug)]
pub struct Prepared {
    symbols: Vec<i64>,
    results: Vec<usize>,
    pub(super) arena: usize,
    pub(super) execution: Vec<Execution>,
    /// By the number of the launch.
    pub(super) steps: Vec<Step>,
    /// By the number of the loop.
    pub(super) loops: Vec<Loop>,
    /// The dims of all steps, concatenated.
    pub(super) dims: Vec<i64>,
    /// The buffers of all steps, concatenated.
    pub(super) slots: Vec<Slot>,
}

/// A launch with all sizes evaluated. A launch without tasks has no slots and no dims.
#[derive(Debug)]
pub struct Step {
    /// Its index in the table of kernels.
    pub kernel: usize,
    /// The index of its first buffer in `slots`.
    pub slots: usize,
    /// The index of its first dim in `dims`.
    pub dims: usize,
    pub tasks: i64,
    pub grain: i64,
    pub scratch: usize,
}

/// A loop of the program with its size evaluated.
#[derive(Debug)]
pub struct Loop {
    pub trips: i64,
    pub reverse: bool,
    /// The slot of the condition, and the value for which the loop goes on.
    pub condition: Option<(usize, bool)>,
    /// The slots that advance by one row per iteration, with the stride of rows in bytes (negative
    /// in reverse).
    pub moves: Vec<(usize, isize)>,
}

/// The start of a buffer; for a row, the start of the row of the first iteration.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub base: Base,
    pub offset: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Base {
    Arena,
    Constant(usize),
    Argument(usize),
    Result(usize),
}

impl Prepared {
    pub fn symbols(&self) -> &[i64] {
        &self.symbols
    }

    /// The size of each result in bytes.
    pub fn result_bytes(&self) -> &[usize] {
        &self.results
    }

    /// The size in bytes of the arena of temporaries that a call needs.
    pub fn arena_bytes(&self) -> usize {
        self.arena
    }

    /// Whether some launch has work for more than one thread.
    pub fn is_shared(&self) -> bool {
        self.steps.iter().any(|step| step.tasks > step.grain)
    }

    /// Prepares a program that has passed its checks.
    pub(super) fn new(
        program: &Program,
        constants: &[Bytes],
        symbols: &[i64],
    ) -> Result<Prepared, Error> {
        let values = Values { symbols };
        let mut bytes = Vec::with_capacity(program.buffers.len());
        for (index, buffer) in program.buffers.iter().enumerate() {
            bytes.push(values.bytes(&buffer.bytes, || format!("the length of buffer {index}"))?);
        }
        let plan = temporaries(program, &bytes)?;
        let loops = values.loops(program)?;
        let positions = values.positions(program, constants, &bytes, &plan.offsets, &loops)?;
        let mut prepared = Prepared {
            symbols: symbols.to_vec(),
            results: vec![0; program.results],
            arena: plan.bytes,
            execution: program.execution(),
            steps: Vec::new(),
            loops,
            dims: Vec::new(),
            slots: Vec::new(),
        };
        for (buffer, bytes) in program.buffers.iter().zip(&bytes) {
            if let Place::Result(result) = buffer.place {
                prepared.results[result] = *bytes;
            }
        }
        prepared.launches(program, &values, &positions)?;
        Ok(prepared)
    }

    /// Adds the steps.
    fn launches(
        &mut self,
        program: &Program,
        values: &Values,
        positions: &[Position],
    ) -> Result<(), Error> {
        for (index, launch) in program.launches.iter().enumerate() {
            let what = |part: &str| format!("{part} of launch {index}");
            let step = Step {
                kernel: launch.kernel,
                slots: self.slots.len(),
                dims: self.dims.len(),
                tasks: values.number(&launch.tasks, || what("the number of tasks"))?,
                grain: values.number(&launch.grain, || what("the grain"))?,
                scratch: values.bytes(&launch.scratch, || what("the scratch"))?,
            };
            if step.tasks <= 0 {
                self.steps.push(step);
                continue;
            }
            for dim in &launch.dims {
                self.dims.push(values.number(dim, || what("a dim"))?);
            }
            for &buffer in &launch.buffers {
                self.slot(&positions[buffer]);
            }
            self.steps.push(step);
        }
        for (at, own) in program.loops.iter().enumerate() {
            self.loops[at].condition =
                own.condition.map(|own| (self.slot(&positions[own.buffer]), own.expected));
        }
        Ok(())
    }

    /// Adds a slot at this position, and returns its index.
    fn slot(&mut self, position: &Position) -> usize {
        for &(of_loop, bytes) in &position.moves {
            self.loops[of_loop].moves.push((self.slots.len(), bytes));
        }
        self.slots.push(position.slot);
        self.slots.len() - 1
    }
}

/// The memory that a call uses, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    pub arguments: usize,
    pub results: usize,
    /// The arena of a call, plus the largest scratch of one thread.
    pub temporaries: usize,
    pub constants: usize,
}

impl Memory {
    /// The memory of a program for one tuple of symbol values.
    ///
    /// # Errors
    /// [`Error::Size`] if a size is undefined or negative.
    pub fn of(program: &Program, symbols: &[i64]) -> Result<Memory, Error> {
        let values = Values { symbols };
        let mut memory = Memory::default();
        let mut all = Vec::with_capacity(program.buffers.len());
        for (index, buffer) in program.buffers.iter().enumerate() {
            let bytes = values.bytes(&buffer.bytes, || format!("the length of buffer {index}"))?;
            match buffer.place {
                Place::Argument(_) => memory.arguments += bytes,
                Place::Result(_) => memory.results += bytes,
                Place::Constant(_) => memory.constants += bytes,
                Place::Temporary | Place::Alias { .. } | Place::Row { .. } => {}
            }
            all.push(bytes);
        }
        let mut scratch = 0;
        for (index, launch) in program.launches.iter().enumerate() {
            let what = || format!("the scratch of launch {index}");
            scratch = scratch.max(values.bytes(&launch.scratch, what)?);
        }
        memory.temporaries = temporaries(program, &all)?.bytes + scratch;
        Ok(memory)
    }

    pub fn total(&self) -> usize {
        self.arguments + self.results + self.temporaries + self.constants
    }
}

/// Places the temporaries in the arena; those that no launch uses get no bytes.
fn temporaries(program: &Program, bytes: &[usize]) -> Result<Plan, Error> {
    let lives = lifetimes(program);
    let request = |index: usize| match (&program.buffers[index].place, lives[index]) {
        (Place::Temporary, Some((first, last))) => Request { bytes: bytes[index], first, last },
        _ => Request { bytes: 0, first: 0, last: 0 },
    };
    let requests: Vec<_> = (0..bytes.len()).map(request).collect();
    Plan::of(&requests).ok_or(Error::Invalid("the temporaries exceed memory".into()))
}

/// The start of a buffer, and the bytes by which an iteration of each loop moves it.
struct Position {
    slot: Slot,
    moves: Vec<(usize, isize)>,
}

/// The values of the symbols; evaluates sizes with them.
struct Values<'a> {
    symbols: &'a [i64],
}

impl Values<'_> {
    fn number(&self, size: &Size, what: impl Fn() -> String) -> Result<i64, Error> {
        size.eval(self.symbols).ok_or_else(|| self.error(size, None, what()))
    }

    fn bytes(&self, size: &Size, what: impl Fn() -> String) -> Result<usize, Error> {
        let value = self.number(size, &what)?;
        usize::try_from(value).map_err(|_| self.error(size, Some(value), what()))
    }

    fn error(&self, size: &Size, value: Option<i64>, what: String) -> Error {
        Error::Size { what, size: size.to_string(), value, symbols: self.symbols.to_vec() }
    }

    fn loops(&self, program: &Program) -> Result<Vec<Loop>, Error> {
        let loops = program.loops.iter().enumerate().map(|(index, loop_)| {
            let trips =
                self.bytes(&loop_.trips, || format!("the number of iterations of loop {index}"))?;
            let reverse = loop_.reverse;
            Ok(Loop { trips: trips as i64, reverse, condition: None, moves: Vec::new() })
        });
        loops.collect()
    }

    /// The start of each buffer, with aliases and rows resolved to the buffer that they lie in.
    fn positions(
        &self,
        program: &Program,
        constants: &[Bytes],
        bytes: &[usize],
        offsets: &[usize],
        loops: &[Loop],
    ) -> Result<Vec<Position>, Error> {
        let mut positions: Vec<Position> = Vec::with_capacity(bytes.len());
        for (index, buffer) in program.buffers.iter().enumerate() {
            let too_long =
                |what: String| self.error(&buffer.bytes, i64::try_from(bytes[index]).ok(), what);
            let mut moves = Vec::new();
            let (base, offset) = match &buffer.place {
                Place::Temporary => (Base::Arena, offsets[index]),
                Place::Argument(argument) => (Base::Argument(*argument), 0),
                Place::Result(result) => (Base::Result(*result), 0),
                Place::Constant(constant) => {
                    let length = constants[*constant].len();
                    if bytes[index] > length {
                        let what =
                            format!("buffer {index} in constant {constant} of {length} bytes");
                        return Err(too_long(what));
                    }
                    (Base::Constant(*constant), 0)
                }
                Place::Alias { of, offset } => {
                    let start = self.bytes(offset, || format!("the offset of buffer {index}"))?;
                    let root_bytes = bytes[*of];
                    if start.checked_add(bytes[index]).is_none_or(|end| end > root_bytes) {
                        let what = format!(
                            "buffer {index} from byte {start} of the {root_bytes} of buffer {of}"
                        );
                        return Err(too_long(what));
                    }
                    moves.clone_from(&positions[*of].moves);
                    (positions[*of].slot.base, positions[*of].slot.offset + start)
                }
                Place::Row { of, of_loop } => {
                    let Loop { trips, reverse, .. } = loops[*of_loop];
                    let (row_bytes, rows) = (bytes[index], trips as usize);
                    if row_bytes.checked_mul(rows).is_none_or(|all| all > bytes[*of]) {
                        let what = format!("buffer {index}, {rows} times in buffer {of}");
                        return Err(too_long(what));
                    }
                    moves.clone_from(&positions[*of].moves);
                    moves.push((
                        *of_loop,
                        if reverse { -(row_bytes as isize) } else { row_bytes as isize },
                    ));
                    let start = if reverse { row_bytes * rows.saturating_sub(1) } else { 0 };
                    (positions[*of].slot.base, positions[*of].slot.offset + start)
                }
            };
            positions.push(Position { slot: Slot { base, offset }, moves });
        }
        Ok(positions)
    }
}
