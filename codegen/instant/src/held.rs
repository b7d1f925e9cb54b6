//! How values lie in registers.

use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{Type, Value};
use mithril_ir::dtype::DType;
use smallvec::SmallVec;

use crate::{Result, unsupported};

/// The bytes of a piece.
pub const PIECE: u32 = 16;

/// A vector: pieces of 16 bytes, the last lanes of the one piece of a shorter vector being of no
/// meaning.
pub type Pieces = SmallVec<[Value; 4]>;

/// What a value is in registers.
#[derive(Clone, Debug)]
pub enum Held {
    /// It is not made yet.
    Nothing,
    /// These bits in every lane; made where they are used, which is nearer than a register for long.
    Constant(u64),
    Scalar(Value),
    Vector(Pieces),
    /// A scalar in every lane, and the piece of it.
    Splat(Value, Value),
    /// A scalar bool in every lane.
    Every(Value),
    /// A vector of bools: integers of this type, of which all bits are set or none.
    Mask(Type, Pieces),
}

/// The type of an element in a register; bools as scalars are bytes. The floats of 16 bits, with
/// which nothing is calculated, are their bits.
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

/// The piece whose elements are of this type.
pub fn piece(lane: Type) -> Type {
    lane.by(PIECE / lane.bytes()).expect("scalars have at most eight bytes")
}

/// How many pieces so many lanes of a type are.
pub fn count(lane: Type, lanes: u32) -> usize {
    (lanes * lane.bytes()).div_ceil(PIECE) as usize
}
