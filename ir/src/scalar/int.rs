//! The primitives on integers and bool in stored form; the caller wraps results to the dtype.

use super::Prim;
use super::float;
use super::round::{saturate, wide};
use crate::dtype::DType;

/// Compares two values; integers are never NaN or infinite.
pub fn test(prim: Prim, x: i128, y: i128) -> bool {
    match prim {
        Prim::Eq => x == y,
        Prim::Ne => x != y,
        Prim::Lt => x < y,
        Prim::Le => x <= y,
        Prim::Gt => x > y,
        Prim::Ge => x >= y,
        _ => false,
    }
}

/// The result before wrapping; unary primitives ignore `y`.
pub fn apply(prim: Prim, dtype: DType, x: i64, y: i64) -> i64 {
    let unsigned = dtype == DType::U64;
    match prim {
        Prim::Neg => x.wrapping_neg(),
        Prim::Abs if unsigned => x,
        Prim::Abs => x.wrapping_abs(),
        Prim::Sign if unsigned => (x != 0) as i64,
        Prim::Sign => x.signum(),
        Prim::Floor | Prim::Ceil | Prim::Round => x,
        Prim::Not if dtype == DType::Bool => (x == 0) as i64,
        Prim::Not => !x,
        Prim::Add => x.wrapping_add(y),
        Prim::Sub => x.wrapping_sub(y),
        Prim::Mul => x.wrapping_mul(y),
        Prim::Div => divide(unsigned, x, y).0,
        Prim::FloorDiv => floor_div_mod(unsigned, x, y).0,
        Prim::Mod => floor_div_mod(unsigned, x, y).1,
        Prim::Pow => pow(unsigned, x, y),
        Prim::Min if wide(dtype, x) < wide(dtype, y) => x,
        Prim::Min => y,
        Prim::Max if wide(dtype, x) > wide(dtype, y) => x,
        Prim::Max => y,
        Prim::And => x & y,
        Prim::Or => x | y,
        Prim::Xor => x ^ y,
        Prim::ShiftLeft => shift(dtype, y).map_or(0, |n| x << n),
        Prim::ShiftRight if unsigned => shift(dtype, y).map_or(0, |n| ((x as u64) >> n) as i64),
        // Narrower values are stored sign- or zero-extended, so shifting in bit 63 is right.
        Prim::ShiftRight => x >> shift(dtype, y).unwrap_or(63),
        Prim::Exp | Prim::Expm1 | Prim::Log | Prim::Log1p | Prim::Sqrt => {
            by_float(prim, dtype, x, y)
        }
        Prim::Sin | Prim::Cos | Prim::Tan | Prim::Asin | Prim::Acos => by_float(prim, dtype, x, y),
        Prim::Atan | Prim::Sinh | Prim::Cosh | Prim::Tanh => by_float(prim, dtype, x, y),
        Prim::Erf | Prim::Atan2 => by_float(prim, dtype, x, y),
        // Primitives with these signatures are handled before this.
        Prim::IsNan | Prim::IsInf | Prim::Select | Prim::Cast => 0,
        Prim::Eq | Prim::Ne | Prim::Lt | Prim::Le | Prim::Gt | Prim::Ge => 0,
    }
}

fn by_float(prim: Prim, dtype: DType, x: i64, y: i64) -> i64 {
    let [x, y] = [x, y].map(|v| wide(dtype, v) as f64);
    saturate(dtype, float::apply(prim, DType::F64, x, y))
}

/// The quotient toward zero and the remainder; division by zero gives -1 and `x`, as in XLA and
/// RISC-V.
fn divide(unsigned: bool, x: i64, y: i64) -> (i64, i64) {
    if y == 0 {
        (-1, x)
    } else if unsigned {
        ((x as u64 / y as u64) as i64, (x as u64 % y as u64) as i64)
    } else {
        (x.wrapping_div(y), x.wrapping_rem(y))
    }
}

fn floor_div_mod(unsigned: bool, x: i64, y: i64) -> (i64, i64) {
    let (quotient, rest) = divide(unsigned, x, y);
    let below = !unsigned && y != 0 && rest != 0 && (rest < 0) != (y < 0);
    if below { (quotient - 1, rest + y) } else { (quotient, rest) }
}

fn pow(unsigned: bool, x: i64, y: i64) -> i64 {
    if y < 0 && !unsigned {
        return match x {
            1 => 1,
            -1 if y % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut power) = (x, y as u64, 1i64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power
}

/// The shift amount, unless it shifts everything out. Bool is one bit wide.
fn shift(dtype: DType, y: i64) -> Option<u32> {
    let width = if dtype == DType::Bool { 1 } else { dtype.bits() };
    u32::try_from(y).ok().filter(|&n| n < width)
}
