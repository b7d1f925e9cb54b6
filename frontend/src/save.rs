//! Models as JSON: blocks by name and settings, connections by number. Equal blocks are written once.

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use crate::block::Block;
use crate::literal::Literal;
use crate::lower::DimSpec;
use crate::model::Model;
use crate::model::graph::{Child, Graph, Port, Wire};
use crate::setting::Setting;
use mithril_passes::nesting::deeper;

/// The version of the format. Older ones are migrated, newer refused.
pub const VERSION: u64 = 1;

impl Block {
    /// The block as JSON, without the connections it was to be added with.
    pub fn to_json(&self) -> String {
        let mut writer = Writer::default();
        let root = writer.block(self);
        let value = json!({ "mithril": VERSION, "blocks": writer.blocks, "root": root });
        serde_json::to_string_pretty(&value).expect("JSON of strings and numbers")
    }
}

#[derive(Default)]
struct Writer {
    blocks: Vec<Value>,
    known: FxHashMap<Block, usize>,
}

impl Writer {
    /// Where the definition of a block stands; and its name.
    fn block(&mut self, block: &Block) -> Value {
        let index = match self.known.get(block) {
            Some(index) => *index,
            None => {
                let value = deeper(|| self.definition(block));
                self.blocks.push(value);
                self.known.insert(block.clone(), self.blocks.len() - 1);
                self.blocks.len() - 1
            }
        };
        let mut object = Map::new();
        object.insert("definition".into(), json!(index));
        if let Some(name) = block.name() {
            object.insert("name".into(), json!(name));
        }
        if let Some(gradient) = &block.gradient {
            let gradient = self.block(&Block::from_definition(gradient.clone()));
            object.insert("gradient".into(), gradient);
        }
        if block.checkpoint {
            object.insert("checkpoint".into(), json!(true));
        }
        Value::Object(object)
    }

    fn definition(&mut self, block: &Block) -> Value {
        if let (Some(entry), Some(settings)) = (block.entry(), block.settings()) {
            let changed =
                settings.iter().filter(|(p, value)| p.default.setting().as_ref() != Some(*value));
            let changed: Map<String, Value> =
                changed.map(|(p, value)| (p.name.to_string(), self.setting(value))).collect();
            return json!({ "block": entry.name, "settings": changed });
        }
        let model = Model::from_block(block).expect("a block that no table has is a model");
        let graph = model.graph();
        let children: Vec<Value> = graph.children.iter().map(|c| self.child(&graph, c)).collect();
        let wires: Vec<Value> = graph.wires.iter().map(wire).collect();
        json!({
            "model": &*graph.kind,
            "parts": children,
            "wires": wires,
            "last": graph.last,
            "standard": [graph.standard.0, graph.standard.1],
        })
    }

    fn child(&mut self, graph: &Graph, child: &Child) -> Value {
        let definition = &child.block.definition;
        let mut inputs = Map::new();
        for (terminal, port) in definition.inputs.iter().zip(&child.inputs) {
            let value = match port {
                Port::Open => continue,
                Port::Wire(id) => json!(id),
                Port::List(ids) => json!(ids),
            };
            inputs.insert(terminal.name.to_string(), value);
        }
        let outputs = definition.outputs.iter().zip(&child.outputs);
        let outputs: Map<String, Value> = outputs
            .map(|(outlet, id)| {
                let value = match &graph.wire(*id).elements {
                    Some(elements) => json!([id, elements]),
                    None => json!(id),
                };
                (outlet.name.to_string(), value)
            })
            .collect();
        json!({
            "block": self.block(&child.block),
            "fold": child.fold,
            "inputs": inputs,
            "outputs": outputs,
        })
    }

    fn setting(&mut self, setting: &Setting) -> Value {
        match setting {
            Setting::None => Value::Null,
            Setting::Bool(v) => json!(v),
            Setting::Int(v) => json!(v),
            Setting::Float(v) if v.is_finite() => json!(v),
            Setting::Float(v) => json!({ "float": v.to_string() }),
            Setting::Str(v) => json!(&**v),
            Setting::DType(v) => json!({ "dtype": v.name() }),
            Setting::Tensor(v) => json!({ "tensor": tensor(v) }),
            Setting::Block(v) => self.block(v),
            Setting::List(items) => items.iter().map(|s| self.setting(s)).collect(),
            Setting::Slice(parts) => {
                let parts: Vec<Value> = parts.iter().map(|s| self.setting(s)).collect();
                json!({ "slice": parts })
            }
            Setting::Ellipsis => json!({ "ellipsis": true }),
            Setting::Connection(_) | Setting::Terminal => json!({ "terminal": true }),
        }
    }
}

fn wire(wire: &Wire) -> Value {
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| drop(object.insert(key.into(), value));
    if let Some(name) = &wire.name {
        add("name", json!(&**name));
    }
    if let Some(Literal { tensor: value, weak }) = &wire.value {
        add("value", tensor(value));
        add("weak", json!(weak));
    }
    if let Some(shape) = &wire.shape {
        add("shape", shape.iter().map(dim).collect());
    }
    if let Some(dtype) = wire.dtype {
        add("dtype", json!(dtype.name()));
    }
    if let Some(role) = wire.role {
        add("role", json!(role.name()));
    }
    if wire.expose {
        add("expose", json!(true));
    }
    if wire.discard {
        add("discard", json!(true));
    }
    Value::Object(object)
}

fn dim(dim: &DimSpec) -> Value {
    match dim {
        DimSpec::Number(n) => json!(n),
        DimSpec::Any => Value::Null,
        DimSpec::Named(name) => json!(&**name),
    }
}

fn tensor(tensor: &Tensor) -> Value {
    let bytes: String = tensor.bytes().iter().map(|b| format!("{b:02x}")).collect();
    let dtype: DType = tensor.dtype();
    json!({ "dtype": dtype.name(), "shape": tensor.shape(), "bytes": bytes })
}
