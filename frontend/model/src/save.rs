//! Writes models as JSON: blocks by name and settings, connections by index. Equal definitions are
//! written once. If blocks of one definition share params, each block lists the indices of its
//! shared params.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dtype::DType;
use mithril_ir::nesting::deeper;
use mithril_ir::tensor::Tensor;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use crate::block::Block;
use crate::identity::ParamId;
use crate::literal::Literal;
use crate::lower::DimSpec;
use crate::model::Model;
use crate::model::graph::{Child, Graph, Port, Wire};
use crate::model::readers::is_learned;
use crate::setting::Setting;

/// The version of the format. Older versions are migrated, newer ones are rejected.
pub const VERSION: u64 = 1;

impl Block {
    /// The block as JSON, without its pending connections. Errors: a block inside has a function as
    /// initializer.
    pub fn to_json(&self) -> Result<String> {
        let mut writer = Writer::default();
        let root = writer.block(self, &mut Shared::default());
        if let Some((block, function)) = writer.function {
            return Diagnostic::new(
                "a function cannot be saved: `init` is saved only as a name or a number",
            )
            .got(format!("`init` of {block}: the function {function}"))
            .hint("leave it out, and give it to `randomize_params(init={\"…\": function})`")
            .err();
        }
        let value = json!({ "mithril": VERSION, "blocks": writer.blocks, "root": root });
        Ok(serde_json::to_string_pretty(&value).expect("JSON of strings and numbers"))
    }
}

#[derive(Default)]
struct Writer {
    blocks: Vec<Value>,
    definitions: FxHashMap<Block, usize>,
    /// A block that has a function among its settings, and the name of the function.
    function: Option<(String, Arc<str>)>,
}

/// The objects, params and states that blocks of one definition share.
#[derive(Default)]
struct Shared {
    uses: FxHashMap<ParamId, u32>,
    numbers: FxHashMap<ParamId, usize>,
}

impl Shared {
    fn of(blocks: impl IntoIterator<Item = Vec<ParamId>>) -> Shared {
        let mut shared = Shared::default();
        for id in blocks.into_iter().flatten() {
            *shared.uses.entry(id).or_default() += 1;
        }
        shared
    }

    /// The indices of the block's shared identities, with null for identities that are not shared.
    /// `None` if the block shares nothing.
    fn numbers(&mut self, block: &Block) -> Option<Value> {
        let is_shared = |id: &ParamId| self.uses.get(id).is_some_and(|uses| *uses > 1);
        let own = identities(block, |_| true);
        if !own.iter().any(is_shared) {
            return None;
        }
        let each = own.into_iter().map(|id| {
            let shared = self.uses.get(&id).is_some_and(|uses| *uses > 1);
            let next = self.numbers.len();
            shared.then(|| *self.numbers.entry(id).or_insert(next))
        });
        Some(json!(each.collect::<Vec<_>>()))
    }
}

/// The id of the block object, then its params and states among the inputs that satisfy `accepts`.
fn identities(block: &Block, accepts: impl Fn(usize) -> bool) -> Vec<ParamId> {
    let object = ParamId { block: block.identity, input: u32::MAX };
    let learned = (0..block.ids.len())
        .filter(|at| is_learned(block.definition.inputs[*at].role) && accepts(*at));
    std::iter::once(object).chain(learned.map(|at| block.ids[at])).collect()
}

/// Collects the blocks in a setting.
fn blocks_in<'a>(setting: &'a Setting, found: &mut Vec<&'a Block>) {
    match setting {
        Setting::Block(block) => found.push(block),
        Setting::List(items) => items.iter().for_each(|item| blocks_in(item, found)),
        Setting::None
        | Setting::Bool(_)
        | Setting::Int(_)
        | Setting::Float(_)
        | Setting::Str(_)
        | Setting::DType(_)
        | Setting::Tensor(_)
        | Setting::Slice(_)
        | Setting::Ellipsis
        | Setting::Function(_)
        | Setting::Connection(_)
        | Setting::Terminal => {}
    }
}

impl Writer {
    /// A reference to a block: the index of its definition, its name, and the indices of its shared
    /// identities.
    fn block(&mut self, block: &Block, shared: &mut Shared) -> Value {
        let index = match self.definitions.get(block) {
            Some(index) => *index,
            None => {
                let value = deeper(|| self.definition(block));
                self.blocks.push(value);
                self.definitions.insert(block.clone(), self.blocks.len() - 1);
                self.blocks.len() - 1
            }
        };
        let mut object = Map::new();
        object.insert("definition".into(), json!(index));
        if let Some(name) = block.name() {
            object.insert("name".into(), json!(name));
        }
        if let Some(gradient) = &block.gradient {
            let gradient = self.block(&Block::new(gradient.clone()), &mut Shared::default());
            object.insert("gradient".into(), gradient);
        }
        if block.checkpoint {
            object.insert("checkpoint".into(), json!(true));
        }
        let place = &block.place;
        for (key, own) in [("backend", &place.backend), ("device", &place.device)] {
            if let Some(own) = own {
                object.insert(key.into(), json!(&**own));
            }
        }
        let numerics = block.numerics;
        for (key, own) in [("dtype", numerics.dtype), ("acc", numerics.acc)] {
            if let Some(own) = own {
                object.insert(key.into(), json!(own.name()));
            }
        }
        if let Some(numbers) = shared.numbers(block) {
            object.insert("shares".into(), numbers);
        }
        Value::Object(object)
    }

    fn definition(&mut self, block: &Block) -> Value {
        if let (Some(entry), Some(settings)) = (block.entry(), block.settings()) {
            let changed =
                settings.iter().filter(|(p, value)| p.default.setting().as_ref() != Some(*value));
            let functions = settings.iter().filter_map(|(_, value)| match value {
                Setting::Function(function) => Some(function),
                _ => None,
            });
            if let Some(function) = functions.last() {
                self.function = Some((block.describe(), function.name.clone()));
            }
            let mut blocks = Vec::new();
            settings.iter().for_each(|(_, value)| blocks_in(value, &mut blocks));
            let mut shared = Shared::of(blocks.into_iter().map(|b| identities(b, |_| true)));
            let changed: Map<String, Value> = changed
                .map(|(p, value)| (p.name.to_string(), self.setting(value, &mut shared)))
                .collect();
            return json!({ "block": entry.name, "settings": changed });
        }
        if let Some(function) = &block.definition.function {
            let bodies = function.bodies.iter();
            let bodies: Map<String, Value> =
                bodies.map(|body| (body.target.to_string(), json!(&*body.text))).collect();
            return json!({ "function": &*function.name, "text": &*function.text, "bodies": bodies });
        }
        let model =
            Model::from_block(block).expect("a block without a table entry or function is a model");
        let graph = model.graph();
        let mut shared =
            Shared::of(graph.children.iter().map(|child| {
                identities(&child.block, |at| matches!(child.inputs[at], Port::Open))
            }));
        let children = graph.children.iter().map(|c| self.child(&graph, c, &mut shared));
        let children: Vec<Value> = children.collect();
        let wires: Vec<Value> = graph.wires.iter().map(wire).collect();
        json!({
            "model": &*graph.kind,
            "parts": children,
            "wires": wires,
            "last": graph.last,
            "standard": [graph.standard.0, graph.standard.1],
        })
    }

    fn child(&mut self, graph: &Graph, child: &Child, shared: &mut Shared) -> Value {
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
            "block": self.block(&child.block, shared),
            "fold": child.fold,
            "inputs": inputs,
            "outputs": outputs,
        })
    }

    fn setting(&mut self, setting: &Setting, shared: &mut Shared) -> Value {
        match setting {
            Setting::None => Value::Null,
            Setting::Bool(v) => json!(v),
            Setting::Int(v) => json!(v),
            Setting::Float(v) if v.is_finite() => json!(v),
            Setting::Float(v) => json!({ "float": v.to_string() }),
            Setting::Str(v) => json!(&**v),
            Setting::DType(v) => json!({ "dtype": v.name() }),
            Setting::Tensor(v) => json!({ "tensor": tensor(v) }),
            Setting::Block(v) => self.block(v, shared),
            Setting::List(items) => items.iter().map(|s| self.setting(s, shared)).collect(),
            Setting::Slice(parts) => {
                let parts: Vec<Value> = parts.iter().map(|s| self.setting(s, shared)).collect();
                json!({ "slice": parts })
            }
            Setting::Ellipsis => json!({ "ellipsis": true }),
            Setting::Connection(_) | Setting::Terminal => json!({ "terminal": true }),
            // `to_json` reports the error.
            Setting::Function(_) => Value::Null,
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
    if let Some(device) = &wire.device {
        add("device", json!(&**device));
    }
    if wire.expose {
        add("expose", json!(true));
    }
    if wire.discard {
        add("discard", json!(true));
    }
    if wire.optional {
        add("optional", json!(true));
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
