//! Writing libraries from Python.

use std::path::PathBuf;
use std::sync::Arc;

use mithril_driver::compile::Program;
use mithril_driver::native::export::{Export, Files, export};
use mithril_ir::diagnostic::Diagnostic;
use mithril_kernels::host::Host;
use mithril_model::naming::snake_case;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::fault::Answer;
use crate::native::{interruptible, warn};
use crate::value::tensor;

/// What is asked for: a folder, a name or that of the model, processors, and params or none.
pub struct Request<'a, 'py> {
    pub folder: PathBuf,
    pub name: Option<String>,
    pub cpu: Vec<String>,
    pub params: Option<&'a Bound<'py, PyDict>>,
}

/// Writes the library of a program that has native code.
pub fn write(py: Python<'_>, program: &Arc<Program>, request: Request) -> Answer<Files> {
    let name = request.name.unwrap_or_else(|| snake_case(&program.name));
    if name.is_empty() || name.contains('/') {
        let expected = "a name, without the folder and without an extension";
        return Err(Diagnostic::new("no files can be named so")
            .got(name)
            .expected(expected)
            .into());
    }
    let weights = request.params.map(|params| {
        let all = params.iter().map(|(name, value)| Ok((name.extract()?, tensor(&value)?)));
        all.collect::<Answer<Vec<_>>>()
    });
    let hosts = request.cpu.iter().map(|cpu| Host::parse(cpu));
    let request = Export {
        library: request.folder.join(format!("lib{name}.so")),
        hosts: hosts.collect::<Result<_, _>>()?,
        weights: weights.transpose()?,
        indexed: program.indexed.clone(),
        name,
    };
    let program = program.clone();
    let name = program.name.clone();
    let files = interruptible(py, move |stop| export(&program.module, &request, stop))?;
    for why in &files.warnings {
        warn(py, &format!("{name}: {why}"))?;
    }
    Ok(files)
}
