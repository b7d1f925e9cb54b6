//! The kernels of the reference evaluator, which define each kind of operation on arrays.
//!
//! Type inference has checked shapes and dtypes; a kernel still returns an error on a mismatch, and
//! never panics on data. Axes count from 0 and are not negative.

pub mod array;
pub mod contract;
pub mod cumulate;
pub mod elementwise;
pub mod fourier;
pub mod index;
pub mod layout;
pub mod linear_algebra;
pub mod orthogonal;
pub mod random;
pub mod reduce;
pub mod sort;
pub mod threefry;
pub mod triangular;

pub use array::{Array, Data};

/// Checks that `axes` are less than `rank` and distinct.
fn check_axes(axes: &[usize], rank: usize) -> Result<(), String> {
    for (i, axis) in axes.iter().enumerate() {
        if *axis >= rank {
            return Err(format!("axis {axis} is out of range for rank {rank}"));
        }
        if axes[..i].contains(axis) {
            return Err(format!("axis {axis} is named twice"));
        }
    }
    Ok(())
}

/// The elements of `from` at the indices `axes`.
fn at<T: Copy>(from: &[T], axes: &[usize]) -> Vec<T> {
    axes.iter().map(|&a| from[a]).collect()
}

/// The axes below `rank` that are not among `axes`.
fn others(axes: &[usize], rank: usize) -> Vec<usize> {
    (0..rank).filter(|a| !axes.contains(a)).collect()
}
