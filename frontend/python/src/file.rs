//! Reads the files and texts that are passed to functions of the package.

use std::fs;
use std::path::PathBuf;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_model::{Block, Code};
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

/// The block of a JSON text. Errors: those of [`Block::from_json_of`].
pub fn block_of_text(text: &str, trust_code: bool) -> Result<Block> {
    Block::from_json_of(text, if trust_code { Code::Trusted } else { Code::Refused })
}

/// The block of a JSON file. Errors: the file cannot be read; those of [`Block::from_json_of`], with
/// the path.
pub fn file_block(given: &Bound<'_, PyAny>, trust_code: bool) -> Answer<Block> {
    let text = read(given)?;
    let place = path("load", given)?.display().to_string();
    let placed = |mut error: Box<Diagnostic>| {
        error.place.get_or_insert(place);
        error
    };
    Ok(block_of_text(&text, trust_code).map_err(placed)?)
}
