//! A compiled program as data: buffers, and the launches that fill them.

use crate::kernel::COPY_BYTES;
use crate::size::Size;
use std::fmt;
use std::ops::Range;

/// A list of launches and their buffers. [`Executable::new`] checks it.
///
/// [`Executable::new`]: crate::execute::Executable::new
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The number of symbols that sizes may use.
    pub symbols: usize,
    /// The number of argument pointers of a call, which are read.
    pub args: usize,
    /// The number of result pointers of a call, which are written. Exactly one buffer is placed in
    /// each.
    pub results: usize,
    pub buffers: Vec<Buffer>,
    pub launches: Vec<Launch>,
    /// Gives each temporary its own bytes, whatever its lifetime, so that it can be inspected.
    pub separate: bool,
    /// Ranges of launches that run more than once, or on a condition. A loop comes before the loops
    /// inside it.
    pub loops: Vec<Loop>,
}

/// Memory that launches read and write.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub bytes: Size,
    pub place: Place,
}

/// Where a buffer lies. All are 64-byte aligned except the caller's pointers and aliases.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// The argument of this index: read-only.
    Argument(usize),
    /// The result of this index.
    Result(usize),
    /// In the arena of the call. May share bytes with buffers that are live at other times.
    Temporary,
    /// The constant of this index, which the executable holds: read-only.
    Constant(usize),
    /// A part of a buffer with a smaller index, from `offset` bytes on.
    Alias { of: usize, offset: Size },
    /// A row of buffer `of`, which has a smaller index: the row of the current iteration of loop
    /// `of_loop`. Only launches inside the loop use it. This buffer has the bytes of one row.
    Row { of: usize, of_loop: usize },
}

/// A kernel that is run on some buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Its index in the executable's table of kernels.
    pub kernel: usize,
    pub buffers: Vec<usize>,
    pub dims: Vec<Size>,
    /// The number of independent tasks.
    pub tasks: Size,
    /// The minimum number of tasks that are worth giving to another thread.
    pub grain: Size,
    /// The bytes of scratch memory that each thread needs.
    pub scratch: Size,
}

/// A range of launches that runs `trips` times, once per row: from the first row to the last, or,
/// if `reverse`, from the last to the first. It ends earlier if its condition does not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    pub launches: Range<usize>,
    pub trips: Size,
    pub reverse: bool,
    /// Is checked before each iteration.
    pub condition: Option<Condition>,
}

/// Holds while the byte of a buffer, which is 0 or 1, is as expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    pub buffer: usize,
    pub expected: bool,
}

/// The number of iterations of a loop that only its condition ends.
pub const UNLIMITED: Size = Size::Const(i64::MAX);

/// A part of a program, in the order of execution.
#[derive(Clone, Debug, PartialEq)]
pub enum Execution {
    /// The launch of this number.
    Launch(usize),
    /// The loop of this number, which is not empty, and its parts.
    Loop(usize, Vec<Execution>),
}

impl Program {
    /// The launches in the order of execution, in their loops.
    pub fn execution(&self) -> Vec<Execution> {
        let loops: Vec<usize> = (0..self.loops.len()).collect();
        self.parts(0..self.launches.len(), &loops)
    }

    /// The parts of a range of launches; `loops` are the loops inside the range.
    fn parts(&self, launches: Range<usize>, mut loops: &[usize]) -> Vec<Execution> {
        let mut parts = Vec::new();
        let mut at = launches.start;
        while let Some((&number, behind)) = loops.split_first() {
            let own = &self.loops[number].launches;
            let is_inside = |other: &&usize| self.loops[**other].launches.end <= own.end;
            let (inside, rest) = behind.split_at(behind.iter().take_while(is_inside).count());
            loops = rest;
            if own.is_empty() {
                continue;
            }
            parts.extend((at..own.start).map(Execution::Launch));
            parts.push(Execution::Loop(number, self.parts(own.clone(), inside)));
            at = own.end;
        }
        parts.extend((at..launches.end).map(Execution::Launch));
        parts
    }

    /// The loops that contain a launch, outermost first.
    pub fn loops_around(&self, launch: usize) -> impl Iterator<Item = &Loop> {
        self.loops.iter().filter(move |own| own.launches.contains(&launch))
    }
}

impl Launch {
    /// A launch that copies `bytes` bytes from one buffer to another. Entry `kernel` of the table
    /// of kernels must be [`copy`](crate::kernel::copy).
    pub fn copy(kernel: usize, from: usize, to: usize, bytes: Size) -> Launch {
        Launch {
            kernel,
            buffers: vec![from, to],
            tasks: bytes.clone().ceil_div(COPY_BYTES),
            dims: vec![bytes],
            grain: Size::Const(4),
            scratch: Size::Const(0),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Program { symbols, args, results, .. } = self;
        writeln!(f, "program: {symbols} symbols, {args} arguments, {results} results")?;
        for (index, buffer) in self.buffers.iter().enumerate() {
            writeln!(f, "  b{index} = {}, {} bytes", buffer.place, buffer.bytes)?;
        }
        self.write(f, &self.execution(), 2)
    }
}

impl Program {
    fn write(&self, f: &mut fmt::Formatter, parts: &[Execution], indent: usize) -> fmt::Result {
        for part in parts {
            match part {
                Execution::Launch(at) => writeln!(f, "{:indent$}{}", "", self.launches[*at])?,
                Execution::Loop(number, parts) => {
                    let Loop { trips, reverse, condition, .. } = &self.loops[*number];
                    let way = if *reverse { ", in reverse" } else { "" };
                    let condition = condition.map_or(String::new(), |own| {
                        format!(", while b{} is {}", own.buffer, own.expected)
                    });
                    writeln!(f, "{:indent$}loop {number}: {trips} times{way}{condition}", "")?;
                    self.write(f, parts, indent + 2)?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Place::Argument(index) => write!(f, "argument {index}"),
            Place::Result(index) => write!(f, "result {index}"),
            Place::Temporary => write!(f, "temporary"),
            Place::Constant(index) => write!(f, "constant {index}"),
            Place::Alias { of, offset } => write!(f, "b{of} from {offset}"),
            Place::Row { of, of_loop } => write!(f, "row of b{of} by loop {of_loop}"),
        }
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let buffers: Vec<_> = self.buffers.iter().map(|b| format!("b{b}")).collect();
        let dims: Vec<_> = self.dims.iter().map(Size::to_string).collect();
        write!(f, "k{}({})", self.kernel, buffers.join(", "))?;
        write!(f, " dims [{}] tasks {} grain {}", dims.join(", "), self.tasks, self.grain)?;
        if self.scratch != Size::Const(0) { write!(f, " scratch {}", self.scratch) } else { Ok(()) }
    }
}
