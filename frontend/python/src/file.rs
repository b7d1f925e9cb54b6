//! Reads the files and texts that are passed to functions of the package.

use std::fs;
use std::path::PathBuf;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use pyo3::prelude::*;

use super::error::Answer;

/// The argument of `from_json`. Errors: it is not a string.
pub fn json(text: &Bound<'_, PyAny>) -> Answer<String> {
    text.extract().map_err(|_| {
        let class = text.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        let what = Diagnostic::new("`from_json` takes the text that `to_json` wrote");
        what.got(class).expected("a string").into()
    })
}

/// An argument that must be a path. Errors: it is not a path.
pub fn path(function: &str, value: &Bound<'_, PyAny>) -> Answer<PathBuf> {
    value.extract().map_err(|_| {
        let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        let what = format!("Unexpected argument: `{function}` takes the path of a file");
        Diagnostic::of(ErrorKind::Argument, what)
            .got(class)
            .expected("a string or a `pathlib.Path`")
            .into()
    })
}

/// The text of a file. Errors: `given` is not a path, or the file cannot be read. The message has
/// the path.
pub fn read(given: &Bound<'_, PyAny>) -> Answer<String> {
    let path = path("load", given)?;
    fs::read_to_string(&path).map_err(|error| {
        let what = Diagnostic::of(ErrorKind::File, "the file cannot be read")
            .at(path.display().to_string());
        what.got(error).into()
    })
}
