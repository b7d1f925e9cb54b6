//! Factorisations of matrices, and what is computed by them. All compute in f64.

use super::array::{Array, Data, Walk, strides};
use crate::dtype::DType;
use crate::scalar::round;

/// A stack of matrices: the last two axes of an array.
pub(super) struct Stack<'a> {
    pub data: &'a [f64],
    pub batch: &'a [usize],
    pub rows: usize,
    pub columns: usize,
}

impl<'a> Stack<'a> {
    /// The matrices of an array of floats with at least two axes.
    ///
    /// # Errors
    /// For other arrays.
    pub fn of(x: &'a Array) -> Result<Stack<'a>, String> {
        match (&x.data, &x.shape[..]) {
            (Data::Float(data), [batch @ .., rows, columns]) => {
                Ok(Stack { data, batch, rows: *rows, columns: *columns })
            }
            _ => Err(format!("{} of shape {:?} is not a matrix of floats", x.dtype, x.shape)),
        }
    }

    /// The matrices, one after the other.
    pub fn each(&self) -> impl Iterator<Item = &'a [f64]> {
        let size = self.rows * self.columns;
        let count: usize = self.batch.iter().product();
        let data = self.data;
        (0..count).map(move |i| &data[i * size..][..size])
    }

    /// The matrices at each index of `batch`, to which the own batch axes broadcast.
    pub fn broadcast(&self, batch: &[usize]) -> impl Iterator<Item = &'a [f64]> {
        let size = self.rows * self.columns;
        let missing = batch.len() - self.batch.len();
        let own = strides(self.batch);
        let step = |axis: usize| match axis.checked_sub(missing) {
            Some(axis) if self.batch[axis] != 1 => own[axis],
            _ => 0,
        };
        let steps: Vec<isize> = (0..batch.len()).map(step).collect();
        let data = self.data;
        Walk::new(batch, &steps, 0).map(move |i| &data[i * size..][..size])
    }
}

/// The dims that two lists of batch axes broadcast to.
///
/// # Errors
/// For sizes that do not broadcast.
pub(super) fn broadcast(x: &[usize], y: &[usize]) -> Result<Vec<usize>, String> {
    let rank = x.len().max(y.len());
    let size = |own: &[usize], axis: usize| match (axis + own.len()).checked_sub(rank) {
        Some(at) => own[at],
        None => 1,
    };
    (0..rank)
        .map(|axis| match (size(x, axis), size(y, axis)) {
            (a, b) if a == b => Ok(a),
            (1, b) => Ok(b),
            (a, 1) => Ok(a),
            (a, b) => Err(format!("batch dims differ: {a} and {b}")),
        })
        .collect()
}

/// An array of these elements, which are rounded to the dtype.
pub(super) fn rounded(dtype: DType, shape: Vec<usize>, elements: Vec<f64>) -> Array {
    let data = elements.into_iter().map(|v| round::round(dtype, v)).collect();
    Array { dtype, shape, data: Data::Float(data) }
}

/// The lower Cholesky factor of each matrix. NaN where it is not positive definite.
///
/// # Errors
/// For an array that is not square matrices of floats.
pub fn cholesky(x: &Array) -> Result<Array, String> {
    let stack = squares(x)?;
    let elements = stack.each().flat_map(|matrix| factor(matrix, stack.rows)).collect();
    Ok(rounded(x.dtype, x.shape.clone(), elements))
}

/// The matrices of an array, which must be square.
pub(super) fn squares(x: &Array) -> Result<Stack<'_>, String> {
    let stack = Stack::of(x)?;
    match stack.rows == stack.columns {
        true => Ok(stack),
        false => Err(format!("{} x {} matrices are not square", stack.rows, stack.columns)),
    }
}

fn factor(matrix: &[f64], n: usize) -> Vec<f64> {
    let mut factor = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| factor[i * n + k] * factor[j * n + k]).sum();
            let rest = matrix[i * n + j] - dot;
            factor[i * n + j] = match i == j {
                true if rest > 0.0 => rest.sqrt(),
                true => f64::NAN,
                false => rest / factor[j * n + j],
            };
        }
    }
    if n > 0 && factor[n * n - 1].is_nan() {
        let lower = |at: usize| if at % n <= at / n { f64::NAN } else { 0.0 };
        factor = (0..n * n).map(lower).collect();
    }
    factor
}

/// A matrix as the product of a permutation and two triangles, which share its memory.
struct Elimination {
    rows: Vec<Vec<f64>>,
    /// The sign of the permutation.
    sign: f64,
}

/// Eliminates the columns of a square matrix with partial pivoting. `right` are further columns,
/// in rows of `width`, which the same steps are applied to.
fn eliminate(matrix: &[f64], n: usize, right: &[f64], width: usize) -> Elimination {
    let row = |i: usize| [&matrix[i * n..][..n], &right[i * width..][..width]].concat();
    let mut rows: Vec<Vec<f64>> = (0..n).map(row).collect();
    let mut sign = 1.0;
    for k in 0..n {
        let mut pivot = k;
        for i in k + 1..n {
            if rows[i][k].abs() > rows[pivot][k].abs() {
                pivot = i;
            }
        }
        if pivot != k {
            rows.swap(pivot, k);
            sign = -sign;
        }
        let (above, below) = rows.split_at_mut(k + 1);
        let top = &above[k];
        for own in below {
            let factor = own[k] / if top[k] == 0.0 { 1.0 } else { top[k] };
            own[k] = factor;
            for (x, y) in own[k + 1..].iter_mut().zip(&top[k + 1..]) {
                *x -= factor * y;
            }
        }
    }
    Elimination { rows, sign }
}

/// The solution of `a @ x = b` for each pair of matrices.
///
/// # Errors
/// For shapes that do not match.
pub fn solve(a: &Array, b: &Array) -> Result<Array, String> {
    let (left, right) = (squares(a)?, Stack::of(b)?);
    let (n, width) = (left.rows, right.columns);
    if right.rows != n {
        return Err(format!("{n} equations have {} right sides", right.rows));
    }
    let batch = broadcast(left.batch, right.batch)?;
    let mut elements = Vec::new();
    for (a, b) in left.broadcast(&batch).zip(right.broadcast(&batch)) {
        let mut rows = eliminate(a, n, b, width).rows;
        for i in (0..n).rev() {
            let (above, below) = rows.split_at_mut(i + 1);
            let own = &mut above[i];
            for c in n..n + width {
                let dot: f64 = below.iter().zip(&own[i + 1..n]).map(|(x, u)| u * x[c]).sum();
                own[c] = (own[c] - dot) / own[i];
            }
        }
        elements.extend(rows.iter().flat_map(|row| row[n..].iter().copied()));
    }
    Ok(rounded(a.dtype, [&batch[..], &[n, width]].concat(), elements))
}

/// The determinant of each matrix.
///
/// # Errors
/// For an array that is not square matrices of floats.
pub fn determinant(x: &Array) -> Result<Array, String> {
    pivots(x, |sign, pivots| pivots.fold(sign, |product, pivot| product * pivot))
}

/// The sign of the determinant of each matrix, or (where `of` is 1) the logarithm of its magnitude.
///
/// # Errors
/// For an array that is not square matrices of floats.
pub fn log_determinant(x: &Array, of: i64) -> Result<Array, String> {
    let signum = |v: f64| if v == 0.0 { 0.0 } else { v.signum() };
    pivots(x, |sign, pivots| match of {
        0 => pivots.fold(sign, |product, pivot| product * signum(pivot)),
        _ => pivots.map(|pivot| pivot.abs().ln()).sum(),
    })
}

/// A number for each matrix: `fold` of the sign of the permutation and the pivots.
fn pivots(
    x: &Array,
    fold: impl Fn(f64, &mut dyn Iterator<Item = f64>) -> f64,
) -> Result<Array, String> {
    let stack = squares(x)?;
    let n = stack.rows;
    let number = |matrix: &[f64]| {
        let elimination = eliminate(matrix, n, &[], 0);
        fold(elimination.sign, &mut (0..n).map(|i| elimination.rows[i][i]))
    };
    let elements = stack.each().map(number).collect();
    Ok(rounded(x.dtype, stack.batch.to_vec(), elements))
}
