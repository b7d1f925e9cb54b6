//! The names of the processors that native code can be compiled for.

use mithril_kernels::host::{Host, chosen, levels, setting};
use pyo3::prelude::*;

use super::error::{Answer, guarded};

/// The name of the processor that native code is compiled for: `cpu`, or else the environment
/// variable MITHRIL_CPU, or else `native`.
///
/// Errors: `UsageError` for an unknown processor; `BackendError` for a processor with features that
/// this machine does not have.
#[pyfunction]
#[pyo3(signature = (cpu=None))]
pub fn processor(cpu: Option<String>) -> Answer<String> {
    guarded(|| {
        match cpu.clone().or_else(setting) {
            // The machine's own processor is not detected before code is generated.
            None => Ok("native".into()),
            Some(name) if name == "native" => Ok(name),
            Some(_) => Ok(chosen(cpu.as_deref())?.name()),
        }
    })
}

/// The names of the processors for which native code is tested and can run on this machine, in
/// ascending order: levels of x86-64, and the highest one with its extensions.
#[pyfunction]
pub fn processors() -> Vec<String> {
    levels().iter().map(Host::name).collect()
}
