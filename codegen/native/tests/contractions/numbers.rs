//! What is contracted, and what must come out: a sum of products in whole numbers, one after the
//! other.

use mithril_ir::dtype::DType;
use mithril_ir::scalar::round;
use mithril_ir::tensor::Tensor;
use mithril_kernels::contract::Layout;

/// Operands of `m × k` and `k × n` elements, a bias, and the results.
pub struct Numbers {
    dtype: DType,
    acc: DType,
    m: usize,
    n: usize,
    k: usize,
    /// Elements by row (column) and `k`.
    x: Vec<u8>,
    y: Vec<u8>,
    bias: Vec<u8>,
    /// The results for the sums over the first steps of `k`: for each number of steps, or for all
    /// alone.
    results: Vec<Vec<u8>>,
}

/// Any bits, the same for the same place.
fn bits(seed: u64, place: usize) -> u64 {
    let mut x = (place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed << 40;
    x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 32)
}

/// Integers of any size that the dtype has, floats small enough for their sums to be exact.
fn drawn(dtype: DType, seed: u64, spread: i64, count: usize) -> Vec<i64> {
    let draw = |place: usize| match dtype.is_float() {
        true => (bits(seed, place) % (2 * spread + 1) as u64) as i64 - spread,
        false => {
            let unused = 64 - dtype.bits();
            let high = bits(seed, place) << unused;
            if dtype.is_unsigned_int() { (high >> unused) as i64 } else { high as i64 >> unused }
        }
    };
    (0..count).map(draw).collect()
}

/// The elements of a dtype.
fn encoded(dtype: DType, values: &[i64]) -> Vec<u8> {
    if dtype.is_float() {
        let values: Vec<f64> = values.iter().map(|&value| value as f64).collect();
        return Tensor::from_f64s(dtype, vec![values.len()], &values).bytes().to_vec();
    }
    values.iter().flat_map(|value| value.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

impl Numbers {
    /// With the results for all `k`, and for each less where `each` says so.
    pub fn new((dtype, acc): (DType, DType), [m, n, k]: [i64; 3], each: bool) -> Numbers {
        let [m, n, k] = [m, n, k].map(|extent| extent as usize);
        let [x, y] = [(1, 3, m * k), (2, 2, n * k)]
            .map(|(seed, spread, count)| drawn(dtype, seed, spread, count));
        let bias = drawn(acc, 3, 3, n);
        let mut sums = vec![0_i64; m * n];
        let mut results = Vec::new();
        for depth in 0..=k {
            if each || depth == k {
                results.push(finished(acc, &sums, &bias));
            }
            if depth == k {
                break;
            }
            let column: Vec<i64> = (0..n).map(|j| y[j * k + depth]).collect();
            for (i, row) in sums.chunks_exact_mut(n.max(1)).enumerate() {
                let x = x[i * k + depth];
                for (sum, y) in row.iter_mut().zip(&column) {
                    *sum = sum.wrapping_add(x.wrapping_mul(*y));
                }
            }
        }
        let [x, y] = [x, y].map(|values| encoded(dtype, &values));
        Numbers { dtype, acc, m, n, k, x, y, bias: encoded(acc, &bias), results }
    }

    /// How many elements an operand of these extents takes in memory.
    pub fn room(layout: Layout, outer: i64, k: i64) -> usize {
        let stretch = if layout == Layout::Strided { 2 } else { 1 };
        (outer * k * stretch) as usize
    }

    /// Writes the first rows of `x` (or columns of `y`) and steps of `k`, as a layout has them.
    pub fn write(&self, y: bool, layout: Layout, [outer, k]: [i64; 2], to: &mut [u8]) {
        let from = if y { &self.y } else { &self.x };
        let extents = [outer as usize, k as usize];
        match self.dtype.bytes() {
            1 => write::<1>(from, self.k, layout, extents, to),
            2 => write::<2>(from, self.k, layout, extents, to),
            4 => write::<4>(from, self.k, layout, extents, to),
            _ => write::<8>(from, self.k, layout, extents, to),
        }
    }

    pub fn bias(&self, n: i64) -> &[u8] {
        &self.bias[..n as usize * self.acc.bytes()]
    }

    /// The first row and column of results that are not what they must be.
    pub fn differs(&self, [m, n, k]: [i64; 3], got: &[u8]) -> Option<(usize, usize)> {
        let bytes = self.acc.bytes();
        assert!(m as usize <= self.m && n as usize <= self.n && k as usize <= self.k);
        let want = &self.results[if self.results.len() == 1 { 0 } else { k as usize }];
        let width = n as usize * bytes;
        let rows = got.chunks_exact(width.max(1)).zip(want.chunks_exact((self.n * bytes).max(1)));
        for (row, (got, want)) in rows.enumerate() {
            let at = got.iter().zip(want).position(|(got, want)| got != want);
            if let Some(at) = at {
                return Some((row, at / bytes));
            }
        }
        None
    }
}

/// The results of sums: with the bias, and floats none below zero.
fn finished(acc: DType, sums: &[i64], bias: &[i64]) -> Vec<u8> {
    let n = bias.len();
    if !acc.is_float() {
        let add = |(i, sum): (usize, &i64)| sum.wrapping_add(bias[i % n]);
        return encoded(acc, &sums.iter().enumerate().map(add).collect::<Vec<_>>());
    }
    let add = |(i, &sum): (usize, &i64)| {
        let sum = round::round(acc, sum as f64);
        round::round(acc, sum + bias[i % n] as f64).max(0.0)
    };
    let values: Vec<f64> = sums.iter().enumerate().map(add).collect();
    Tensor::from_f64s(acc, vec![values.len()], &values).bytes().to_vec()
}

fn write<const N: usize>(
    from: &[u8],
    pitch: usize,
    layout: Layout,
    [outer, k]: [usize; 2],
    to: &mut [u8],
) {
    let [across, along] = match layout {
        Layout::AlongK | Layout::Packed => [k, 1],
        Layout::AlongOuter => [1, outer],
        Layout::Strided => [2 * k, 2],
        Layout::Gathered => unreachable!("these cases lie in steps"),
    };
    for i in 0..outer {
        let row = from[i * pitch * N..][..k * N].chunks_exact(N);
        for (step, element) in row.enumerate() {
            to[(i * across + step * along) * N..][..N].copy_from_slice(element);
        }
    }
}
