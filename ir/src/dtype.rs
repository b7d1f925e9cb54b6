//! Element types.

use std::fmt;
use std::str::FromStr;

/// The type of one element. `I4` to `F8E5M2` are only for storage: no operation computes in them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    I4,
    U4,
    F8E4M3,
    F8E5M2,
}

use DType::*;

impl DType {
    /// Every dtype; those that operations compute in come first.
    pub const ALL: [DType; 17] =
        [F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool, I4, U4, F8E4M3, F8E5M2];

    /// The name in text: `f32`, `i64`, `bool`.
    pub fn name(self) -> &'static str {
        match self {
            F64 => "f64",
            F32 => "f32",
            F16 => "f16",
            BF16 => "bf16",
            I64 => "i64",
            I32 => "i32",
            I16 => "i16",
            I8 => "i8",
            U64 => "u64",
            U32 => "u32",
            U16 => "u16",
            U8 => "u8",
            Bool => "bool",
            I4 => "i4",
            U4 => "u4",
            F8E4M3 => "f8e4m3",
            F8E5M2 => "f8e5m2",
        }
    }

    /// The name in NumPy, torch and JAX: `float32`, `int64`, `bool`.
    pub fn array_name(self) -> &'static str {
        match self {
            F64 => "float64",
            F32 => "float32",
            F16 => "float16",
            BF16 => "bfloat16",
            I64 => "int64",
            I32 => "int32",
            I16 => "int16",
            I8 => "int8",
            U64 => "uint64",
            U32 => "uint32",
            U16 => "uint16",
            U8 => "uint8",
            Bool => "bool",
            I4 => "int4",
            U4 => "uint4",
            F8E4M3 => "float8_e4m3fn",
            F8E5M2 => "float8_e5m2",
        }
    }

    /// Width of one element in bits.
    pub fn bits(self) -> u32 {
        match self {
            F64 | I64 | U64 => 64,
            F32 | I32 | U32 => 32,
            F16 | BF16 | I16 | U16 => 16,
            I8 | U8 | Bool | F8E4M3 | F8E5M2 => 8,
            I4 | U4 => 4,
        }
    }

    /// Bytes of one element in memory (4-bit elements take one byte each).
    pub fn bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    /// Whether both are floats, both integers, or both bools.
    pub fn is_like(self, other: DType) -> bool {
        (self.is_float(), self.is_int()) == (other.is_float(), other.is_int())
    }

    /// A hint for an operand of this dtype where the operation accepts others. A cast is only
    /// suggested where numbers keep their meaning.
    pub fn conversion(self, accepts: &dyn Fn(DType) -> bool) -> &'static str {
        if self == DType::Bool {
            "cast a bool to get 0 and 1, or choose between values with `Where` (`select`)"
        } else if accepts(DType::Bool) && !accepts(DType::I64) {
            "compare to get a bool, such as `x != 0` for ones and zeros"
        } else if self.is_float() && accepts(DType::I64) && !accepts(DType::F32) {
            "cast it, and round it first if needed: a cast truncates"
        } else {
            "make the dtype explicit with `cast`"
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, F64 | F32 | F16 | BF16 | F8E4M3 | F8E5M2)
    }

    pub fn is_signed_int(self) -> bool {
        matches!(self, I64 | I32 | I16 | I8 | I4)
    }

    pub fn is_unsigned_int(self) -> bool {
        matches!(self, U64 | U32 | U16 | U8 | U4)
    }

    pub fn is_int(self) -> bool {
        self.is_signed_int() || self.is_unsigned_int()
    }

    /// f32 for f16 and bf16, where intermediate results would overflow or be rounded; other dtypes
    /// stay.
    pub fn widened(self) -> DType {
        if matches!(self, F16 | BF16) { F32 } else { self }
    }

    /// Whether operations can only move and cast it.
    pub fn is_storage_only(self) -> bool {
        matches!(self, I4 | U4 | F8E4M3 | F8E5M2)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();

    fn from_str(s: &str) -> Result<DType, ()> {
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or(())
    }
}
