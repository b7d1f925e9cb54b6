//! Rounding to element types: every value is rounded once, to nearest, ties to even.
//!
//! The crate `half` is not used for this: its f64 conversion drops the low 32 bits in software and
//! goes through f32 in hardware, and both round values near a tie wrongly.

use crate::dtype::DType;

/// A binary float format below 32 bits.
struct Format {
    exp_bits: u32,
    man_bits: u32,
    /// Without infinities, the top exponent holds numbers too, and only its last code is NaN.
    has_inf: bool,
}

impl Format {
    fn of(dtype: DType) -> Option<Format> {
        let (exp_bits, man_bits, has_inf) = match dtype {
            DType::F16 => (5, 10, true),
            DType::BF16 => (8, 7, true),
            DType::F8E5M2 => (5, 2, true),
            DType::F8E4M3 => (4, 3, false),
            _ => return None,
        };
        Some(Format { exp_bits, man_bits, has_inf })
    }

    fn bias(&self) -> i32 {
        (1 << (self.exp_bits - 1)) - 1
    }

    fn exp_mask(&self) -> u32 {
        (1 << self.exp_bits) - 1
    }

    fn man_mask(&self) -> u32 {
        (1 << self.man_bits) - 1
    }

    /// The largest finite value.
    fn max(&self) -> f64 {
        let one = 2f64.powi(self.man_bits as i32);
        if self.has_inf {
            (2.0 * one - 1.0) / one * 2f64.powi(self.bias())
        } else {
            (2.0 * one - 2.0) / one * 2f64.powi(self.bias() + 1)
        }
    }

    /// The exponent of the last mantissa bit of values near `x`.
    fn quantum(&self, x: f64) -> i32 {
        exponent(x).max(1 - self.bias()) - self.man_bits as i32
    }

    fn round(&self, x: f64) -> f64 {
        if !x.is_finite() {
            return if x.is_nan() || self.has_inf { x } else { f64::NAN };
        }
        let q = self.quantum(x);
        // Scaling by a power of two is exact here, so only the rounding to an integer rounds.
        let r = (x * 2f64.powi(-q)).round_ties_even() * 2f64.powi(q);
        match r.abs() <= self.max() {
            true => r.copysign(x),
            false if self.has_inf => f64::INFINITY.copysign(x),
            false => f64::NAN,
        }
    }

    /// The bits of a value that is already rounded.
    fn encode(&self, x: f64) -> u32 {
        let sign = (x.is_sign_negative() as u32) << (self.exp_bits + self.man_bits);
        if x.is_nan() {
            let quiet = if self.has_inf { 1 << (self.man_bits - 1) } else { self.man_mask() };
            return sign | self.exp_mask() << self.man_bits | quiet;
        }
        if x.is_infinite() {
            return sign | self.exp_mask() << self.man_bits;
        }
        let units = (x.abs() * 2f64.powi(-self.quantum(x))) as u32;
        let e = exponent(x) + self.bias();
        if e <= 0 {
            return sign | units;
        }
        sign | (e as u32) << self.man_bits | (units & self.man_mask())
    }

    fn decode(&self, bits: u32) -> f64 {
        let e = bits >> self.man_bits & self.exp_mask();
        let m = bits & self.man_mask();
        let top = e == self.exp_mask();
        let magnitude = if top && self.has_inf && m == 0 {
            f64::INFINITY
        } else if top && (self.has_inf || m == self.man_mask()) {
            return f64::NAN;
        } else {
            let lead = if e == 0 { 0 } else { 1 << self.man_bits };
            let q = (e as i32).max(1) - self.bias() - self.man_bits as i32;
            (lead | m) as f64 * 2f64.powi(q)
        };
        let negative = bits >> (self.exp_bits + self.man_bits) & 1 == 1;
        if negative { -magnitude } else { magnitude }
    }
}

fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// Rounds `x` to a float dtype, and returns it as f64. A NaN becomes the canonical NaN, so that
/// results do not depend on the machine. Values beyond the largest finite one become infinity (NaN
/// in f8e4m3, which has no infinity).
pub fn round(dtype: DType, x: f64) -> f64 {
    let r = match Format::of(dtype) {
        Some(f) => f.round(x),
        None if dtype == DType::F32 => x as f32 as f64,
        None => x,
    };
    if r.is_nan() { f64::NAN } else { r }
}

/// Rounds `x` to a float dtype, and returns its bits.
pub fn encode(dtype: DType, x: f64) -> u64 {
    let x = round(dtype, x);
    match Format::of(dtype) {
        Some(f) => f.encode(x).into(),
        None if dtype == DType::F32 => (x as f32).to_bits().into(),
        None => x.to_bits(),
    }
}

/// The value of `bits` in a float dtype: exact, and every NaN becomes the canonical one.
pub fn decode(dtype: DType, bits: u64) -> f64 {
    let x = match Format::of(dtype) {
        Some(f) => f.decode(bits as u32),
        None if dtype == DType::F32 => f32::from_bits(bits as u32) as f64,
        None => f64::from_bits(bits),
    };
    if x.is_nan() { f64::NAN } else { x }
}

/// The number of explicit mantissa bits of a float dtype, without the leading one.
pub fn mantissa_bits(dtype: DType) -> u32 {
    match Format::of(dtype) {
        Some(f) => f.man_bits,
        None if dtype == DType::F32 => f32::MANTISSA_DIGITS - 1,
        None => f64::MANTISSA_DIGITS - 1,
    }
}

/// The largest finite value of a float dtype.
pub fn max_finite(dtype: DType) -> f64 {
    match Format::of(dtype) {
        Some(f) => f.max(),
        None if dtype == DType::F32 => f32::MAX as f64,
        None => f64::MAX,
    }
}

/// The smallest and largest value of an integer dtype (bool: 0 and 1).
pub fn int_range(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::Bool => (0, 1),
        d if d.is_signed_int() => (-(1 << (d.bits() - 1)), (1 << (d.bits() - 1)) - 1),
        d => (0, (1 << d.bits()) - 1),
    }
}

/// Wraps `v` to the dtype, and returns it in stored form: the value, for u64 as the i64 with the
/// same bits. For bool: whether it is not 0.
pub fn wrap(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::Bool => (v != 0) as i64,
        d if d.bits() == 64 => v,
        d if d.is_signed_int() => v << (64 - d.bits()) >> (64 - d.bits()),
        d => v & ((1 << d.bits()) - 1),
    }
}

/// The mathematical value of a stored integer.
pub fn wide(dtype: DType, v: i64) -> i128 {
    if dtype == DType::U64 { (v as u64).into() } else { v.into() }
}

/// Casts a float to an integer: toward zero, saturating, NaN to 0; bool is whether it is not 0.
pub fn saturate(dtype: DType, x: f64) -> i64 {
    match dtype {
        DType::Bool => (x != 0.0) as i64,
        DType::U64 => x as u64 as i64,
        d => {
            let (low, high) = int_range(d);
            (x as i64).clamp(low as i64, high as i64)
        }
    }
}

/// Casts an integer to a float of `dtype`, rounding once.
pub fn from_int(dtype: DType, v: i128) -> f64 {
    let x = v as f64;
    if dtype == DType::F64 {
        return x;
    }
    let back = x as i128;
    if back == v {
        return round(dtype, x);
    }
    // Two roundings would be wrong at ties, so the first one rounds to odd: toward zero, and the
    // last bit is set to record that bits were cut off.
    let toward_zero = if back.abs() > v.abs() { x.to_bits() - 1 } else { x.to_bits() };
    round(dtype, f64::from_bits(toward_zero | 1))
}
