//! Factorisations into orthogonal matrices: QR, eigenvectors of symmetric matrices, and singular
//! vectors. All compute in f64.

use super::array::Array;
use super::linear_algebra::{Stack, rounded, squares};

/// Turns `x` into a multiple of the first unit vector by the reflection `I - tau v vᵀ`, where the
/// first element of `v` is 1. Replaces the other elements by those of `v`. Returns the new first
/// element, and `tau`.
fn reflect(x: &mut [f64]) -> (f64, f64) {
    let first = x[0];
    let largest = x.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    let scale = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
    let squares = |v: &[f64]| v.iter().map(|v| (v / scale) * (v / scale)).sum::<f64>();
    if squares(&x[1..]) == 0.0 {
        return (first, 0.0);
    }
    let norm = scale * squares(x).sqrt();
    let new = if first < 0.0 { norm } else { -norm };
    let divisor = first - new;
    x[1..].iter_mut().for_each(|v| *v /= divisor);
    (new, (new - first) / new)
}

/// The orthogonal factor of each matrix, or (where `of` is 1) the upper triangular one, with as
/// many columns or rows as the shorter side.
///
/// # Errors
/// For an array that is not matrices of floats.
pub fn qr(x: &Array, of: i64) -> Result<Array, String> {
    let stack = Stack::of(x)?;
    let (m, n) = (stack.rows, stack.columns);
    let size = m.min(n);
    let factor = |matrix: &[f64]| {
        let (q, r) = factors(matrix, m, n);
        if of == 0 { q } else { r }
    };
    let shape = if of == 0 { [m, size] } else { [size, n] };
    let elements = stack.each().flat_map(factor).collect();
    Ok(rounded(x.dtype, [stack.batch, &shape].concat(), elements))
}

fn factors(matrix: &[f64], m: usize, n: usize) -> (Vec<f64>, Vec<f64>) {
    let size = m.min(n);
    let mut columns: Vec<Vec<f64>> =
        (0..n).map(|j| (0..m).map(|i| matrix[i * n + j]).collect()).collect();
    let mut q: Vec<Vec<f64>> =
        (0..size).map(|j| (0..m).map(|i| f64::from(u8::from(i == j))).collect()).collect();
    let mut taus = Vec::new();
    let apply = |v: &[f64], tau: f64, to: &mut [f64]| {
        let dot: f64 = to[0] + v[1..].iter().zip(&to[1..]).map(|(v, x)| v * x).sum::<f64>();
        to[0] -= tau * dot;
        to[1..].iter_mut().zip(&v[1..]).for_each(|(x, v)| *x -= tau * dot * v);
    };
    for k in 0..size {
        let (done, rest) = columns.split_at_mut(k + 1);
        let own = &mut done[k][k..];
        let (first, tau) = reflect(own);
        own[0] = first;
        rest.iter_mut().for_each(|column| apply(own, tau, &mut column[k..]));
        taus.push(tau);
    }
    for k in (0..size).rev() {
        q[k..].iter_mut().for_each(|column| apply(&columns[k][k..], taus[k], &mut column[k..]));
    }
    let rows = |columns: &[Vec<f64>], count: usize| -> Vec<f64> {
        (0..count).flat_map(|i| columns.iter().map(move |column| column[i])).collect()
    };
    let upper: Vec<Vec<f64>> = columns
        .iter()
        .enumerate()
        .map(|(j, column)| (0..size).map(|i| if i <= j { column[i] } else { 0.0 }).collect())
        .collect();
    (rows(&q, m), rows(&upper, size))
}

/// The eigenvalues of each symmetric matrix in ascending order, or (where `of` is 1) the
/// eigenvectors, in columns.
///
/// # Errors
/// For an array that is not square matrices of floats.
pub fn eigh(x: &Array, of: i64) -> Result<Array, String> {
    let stack = squares(x)?;
    let n = stack.rows;
    let own = |matrix: &[f64]| {
        let (values, rows) = eigen(matrix, n);
        match of {
            0 => values,
            _ => (0..n * n).map(|at| rows[at % n][at / n]).collect(),
        }
    };
    let elements = stack.each().flat_map(own).collect();
    let shape = if of == 0 { x.shape[..x.shape.len() - 1].to_vec() } else { x.shape.clone() };
    Ok(rounded(x.dtype, shape, elements))
}

/// The eigenvalues, and the eigenvectors as rows.
fn eigen(matrix: &[f64], n: usize) -> (Vec<f64>, Vec<Vec<f64>>) {
    let largest = (0..n * n)
        .filter(|at| at % n <= at / n)
        .fold(0.0f64, |most, at| most.max(matrix[at].abs()));
    let scale = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
    let element = |i: usize, j: usize| matrix[i.max(j) * n + i.min(j)] / scale;
    let mut a: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| element(i, j)).collect()).collect();
    let mut rows: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    let (mut d, mut e) = tridiagonal(&mut a, &mut rows, n);
    for l in 0..n {
        for _ in 0..SWEEPS {
            if !step(&mut d, &mut e, &mut rows, l) {
                break;
            }
        }
    }
    for i in 0..n {
        let mut least = i;
        for j in i + 1..n {
            if d[j] < d[least] {
                least = j;
            }
        }
        d.swap(i, least);
        rows.swap(i, least);
    }
    rows.iter_mut().for_each(|row| orient(row));
    d.iter_mut().for_each(|v| *v *= scale);
    (d, rows)
}

/// The limit of iterations for one eigenvalue, and of sweeps of rotations.
const SWEEPS: usize = 60;

/// Negates a vector if its largest element is negative.
fn orient(row: &mut [f64]) {
    if has_negative(row) {
        row.iter_mut().for_each(|v| *v = -*v);
    }
}

/// Whether the element of largest magnitude is negative.
fn has_negative(row: &[f64]) -> bool {
    row.iter().fold(0.0f64, |most, v| if v.abs() > most.abs() { *v } else { most }) < 0.0
}

/// Reduces a symmetric matrix to a tridiagonal one. Returns its diagonal and its off-diagonal.
/// `rows` becomes the transposed product of the reflections.
fn tridiagonal(a: &mut [Vec<f64>], rows: &mut [Vec<f64>], n: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut e, mut taus) = (vec![0.0; n], vec![0.0; n]);
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    for k in 0..n.saturating_sub(1) {
        let mut v = a[k][k + 1..].to_vec();
        (e[k], taus[k]) = reflect(&mut v);
        v[0] = 1.0;
        let tau = taus[k];
        let products: Vec<f64> = (k + 1..n).map(|i| tau * dot(&a[i][k + 1..], &v)).collect();
        let half = tau / 2.0 * dot(&products, &v);
        let w: Vec<f64> = products.iter().zip(&v).map(|(p, v)| p - half * v).collect();
        for i in 0..v.len() {
            for j in 0..v.len() {
                a[k + 1 + i][k + 1 + j] -= v[i] * w[j] + w[i] * v[j];
            }
        }
        a[k][k + 1..].copy_from_slice(&v);
    }
    for k in (0..n.saturating_sub(1)).rev() {
        let v = &a[k][k + 1..];
        for row in &mut rows[k + 1..] {
            let by = taus[k] * dot(&row[k + 1..], v);
            row[k + 1..].iter_mut().zip(v).for_each(|(x, v)| *x -= by * v);
        }
    }
    ((0..n).map(|i| a[i][i]).collect(), e)
}

/// One implicit QL step for the eigenvalue at `l`. Returns false if it has converged.
fn step(d: &mut [f64], e: &mut [f64], rows: &mut [Vec<f64>], l: usize) -> bool {
    let n = d.len();
    let small = |i: &usize| e[*i].abs() <= f64::EPSILON * (d[*i].abs() + d[*i + 1].abs());
    let m = (l..n - 1).find(small).unwrap_or(n - 1);
    if m == l {
        return false;
    }
    let g = (d[l + 1] - d[l]) / (2.0 * e[l]);
    let r = (g * g + 1.0).sqrt();
    let mut g = d[m] - d[l] + e[l] / (g + if g < 0.0 { -r } else { r });
    let (mut s, mut c, mut p) = (1.0, 1.0, 0.0);
    for i in (l..m).rev() {
        let (f, b) = (s * e[i], c * e[i]);
        let r = f.hypot(g);
        (c, s) = if r == 0.0 { (1.0, 0.0) } else { (g / r, f / r) };
        e[i + 1] = r;
        g = d[i + 1] - p;
        let r = (d[i] - g) * s + 2.0 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        let (upper, lower) = rows.split_at_mut(i + 1);
        for (x, y) in upper[i].iter_mut().zip(lower[0].iter_mut()) {
            (*x, *y) = (c * *x - s * *y, c * *y + s * *x);
        }
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0.0;
    true
}

/// The left singular vectors of each matrix in columns (`of` is 0), its singular values in
/// descending order (1), or the right singular vectors in rows (2).
///
/// # Errors
/// For an array that is not matrices of floats.
pub fn svd(x: &Array, of: i64) -> Result<Array, String> {
    let stack = Stack::of(x)?;
    let (m, n) = (stack.rows, stack.columns);
    let size = m.min(n);
    let own = |matrix: &[f64]| {
        let (left, values, right) = singular(matrix, m, n);
        match of {
            0 => (0..m * size).map(|at| left[at % size][at / size]).collect(),
            1 => values,
            _ => right.concat(),
        }
    };
    let shape: &[usize] = match of {
        0 => &[m, size],
        1 => &[size],
        _ => &[size, n],
    };
    let elements = stack.each().flat_map(own).collect();
    Ok(rounded(x.dtype, [stack.batch, shape].concat(), elements))
}

type Singular = (Vec<Vec<f64>>, Vec<f64>, Vec<Vec<f64>>);

/// Left singular vectors as rows, singular values, and right singular vectors as rows, by rotations
/// of the rows of the shorter side until they are orthogonal (one-sided Jacobi). The largest element
/// of each vector of the shorter side is positive.
fn singular(matrix: &[f64], m: usize, n: usize) -> Singular {
    let (size, length) = (m.min(n), m.max(n));
    let largest = matrix.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    let scale = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
    let element =
        |i: usize, j: usize| if m < n { matrix[i * n + j] } else { matrix[j * n + i] } / scale;
    let mut w: Vec<Vec<f64>> =
        (0..size).map(|i| (0..length).map(|j| element(i, j)).collect()).collect();
    let mut turned: Vec<Vec<f64>> =
        (0..size).map(|i| (0..size).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for _ in 0..SWEEPS {
        if !sweep(&mut w, &mut turned) {
            break;
        }
    }
    let norm = |row: &[f64]| row.iter().map(|v| v * v).sum::<f64>().sqrt();
    let mut values: Vec<f64> = w.iter().map(|row| norm(row)).collect();
    for i in 0..size {
        let mut most = i;
        for j in i + 1..size {
            if values[j] > values[most] {
                most = j;
            }
        }
        values.swap(i, most);
        w.swap(i, most);
        turned.swap(i, most);
    }
    for i in 0..size {
        // The squares of smaller elements may be subnormal numbers.
        match values[i] < 1e-120 {
            true => complete(&mut w, i),
            false => w[i].iter_mut().for_each(|v| *v /= values[i]),
        }
    }
    for (row, other) in turned.iter_mut().zip(&mut w) {
        if has_negative(row) {
            row.iter_mut().chain(other).for_each(|v| *v = -*v);
        }
    }
    values.iter_mut().for_each(|v| *v *= scale);
    if m < n { (turned, values, w) } else { (w, values, turned) }
}

/// Rotates each pair of rows until it is orthogonal. Returns whether any pair was not.
fn sweep(w: &mut [Vec<f64>], turned: &mut [Vec<f64>]) -> bool {
    let length = w.first().map_or(0, Vec::len);
    let tolerance = f64::EPSILON * (length as f64).sqrt();
    let mut rotated = false;
    for p in 0..w.len() {
        for q in p + 1..w.len() {
            let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            let (a, b, g) = (dot(&w[p], &w[p]), dot(&w[q], &w[q]), dot(&w[p], &w[q]));
            if g.abs() > tolerance * a.sqrt() * b.sqrt() {
                rotated = true;
                let zeta = (b - a) / (2.0 * g);
                let root = (1.0 + zeta * zeta).sqrt();
                let t = 1.0 / (zeta + if zeta < 0.0 { -root } else { root });
                let c = 1.0 / (1.0 + t * t).sqrt();
                rotate(w, [p, q], [c, c * t]);
                rotate(turned, [p, q], [c, c * t]);
            }
        }
    }
    rotated
}

fn rotate(rows: &mut [Vec<f64>], [p, q]: [usize; 2], [c, s]: [f64; 2]) {
    let (upper, lower) = rows.split_at_mut(q);
    for (x, y) in upper[p].iter_mut().zip(lower[0].iter_mut()) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

/// Replaces row `i` by a unit vector that is orthogonal to the rows before it, which are unit
/// vectors: the rest of the axis that is farthest from them.
fn complete(w: &mut [Vec<f64>], i: usize) {
    let length = w[i].len();
    let (done, rest) = w.split_at_mut(i);
    let used = |j: usize| done.iter().map(|row| row[j] * row[j]).sum::<f64>();
    let mut axis = 0;
    for j in 1..length {
        if used(j) < used(axis) {
            axis = j;
        }
    }
    let own = &mut rest[0];
    own.fill(0.0);
    own[axis] = 1.0;
    // Twice: the first time rounding leaves parts of other rows.
    for _ in 0..2 {
        for row in done.iter() {
            let dot: f64 = row.iter().zip(own.iter()).map(|(x, y)| x * y).sum();
            own.iter_mut().zip(row).for_each(|(x, y)| *x -= dot * y);
        }
        let norm = own.iter().map(|v| v * v).sum::<f64>().sqrt();
        own.iter_mut().for_each(|v| *v /= norm);
    }
}
