//! Draws initial values. Each number depends only on the seed, the name of its array and its index
//! in the array. So it is the same on every machine, and does not change when other arrays are
//! added to the model.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::eval::threefry::{self, Key, block, fold_in};

use crate::init::Draw;
use crate::naming::fold_of;

/// Arrays with at least this many elements are drawn by several threads.
const PARALLEL: usize = 1 << 16;

/// The random key for the array of this name.
pub fn key(seed: u64, name: &str) -> Key {
    fold_in(threefry::key(seed), fold_of(name))
}

impl Draw {
    /// Fills `values` with standard normal numbers of a key.
    pub(crate) fn fill_normal(key: Key, values: &mut [f64]) {
        fill_pairs(values, &|pair| normal(key, pair));
    }

    /// Draws the elements of an array in row-major order.
    ///
    /// Errors: out of memory; those of [`Draw::fill`].
    pub fn values(&self, seed: u64, name: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        let count = shape.iter().product();
        if values.try_reserve_exact(count).is_err() {
            return Diagnostic::of(ErrorKind::Memory, "Out of memory")
                .at(format!("the initial value of `{name}`"))
                .got(format!("a shape of {shape:?}"))
                .err();
        }
        values.resize(count, 0.0);
        self.fill(seed, name, shape, &mut values)?;
        Ok(values)
    }

    /// Fills `values` with the elements of an array of this shape, in row-major order.
    ///
    /// Errors: the rule is a Python function, which only Python can call.
    pub fn fill(&self, seed: u64, name: &str, shape: &[usize], values: &mut [f64]) -> Result<()> {
        let key = key(seed, name);
        match self {
            Draw::Stacked(draw) => {
                let size: usize = shape.iter().skip(1).product();
                for (at, slice) in values.chunks_mut(size.max(1)).enumerate() {
                    let rest = shape.get(1..).unwrap_or(&[]);
                    draw.fill(seed, &format!("{name}.{at}"), rest, slice)?;
                }
            }
            Draw::Constant(value) => values.fill(*value),
            Draw::Uniform(low, high) => {
                fill_elements(values, &|at| low + (high - low) * uniform(key, at));
            }
            Draw::Normal(deviation) => {
                fill_pairs(values, &|pair| normal(key, pair).map(|value| deviation * value));
            }
            Draw::TruncatedNormal => fill_pairs(values, &|pair| truncated_normal(key, pair)),
            Draw::Orthogonal => {
                fill_pairs(values, &|pair| normal(key, pair));
                orthonormalize(values, shape.first().copied().unwrap_or(1));
            }
            Draw::Norms { norms, of, name, shape } => {
                let drawn = norms.of(&of.values(seed, name, shape)?, shape);
                for (value, norm) in values.iter_mut().zip(drawn) {
                    *value = norm;
                }
            }
            Draw::Function(function) => {
                return Diagnostic::new(format!("`{name}` is initialised by a Python function"))
                    .got(&function.name)
                    .expected("a rule by name, or a number")
                    .err();
            }
        }
        Ok(())
    }
}

/// Sets each element to the result of `draw` for its index.
fn fill_elements(values: &mut [f64], draw: &(dyn Fn(u64) -> f64 + Sync)) {
    fill_pairs(values, &|pair| [draw(2 * pair), draw(2 * pair + 1)]);
}

/// Sets each pair of elements to the result of `draw` for the index of the pair.
fn fill_pairs(values: &mut [f64], draw: &(dyn Fn(u64) -> [f64; 2] + Sync)) {
    let fill = |first: usize, values: &mut [f64]| {
        for (at, pair) in values.chunks_mut(2).enumerate() {
            let drawn = draw((first + at) as u64);
            pair.copy_from_slice(&drawn[..pair.len()]);
        }
    };
    if values.len() < PARALLEL {
        return fill(0, values);
    }
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let size = values.len().div_ceil(2).div_ceil(threads);
    std::thread::scope(|scope| {
        for (at, part) in values.chunks_mut(2 * size).enumerate() {
            scope.spawn(move || fill(at * size, part));
        }
    });
}

fn words(key: Key, at: u64) -> [u32; 2] {
    block(key, [(at >> 32) as u32, at as u32])
}

/// A uniform number with 53 random bits, in [0, 1).
fn uniform(key: Key, at: u64) -> f64 {
    let [high, low] = words(key, at);
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// Two standard normal numbers, computed from two uniform ones by the Box-Muller transform (1958).
fn normal(key: Key, pair: u64) -> [f64; 2] {
    let [radius, angle] = words(key, pair);
    // Greater than 0, so that the logarithm is finite.
    let radius = (f64::from(radius) + 0.5) / (1u64 << 32) as f64;
    let angle = 2.0 * std::f64::consts::PI * f64::from(angle) / (1u64 << 32) as f64;
    let radius = libm::sqrt(-2.0 * libm::log(radius));
    let (sin, cos) = libm::sincos(angle);
    [radius * cos, radius * sin]
}

/// Two standard normal numbers, each redrawn until it is within two standard deviations.
fn truncated_normal(key: Key, pair: u64) -> [f64; 2] {
    let mut drawn = normal(key, pair);
    for (at, value) in drawn.iter_mut().enumerate() {
        let mut again = 0;
        while value.abs() > 2.0 {
            again += 1;
            *value = normal(fold_in(key, again), pair)[at];
        }
    }
    drawn
}

/// Makes the rows of a matrix orthonormal, or its columns if there are more rows than columns.
/// Gram-Schmidt keeps the sign of each row, so the result is uniformly distributed over the
/// orthogonal matrices (Mezzadri 2007).
fn orthonormalize(values: &mut [f64], rows: usize) {
    let columns = values.len().checked_div(rows).unwrap_or(0);
    if rows <= columns {
        return gram_schmidt(values, columns);
    }
    let mut columns_first = transposed(values, rows, columns);
    gram_schmidt(&mut columns_first, rows);
    values.copy_from_slice(&transposed(&columns_first, columns, rows));
}

fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    places.map(|at| values[at]).collect()
}

/// Makes rows of this length orthonormal by Gram-Schmidt. Each projection is done twice, which
/// keeps the rows orthogonal up to rounding.
fn gram_schmidt(values: &mut [f64], length: usize) {
    if length == 0 {
        return;
    }
    for start in (0..values.len()).step_by(length) {
        let (before, rest) = values.split_at_mut(start);
        let own = &mut rest[..length];
        for _ in 0..2 {
            for other in before.chunks_exact(length) {
                let along = dot(own, other);
                own.iter_mut().zip(other).for_each(|(own, other)| *own -= along * other);
            }
        }
        let norm = libm::sqrt(dot(own, own));
        own.iter_mut().for_each(|own| *own /= norm);
    }
}

/// The dot product, with eight independent accumulators that the processor can compute in parallel.
fn dot(left: &[f64], right: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (left, right) in left.chunks(8).zip(right.chunks(8)) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    sums.iter().sum()
}
