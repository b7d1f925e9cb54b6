//! Summarizes a model as rows: blocks, terminals, shapes and param counts.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Role;
use mithril_ir::nesting::deeper;
use mithril_ir::shape::Type;

use crate::block::Block;
use crate::definition::Definition;
use crate::lower::{Instance, Options, lower_traced};
use crate::model::seal::{Composite, Feed, NetSource, Part};
use rustc_hash::FxHashMap;

/// One block of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The path of the block; empty for the model itself.
    pub path: String,
    pub kind: Arc<str>,
    pub depth: usize,
    pub inputs: Vec<Cell>,
    pub outputs: Vec<Cell>,
    /// The number of elements in the params, including those of blocks inside; `None` if a dim is
    /// not known. Shared params are counted at their first use.
    pub params: Option<u64>,
    /// The names of params that an earlier block already uses.
    pub shared: Vec<Arc<str>>,
}

/// A terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub name: Arc<str>,
    pub role: Role,
    /// The type, if shapes were given and the terminal is not a constant.
    pub ty: Option<Type>,
}

/// The rows of a model down to `depth`, with types if options are given. Errors: those of
/// [`lower`](crate::lower()).
pub fn summary(block: &Block, options: Option<&Options>, depth: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let Some(options) = options else {
        let row = untyped(String::new(), &block.definition, 0);
        rows.push(row);
        let names = Names::of(&block.definition);
        walk(&mut rows, &block.definition, None, "", &names, depth);
        return Ok(rows);
    };
    let (definition, instance) = lower_traced(block, options)?;
    let function = &instance.function;
    let mut top = untyped(String::new(), &definition, 0);
    for (arg, input) in instance.args.iter().enumerate() {
        let ty = function.ty(function.arg(arg)).clone();
        top.inputs[*input as usize].ty = Some(ty);
    }
    for (cell, result) in top.outputs.iter_mut().zip(&function.results) {
        cell.ty = Some(function.ty(result.value).clone());
    }
    top.params = count(top.inputs.iter().filter(|c| c.role == Role::Param));
    rows.push(top);
    // A table block is lowered as a model that contains only this block.
    if block.definition.composite.is_some() {
        walk(&mut rows, &definition, Some(&instance), "", &Names::of(&definition), depth);
    }
    Ok(rows)
}

fn untyped(path: String, definition: &Definition, depth: usize) -> Row {
    let cell = |name: &Arc<str>, role| Cell { name: name.clone(), role, ty: None };
    let inputs = definition.inputs.iter().map(|t| cell(&t.name, t.role));
    let inputs: Vec<Cell> = inputs.collect();
    Row {
        path,
        kind: definition.kind.clone(),
        depth,
        params: count(inputs.iter().filter(|c| c.role == Role::Param)),
        shared: Vec::new(),
        inputs,
        outputs: definition.outputs.iter().map(|o| cell(&o.name, Role::Data)).collect(),
    }
}

/// The total number of elements of the params; `None` if one has no fixed shape or the number
/// overflows.
fn count<'a>(mut params: impl Iterator<Item = &'a Cell>) -> Option<u64> {
    params.try_fold(0u64, |total, c| {
        let count = c.ty.as_ref()?.shape.elements()?.as_const()?;
        total.checked_add(count as u64)
    })
}

/// The names in the model of the inputs of a nested block.
struct Names {
    /// The depth of the blocks inside this one.
    depth: usize,
    names: Vec<Arc<str>>,
    /// Whether an earlier block already uses the param.
    shared: Vec<bool>,
}

impl Names {
    fn of(definition: &Definition) -> Names {
        let names: Vec<Arc<str>> = definition.inputs.iter().map(|t| t.name.clone()).collect();
        Names { depth: 1, shared: vec![false; names.len()], names }
    }

    /// The names for the nested block at `path`. `first` maps each net to the block that first uses
    /// it.
    fn inside(&self, of: &Composite, at: u32, path: &str, first: &FxHashMap<u32, u32>) -> Names {
        let part = &of.parts[at as usize];
        let inputs = part.definition.inputs.iter().zip(&part.inputs);
        let (names, shared) = inputs
            .map(|(terminal, feed)| match feed {
                Feed::Net(net) => match of.nets[*net as usize].from {
                    NetSource::Input(i) => {
                        let earlier = first.get(net).is_some_and(|first| *first != at);
                        (self.names[i as usize].clone(), earlier || self.shared[i as usize])
                    }
                    NetSource::Part { .. } | NetSource::Value(_) => {
                        (format!("{path}.{}", terminal.name).into(), false)
                    }
                },
                Feed::Absent | Feed::Key | Feed::List(_) => (terminal.name.clone(), false),
            })
            .unzip();
        Names { depth: self.depth + 1, names, shared }
    }
}

/// For each net that is a param, the part that uses it first.
fn first_uses(composite: &Composite) -> FxHashMap<u32, u32> {
    let mut first = FxHashMap::default();
    for (at, part) in composite.parts.iter().enumerate() {
        for (terminal, feed) in part.definition.inputs.iter().zip(&part.inputs) {
            for net in feed.nets().iter().filter(|_| terminal.role == Role::Param) {
                first.entry(*net).or_insert(at as u32);
            }
        }
    }
    first
}

fn walk(
    rows: &mut Vec<Row>,
    definition: &Definition,
    instance: Option<&Instance>,
    path: &str,
    names: &Names,
    max_depth: usize,
) {
    let Some(composite) = definition.composite.as_ref().filter(|_| names.depth <= max_depth) else {
        return;
    };
    let first = first_uses(composite);
    for &at in &composite.order {
        let part = &composite.parts[at as usize];
        let path = match path.is_empty() {
            true => part.name.to_string(),
            false => format!("{path}.{}", part.name),
        };
        let inside = names.inside(composite, at, &path, &first);
        rows.push(row(part, instance, path.clone(), names.depth, &inside));
        let inner = instance.and_then(|i| i.parts[at as usize].as_deref());
        deeper(|| walk(rows, &part.definition, inner, &path, &inside, max_depth));
    }
}

fn row(part: &Part, instance: Option<&Instance>, path: String, depth: usize, names: &Names) -> Row {
    let mut row = untyped(path, &part.definition, depth);
    if let Some(instance) = instance {
        let ty = |net: &u32| instance.types[*net as usize].clone();
        for (cell, feed) in row.inputs.iter_mut().zip(&part.inputs) {
            cell.ty = feed.nets().first().and_then(ty);
        }
        for (cell, nets) in row.outputs.iter_mut().zip(&part.outputs) {
            cell.ty = nets.first().and_then(ty);
        }
    }
    let params = || (0..row.inputs.len()).filter(|at| row.inputs[*at].role == Role::Param);
    row.shared =
        params().filter(|at| names.shared[*at]).map(|at| names.names[at].clone()).collect();
    row.params = count(params().filter(|at| !names.shared[*at]).map(|at| &row.inputs[at]));
    row
}
