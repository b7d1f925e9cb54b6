//! The metadata of a library: the contents of its header as JSON.

use mithril_ir::shape::Type;
use mithril_kernels::entry::{Array, Entry, Group, Interface, Parameter, named};
use serde_json::{Map, Value, json};

use super::{Files, name_of};
use crate::VERSION;
use crate::params::Place;

/// The version of the format.
const FORMAT: u32 = 1;

/// The text of the metadata file.
pub fn text(
    interface: &Interface,
    processors: &[&str],
    files: &Files,
    weights: &[Place],
) -> String {
    let mut all = json!({
        "format": FORMAT,
        "mithril": VERSION,
        "model": interface.model,
        "library": name_of(&files.library),
        "header": name_of(&files.header),
        "processors": processors,
        "functions": interface.entries.iter().map(function).collect::<Vec<_>>(),
    });
    if let Some(path) = &files.weights {
        let place = |place: &Place| {
            (place.name.clone(), json!({"offset": place.offset, "bytes": place.bytes}))
        };
        let places: Map<String, Value> = weights.iter().map(place).collect();
        all["weights"] = json!({"file": name_of(path), "params": places});
    }
    format!("{all:#}\n")
}

fn function(entry: &Entry) -> Value {
    let symbol = |at: usize| {
        let symbol = &entry.symbols[at];
        json!({"name": symbol.symbol.as_str(), "parameter": symbol.name, "max": entry.limit})
    };
    let named = |kind: &str, name: &str| json!({"kind": kind, "name": name});
    let parameter = |parameter: Parameter| match parameter {
        Parameter::Symbol(at) => named("dim", &entry.symbols[at].name),
        Parameter::Argument(at) => named("argument", &entry.arguments[at].name),
        Parameter::Result(at) => named("result", &entry.results[at].name),
        Parameter::Record(at) => {
            let record = &entry.records[at];
            let fields: Vec<&str> = entry.fields(record).map(|array| &*array.name).collect();
            let (name, type_name) = (&record.name, &record.type_name);
            json!({"kind": "struct", "name": name, "type": type_name, "fields": fields})
        }
        Parameter::Workspace => named("workspace", "workspace"),
    };
    let arrays = |arrays: &[Array]| arrays.iter().map(|a| array(entry, a)).collect::<Vec<_>>();
    json!({
        "name": entry.name,
        "workspace_bytes": format!("{}_workspace_bytes", entry.name),
        "parallel": format!("{}_parallel", entry.name),
        "parallel_workspace_bytes": format!("{}_parallel_workspace_bytes", entry.name),
        "dims": (0..entry.symbols.len()).map(symbol).collect::<Vec<_>>(),
        "constraints": entry.checks.iter().map(|check| &check.text).collect::<Vec<_>>(),
        "indices": entry.indices.iter().map(|indices| &indices.text).collect::<Vec<_>>(),
        "parameters": entry.parameters().into_iter().map(parameter).collect::<Vec<_>>(),
        "arguments": arrays(&entry.arguments),
        "results": arrays(&entry.results),
    })
}

fn array(entry: &Entry, array: &Array) -> Value {
    let role = match array.group {
        Group::Output => "output",
        Group::Gradient => "gradient",
        Group::Input | Group::Param | Group::State | Group::NextState => array.role.name(),
    };
    let Type { dtype, shape } = &array.ty;
    let dim = |dim| match named(dim, &entry.symbols) {
        dim if dim.as_const().is_some() => json!(dim.as_const()),
        dim => json!(dim.to_string()),
    };
    let shape: Vec<Value> = shape.dims.iter().map(dim).collect();
    let mut own =
        json!({"name": &*array.path, "role": role, "dtype": dtype.name(), "shape": shape});
    match entry.records.iter().find(|record| record.group == array.group) {
        Some(record) => {
            own["struct"] = json!(record.type_name);
            own["field"] = json!(array.name);
        }
        None => own["parameter"] = json!(array.name),
    }
    own
}
