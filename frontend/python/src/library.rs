//! The table of blocks, from which the Python classes of blocks are created.

use mithril_model::stub::{annotation, default, keywords};
use mithril_model::{blocks, page};
use pyo3::prelude::*;

/// The description of a class of blocks.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct BlockInfo {
    /// The name of the class.
    name: &'static str,
    /// The description of the result.
    doc: String,
    /// The text that `help` shows.
    help: String,
    /// The result as a NumPy expression. It is empty if there is no short one.
    formula: &'static str,
    /// The part of the library that the block belongs to.
    group: String,
    /// The names, annotations and defaults of the parameters as Python text. A required parameter
    /// has an empty default.
    parameters: Vec<(&'static str, String, String)>,
    /// The same for additional keywords.
    keywords: Vec<[&'static str; 3]>,
    /// The names of the inputs. Optional inputs end in `=`.
    inputs: Vec<String>,
    /// The names of the outputs.
    outputs: Vec<&'static str>,
}

/// The names of all blocks.
#[pyfunction]
pub fn block_names() -> Vec<&'static str> {
    blocks::table().map(|entry| entry.name).collect()
}

/// A text that lists the blocks by family.
#[pyfunction]
pub fn block_listing() -> String {
    page::listing()
}

/// The description of a block. None if there is no block with this name.
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
