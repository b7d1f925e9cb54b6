//! Amounts of memory for Python.

use pyo3::prelude::*;

/// The number of bytes in a text such as `"4GB"`, `"512 MiB"` or `"4096"`. `None` if the text is
/// not an amount of memory.
#[pyfunction]
pub fn amount(text: &str) -> Option<u64> {
    mithril_driver::amount::bytes(text)
}
