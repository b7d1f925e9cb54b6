//! Emits scalar primitives as loop code, for scalars and vectors. All special cases follow
//! [`mithril_ir::scalar`].
//!
//! Floats narrower than 32 bits are held as f32 in registers ([`register_dtype`]): a primitive of
//! dtype f16 or bf16 takes and returns f32 values. Only a cast and [`to_memory`] round to 16 bits.
//! Results in f32 are within 2 units in the last place, in f64 within 4; no library is called.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::Prim;

use crate::builder::Builder;
use crate::code::{Callee, Code, Ty, Unary, V};
pub use expression::expression;
pub use memory::{from_memory, register_dtype, stored, to_memory};
use value::{Val, build};

mod arithmetic;
mod bits;
mod cast;
mod erf;
mod exp;
mod expression;
mod float8;
mod hyperbolic;
mod integer;
mod inverse;
mod log;
mod memory;
mod poly;
mod pow;
mod sort_key;
mod trig;
mod value;

/// Emits `prim` on operands of dtype `dtype`, which for `select` is the dtype of the last two
/// operands. The result is in the register dtype of the primitive's result. `cast_to` is the
/// result's dtype for a cast.
///
/// Panics if there are fewer operands than the arity.
pub fn apply(b: &mut Builder, prim: Prim, dtype: DType, args: &[V], cast_to: Option<DType>) -> V {
    let x = args[0];
    match (prim, args) {
        (Prim::Select, &[x, y, z, ..]) => b.select(x, y, z),
        (Prim::Cast, _) => build(b, [x], |[x]| cast::cast(x, dtype, cast_to.unwrap_or(dtype))),
        (_, &[x, y, ..]) => build(b, [x, y], |[x, y]| binary(prim, dtype, x, y)),
        _ => build(b, [x], |[x]| unary(prim, dtype, x)),
    }
}

/// 2ˣ for x ≤ 0. The result is exactly 0 at -inf, and wherever 2ˣ is not a normal number.
pub fn exp2_nonpositive(b: &mut Builder, x: V) -> V {
    build(b, [x], |[x]| exp::exp2_nonpositive(x))
}

/// `cos(2π k / n)` and `sin(2π k / n)` for whole numbers `0 ≤ k ≤ n` in f64.
pub fn turn(b: &mut Builder, k: V, n: V) -> [V; 2] {
    let cos = build(b, [k, n], |[k, n]| trig::cos_of_turn(k, n));
    [cos, build(b, [k, n], |[k, n]| trig::sin_of_turn(k, n))]
}

/// Maps a float to an integer of the same order, for compilers that vectorize. NaN comes last, or
/// first if `first` is set.
pub fn sort_key(b: &mut Builder, x: V, first: bool) -> V {
    build(b, [x], |[x]| sort_key::sort_key(x, first))
}

/// Maps a sort key back to its float: the inverse of [`sort_key()`].
pub fn from_sort_key(b: &mut Builder, key: V) -> V {
    build(b, [key], |[key]| sort_key::from_sort_key(key))
}

/// The formula of a function: scalar code with its parameters and result.
pub struct Definition {
    pub code: Code,
    pub parameters: Vec<V>,
    pub result: V,
}

/// Whether code for C computes a primitive by a formula, because the C library lacks it or does not
/// vectorize it.
pub fn has_formula(prim: Prim, dtype: DType) -> bool {
    use Prim::*;
    let by_formula = matches!(
        prim,
        Min | Max
            | Exp
            | Expm1
            | Log
            | Log1p
            | Sinh
            | Cosh
            | Tanh
            | Erf
            | Asin
            | Acos
            | Atan
            | Atan2
    );
    by_formula && dtype.is_float()
}

/// Returns the definition of a function that code for C calls, for operands of this dtype.
pub fn definition(callee: Callee, dtype: DType) -> Definition {
    let mut b = Builder::definition();
    let arity = if let Callee::Prim(prim) = callee { prim.arity() } else { 1 };
    let parameters: Vec<V> = (0..arity).map(|_| b.parameter(Ty::scalar(dtype))).collect();
    let x = parameters[0];
    let result = match callee {
        Callee::Prim(prim) => apply(&mut b, prim, dtype, &parameters, None),
        Callee::Sigmoid => build(&mut b, [x], |[x]| exp::sigmoid(x)),
        Callee::SortKeyNanLast => sort_key(&mut b, x, false),
        Callee::SortKeyNanFirst => sort_key(&mut b, x, true),
        Callee::FromSortKey => from_sort_key(&mut b, x),
    };
    Definition { code: b.finish(), parameters, result }
}

fn unary<'a>(prim: Prim, dtype: DType, x: Val<'a>) -> Val<'a> {
    match dtype {
        d if d.is_float() => unary_float(prim, x),
        _ => unary_int(prim, dtype, x),
    }
}

fn unary_int<'a>(prim: Prim, dtype: DType, x: Val<'a>) -> Val<'a> {
    let bool = dtype == DType::Bool;
    match prim {
        Prim::Neg | Prim::Abs | Prim::Sign if bool => x,
        Prim::Neg | Prim::Abs if x.calls() => x.call_prim(prim, None, x.dtype()),
        Prim::Neg => -x,
        Prim::Abs => integer::abs(x),
        Prim::Sign => integer::sign(x),
        Prim::Floor | Prim::Ceil | Prim::Round => x,
        Prim::Not => !x,
        Prim::IsNan | Prim::IsInf => x.ne(x),
        _ => {
            let wide = cast::cast(x, dtype, DType::F64);
            cast::cast(unary_float(prim, wide), DType::F64, dtype)
        }
    }
}

fn unary_float<'a>(prim: Prim, x: Val<'a>) -> Val<'a> {
    match prim {
        _ if !prim.is_cheap() && x.calls() => x.call_prim(prim, None, x.dtype()),
        Prim::Neg => -x,
        Prim::Abs => x.abs(),
        Prim::Sign => arithmetic::sign(x),
        Prim::Floor => x.unary(Unary::Floor),
        Prim::Ceil => x.unary(Unary::Ceil),
        Prim::Round => x.round(),
        Prim::Exp => exp::exp(x),
        Prim::Expm1 => exp::expm1(x),
        Prim::Log => log::log(x),
        Prim::Log1p => log::log1p(x),
        Prim::Sqrt => x.sqrt(),
        Prim::Sin => trig::sin(x),
        Prim::Cos => trig::cos(x),
        Prim::Tan => trig::tan(x),
        Prim::Asin => inverse::asin(x),
        Prim::Acos => inverse::acos(x),
        Prim::Atan => inverse::atan(x),
        Prim::Sinh => hyperbolic::sinh(x),
        Prim::Cosh => hyperbolic::cosh(x),
        Prim::Tanh => hyperbolic::tanh(x),
        Prim::Erf => erf::erf(x),
        Prim::IsNan => x.is_nan(),
        Prim::IsInf => x.abs().eq(f64::INFINITY),
        _ => x.number(f64::NAN),
    }
}

fn binary<'a>(prim: Prim, dtype: DType, x: Val<'a>, y: Val<'a>) -> Val<'a> {
    match prim {
        Prim::Eq => x.eq(y),
        Prim::Ne => x.ne(y),
        Prim::Lt => x.lt(y),
        Prim::Le => x.le(y),
        Prim::Gt => x.gt(y),
        Prim::Ge => x.ge(y),
        _ if dtype == DType::Bool => binary_bool(prim, x, y),
        _ if dtype.is_float() => binary_float(prim, x, y),
        _ => binary_int(prim, dtype, x, y),
    }
}

fn binary_float<'a>(prim: Prim, x: Val<'a>, y: Val<'a>) -> Val<'a> {
    match prim {
        Prim::FloorDiv | Prim::Mod | Prim::Atan2 if x.calls() => {
            x.call_prim(prim, Some(y), x.dtype())
        }
        Prim::Add => x + y,
        Prim::Sub => x - y,
        Prim::Mul => x * y,
        Prim::Div => x / y,
        Prim::FloorDiv => arithmetic::floor_div_mod(x, y).0,
        Prim::Mod => arithmetic::floor_div_mod(x, y).1,
        Prim::Pow => pow::pow(x, y),
        Prim::Atan2 => inverse::atan2(x, y),
        Prim::Min => arithmetic::min(x, y),
        Prim::Max => arithmetic::max(x, y),
        _ => x.number(f64::NAN),
    }
}

fn binary_int<'a>(prim: Prim, dtype: DType, x: Val<'a>, y: Val<'a>) -> Val<'a> {
    let plain =
        matches!(prim, Prim::Min | Prim::Max | Prim::And | Prim::Or | Prim::Xor | Prim::Atan2);
    match prim {
        _ if !plain && x.calls() => x.call_prim(prim, Some(y), x.dtype()),
        Prim::Add => x + y,
        Prim::Sub => x - y,
        Prim::Mul => x * y,
        Prim::Div => integer::div(x, y),
        Prim::FloorDiv => integer::floor_div_mod(x, y).0,
        Prim::Mod => integer::floor_div_mod(x, y).1,
        Prim::Pow => integer::pow(x, y),
        Prim::Min => x.native_min(y),
        Prim::Max => x.native_max(y),
        Prim::And => x & y,
        Prim::Or => x | y,
        Prim::Xor => x ^ y,
        Prim::ShiftLeft => integer::shift_left(x, y),
        Prim::ShiftRight => integer::shift_right(x, y),
        _ => {
            let [x, y] = [x, y].map(|v| cast::cast(v, dtype, DType::F64));
            cast::cast(binary_float(prim, x, y), DType::F64, dtype)
        }
    }
}

/// Arithmetic on bools, as on the numbers 0 and 1.
fn binary_bool<'a>(prim: Prim, x: Val<'a>, y: Val<'a>) -> Val<'a> {
    match prim {
        Prim::Add | Prim::Or | Prim::Max => x | y,
        Prim::Sub | Prim::Xor => x ^ y,
        Prim::Mul | Prim::And | Prim::Min => x & y,
        // Division by zero gives all ones, and a power of zero is one.
        Prim::Div | Prim::FloorDiv | Prim::Pow => x | !y,
        Prim::Mod | Prim::ShiftLeft | Prim::ShiftRight => x & !y,
        // atan2(0, y) is 0 if y is not negative.
        _ => x,
    }
}
