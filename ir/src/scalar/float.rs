//! The primitives on floats. All are computed in f64, and the caller rounds. For the five basic
//! operations f64 is wide enough that the second rounding is harmless in f32 and below; the
//! functions are within one ulp of f64 (sinh and tanh: two). They are from libm, not the system's
//! library, so that results do not depend on the machine.

use super::Prim;
use super::round::round;
use crate::dtype::DType;

/// A comparison, or a test of `x`.
pub fn test(prim: Prim, x: f64, y: f64) -> bool {
    match prim {
        Prim::IsNan => x.is_nan(),
        Prim::IsInf => x.is_infinite(),
        Prim::Eq => x == y,
        Prim::Ne => x != y,
        Prim::Lt => x < y,
        Prim::Le => x <= y,
        Prim::Gt => x > y,
        Prim::Ge => x >= y,
        _ => false,
    }
}

/// The result before rounding; unary primitives ignore `y`.
pub fn apply(prim: Prim, dtype: DType, x: f64, y: f64) -> f64 {
    match prim {
        Prim::Neg => -x,
        Prim::Abs => x.abs(),
        Prim::Sign if x == 0.0 || x.is_nan() => x,
        Prim::Sign => 1f64.copysign(x),
        Prim::Floor => x.floor(),
        Prim::Ceil => x.ceil(),
        Prim::Round => x.round_ties_even(),
        Prim::Exp => libm::exp(x),
        Prim::Expm1 => libm::expm1(x),
        Prim::Log => libm::log(x),
        Prim::Log1p => libm::log1p(x),
        Prim::Sqrt => x.sqrt(),
        Prim::Sin => libm::sin(x),
        Prim::Cos => libm::cos(x),
        Prim::Tan => libm::tan(x),
        Prim::Asin => libm::asin(x),
        Prim::Acos => libm::acos(x),
        Prim::Atan => libm::atan(x),
        Prim::Sinh => libm::sinh(x),
        Prim::Cosh => libm::cosh(x),
        Prim::Tanh => libm::tanh(x),
        Prim::Erf => libm::erf(x),
        Prim::Add => x + y,
        Prim::Sub => x - y,
        Prim::Mul => x * y,
        Prim::Div => x / y,
        Prim::FloorDiv => floor_div_mod(dtype, x, y).0,
        Prim::Mod => floor_div_mod(dtype, x, y).1,
        Prim::Pow => libm::pow(x, y),
        Prim::Atan2 => libm::atan2(x, y),
        Prim::Min => min(x, y),
        Prim::Max => -min(-x, -y),
        // Only defined on integers, or handled by `test`, select and cast before this.
        Prim::Not | Prim::And | Prim::Or | Prim::Xor | Prim::ShiftLeft | Prim::ShiftRight => {
            f64::NAN
        }
        Prim::IsNan | Prim::IsInf | Prim::Select | Prim::Cast => f64::NAN,
        Prim::Eq | Prim::Ne | Prim::Lt | Prim::Le | Prim::Gt | Prim::Ge => f64::NAN,
    }
}

fn min(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    let x_first = x < y || (x == y && x.is_sign_negative());
    if x_first { x } else { y }
}

/// The floored quotient and the remainder. Each step rounds to the dtype (to f32 for narrower
/// ones), as frameworks do. The quotient is computed from the exact remainder, so `x // y` is never
/// off by one.
fn floor_div_mod(dtype: DType, x: f64, y: f64) -> (f64, f64) {
    if y == 0.0 {
        return (x / y, f64::NAN);
    }
    let step = |v: f64| {
        if dtype == DType::F64 { v } else { round(DType::F32, v) }
    };
    let mut rest = x % y;
    let mut quotient = step(step(x - rest) / y);
    if rest == 0.0 {
        rest = 0f64.copysign(y);
    } else if (rest < 0.0) != (y < 0.0) {
        rest = step(rest + y);
        quotient = step(quotient - 1.0);
    }
    if quotient == 0.0 {
        return (0f64.copysign(x / y), rest);
    }
    // The rounded division may be just below or above the exact integer.
    let down = quotient.floor();
    let up = quotient - down > 0.5;
    (if up { down + 1.0 } else { down }, rest)
}
