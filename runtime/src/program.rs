//! A compiled program as data: buffers, and the launches that fill them.

use crate::kernel::COPY_BYTES;
use crate::size::Size;
use std::fmt;
use std::ops::Range;

/// What to launch on what, in order. [`Executable::new`] checks it.
///
/// [`Executable::new`]: crate::execute::Executable::new
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// How many symbols the sizes may use.
    pub symbols: usize,
    /// How many pointers a call is given to read from.
    pub args: usize,
    /// How many pointers a call is given to write to; each is the place of exactly one buffer.
    pub results: usize,
    pub buffers: Vec<Buffer>,
    pub launches: Vec<Launch>,
    /// Whether temporaries share no bytes, whenever they live: to look at them.
    pub apart: bool,
    /// Launches that run more than once; a loop stands before those inside it.
    pub loops: Vec<Loop>,
}

/// Memory that launches read and write.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub bytes: Size,
    pub place: Place,
}

/// Where a buffer lies. All but the caller's own pointers and aliases are 64-byte aligned.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// At the call's argument of this index: read only.
    Argument(usize),
    /// At the call's result of this index.
    Result(usize),
    /// In the arena of the call, shared with buffers that live at other times.
    Temporary,
    /// In the constant of this index, which the executable holds: read only.
    Constant(usize),
    /// A part of a buffer with a smaller index, from `offset` bytes on.
    Alias { of: usize, offset: Size },
    /// A row of a buffer with a smaller index, for launches inside the loop of this index: the one
    /// that an iteration is about. Rows have the bytes of this buffer.
    Row { of: usize, of_loop: usize },
}

/// One kernel on some buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Its index in the executable's table of kernels.
    pub kernel: usize,
    pub buffers: Vec<usize>,
    pub dims: Vec<Size>,
    /// How many independent units of work there are.
    pub tasks: Size,
    /// The fewest tasks worth a thread of their own.
    pub grain: Size,
    /// The bytes of memory each thread needs for itself.
    pub scratch: Size,
}

/// Launches that run one after the other, as often as `trips` says: for the first row first, or, in
/// reverse, for the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    pub launches: Range<usize>,
    pub trips: Size,
    pub reverse: bool,
}

impl Program {
    /// The loops that a launch is inside of, the outermost first.
    pub fn loops_around(&self, launch: usize) -> impl Iterator<Item = &Loop> {
        self.loops.iter().filter(move |own| own.launches.contains(&launch))
    }
}

impl Launch {
    /// Copies `bytes` bytes from one buffer to another; entry `kernel` of the table of kernels is
    /// [`copy`](crate::kernel::copy).
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
        for (at, launch) in self.launches.iter().enumerate() {
            let depth = self.loops_around(at).count();
            for (number, own) in self.loops.iter().enumerate() {
                if own.launches.start == at && !own.launches.is_empty() {
                    let outside = self.loops[..number].iter();
                    let outside = outside.filter(|other| other.launches.contains(&at)).count();
                    let way = if own.reverse { ", in reverse" } else { "" };
                    let indent = 2 + 2 * outside;
                    writeln!(f, "{:indent$}loop {number}: {} times{way}", "", own.trips)?;
                }
            }
            writeln!(f, "{:1$}{launch}", "", 2 + 2 * depth)?;
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
