//! Custom operations of compiled programs.

use pyo3::prelude::*;

use crate::dtype::DType;
use crate::error::Answer;
use crate::program::Program;

/// The name of a function, and those of its results with their dtypes.
type Declared = (String, Vec<(String, DType)>);

/// The functions of a program whose bodies users wrote, with the results that they declare.
///
/// Errors: ranks that the code needs are not known.
#[pyfunction]
pub fn custom_results(program: &Program) -> Answer<Vec<Declared>> {
    let functions = program.program.functions()?.functions.values();
    let custom = functions.filter(|function| function.external && function.computes.is_none());
    let declared = custom.map(|function| {
        let result = |own: &mithril_ir::graph::ResultDef| {
            (own.name.to_string(), DType(function.ty(own.value).dtype))
        };
        (function.name.to_string(), function.results.iter().map(result).collect())
    });
    Ok(declared.collect())
}
