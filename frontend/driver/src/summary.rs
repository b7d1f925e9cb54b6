//! Summaries of models as tables.

use std::sync::Arc;

use mithril_ir::graph::Role;
use mithril_model::summary::{Cell, Row};
use mithril_passes::table::{Table, grouped};

/// Abbreviates params to the blocks that have them, or to the innermost block around all of these.
fn places(params: &[Arc<str>]) -> String {
    let mut places: Vec<&str> = Vec::new();
    for name in params {
        let place = name.rsplit_once('.').map_or(&**name, |(path, _)| path);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let segments = |path: &&str| path.split('.').count();
    let around = (1..places.iter().map(segments).min().unwrap_or(0)).rev().find_map(|count| {
        let head = |path: &str| path.split('.').take(count).collect::<Vec<_>>().join(".");
        let own = head(places[0]);
        places.iter().all(|path| head(path) == own).then_some(own)
    });
    match around.filter(|_| places.len() > 1) {
        Some(around) => around,
        None => places.join(", "),
    }
}

/// One line for each block, then a line with the total.
fn lines(rows: &[Row]) -> Table {
    let cells = |cells: &[Cell]| {
        let data = cells.iter().filter(|c| c.role == Role::Data);
        let each = data.map(|c| match &c.ty {
            Some(ty) => format!("{}: {}", c.name, ty.shape),
            None => c.name.to_string(),
        });
        each.collect::<Vec<_>>().join(", ")
    };
    let shares = rows.iter().any(|row| !row.shared.is_empty());
    let line = |name: String, row: &Row| {
        let params = row.params.map_or("?".to_string(), grouped);
        let kind = row.kind.to_string();
        let mut line = vec![name, kind, cells(&row.inputs), cells(&row.outputs), params];
        line.extend(shares.then(|| places(&row.shared)));
        line
    };
    let name = |row: &Row| {
        let name = row.path.rsplit('.').next().unwrap_or("");
        format!("{}{name}", "  ".repeat(row.depth - 1))
    };
    let blocks = rows.iter().skip(1).map(|row| line(name(row), row));
    let total = rows.first().map(|top| line("total".to_string(), top));
    let mut heads = vec!["block", "kind", "inputs", "outputs", "params"];
    heads.extend(shares.then_some("shared with"));
    Table::new(&heads, &[4], blocks.chain(total).collect())
}

/// Formats rows as an HTML table, for notebooks.
pub fn html(rows: &[Row]) -> String {
    lines(rows).html()
}

/// Formats rows as a text table.
pub fn table(rows: &[Row]) -> String {
    lines(rows).text()
}
