//! Discrete Fourier transforms along an axis.

use std::f64::consts::TAU;

use super::array::Array;
use super::cumulate::lines;
use crate::scalar::{Scalar, round};

/// A transform along an axis.
pub struct Transform {
    pub axis: usize,
    /// The number of elements, to which operands are cut or padded with zeros.
    pub size: usize,
    /// The number that results are multiplied by.
    pub scale: f64,
    pub inverse: bool,
}

/// The first `kept` elements along the axis of the transform of `real + i imaginary`: their real
/// parts, or their imaginary ones.
pub fn complex(
    real: &Array,
    imaginary: Option<&Array>,
    transform: &Transform,
    kept: usize,
    imaginary_part: bool,
) -> Array {
    map_lines(real, imaginary, transform, kept, |line| {
        let line = padded(line, transform.size);
        let parts = fourier(&line, transform.inverse);
        parts.into_iter().map(|(re, im)| if imaginary_part { im } else { re }).collect()
    })
}

/// The inverse of the transform of real numbers, from the first half of their spectrum.
pub fn inverse_real(real: &Array, imaginary: Option<&Array>, transform: &Transform) -> Array {
    let size = transform.size;
    map_lines(real, imaginary, transform, size, |line| {
        let half = padded(line, size / 2 + 1);
        let conjugate = |k: usize| (half[size - k].0, -half[size - k].1);
        let whole: Vec<_> =
            (0..size).map(|k| if k < half.len() { half[k] } else { conjugate(k) }).collect();
        fourier(&whole, true).into_iter().map(|(re, _)| re).collect()
    })
}

type Complex = (f64, f64);

fn padded(mut line: Vec<Complex>, size: usize) -> Vec<Complex> {
    line.resize(size, (0.0, 0.0));
    line
}

/// Replaces each line along the axis by `kept` numbers, and scales them.
fn map_lines(
    real: &Array,
    imaginary: Option<&Array>,
    transform: &Transform,
    kept: usize,
    of: impl Fn(Vec<Complex>) -> Vec<f64>,
) -> Array {
    let mut shape = real.shape.clone();
    shape[transform.axis] = kept;
    let zeros = Array::full(real.dtype, shape.clone(), Scalar::F(0.0));
    let mut out = vec![0.0; zeros.len()];
    let part = |x: Option<&Array>, at: usize| x.map_or(0.0, |x| x.get(at).float());
    for (from, to) in lines(real, transform.axis).zip(lines(&zeros, transform.axis)) {
        let at = (0..from.len).map(|k| from.offset(k));
        let line = of(at.map(|i| (part(Some(real), i), part(imaginary, i))).collect());
        for (k, value) in line.into_iter().take(kept).enumerate() {
            out[to.offset(k)] = round::round(real.dtype, value * transform.scale);
        }
    }
    Array::collect(real.dtype, shape, out.into_iter().map(Scalar::F))
}

/// The transform without scaling, by the prime factors of its length (Cooley & Tukey 1965).
fn fourier(x: &[Complex], inverse: bool) -> Vec<Complex> {
    let n = x.len();
    let Some(factor) = (2..=n).find(|factor| n.is_multiple_of(*factor)) else {
        return x.to_vec();
    };
    let m = n / factor;
    let parts: Vec<Vec<Complex>> = (0..factor)
        .map(|j| fourier(&x.iter().skip(j).step_by(factor).copied().collect::<Vec<_>>(), inverse))
        .collect();
    let roots: Vec<Complex> = (0..n).map(|k| root(k, n, inverse)).collect();
    let term = |k: usize, j: usize| {
        let ((a, b), (c, s)) = (parts[j][k % m], roots[k * j % n]);
        (a * c - b * s, a * s + b * c)
    };
    let sum = |k: usize| {
        (0..factor).map(|j| term(k, j)).fold((0.0, 0.0), |sum, x| (sum.0 + x.0, sum.1 + x.1))
    };
    (0..n).map(sum).collect()
}

/// `exp(-2πi k / n)`, or its conjugate for the inverse. The angle is reduced to an eighth of a turn,
/// so that roots on the axes are exact.
fn root(k: usize, n: usize, inverse: bool) -> Complex {
    let quarter = (8 * k / n).div_ceil(2);
    let angle = (4 * k as i64 - (quarter * n) as i64) as f64 * (TAU / 4.0) / n as f64;
    let (s, c) = angle.sin_cos();
    let (c, s) = match quarter % 4 {
        0 => (c, s),
        1 => (-s, c),
        2 => (-c, -s),
        _ => (s, -c),
    };
    (c, if inverse { s } else { -s })
}
