//! How values of loop code are represented in registers.

use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{Type, Value};
use mithril_ir::dtype::DType;
use smallvec::SmallVec;

use crate::{Result, unsupported};

/// Bytes of a piece.
pub const PIECE: u32 = 16;

/// A vector as pieces of 16 bytes. A shorter vector is one piece, whose last lanes are unused.
pub type Pieces = SmallVec<[Value; 4]>;

/// How a value is represented in registers.
#[derive(Clone, Debug)]
pub enum Representation {
    /// Not computed yet.
    Undefined,
    /// A constant with these bits in every lane. It is materialized in each block that uses it, so
    /// that it does not occupy a register in between.
    Constant(u64),
    Scalar(Value),
    Vector(Pieces),
    /// A splat of a scalar: the scalar, and a piece with the scalar in all its lanes.
    Splat(Value, Value),
    /// A splat of a scalar bool.
    SplatBool(Value),
    /// A vector of bools, as integers of this type whose bits are all set or all clear.
    Mask(Type, Pieces),
}

/// The type of an element in a register. Scalar bools are bytes. 16-bit floats are represented by
/// their bits, because no arithmetic is done in them.
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
