//! The type stub of the Python classes that are generated from the block table.

use std::fmt::Write;

use mithril_ir::graph::Role;

use crate::blocks::{Default, Entry, Kind, Meaning, Parameter, strings, table};

const HEAD: &str = "\
# Generated from the block table: `make bless` regenerates it.

import typing
from collections.abc import Callable, Mapping, Sequence

from ._core import Block as Block
from ._core import Connection as Connection
from ._core import IOKey as IOKey
from ._core import Model as Model
from ._core import TrainModel as TrainModel
";

/// The text of `mithril/models.pyi`.
pub fn models() -> String {
    let mut text = HEAD.to_string();
    let own = ["Block", "Connection", "IOKey", "Model", "TrainModel"];
    let names = own.into_iter().chain(table().map(|entry| entry.name));
    text.push_str("\n__all__ = [\n");
    for name in names {
        let _ = writeln!(text, "    \"{name}\",");
    }
    text.push_str("]\n");
    for entry in table() {
        class(&mut text, entry);
    }
    text
}

fn class(text: &mut String, entry: &Entry) {
    let _ = writeln!(text, "\nclass {}(Block):", entry.name);
    let doc = entry.doc().replace('\\', "\\\\");
    let _ = writeln!(text, "    \"\"\"{doc}\"\"\"\n");
    let _ = writeln!(text, "    def __init__(");
    let _ = writeln!(text, "        self,");
    for parameter in entry.parameters {
        let default = default(parameter);
        let given = if default.is_empty() { String::new() } else { format!(" = {default}") };
        let _ = writeln!(text, "        {}: {}{given},", parameter.name, annotation(parameter));
    }
    let _ = writeln!(text, "        *,");
    for [name, annotation, default] in keywords(entry) {
        let _ = writeln!(text, "        {name}: {annotation} = {default},");
    }
    let _ = writeln!(text, "    ) -> None: ...");
}

/// The keywords that a block takes in addition to its parameters: name, annotation and default.
pub fn keywords(entry: &Entry) -> Vec<[&'static str; 3]> {
    let mut keywords: Vec<[&str; 3]> =
        ["name", "backend", "device"].map(|name| [name, "str | None", "None"]).into();
    let numerics = [
        ["dtype", "object", "None"],
        ["precision", "int | None", "None"],
        ["acc", "object", "None"],
    ];
    let defines = |name: &str| entry.parameters.iter().any(|own| own.name == name);
    keywords.extend(numerics.into_iter().filter(|[name, ..]| !defines(name)));
    if matches!(entry.meaning, Meaning::Compose(_)) {
        keywords.push(["checkpoint", "bool", "False"]);
    }
    if entry.inputs.iter().all(|input| input.role == Role::Data && !input.list) {
        keywords.push(["gradient", "Block | None", "None"]);
    }
    keywords
}

/// The Python type annotation of a parameter.
pub fn annotation(parameter: &Parameter) -> String {
    match parameter.default {
        Default::None => format!("{} | None", kind(parameter.kind)),
        _ => kind(parameter.kind),
    }
}

fn kind(own: Kind) -> String {
    match own {
        Kind::Bool => "bool".into(),
        Kind::Int | Kind::Count => "int".into(),
        Kind::Float(_) => "float".into(),
        Kind::DType => "object".into(),
        Kind::Str => "str".into(),
        Kind::OneOf(names) => format!("typing.Literal[{}]", strings(names)),
        Kind::OrOneOf(item, names) => format!("{} | {}", kind(*item), kind(Kind::OneOf(names))),
        Kind::OrNone(item) => format!("{} | None", kind(*item)),
        Kind::OneOrList(item) => format!("{} | Sequence[{0}]", kind(*item)),
        Kind::List(item) => format!("Sequence[{}]", kind(*item)),
        Kind::CountOrFloats => "int | Sequence[float]".into(),
        Kind::Pairs => "Sequence[Sequence[int]]".into(),
        Kind::Padding => "int | Sequence[int | Sequence[int]]".into(),
        Kind::Names => "Mapping[str, str] | Sequence[Sequence[str]]".into(),
        Kind::Axes => "int | Mapping[str, int | None]".into(),
        Kind::Split => "Sequence[int | None] | Mapping[str, int | None]".into(),
        Kind::Dim => "int | Connection | None".into(),
        Kind::Dims => "int | Sequence[int | Connection | None]".into(),
        Kind::Index => "typing.Any".into(),
        Kind::Scalar => "int | Connection".into(),
        Kind::Block => "Block".into(),
        Kind::Value => "typing.Any".into(),
        Kind::Init => "str | float | Callable[[typing.Any, tuple[int, ...]], typing.Any]".into(),
    }
}

/// The default in Python syntax; empty if the parameter is required.
pub fn default(parameter: &Parameter) -> String {
    match parameter.default {
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
