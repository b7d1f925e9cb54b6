//! How values are held in registers.

use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{Type, Value};
use mithril_ir::dtype::DType;
use smallvec::SmallVec;

use crate::{Result, unsupported};

/// Bytes of a piece.
pub const PIECE: u32 = 16;

/// A vector as pieces of 16 bytes. A shorter vector is one piece, whose last lanes are unused.
pub type Pieces = SmallVec<[Value; 4]>;

/// How a value is held in registers.
#[derive(Clone, Debug)]
pub enum Held {
    /// Not computed yet.
    Nothing,
    /// These bits in every lane. A constant is made at each use, instead of occupying a register
    /// for long.
    Constant(u64),
    Scalar(Value),
    Vector(Pieces),
    /// A scalar in every lane, and the piece with that scalar in its lanes.
    Splat(Value, Value),
    /// A scalar bool in every lane.
    Every(Value),
    /// A vector of bools, as integers of this type whose bits are all set or all clear.
    Mask(Type, Pieces),
}

/// The type of an element in a register. Scalar bools are bytes. 16-bit floats are held as their
/// bits, since nothing is calculated with them.
pub fn lane(dtype: DType) -> Result<Type> {
    Ok(match dtype {
        DType::F64 => F64,
        DType::F32 => F32,
        DType::I64 | DType::U64 => I64,
        DType::I32 | DType::U32 => I32,
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => I16,
        DType::I8 | DType::U8 | DType::Bool => I8,
        other => return unsupported(format!("registers of {}", other.name())),
    })
}

/// The type of a piece whose elements are of this type.
pub fn piece(lane: Type) -> Type {
    lane.by(PIECE / lane.bytes()).expect("scalars have at most eight bytes")
}

/// The number of pieces that hold this many lanes of a type.
pub fn count(lane: Type, lanes: u32) -> usize {
    (lanes * lane.bytes()).div_ceil(PIECE) as usize
}
