//! The names of the processors that native code can be compiled for.

use mithril_kernels::host::{Host, chosen, levels, setting};
use pyo3::prelude::*;

use super::error::{Answer, guarded};

/// The name of the processor that native code is made for: `cpu`; without it what the environment's
/// MITHRIL_CPU says, else `native`.
///
/// Errors: `UsageError` for one that there is not; `BackendError` for one with features that this
/// machine lacks.
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

/// The names of the processors that native code is tested for and that this machine can run, the
/// least first: levels of x86-64, and the last one with its extensions.
#[pyfunction]
pub fn processors() -> Vec<String> {
    levels().iter().map(Host::name).collect()
}
