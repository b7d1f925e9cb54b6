//! The extension module `mithril._core`. Stubs are read off it: see `tests/tidy/tests/stubs.rs`.

use pyo3::prelude::*;

#[pymodule]
mod _core {
    /// The version of Mithril.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = crate::VERSION;
}
