//! What a model is made of: blocks, terminals, shapes and numbers of params, as rows and as a table.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Role;
use mithril_ir::shape::Type;

use crate::block::{Block, Definition};
use crate::lower::{Instance, Options, lower_traced};
use crate::model::seal::{Feed, Part};
use mithril_passes::nesting::deeper;
use mithril_passes::table::{Table, grouped};

/// One block of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Empty for the model itself.
    pub path: String,
    pub kind: Arc<str>,
    pub depth: usize,
    pub inputs: Vec<Cell>,
    pub outputs: Vec<Cell>,
    /// The number of elements it learns, blocks inside included; `None` where a dim is not known.
    pub params: Option<u64>,
}

/// A terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub name: Arc<str>,
    pub role: Role,
    /// Its type, where shapes were given and it is no constant.
    pub ty: Option<Type>,
}

/// The rows of a model down to `depth`; with types where options are given.
/// Errors: those of [`lower`](crate::lower()).
pub fn summary(block: &Block, options: Option<&Options>, depth: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let Some(options) = options else {
        let row = untyped(String::new(), &block.definition, 0);
        rows.push(row);
        walk(&mut rows, &block.definition, None, "", 1, depth);
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
    top.params = count(&top.inputs);
    rows.push(top);
    // A block of the table is lowered as a model of itself alone.
    if block.definition.composite.is_some() {
        walk(&mut rows, &definition, Some(&instance), "", 1, depth);
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
        params: count(&inputs),
        inputs,
        outputs: definition.outputs.iter().map(|o| cell(&o.name, Role::Data)).collect(),
    }
}

/// Elements of the params; `None` where one has no fixed shape, or there are too many to count.
fn count(inputs: &[Cell]) -> Option<u64> {
    let mut params = inputs.iter().filter(|c| c.role == Role::Param);
    params.try_fold(0u64, |total, c| {
        let count = c.ty.as_ref()?.shape.elements()?.as_const()?;
        total.checked_add(count as u64)
    })
}

fn walk(
    rows: &mut Vec<Row>,
    definition: &Definition,
    instance: Option<&Instance>,
    path: &str,
    depth: usize,
    deepest: usize,
) {
    let Some(composite) = definition.composite.as_ref().filter(|_| depth <= deepest) else {
        return;
    };
    for &at in &composite.order {
        let part = &composite.parts[at as usize];
        let path = match path.is_empty() {
            true => part.name.to_string(),
            false => format!("{path}.{}", part.name),
        };
        rows.push(row(part, instance, path.clone(), depth));
        let inner = instance.and_then(|i| i.parts[at as usize].as_deref());
        deeper(|| walk(rows, &part.definition, inner, &path, depth + 1, deepest));
    }
}

fn row(part: &Part, instance: Option<&Instance>, path: String, depth: usize) -> Row {
    let mut row = untyped(path, &part.definition, depth);
    let Some(instance) = instance else { return row };
    let ty = |net: &u32| instance.types[*net as usize].clone();
    for (cell, feed) in row.inputs.iter_mut().zip(&part.inputs) {
        cell.ty = match feed {
            Feed::Net(net) => ty(net),
            Feed::List(nets) => nets.first().and_then(ty),
            Feed::Absent | Feed::Key => None,
        };
    }
    for (cell, nets) in row.outputs.iter_mut().zip(&part.outputs) {
        cell.ty = nets.first().and_then(ty);
    }
    row.params = count(&row.inputs);
    row
}

/// A line for each block, and a total at the end.
fn lines(rows: &[Row]) -> Table {
    let cells = |cells: &[Cell]| {
        let data = cells.iter().filter(|c| c.role == Role::Data);
        let each = data.map(|c| match &c.ty {
            Some(ty) => format!("{}: {}", c.name, ty.shape),
            None => c.name.to_string(),
        });
        each.collect::<Vec<_>>().join(", ")
    };
    let line = |name: String, row: &Row| {
        let params = row.params.map_or("?".to_string(), grouped);
        vec![name, row.kind.to_string(), cells(&row.inputs), cells(&row.outputs), params]
    };
    let name = |row: &Row| {
        let name = row.path.rsplit('.').next().unwrap_or("");
        format!("{}{name}", "  ".repeat(row.depth - 1))
    };
    let blocks = rows.iter().skip(1).map(|row| line(name(row), row));
    let total = rows.first().map(|top| line("total".to_string(), top));
    let heads = ["block", "kind", "inputs", "outputs", "params"];
    Table::new(&heads, &[4], blocks.chain(total).collect())
}

/// Rows as a table of HTML, for notebooks.
pub fn html(rows: &[Row]) -> String {
    lines(rows).html()
}

/// Rows as a table of text.
pub fn table(rows: &[Row]) -> String {
    lines(rows).text()
}
