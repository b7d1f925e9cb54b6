//! What each block of a model costs on a mesh.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use mithril_ir::diagnostic::Result;
use rustc_hash::FxBuildHasher;

use super::bill::{Collective, Kind, of_operation};
use super::layout::{Axis, Layout, Mesh};
use super::problem::{Problem, first_of_gradients, of_inputs};
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
    /// The bytes of memory that are read and written.
    pub traffic: f64,
    pub time: Time,
    /// How many collectives there are along each mesh axis, and the bytes that they send.
    pub collectives: Collectives,
    /// The layout of what the forward pass of the block computes last.
    pub layout: Option<Layout>,
    /// For each mesh axis that divides several dims of an operation, though it can divide only one,
    /// the collectives along it of these operations.
    pub contested: BTreeMap<Axis, Collectives>,
}

type Collectives = BTreeMap<(Kind, Axis), (usize, f64)>;

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
    let (turn, depends) = (first_of_gradients(function), of_inputs(function));
    let mut all: IndexMap<String, BlockBill, FxBuildHasher> = IndexMap::default();
    all.insert(String::new(), BlockBill::default());
    for (at, op) in function.ops.iter().enumerate() {
        let bill =
            of_operation(function, problem.mesh, &relations, at, (values, estimates.bytes()));
        let time = estimates.time(problem, at, &bill);
        let flops = estimates.flops(problem, at, &bill);
        let traffic = estimates.traffic(problem, at, &bill);
        let contested = relations.contested(at, values);
        let path = op.loc.shortest().unwrap_or("");
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        let outer = ends.filter(|end| *end > 0).map(|end| &path[..end]);
        for path in [""].into_iter().chain(outer) {
            let new = || BlockBill { path: path.to_string(), ..BlockBill::default() };
            let block = all.entry(path.to_string()).or_insert_with(new);
            block.flops += flops;
            block.traffic += traffic;
            block.time = block.time + time;
            if at < turn && depends[op.result().index()] {
                block.layout = Some(values[op.result().index()].clone());
            }
            let all = || bill.collectives.iter();
            count(&mut block.collectives, all(), &estimates);
            for axis in &contested {
                let own = all().filter(|own| own.axis == *axis);
                count(block.contested.entry(*axis).or_default(), own, &estimates);
            }
        }
    }
    Ok(all.into_values().collect())
}

fn count<'a>(
    all: &mut Collectives,
    collectives: impl Iterator<Item = &'a Collective>,
    estimates: &Estimates,
) {
    for own in collectives {
        let entry = all.entry((own.kind, own.axis)).or_default();
        entry.0 += 1;
        entry.1 += estimates.sent(own);
    }
}

/// The blocks down to `depth`, and the whole model.
pub fn table(blocks: &[BlockBill], mesh: &Mesh, depth: usize) -> Table {
    let inner = blocks.iter().filter(|block| (1..=depth).contains(&block.depth()));
    let whole = blocks.iter().filter(|block| block.path.is_empty());
    let rows = inner.chain(whole).map(|block| row(block, mesh)).collect();
    let names = ["block", "gives", "arithmetic", "traffic", "compute", "transfer", "collectives"];
    Table::new(&names, &[2, 3, 4, 5], rows)
}

fn row(block: &BlockBill, mesh: &Mesh) -> Vec<String> {
    let name = if block.path.is_empty() { "total" } else { &block.path };
    vec![
        name.to_string(),
        block.layout.as_ref().map(|own| mesh.text(own)).unwrap_or_default(),
        scaled(block.flops, "flop"),
        scaled(block.traffic, "B"),
        seconds(block.time.compute),
        seconds(block.time.transfer),
        text(&block.collectives, mesh),
    ]
}

fn text(collectives: &Collectives, mesh: &Mesh) -> String {
    let each = collectives.iter().map(|((kind, axis), (count, bytes))| {
        format!("{count} {} over {}: {}", kind.name(), mesh.name(*axis), scaled(*bytes, "B"))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The blocks down to `depth` in which a mesh axis divides several dims, and how that is settled.
pub fn conflicts(blocks: &[BlockBill], mesh: &Mesh, depth: usize) -> Vec<String> {
    let inner = blocks.iter().filter(|block| (1..=depth).contains(&block.depth()));
    let each = inner.flat_map(|block| {
        block.contested.iter().map(move |(axis, collectives)| {
            let settled = match collectives.is_empty() {
                true => "without sending".to_string(),
                false => format!("by {}", text(collectives, mesh)),
            };
            format!("{}: {} for two dims, settled {settled}", block.path, mesh.name(*axis))
        })
    });
    each.collect()
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
