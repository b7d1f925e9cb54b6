//! The block table, from which Python makes its classes.

use mithril_model::stub::{annotation, default, keywords};
use mithril_model::{blocks, page};
use pyo3::prelude::*;

/// What there is to know of the class of a block.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct BlockInfo {
    /// The name of the class.
    name: &'static str,
    /// What it computes.
    doc: String,
    /// The page that `help` shows.
    help: String,
    /// What it computes as an expression of NumPy; empty where none is short.
    formula: &'static str,
    /// The part of the library it belongs to.
    group: String,
    /// Names, annotations and defaults as Python text; an empty default: it must be given.
    parameters: Vec<(&'static str, String, String)>,
    /// The same of the keywords that it takes besides them.
    keywords: Vec<[&'static str; 3]>,
    /// The names of the inputs; optional ones end in `=`.
    inputs: Vec<String>,
    /// The names of the outputs.
    outputs: Vec<&'static str>,
}

/// Every block of the library.
#[pyfunction]
pub fn block_names() -> Vec<&'static str> {
    blocks::table().map(|entry| entry.name).collect()
}

/// The blocks by family, as text.
#[pyfunction]
pub fn block_listing() -> String {
    page::listing()
}

/// What there is to know of a block; `None`: there is none of that name.
#[pyfunction]
pub fn block_info(name: &str) -> Option<BlockInfo> {
    let entry = blocks::find(name)?;
    let parameters = entry.parameters.iter();
    let parameters = parameters.map(|p| (p.name, annotation(p), default(p)));
    let input = |i: &blocks::Input| match i.optional {
        true => format!("{}=", i.name),
        false => i.name.to_string(),
    };
    Some(BlockInfo {
        name: entry.name,
        doc: entry.doc(),
        help: page::help(entry),
        formula: entry.formula,
        group: format!("{:?}", entry.group),
        parameters: parameters.collect(),
        keywords: keywords(entry),
        inputs: entry.inputs.iter().map(input).collect(),
        outputs: entry.outputs.iter().map(|o| o.name).collect(),
    })
}
