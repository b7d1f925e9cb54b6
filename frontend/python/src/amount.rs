//! Amounts of memory for Python.

use pyo3::prelude::*;

/// The bytes of `"4GB"`, `"512 MiB"`, or of digits; `None` of what is no size.
#[pyfunction]
pub fn amount(text: &str) -> Option<u64> {
    mithril_driver::amount::bytes(text)
}
