//! The block table, for the classes that Python makes of it.

use pyo3::prelude::*;

use crate::blocks;

/// What there is to know of the class of a block.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct BlockInfo {
    /// The name of the class.
    name: &'static str,
    /// What it computes.
    doc: String,
    /// The part of the library it belongs to.
    group: String,
    /// Names, annotations and defaults as Python text; an empty default: it must be given.
    parameters: Vec<(&'static str, String, String)>,
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

/// What there is to know of a block; `None`: there is none of that name.
#[pyfunction]
pub fn block_info(name: &str) -> Option<BlockInfo> {
    let entry = blocks::find(name)?;
    let parameters = entry.parameters.iter().map(|parameter| {
        let (kind, default) = (annotation(parameter.kind), default_text(parameter.default));
        let optional = parameter.default == blocks::Default::None;
        let kind = if optional {
            format!("{kind} | None")
        } else {
            kind
        };
        (parameter.name, kind, default)
    });
    let input = |i: &blocks::Input| match i.optional {
        true => format!("{}=", i.name),
        false => i.name.to_string(),
    };
    Some(BlockInfo {
        name: entry.name,
        doc: entry.doc(),
        group: format!("{:?}", entry.group),
        parameters: parameters.collect(),
        inputs: entry.inputs.iter().map(input).collect(),
        outputs: entry.outputs.iter().map(|o| o.name).collect(),
    })
}

fn annotation(kind: blocks::Kind) -> String {
    use blocks::Kind;
    match kind {
        Kind::Bool => "bool".into(),
        Kind::Int | Kind::Count => "int".into(),
        Kind::Float | Kind::Rate => "float".into(),
        Kind::DType => "object".into(),
        Kind::Str => "str".into(),
        Kind::OneOf(names) => {
            let names: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
            format!("Literal[{}]", names.join(", "))
        }
        Kind::Ints => "int | Sequence[int]".into(),
        Kind::Pairs => "Sequence[Sequence[int]]".into(),
        Kind::Strs => "Sequence[str]".into(),
        Kind::Floats => "Sequence[float]".into(),
        Kind::Dims => "int | Sequence[int | None | Connection]".into(),
        Kind::Index => "Any".into(),
        Kind::Scalar => "int | Connection".into(),
        Kind::Block => "Block".into(),
        Kind::Blocks => "Sequence[Block]".into(),
        Kind::BlocksOrNone => "Sequence[Block | None]".into(),
        Kind::Value => "Any".into(),
    }
}

fn default_text(default: blocks::Default) -> String {
    use blocks::Default;
    match default {
        Default::Required => String::new(),
        Default::None => "None".into(),
        Default::Bool(true) => "True".into(),
        Default::Bool(false) => "False".into(),
        Default::Int(v) => v.to_string(),
        Default::Float(v) => format!("{v:?}"),
        Default::Str(v) => format!("\"{v}\""),
        Default::DType(v) => format!("\"{}\"", v.array_name()),
    }
}
