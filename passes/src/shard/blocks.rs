//! What each block of a model costs on a mesh.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use mithril_ir::diagnostic::Result;
use rustc_hash::FxBuildHasher;

use super::bill::{Kind, of_operation};
use super::layout::{Axis, Layout, Mesh};
use super::problem::Problem;
use super::propagate::Relations;
use super::time::{Estimates, Time};
use crate::cost::scaled;
use crate::table::Table;

/// The cost of a block, including the blocks inside it. All numbers are those of one device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BlockBill {
    /// Empty for the whole model.
    pub path: String,
    pub flops: f64,
    pub time: Time,
    /// How many collectives there are along each mesh axis, and the bytes that they send.
    pub collectives: BTreeMap<(Kind, Axis), (usize, f64)>,
}

impl BlockBill {
    /// How many blocks it is nested in.
    pub fn depth(&self) -> usize {
        match self.path.is_empty() {
            true => 0,
            false => 1 + self.path.matches('.').count(),
        }
    }
}

/// The cost of each block of a function with these layouts, the whole function first.
///
/// Errors: a dim without a number.
pub fn of_blocks(problem: &Problem, values: &[Layout]) -> Result<Vec<BlockBill>> {
    let function = problem.function;
    let estimates = Estimates::of(problem)?;
    let relations = Relations::of(function, &[]);
    let mut all: IndexMap<String, BlockBill, FxBuildHasher> = IndexMap::default();
    all.insert(String::new(), BlockBill::default());
    for (at, op) in function.ops.iter().enumerate() {
        let bill =
            of_operation(function, problem.mesh, &relations, at, (values, estimates.bytes()));
        let time = estimates.time(problem, at, &bill);
        let flops = estimates.flops(problem, at, &bill);
        let path = op.loc.shortest().unwrap_or("");
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        let outer = ends.filter(|end| *end > 0).map(|end| &path[..end]);
        for path in [""].into_iter().chain(outer) {
            let new = || BlockBill { path: path.to_string(), ..BlockBill::default() };
            let block = all.entry(path.to_string()).or_insert_with(new);
            block.flops += flops;
            block.time = block.time + time;
            for own in &bill.collectives {
                let entry = block.collectives.entry((own.kind, own.axis)).or_default();
                entry.0 += 1;
                entry.1 += estimates.sent(own);
            }
        }
    }
    Ok(all.into_values().collect())
}

/// The blocks down to `depth`, and the whole model.
pub fn table(blocks: &[BlockBill], mesh: &Mesh, depth: usize) -> Table {
    let inner = blocks.iter().filter(|block| (1..=depth).contains(&block.depth()));
    let whole = blocks.iter().filter(|block| block.path.is_empty());
    let rows = inner.chain(whole).map(|block| row(block, mesh)).collect();
    Table::new(&["block", "arithmetic", "compute", "transfer", "collectives"], &[1, 2, 3], rows)
}

fn row(block: &BlockBill, mesh: &Mesh) -> Vec<String> {
    let name = if block.path.is_empty() { "total" } else { &block.path };
    let each = block.collectives.iter().map(|((kind, axis), (count, bytes))| {
        format!("{count} {} over {}: {}", kind.name(), mesh.name(*axis), scaled(*bytes, "B"))
    });
    vec![
        name.to_string(),
        scaled(block.flops, "flop"),
        seconds(block.time.compute),
        seconds(block.time.transfer),
        each.collect::<Vec<_>>().join(", "),
    ]
}

/// `1.25 ms`.
pub fn seconds(time: f64) -> String {
    match time {
        _ if time == 0.0 => "0 s".to_string(),
        _ if time < 1e-3 => scaled(time * 1e6, "µs"),
        _ if time < 1.0 => scaled(time * 1e3, "ms"),
        _ => scaled(time, "s"),
    }
}
