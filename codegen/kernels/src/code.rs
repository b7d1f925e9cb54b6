//! Loop code: the body of a kernel in SSA form, with loops over scalars and vectors.
//!
//! Loop code is low-level and typed: it has no shapes and no broadcasting, and addresses are
//! explicit. Arithmetic wraps and rounds like that of processors. Where the op table is stricter
//! (NaN in `min`, division by zero), the builder of the code emits the extra instructions.

pub mod parse;
pub mod print;
pub mod verify;
mod words;

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

/// The type of a value: a scalar if `lanes` is 1, otherwise a vector. Bools are single bits in
/// registers and bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ty {
    pub dtype: DType,
    pub lanes: u32,
}

impl Ty {
    pub const INDEX: Ty = Ty { dtype: DType::I64, lanes: 1 };

    pub fn scalar(dtype: DType) -> Ty {
        Ty { dtype, lanes: 1 }
    }

    pub fn vector(dtype: DType, lanes: u32) -> Ty {
        Ty { dtype, lanes }
    }

    pub fn with(self, dtype: DType) -> Ty {
        Ty { dtype, ..self }
    }
}

/// A value; its type is in [`Code::types`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct V(pub u32);

/// Memory that a kernel reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mem(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// Buffer number `n` of the launch.
    Buffer(u32),
    /// Scratch memory of the thread, from this byte offset on.
    Scratch(V),
    /// A local array of this many elements. Exists only in code for C.
    Local(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub dtype: DType,
    pub place: Place,
    /// Whether the memory is not written while the kernel runs.
    pub constant: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    Neg,
    Abs,
    Sqrt,
    Floor,
    Ceil,
    /// Rounds to the nearest whole number, ties to even.
    RoundEven,
    /// Flips every bit.
    Not,
}

/// Machine arithmetic. The dtype determines whether it is signed. Division truncates. Undefined:
/// division by zero, division of the lowest integer by -1, and shifts by at least the width.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    /// The smaller operand, or the second operand if either is NaN or both are equal.
    Min,
    /// The larger operand, or the second operand if either is NaN or both are equal.
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

/// Functions that code for C calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Callee {
    /// A scalar primitive, as the op table defines it.
    Prim(Prim),
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// Map a float to a signed integer of the same width (sort key), in the same order, with -0
    /// before +0. NaN comes last for [`Callee::SortKeyNanLast`] and first for
    /// [`Callee::SortKeyNanFirst`].
    SortKeyNanLast,
    SortKeyNanFirst,
    /// Maps a sort key back to its float.
    FromSortKey,
}

/// Comparisons. If an operand is NaN, they are false, except `Ne`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Reductions of the lanes of a vector to a scalar. Floats are added pairwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    Add,
    Mul,
    Min,
    Max,
    And,
    Or,
}

/// A list of statements with parameters and yielded values.
#[derive(Clone, Debug, Default)]
pub struct Region {
    pub params: Vec<V>,
    pub body: Vec<Stmt>,
    pub yields: Vec<V>,
}

#[derive(Clone, Debug)]
pub struct Stmt {
    pub results: Vec<V>,
    pub inst: Inst,
}

#[derive(Clone, Debug)]
pub enum Inst {
    /// A constant. Each lane has these low bits.
    Const(u64),
    /// The lane numbers 0, 1, 2, …
    Iota,
    /// The value of the kernel's dim number `n`.
    Dim(u32),
    /// The first task to run, and one past the last.
    First,
    Last,
    Unary(Unary, V),
    Binary(Binary, V, V),
    /// `a * b + c`, rounded once.
    Fma(V, V, V),
    /// `a * b + c`, rounded once or twice, whichever is faster. Exists only in code for C.
    MulAdd(V, V, V),
    /// Calls a function that the C file defines. Exists only in code for C.
    Call(Callee, Box<[V]>),
    /// Calls function number `n` of [`Code::functions`]. Does not exist in code for C.
    CallPrivate(u32, Box<[V]>),
    /// `x * 2ⁿ`, rounded once, for `x` near 1 and a whole number `n` of the same type. If `n` is ∞,
    /// the result is ∞ for any `x`, even NaN. Operates on 64-byte vectors, and requires
    /// [`Extensions::scales`](crate::isa::Extensions).
    Scale(V, V),
    /// `x[2i]·y[2i] + x[2i+1]·y[2i+1] + sum[i]` for each lane `i`. `x` and `y` are bf16, `sum` is
    /// f32. Subnormal numbers count as zero. Requires
    /// [`Extensions::pairs`](crate::isa::Extensions).
    DotPairs(V, V, V),
    Compare(Cmp, V, V),
    Select(V, V, V),
    /// Converts to another dtype. Integers are truncated or sign-extended, and floats are rounded.
    /// Floats are truncated to integers; out of range the result is undefined.
    Convert(V),
    /// Reinterprets the bits as another dtype. If its width differs, the number of lanes changes.
    Bitcast(V),
    Splat(V),
    Extract(V, u32),
    /// Selects lanes by number from the concatenation of both operands.
    Shuffle(V, V, Box<[u32]>),
    Fold(Fold, V),
    /// Loads consecutive elements from `at` on. Lanes whose `mask` is false are zero and are not
    /// read.
    Load {
        mem: Mem,
        at: V,
        mask: Option<V>,
    },
    Store {
        mem: Mem,
        at: V,
        value: V,
        mask: Option<V>,
        streaming: bool,
    },
    /// Loads element `at` of each lane. Lanes whose `mask` is false are zero and are not read.
    Gather {
        mem: Mem,
        at: V,
        mask: Option<V>,
    },
    /// Stores to element `at` of each lane, in lane order. Lanes whose `mask` is false are not
    /// stored.
    Scatter {
        mem: Mem,
        at: V,
        value: V,
        mask: Option<V>,
    },
    Prefetch {
        mem: Mem,
        at: V,
        write: bool,
    },
    /// An operation on tile registers. Requires [`Extensions::amx`](crate::isa::Extensions).
    Tile(TileOp),
    /// A loop. The parameters of `region` are the counter and the carried values. It yields the
    /// next carried values.
    For {
        from: V,
        to: V,
        step: V,
        carried: Vec<V>,
        region: Region,
    },
    If {
        condition: V,
        yes: Region,
        no: Region,
    },
}

impl Inst {
    /// The values that the instruction reads, without those that its regions read.
    pub fn operands(&self) -> Vec<V> {
        let with = |values: &[V], mask: &Option<V>| [values, mask.as_slice()].concat();
        match self {
            Inst::Const(_) | Inst::Iota | Inst::Dim(_) | Inst::First | Inst::Last => vec![],
            Inst::Unary(_, x)
            | Inst::Convert(x)
            | Inst::Bitcast(x)
            | Inst::Splat(x)
            | Inst::Extract(x, _)
            | Inst::Fold(_, x) => vec![*x],
            Inst::Binary(_, x, y)
            | Inst::Compare(_, x, y)
            | Inst::Shuffle(x, y, _)
            | Inst::Scale(x, y) => vec![*x, *y],
            Inst::Fma(x, y, z)
            | Inst::MulAdd(x, y, z)
            | Inst::DotPairs(x, y, z)
            | Inst::Select(x, y, z) => vec![*x, *y, *z],
            Inst::Call(_, args) | Inst::CallPrivate(_, args) => args.to_vec(),
            Inst::Load { at, mask, .. } | Inst::Gather { at, mask, .. } => with(&[*at], mask),
            Inst::Store { at, value, mask, .. } | Inst::Scatter { at, value, mask, .. } => {
                with(&[*at, *value], mask)
            }
            Inst::Prefetch { at, .. } => vec![*at],
            Inst::Tile(TileOp::Load { at, stride, .. } | TileOp::Store { at, stride, .. }) => {
                vec![*at, *stride]
            }
            Inst::Tile(TileOp::Zero(_) | TileOp::Dot { .. }) => vec![],
            Inst::For { from, to, step, carried, .. } => {
                [&[*from, *to, *step], &carried[..]].concat()
            }
            Inst::If { condition, .. } => vec![*condition],
        }
    }

    /// The regions of the instruction.
    pub fn regions(&self) -> Vec<&Region> {
        match self {
            Inst::For { region, .. } => vec![region],
            Inst::If { yes, no, .. } => vec![yes, no],
            _ => vec![],
        }
    }
}

/// Operations on tile registers (AMX). There are eight numbered registers, each with [`TILE_ROWS`]
/// rows of [`TILE_BYTES`] bytes. Row `i` of a tile in memory begins at element `at + i·stride`.
#[derive(Clone, Copy, Debug)]
pub enum TileOp {
    /// Sets every bit to 0.
    Zero(u8),
    Load {
        tile: u8,
        mem: Mem,
        at: V,
        stride: V,
    },
    Store {
        tile: u8,
        mem: Mem,
        at: V,
        stride: V,
    },
    /// `sum[i][j] += Σₖ x[i][2k]·y[k][2j] + x[i][2k+1]·y[k][2j+1]`. Products of bf16 are summed in
    /// f32. Subnormal numbers count as zero.
    Dot {
        sum: u8,
        x: u8,
        y: u8,
    },
}

pub const TILE_ROWS: i64 = 16;
pub const TILE_BYTES: i64 = 64;

/// A kernel: statements over its memories, dims and tasks.
#[derive(Clone, Debug, Default)]
pub struct Code {
    pub types: Vec<Ty>,
    pub memories: Vec<Memory>,
    /// The number of buffers and dims of a launch.
    pub buffers: u32,
    pub dims: u32,
    /// Whether the kernel has streaming stores, which must be visible to other threads when it
    /// returns.
    pub streams: bool,
    /// Whether the kernel uses tile registers, which are configured when it begins and released
    /// when it returns.
    pub tiles: bool,
    pub body: Vec<Stmt>,
    /// Private functions of the kernel, for long code that runs rarely and is called from several
    /// places. They use only their parameters, and no memory.
    pub functions: Vec<Region>,
    /// Names for some values in printed C.
    pub hints: Vec<(V, &'static str)>,
    /// Names for some memories in printed C.
    pub names: Vec<(Mem, &'static str)>,
}

impl Code {
    pub fn ty(&self, v: V) -> Ty {
        self.types[v.0 as usize]
    }
}
