//! Random distributions; each element is computed by the formula that `jax.random` uses.

use super::array::Array;
use super::threefry::{Key, random_words, split};
use crate::dtype::DType;
use crate::scalar::expr::Expr;
use crate::scalar::{Scalar, round};
use std::sync::LazyLock;

/// The inverse error function in f32, a scalar expression in `x`: Giles' approximation with its
/// published coefficients, as XLA computes it.
pub const ERF_INV_F32: &str = "\
    select(abs(x) == 1, x * inf, x * select(w < 5, near, far)) where \
    w = -log1p(-x * x); \
    u = w - 2.5; \
    v = sqrt(w) - 3; \
    near = 1.50140941 + u * (0.246640727 + u * (-0.00417768164 + u * (-0.00125372503 + u * \
    (0.00021858087 + u * (-4.39150654e-06 + u * (-3.5233877e-06 + u * (3.43273939e-07 + u * \
    (2.81022636e-08)))))))); \
    far = 2.83297682 + v * (1.00167406 + v * (0.00943887047 + v * (-0.0076224613 + v * \
    (0.00573950773 + v * (-0.00367342844 + v * (0.00134934322 + v * (0.000100950558 + v * \
    -0.000200214257)))))))";

/// The inverse error function in f64, a scalar expression in `x`: Giles' approximation with its
/// published coefficients, as XLA computes it.
pub const ERF_INV_F64: &str = "\
    select(abs(x) == 1, x * inf, x * select(w < 6.25, near, select(w < 16, mid, far))) where \
    w = -log1p(-x * x); \
    s = sqrt(w); \
    t = w - 3.125; \
    u = s - 3.25; \
    v = s - 5; \
    near = 1.6536545626831027 + t * (0.24015818242558962 + t * (-0.0060336708714301491 + t * \
    (-0.000740702534166267 + t * (0.00018673420803405714 + t * (-1.3882523362786469e-05 + t * \
    (-1.3654692000834679e-06 + t * (4.2347877827932404e-07 + t * (-2.9070369957882005e-08 + t * \
    (-4.1126339803469837e-09 + t * (1.0512122733215323e-09 + t * (-5.4154120542946279e-11 + t * \
    (-1.2975133253453532e-11 + t * (2.6335093153082323e-12 + t * (-8.1519341976054722e-14 + t * \
    (-4.0545662729752069e-14 + t * (6.6376381343583238e-15 + t * (2.0972767875968562e-17 + t * \
    (-1.3331716628546209e-16 + t * (1.1157877678025181e-17 + t * (1.28584807152564e-18 + t * \
    (-1.6850591381820166e-19 + t * -3.64441206401782e-21))))))))))))))))))))); \
    mid = 3.0838856104922208 + u * (1.0052589676941592 + u * (0.0053709145535900636 + u * \
    (-0.0037512085075692412 + u * (0.0024914420961078508 + u * (-0.0016882755560235047 + u * \
    (0.0009532893797373805 + u * (-0.00035503752036284748 + u * (2.4031110387097894e-05 + u * \
    (6.8284851459573175e-05 + u * (-4.7318229009055734e-05 + u * (1.2475304481671779e-05 + u * \
    (2.9234449089955446e-06 + u * (-4.013867526981546e-06 + u * (1.5027403968909828e-06 + u * \
    (1.8239629214389228e-08 + u * (-2.7517406297064545e-07 + u * (9.0756561938885391e-08 + u * \
    (2.2137376921775787e-09)))))))))))))))))); \
    far = 4.8499064014085844 + v * (1.0103004648645344 + v * (-0.00013871931833623122 + v * \
    (-0.00021503011930044477 + v * (7.5995277030017761e-05 + v * (-1.9681778105531671e-05 + v * \
    (4.5260625972231537e-06 + v * (-9.9298272942317e-07 + v * (2.2900482228026655e-07 + v * \
    (-6.7711997758452339e-08 + v * (2.9147953450901081e-08 + v * (-1.496002662714924e-08 + v * \
    (7.61570120807834e-09 + v * (-3.789465440126737e-09 + v * (1.5076572693500548e-09 + v * \
    (-2.5556418169965252e-10 + v * -2.7109920616438573e-11)))))))))))))))";

static ERF_INV: LazyLock<[Result<Expr, String>; 2]> =
    LazyLock::new(|| [ERF_INV_F32, ERF_INV_F64].map(|text| Expr::parse(text, &["x"], &[])));

/// Uniform in `lo..hi`: `jax.random.uniform`, bit for bit. A number in 0..1 gets as many random
/// bits as the mantissa has, and is then scaled: in f32 and f64 by one fused multiply-add, as XLA
/// compiles it, in f16 and bf16 by two rounded steps.
///
/// # Errors
/// If `dtype` is not a float to compute in.
pub fn uniform(key: Key, shape: &[usize], dtype: DType, lo: f64, hi: f64) -> Result<Array, String> {
    check_float(dtype)?;
    let mantissa = round::mantissa_bits(dtype);
    let width = if mantissa < 8 { 8 } else { dtype.bits() };
    let [lo, hi] = [lo, hi].map(|v| round::round(dtype, v));
    let span = round::round(dtype, hi - lo);
    let unit = 2f64.powi(-(mantissa as i32));
    let scale = |word: u64| {
        let u = (word >> (width - mantissa)) as f64 * unit;
        let v = match dtype {
            DType::F64 => libm::fma(u, span, lo),
            DType::F32 => libm::fmaf(u as f32, span as f32, lo as f32).into(),
            _ => round::round(dtype, round::round(dtype, u * span) + lo),
        };
        Scalar::F(if v < lo { lo } else { v })
    };
    let n = shape.iter().product();
    Ok(Array::collect(dtype, shape.to_vec(), random_words(key, n, width).map(scale)))
}

/// Normal with mean 0 and variance 1: `jax.random.normal`, √2 erf⁻¹(u) with u uniform in the open
/// interval from -1 to 1. For f16 and bf16 the inverse is computed in f32. It agrees with JAX to a
/// few ulp, as much as JAX itself does between devices.
///
/// # Errors
/// If `dtype` is not a float to compute in.
pub fn normal(key: Key, shape: &[usize], dtype: DType) -> Result<Array, String> {
    check_float(dtype)?;
    let above_minus_one = 2f64.powi(-(round::mantissa_bits(dtype) as i32) - 1) - 1.0;
    let u = uniform(key, shape, dtype, above_minus_one, 1.0)?;
    let work = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let erf_inv = ERF_INV[(work == DType::F64) as usize].as_ref()?;
    let root = round::round(dtype, std::f64::consts::SQRT_2);
    let mut scratch = vec![];
    let elements = u.elements().map(|x| {
        let y = erf_inv.eval_into(&mut scratch, work, &[dtype], &[x], &[]).float();
        Scalar::F(round::round(dtype, root * round::round(dtype, y)))
    });
    Ok(Array::collect(dtype, shape.to_vec(), elements))
}

/// True with probability `p`: `jax.random.bernoulli`, which tests whether a uniform number of
/// `dtype` is below `p`.
///
/// # Errors
/// If `dtype` is not a float to compute in.
pub fn bernoulli(key: Key, shape: &[usize], dtype: DType, p: f64) -> Result<Array, String> {
    let p = round::round(dtype, p);
    let u = uniform(key, shape, dtype, 0.0, 1.0)?;
    let elements = u.elements().map(|v| Scalar::bool(v.float() < p));
    Ok(Array::collect(DType::Bool, shape.to_vec(), elements))
}

/// Integers in `lo..hi` (`lo` where that range is empty): `jax.random.randint`, bit for bit. Takes
/// random bits of twice the dtype's width modulo the size of the range, so large ranges are
/// slightly uneven.
///
/// # Errors
/// If `dtype` is not an integer to compute in.
pub fn randint(
    key: Key,
    shape: &[usize],
    dtype: DType,
    lo: i128,
    hi: i128,
) -> Result<Array, String> {
    if !dtype.is_int() || dtype.is_storage_only() {
        return Err(format!("{dtype} is not an integer type to compute in"));
    }
    // Integers narrower than 32 bits are drawn from 32-bit words, which makes them more even.
    let width = dtype.bits().max(32);
    let mask = (1u128 << width) - 1;
    let (min, max) = round::int_range(dtype);
    let lo = lo.clamp(min, max);
    // The size of the whole range wraps to 0, and then no remainder is taken.
    let range = hi.min(max + 1).saturating_sub(lo).max(1) as u128 & mask;
    let rem = |v: u128| if range == 0 { v } else { v % range };
    let half = rem(1 << (width / 2));
    let high_weight = rem((half * half) & mask);
    let keys = split(key, 2);
    let n = shape.iter().product();
    let words = random_words(keys[0], n, width).zip(random_words(keys[1], n, width));
    let elements = words.map(|(high, low)| {
        let high_part = (rem(high.into()) * high_weight) & mask;
        let offset = rem((high_part + rem(low.into())) & mask);
        Scalar::I(round::wrap(dtype, (lo as i64).wrapping_add(offset as i64)))
    });
    Ok(Array::collect(dtype, shape.to_vec(), elements))
}

fn check_float(dtype: DType) -> Result<(), String> {
    match dtype.is_float() && !dtype.is_storage_only() {
        true => Ok(()),
        false => Err(format!("{dtype} is not a float type to compute in")),
    }
}
