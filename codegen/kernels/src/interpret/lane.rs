//! Operations on a single lane, which is represented by its bits.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;

use super::{Run, violation};
use crate::code::{Binary, Cmp, Unary};

/// A number of any dtype: its low bits, and whether it is defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    pub bits: u64,
    pub defined: bool,
}

impl Lane {
    pub fn of(bits: u64) -> Lane {
        Lane { bits, defined: true }
    }

    pub fn undefined() -> Lane {
        Lane { bits: 0, defined: false }
    }

    /// Makes the result undefined if one of the other operands is undefined.
    pub fn defined_with(self, others: &[Lane]) -> Lane {
        Lane { defined: self.defined && others.iter().all(|lane| lane.defined), ..self }
    }
}

/// Decodes bits as an integer or bool.
pub fn integer(dtype: DType, bits: u64) -> i128 {
    if dtype == DType::Bool {
        return i128::from(bits & 1);
    }
    let unused = 64 - dtype.bits();
    match dtype.is_signed_int() {
        true => i128::from(((bits << unused) as i64) >> unused),
        false => i128::from(bits << unused >> unused),
    }
}

/// Encodes an integer in the low bits.
pub fn low_bits(dtype: DType, value: i128) -> u64 {
    if dtype == DType::Bool {
        return value as u64 & 1;
    }
    value as u64 & (u64::MAX >> (64 - dtype.bits()))
}

/// Decodes bits as a float.
pub fn float(dtype: DType, bits: u64) -> f64 {
    round::decode(dtype, bits)
}

/// Computes an operation on floats in the precision of the dtype.
fn floats(dtype: DType, bits: &[u64], f32s: fn(&[f32]) -> f32, f64s: fn(&[f64]) -> f64) -> u64 {
    match dtype {
        DType::F64 => {
            let own: Vec<f64> = bits.iter().map(|&bits| f64::from_bits(bits)).collect();
            f64s(&own).to_bits()
        }
        _ => {
            let own: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits as u32)).collect();
            u64::from(f32s(&own).to_bits())
        }
    }
}

macro_rules! in_both {
    ($dtype:expr, $bits:expr, |$x:ident| $body:expr) => {
        floats($dtype, $bits, |$x| $body, |$x| $body)
    };
}

pub fn unary(op: Unary, dtype: DType, x: Lane) -> Lane {
    let sign = 1 << (dtype.bits() - 1);
    let float = dtype.is_float();
    let bits = match op {
        Unary::Neg if float => x.bits ^ sign,
        Unary::Abs if float => x.bits & !sign,
        Unary::Neg => low_bits(dtype, -integer(dtype, x.bits)),
        Unary::Abs => low_bits(dtype, integer(dtype, x.bits).abs()),
        Unary::Not => low_bits(dtype, !integer(dtype, x.bits)),
        Unary::Sqrt => in_both!(dtype, &[x.bits], |x| x[0].sqrt()),
        Unary::Floor => in_both!(dtype, &[x.bits], |x| x[0].floor()),
        Unary::Ceil => in_both!(dtype, &[x.bits], |x| x[0].ceil()),
        Unary::RoundEven => in_both!(dtype, &[x.bits], |x| x[0].round_ties_even()),
    };
    Lane::of(bits).defined_with(&[x])
}

pub fn fma(dtype: DType, [x, y, z]: [Lane; 3]) -> Lane {
    let bits = [x.bits, y.bits, z.bits];
    Lane::of(in_both!(dtype, &bits, |x| x[0].mul_add(x[1], x[2]))).defined_with(&[x, y, z])
}

/// `x * 2ⁿ`, or ∞ if `n` is ∞.
pub fn scale(dtype: DType, x: Lane, n: Lane) -> Lane {
    let (number, power) = (float(dtype, x.bits), float(dtype, n.bits));
    let scaled = match power {
        f64::INFINITY => f64::INFINITY,
        power => {
            // Scales in two steps, so that neither factor overflows by itself.
            let half = (power / 2.0).floor();
            number * half.exp2() * (power - half).exp2()
        }
    };
    Lane::of(round::encode(dtype, round::round(dtype, scaled))).defined_with(&[x, n])
}

pub fn binary(op: Binary, dtype: DType, x: Lane, y: Lane) -> Run<Lane> {
    let bits = match dtype.is_float() {
        true => float_binary(op, dtype, [x.bits, y.bits])?,
        false => match integer_binary(op, dtype, x, y)? {
            Some(bits) => bits,
            None => return Ok(Lane::undefined()),
        },
    };
    // The result is also defined if one operand determines it: `and` with 0, `or` with all ones.
    let all = match op {
        Binary::And => Some(0),
        Binary::Or => Some(low_bits(dtype, -1)),
        _ => None,
    };
    let determines = |lane: &Lane| lane.defined && all == Some(lane.bits);
    if [x, y].iter().any(determines) {
        return Ok(Lane::of(bits));
    }
    Ok(Lane::of(bits).defined_with(&[x, y]))
}

fn float_binary(op: Binary, dtype: DType, bits: [u64; 2]) -> Run<u64> {
    let both = &bits;
    Ok(match op {
        Binary::Add => in_both!(dtype, both, |x| x[0] + x[1]),
        Binary::Sub => in_both!(dtype, both, |x| x[0] - x[1]),
        Binary::Mul => in_both!(dtype, both, |x| x[0] * x[1]),
        Binary::Div => in_both!(dtype, both, |x| x[0] / x[1]),
        Binary::Rem => in_both!(dtype, both, |x| x[0] % x[1]),
        Binary::Min => in_both!(dtype, both, |x| if x[0] < x[1] { x[0] } else { x[1] }),
        Binary::Max => in_both!(dtype, both, |x| if x[0] > x[1] { x[0] } else { x[1] }),
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
            return violation("a bit operation on floats");
        }
    })
}

/// Returns `None` if the result is undefined.
fn integer_binary(op: Binary, dtype: DType, x: Lane, y: Lane) -> Run<Option<u64>> {
    let (a, b) = (integer(dtype, x.bits), integer(dtype, y.bits));
    let divides = matches!(op, Binary::Div | Binary::Rem);
    if divides && (!y.defined || b == 0) {
        return violation("a division by zero or by an undefined value");
    }
    let lowest = if dtype.is_signed_int() { round::int_range(dtype).0 } else { i128::MIN };
    if divides && b == -1 && (a == lowest || !x.defined) {
        return violation("a division of the lowest integer by -1");
    }
    let shifts = matches!(op, Binary::Shl | Binary::Shr);
    if shifts && !(0..i128::from(dtype.bits())).contains(&b) {
        return Ok(None);
    }
    let value = match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a / b,
        Binary::Rem => a % b,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a << b,
        Binary::Shr => a >> b,
    };
    Ok(Some(low_bits(dtype, value)))
}

pub fn compare(op: Cmp, dtype: DType, x: Lane, y: Lane) -> Lane {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match dtype.is_float() {
        true => float(dtype, x.bits).partial_cmp(&float(dtype, y.bits)),
        false => Some(integer(dtype, x.bits).cmp(&integer(dtype, y.bits))),
    };
    let holds = match op {
        Cmp::Eq => order == Some(Equal),
        Cmp::Ne => order != Some(Equal),
        Cmp::Lt => order == Some(Less),
        Cmp::Le => matches!(order, Some(Less | Equal)),
        Cmp::Gt => order == Some(Greater),
        Cmp::Ge => matches!(order, Some(Greater | Equal)),
    };
    Lane::of(u64::from(holds)).defined_with(&[x, y])
}

/// Converts to another dtype. The result is undefined for floats outside the integer range.
pub fn convert(from: DType, to: DType, x: Lane) -> Lane {
    let bits = match (from.is_float(), to.is_float()) {
        (true, true) => round::encode(to, round::round(to, float(from, x.bits))),
        (true, false) => {
            let whole = float(from, x.bits).trunc();
            let (lowest, greatest) = round::int_range(to);
            if !(whole >= lowest as f64 && whole <= greatest as f64) {
                return Lane::undefined();
            }
            low_bits(to, whole as i128)
        }
        (false, true) => match to {
            DType::F32 => u64::from((integer(from, x.bits) as f32).to_bits()),
            _ => round::encode(to, round::from_int(to, integer(from, x.bits))),
        },
        (false, false) if to == DType::Bool => u64::from(integer(from, x.bits) != 0),
        (false, false) => low_bits(to, integer(from, x.bits)),
    };
    Lane::of(bits).defined_with(&[x])
}
