//! The reference evaluator's kernels: what each kind of operation means, on arrays.
//!
//! Shapes and dtypes come checked by inference; a kernel still answers a mismatch with an error, and
//! never panics on data.

pub mod array;
