//! Reads models from JSON. The contents are checked like a model built by a user.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dtype::DType;
use mithril_ir::external::TargetBody;
use mithril_ir::graph::{Function, Role};
use mithril_ir::tensor::Tensor;
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::block::Block;
use crate::blocks;
use crate::definition::{Definition, Outlet, Terminal};
use crate::identity::{Identity, ParamId};
use crate::literal::Literal;
use crate::lower::DimSpec;
use crate::model::graph::{Child, Graph, Port, Wire, Writer};
use crate::model::readers::is_learned;
use crate::model::seal::seal;
use crate::naming::check_name;
use crate::numerics::Numerics;
use crate::place::Place;
use crate::save::VERSION;
use crate::setting::Setting;
use crate::text_function::TextFunction;

impl Block {
    /// Reads a block written by [`Block::to_json`], without code in it.
    ///
    /// Errors: bodies of custom operations; text that is not JSON of this format; a newer version;
    /// blocks that this version does not have.
    pub fn from_json(text: &str) -> Result<Block> {
        Block::from_json_of(text, Code::Refused)
    }

    /// Reads a block written by [`Block::to_json`], with or without the bodies of its custom
    /// operations. A body is source text that runs with the model.
    ///
    /// Errors: as for [`Block::from_json`].
    pub fn from_json_of(text: &str, code: Code) -> Result<Block> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            Box::new(Diagnostic::of(ErrorKind::File, "the text is not JSON").got(error))
        })?;
        match value["mithril"].as_u64() {
            Some(VERSION) => {}
            Some(newer) => {
                return Diagnostic::of(
                    ErrorKind::File,
                    "the model was saved by a newer version of Mithril",
                )
                .got(format!("format {newer}"))
                .expected(format!("format {VERSION} or older"))
                .err();
            }
            None => return Err(damaged("a saved model", &value)),
        }
        let definitions = array(&value["blocks"])?;
        if code == Code::Refused {
            refuse_bodies(definitions)?;
        }
        let mut reader = Reader { blocks: Vec::new() };
        for definition in definitions {
            let block = reader.definition(definition)?;
            reader.blocks.push(block);
        }
        reader.block(&value["root"], &mut Shared::default())
    }
}

/// What happens with the bodies of custom operations in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// A file with bodies is refused.
    Refused,
    /// Bodies are read, and run with the model.
    Trusted,
}

/// Errors: a definition has bodies of functions, in its text or beside it.
fn refuse_bodies(definitions: &[Value]) -> Result<()> {
    let mut found: Vec<String> = Vec::new();
    for value in definitions.iter().filter(|value| !value["function"].is_null()) {
        for function in functions(value)?.iter().filter(|function| !function.bodies.is_empty()) {
            let targets: Vec<&str> = function.bodies.iter().map(|body| &*body.target).collect();
            let shown = format!("`{}` for {}", function.name, targets.join(", "));
            if !found.contains(&shown) {
                found.push(shown);
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let more = found.len().saturating_sub(SHOWN);
    found.truncate(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Diagnostic::of(ErrorKind::File, "the saved model contains code, which is not trusted")
        .got(format!("bodies of {}{more}", found.join("; ")))
        .expected("a model without bodies of custom operations")
        .hint(
            "read the bodies in the file; `trust_code=True` or `--trust-code` loads them, if you \
             would run them yourself",
        )
        .err()
}

/// How many functions an error lists.
const SHOWN: usize = 8;

struct Reader {
    blocks: Vec<Block>,
}

fn damaged(expected: &str, got: &Value) -> Box<Diagnostic> {
    let mut text = got.to_string();
    if text.chars().count() > 60 {
        text = text.chars().take(60).chain(['…']).collect();
    }
    Box::new(
        Diagnostic::of(ErrorKind::File, "the saved model is damaged").got(text).expected(expected),
    )
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().ok_or_else(|| damaged("a list", value))
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().ok_or_else(|| damaged("a string", value))
}

fn index(value: &Value, below: usize) -> Result<u32> {
    let index = value.as_u64().filter(|n| *n < below as u64);
    index.map(|n| n as u32).ok_or_else(|| damaged(&format!("a number below {below}"), value))
}

fn optional_index(value: &Value, below: usize) -> Result<Option<u32>> {
    match value {
        Value::Null => Ok(None),
        _ => index(value, below).map(Some),
    }
}

fn dtype(value: &Value) -> Result<DType> {
    text(value)?.parse().map_err(|()| damaged("a dtype", value))
}

/// Reads a block that was made from a function of a `.mir` text.
fn function(value: &Value) -> Result<Block> {
    Ok(Block::new(Definition::function(text_function(value)?)?))
}

/// The function of a definition and its callees, with their bodies.
fn functions(value: &Value) -> Result<Vec<Arc<Function>>> {
    text_function(value)?.functions(DType::F32)
}

fn text_function(value: &Value) -> Result<TextFunction> {
    let bodies = value["bodies"].as_object().into_iter().flatten();
    let bodies = bodies.map(|(target, body)| {
        Ok(TargetBody { target: target.as_str().into(), text: text(body)?.into() })
    });
    let bodies = bodies.collect::<Result<_>>()?;
    let name = text(&value["function"])?;
    TextFunction::read(text(&value["text"])?, Some(name), bodies)
}

/// The identities that blocks of one definition share, by index.
#[derive(Default)]
struct Shared(FxHashMap<u64, Identity>);

impl Shared {
    fn identity(&mut self, number: &Value) -> Result<Identity> {
        match number {
            Value::Null => Ok(Identity::new()),
            _ => match number.as_u64() {
                Some(number) => Ok(*self.0.entry(number).or_default()),
                None => Err(damaged("a number, or null", number)),
            },
        }
    }

    /// Sets the identities of the block, and of its params and states.
    fn set(&mut self, block: &mut Block, numbers: &Value) -> Result<()> {
        let mut given = array(numbers)?.iter();
        let mut next = || match given.next() {
            Some(number) => self.identity(number),
            None => Err(damaged("a number for the block and each of its params", numbers)),
        };
        block.identity = next()?;
        let mut ids = block.ids.to_vec();
        for (id, terminal) in ids.iter_mut().zip(block.inputs()) {
            if is_learned(terminal.role) {
                *id = ParamId { block: next()?, input: 0 };
            }
        }
        block.ids = ids.into();
        Ok(())
    }
}

impl Reader {
    fn block(&self, value: &Value, shared: &mut Shared) -> Result<Block> {
        let at = index(&value["definition"], self.blocks.len())?;
        // Blocks that list no shared identities are different objects.
        let mut block = self.blocks[at as usize].copy();
        if value["checkpoint"].as_bool() == Some(true) {
            block = block.checkpointed()?;
        }
        if !value["gradient"].is_null() {
            block =
                block.with_gradient(&self.block(&value["gradient"], &mut Shared::default())?)?;
        }
        let name = |key: &str| (!value[key].is_null()).then(|| text(&value[key])).transpose();
        block = block.placed(Place::new(name("backend")?, name("device")?)?);
        let given = |key: &str| (!value[key].is_null()).then(|| dtype(&value[key])).transpose();
        block = block.computing_in(Numerics::new(given("dtype")?, given("acc")?)?);
        if !value["shares"].is_null() {
            shared.set(&mut block, &value["shares"])?;
        }
        match &value["name"] {
            Value::Null => Ok(block),
            name => block.named(text(name)?),
        }
    }

    fn definition(&self, value: &Value) -> Result<Block> {
        if !value["function"].is_null() {
            return function(value);
        }
        let Some(name) = value["block"].as_str() else {
            return self.model(value);
        };
        let mut shared = Shared::default();
        let given = value["settings"].as_object().into_iter().flatten();
        let given: Vec<(&str, Setting)> = given
            .map(|(name, value)| Ok((name.as_str(), self.setting(value, &mut shared)?)))
            .collect::<Result<_>>()?;
        blocks::build(name, Vec::new(), given)
    }

    fn model(&self, value: &Value) -> Result<Block> {
        let mut graph = Graph { kind: text(&value["model"])?.into(), ..Graph::default() };
        for (id, value) in array(&value["wires"])?.iter().enumerate() {
            let wire = wire(value)?;
            if let Some(name) = &wire.name {
                if graph.names.insert(name.clone(), id as u32).is_some() {
                    return Err(damaged("a unique name", value));
                }
            }
            graph.wires.push(wire);
        }
        let mut shared = Shared::default();
        for value in array(&value["parts"])? {
            let child = self.child(&mut graph, value, &mut shared)?;
            graph.children.push(child);
        }
        // A wire that is read but not written is an input, so it must have a name.
        for wire in &graph.wires {
            let open = wire.writer.is_none() && wire.value.is_none() && wire.readers > 0;
            if open && wire.name.is_none() {
                return Err(damaged("a wire with a writer", &value["model"]));
            }
        }
        let count = graph.wires.len();
        graph.last = optional_index(&value["last"], count)?;
        let standard = &value["standard"];
        graph.standard =
            (optional_index(&standard[0], count)?, optional_index(&standard[1], count)?);
        Ok(Block::composite(graph.kind.clone(), graph.identity, seal(&graph)?))
    }

    fn child(&self, graph: &mut Graph, value: &Value, shared: &mut Shared) -> Result<Child> {
        let block = self.block(&value["block"], shared)?;
        let definition = block.definition.clone();
        let terminals = definition.inputs.iter();
        let inputs = terminals.map(|terminal| input_port(graph, terminal, &value["inputs"]));
        let inputs = inputs.collect::<Result<_>>()?;
        let outputs = definition.outputs.iter().enumerate();
        let outputs = outputs.map(|(i, outlet)| {
            output_wire(graph, i as u32, outlet, &value["outputs"][&*outlet.name])
        });
        let outputs = outputs.collect::<Result<_>>()?;
        let fold = value["fold"].as_u64().and_then(|n| u32::try_from(n).ok());
        Ok(Child { block, inputs, outputs, fold })
    }

    fn setting(&self, value: &Value, shared: &mut Shared) -> Result<Setting> {
        Ok(match value {
            Value::Null => Setting::None,
            Value::Bool(v) => Setting::Bool(*v),
            Value::Number(v) => match v.as_i64() {
                Some(v) => Setting::Int(v),
                None => Setting::Float(v.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(v) => v.as_str().into(),
            Value::Array(items) => {
                let items = items.iter().map(|v| self.setting(v, shared));
                Setting::List(items.collect::<Result<_>>()?)
            }
            Value::Object(object) => match object.iter().next() {
                Some((key, inner)) => match key.as_str() {
                    "acc" | "backend" | "checkpoint" | "definition" | "device" | "gradient"
                    | "name" | "shares" => Setting::Block(self.block(value, shared)?),
                    "float" => {
                        let v = text(inner)?.parse();
                        Setting::Float(v.map_err(|_| damaged("a number", inner))?)
                    }
                    "dtype" => Setting::DType(dtype(inner)?),
                    "tensor" => Setting::Tensor(tensor(inner)?),
                    "slice" => {
                        let mut part = |i: usize| self.setting(&inner[i], shared);
                        Setting::Slice(Arc::new([part(0)?, part(1)?, part(2)?]))
                    }
                    "ellipsis" => Setting::Ellipsis,
                    "terminal" => Setting::Terminal,
                    _ => return Err(damaged("a setting", value)),
                },
                None => return Err(damaged("a setting", value)),
            },
        })
    }
}

/// The source of an input of the next child.
fn input_port(graph: &mut Graph, terminal: &Terminal, inputs: &Value) -> Result<Port> {
    let count = graph.wires.len();
    let port = match &inputs[&*terminal.name] {
        Value::Null if terminal.role == Role::Data && !terminal.optional => {
            let expected = format!("a connection of `{}`", terminal.name);
            return Err(damaged(&expected, inputs));
        }
        Value::Null => Port::Open,
        Value::Array(ids) if terminal.list => {
            let ids = ids.iter().map(|id| index(id, count));
            Port::List(ids.collect::<Result<_>>()?)
        }
        id => Port::Wire(index(id, count)?),
    };
    for id in port.wires() {
        graph.wires[*id as usize].readers += 1;
    }
    Ok(port)
}

/// The wire that an output of the next child writes.
fn output_wire(graph: &mut Graph, output: u32, outlet: &Outlet, value: &Value) -> Result<u32> {
    let (count, child) = (graph.wires.len(), graph.children.len() as u32);
    let mut write = |id: &Value, element| -> Result<u32> {
        let id = index(id, count)?;
        let wire = &mut graph.wires[id as usize];
        let writer = Writer { child, output, element };
        if wire.value.is_some() || wire.writer.replace(writer).is_some() {
            return Err(damaged("a wire with only one writer", value));
        }
        Ok(id)
    };
    let Some(length) = outlet.list else {
        return write(value, None);
    };
    let id = write(&value[0], None)?;
    let each = array(&value[1])?.iter().enumerate();
    let each = each.map(|(i, e)| write(e, Some(i as u32)));
    let each: Vec<u32> = each.collect::<Result<_>>()?;
    if each.len() != length as usize {
        return Err(damaged(&format!("{length} elements"), value));
    }
    graph.wires[id as usize].elements = Some(each);
    Ok(id)
}

fn wire(value: &Value) -> Result<Wire> {
    let mut wire = Wire {
        expose: value["expose"] == true,
        discard: value["discard"] == true,
        optional: value["optional"] == true,
        ..Wire::default()
    };
    if !value["name"].is_null() {
        let name = text(&value["name"])?;
        // A path with dots names a param of a nested block.
        check_name(&name.replace('.', "_"), "terminal")?;
        wire.name = Some(name.into());
    }
    if !value["value"].is_null() {
        wire.value =
            Some(Literal { tensor: tensor(&value["value"])?, weak: value["weak"] == true });
    }
    if !value["dtype"].is_null() {
        wire.dtype = Some(dtype(&value["dtype"])?);
    }
    if !value["device"].is_null() {
        wire.device = Some(text(&value["device"])?.into());
    }
    if !value["role"].is_null() {
        let name = text(&value["role"])?;
        let role = Role::ALL.into_iter().find(|r| r.name() == name);
        wire.role = Some(role.ok_or_else(|| damaged("a role", value))?);
    }
    if !value["shape"].is_null() {
        let dims = array(&value["shape"])?.iter().map(|dim| match dim {
            Value::Null => Ok(DimSpec::Any),
            Value::String(name) => Ok(DimSpec::from(name.as_str())),
            Value::Number(n) if n.is_u64() => Ok(DimSpec::Number(n.as_u64().unwrap_or(0))),
            _ => Err(damaged("a dim", dim)),
        });
        wire.shape = Some(dims.collect::<Result<_>>()?);
    }
    Ok(wire)
}

fn tensor(value: &Value) -> Result<Tensor> {
    let dims = array(&value["shape"])?.iter().map(Value::as_u64);
    let dims: Option<Vec<usize>> = dims.map(|d| d.and_then(|d| d.try_into().ok())).collect();
    let shape = dims.ok_or_else(|| damaged("a shape", value))?;
    let digits = text(&value["bytes"])?;
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    let bytes = bytes.ok_or_else(|| damaged("bytes in hexadecimal", value))?;
    let dtype = dtype(&value["dtype"])?;
    Tensor::from_bytes(dtype, shape, bytes).map_err(|why| damaged(&why, value))
}
