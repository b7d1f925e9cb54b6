//! Numbers at the edges of dtypes and functions.

/// Zeros, infinities, NaN, the smallest subnormal, the largest number, and some in between.
pub const SPECIAL: [f64; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.0,
    1e-8,
    1e30,
    -1e300,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    255.0,
    5e-324,
    -1e-310,
    f64::MAX,
    -88.0,
];
