//! The reference evaluator's kernels: what each kind of operation means, on arrays.
//!
//! Shapes and dtypes come checked by inference; a kernel still answers a mismatch with an error,
//! and never panics on data. Axes count from 0 and are not negative.

pub mod array;
pub mod contract;
pub mod cumulate;
pub mod elementwise;
pub mod index;
pub mod layout;
pub mod random;
pub mod reduce;
pub mod sort;
pub mod threefry;

pub use array::{Array, Data};

/// That `axes` lie below `rank` and are all different.
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

/// The values of `from` at `axes`.
fn at<T: Copy>(from: &[T], axes: &[usize]) -> Vec<T> {
    axes.iter().map(|&a| from[a]).collect()
}

/// The axes below `rank` that are not among `axes`.
fn others(axes: &[usize], rank: usize) -> Vec<usize> {
    (0..rank).filter(|a| !axes.contains(a)).collect()
}
