//! Loop code: what a kernel does, as loops over scalars and vectors in SSA form.
//!
//! It is machine-like and typed: no broadcasting, no shapes, explicit addresses. Numbers wrap and
//! round as the machine's do; what the op table says beyond that (NaN in `min`, division by zero)
//! is spelled out by whoever builds it.

pub mod parse;
pub mod print;
pub mod verify;
mod words;

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

/// The type of a value: a scalar where `lanes` is 1, else a vector. Bools are single bits in
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct V(pub u32);

/// Memory that a kernel reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mem(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// Buffer number `n` of the launch.
    Buffer(u32),
    /// Scratch memory of the thread, from this byte on.
    Scratch(V),
    /// An array of so many elements that is the kernel's own; in portable code alone.
    Local(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub dtype: DType,
    pub place: Place,
    /// Whether nothing writes it while the kernel runs.
    pub constant: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unary {
    Neg,
    Abs,
    Sqrt,
    Floor,
    Ceil,
    /// To the nearest whole number, ties to even.
    RoundEven,
    /// Every bit flipped.
    Not,
}

/// Arithmetic of the machine, signed or not as the dtype is. Division truncates; by zero, and of
/// the least by -1, it is undefined, as are shifts by the width or more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    /// The second operand where it is NaN or where the two are equal; else the lesser.
    Min,
    /// The second operand where it is NaN or where the two are equal; else the greater.
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

/// What portable code calls as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Callee {
    /// A scalar primitive with its meaning of the op table.
    Prim(Prim),
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// A float as a signed integer of as many bits, in the same order, -0 before +0. NaN is
    /// the last one for [`Callee::RankNanLast`], the first one for [`Callee::RankNanFirst`].
    RankNanLast,
    RankNanFirst,
    /// The float of such an integer.
    OfRank,
}

/// Comparisons are false where an operand is NaN, but `Ne`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// How the lanes of a vector become one scalar. Floats are added pairwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    Add,
    Mul,
    Min,
    Max,
    And,
    Or,
}

/// Statements with the values they are given and give back.
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
    /// Every lane has these bits (the low ones).
    Const(u64),
    /// 0, 1, 2, … by lane.
    Iota,
    /// The value of the kernel's dim number `n`.
    Dim(u32),
    /// The first of the tasks to do, and the one behind the last.
    First,
    Last,
    Unary(Unary, V),
    Binary(Binary, V, V),
    /// `a * b + c`, rounded once.
    Fma(V, V, V),
    /// `a * b + c`, rounded once or twice, whichever is faster; in portable code alone.
    MulAdd(V, V, V),
    /// A function of the result's dtype; in portable code alone, whose file has it.
    Call(Callee, Box<[V]>),
    /// Calls function number `n` of [`Code::functions`]; not in portable code.
    CallPrivate(u32, Box<[V]>),
    /// `x * 2ⁿ` for an `x` near 1 and a whole number `n` of its type, rounded once; ∞ for any `x`, NaN
    /// too, where `n` is. For vectors of 64 bytes, on processors that have registers of as many.
    Scale(V, V),
    /// `x[2i]·y[2i] + x[2i+1]·y[2i+1] + sum[i]` for lane `i` of an f32 sum and lanes of bf16;
    /// subnormal numbers count as zero. Where [`Isa::pairs`](crate::contract::Isa) says so.
    DotPairs(V, V, V),
    Compare(Cmp, V, V),
    Select(V, V, V),
    /// To another dtype: integers by their low bits or extended as signed or not; floats rounded;
    /// between them toward zero, undefined out of range.
    Convert(V),
    /// The same bits as another dtype; of another width, in more lanes or fewer.
    Bitcast(V),
    Splat(V),
    Extract(V, u32),
    /// Lanes of both operands, one after the other, by number.
    Shuffle(V, V, Box<[u32]>),
    Fold(Fold, V),
    /// From element `at` on; lanes where `mask` is false are zero and not read.
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
    /// Element `at` of each lane; lanes where `mask` is false are zero and not read.
    Gather {
        mem: Mem,
        at: V,
        mask: Option<V>,
    },
    /// Element `at` of each lane, in the order of the lanes; none where `mask` is false.
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
    /// What it does to tiles; where [`Isa::amx`](crate::contract::Isa) says so.
    Tile(TileOp),
    /// `region` is given the counter and what is carried, and gives what is carried next.
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
    /// The values that it reads, but inside its regions.
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

    /// What it runs.
    pub fn regions(&self) -> Vec<&Region> {
        match self {
            Inst::For { region, .. } => vec![region],
            Inst::If { yes, no, .. } => vec![yes, no],
            _ => vec![],
        }
    }
}

/// What is done to the tiles of a processor (AMX). There are eight, by number, each of
/// [`TILE_ROWS`] rows of [`TILE_BYTES`] bytes. Row `i` of one in memory begins at element
/// `at + i·stride`.
#[derive(Clone, Copy, Debug)]
pub enum TileOp {
    /// Every bit becomes 0.
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
    /// `sum[i][j] += Σₖ x[i][2k]·y[k][2j] + x[i][2k+1]·y[k][2j+1]`, of bf16 and in f32; subnormal
    /// numbers count as zero.
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
    /// How many buffers and dims a launch gives.
    pub buffers: u32,
    pub dims: u32,
    /// Whether it has streaming stores, which are to be seen by others when it returns.
    pub streams: bool,
    /// Whether it has tiles, which are given their sizes when it begins and back when it returns.
    pub tiles: bool,
    pub body: Vec<Stmt>,
    /// Functions of the kernel's own: what is long and runs rarely, once for all places that need it.
    /// They see no value but their parameters, and no memory.
    pub functions: Vec<Region>,
    /// What some values are, for people to read.
    pub hints: Vec<(V, &'static str)>,
    /// The names of some memories.
    pub names: Vec<(Mem, &'static str)>,
}

impl Code {
    pub fn ty(&self, v: V) -> Ty {
        self.types[v.0 as usize]
    }
}
