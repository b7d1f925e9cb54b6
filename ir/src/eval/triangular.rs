//! Systems of equations with triangular matrices.

use super::array::Array;
use super::linear_algebra::{Stack, broadcast, rounded};

/// The solution of `a @ x = b` for each pair of matrices. The flags say whether the lower triangle
/// of `a` is read, whether it is transposed, and whether its diagonal counts as ones.
///
/// # Errors
/// For shapes that do not match.
pub fn solve(a: &Array, b: &Array, [lower, transposed, unit]: [bool; 3]) -> Result<Array, String> {
    let (left, right) = (Stack::of(a)?, Stack::of(b)?);
    let (n, width) = (left.rows, right.columns);
    if left.columns != n || right.rows != n {
        return Err(format!(
            "a {n} x {} matrix does not have {} right sides",
            left.columns, right.rows
        ));
    }
    let batch = broadcast(left.batch, right.batch)?;
    let mut elements = Vec::new();
    for (a, b) in left.broadcast(&batch).zip(right.broadcast(&batch)) {
        let element = |i: usize, k: usize| if transposed { a[k * n + i] } else { a[i * n + k] };
        let mut x = b.to_vec();
        let forward = lower != transposed;
        for step in 0..n {
            let i = if forward { step } else { n - 1 - step };
            let known = if forward { 0..i } else { i + 1..n };
            for c in 0..width {
                let dot: f64 = known.clone().map(|k| element(i, k) * x[k * width + c]).sum();
                let rest = x[i * width + c] - dot;
                x[i * width + c] = if unit { rest } else { rest / element(i, i) };
            }
        }
        elements.extend(x);
    }
    Ok(rounded(a.dtype, [&batch[..], &[n, width]].concat(), elements))
}
