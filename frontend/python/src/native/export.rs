//! Exports libraries from Python.

use std::path::Path;
use std::sync::Arc;

use mithril_driver::compile::Program;
use mithril_driver::native::export::{Export, Files, Library, export};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Answer;
use crate::native::{interruptible, warn};
use crate::value::tensor;

/// Writes the library of a program with native code, with these params if given.
pub fn write(
    py: Python<'_>,
    program: &Arc<Program>,
    folder: &Path,
    library: &Library,
    params: Option<&Bound<'_, PyDict>>,
) -> Answer<Files> {
    let weights = params.map(|params| {
        let all = params.iter().map(|(name, value)| Ok((name.extract()?, tensor(&value)?)));
        all.collect::<Answer<Vec<_>>>()
    });
    let request = Export::of(program, folder, library, weights.transpose()?)?;
    let program = program.clone();
    let name = program.name.clone();
    let files = interruptible(py, move |stop| export(&program.module, &request, stop))?;
    for why in &files.warnings {
        warn(py, &format!("{name}: {why}"))?;
    }
    Ok(files)
}
