//! The cost of each block of a model, at any depth.

use indexmap::IndexMap;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Module, Operation, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::nesting::deeper;
use mithril_ir::op::access::Access;
use mithril_ir::op::{Gradient, Kind, Meaning, Op};
use mithril_ir::shape::Type;
use mithril_ir::signature::{bind, passed_types};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use super::{Cost, amount, bytes, count, decomposed, flops};
use crate::estimate::{first_occurrences, single_operation};
use crate::table::{Table, grouped};
use crate::target;

/// The cost of one block, including the blocks inside it.
#[derive(Clone, Debug)]
pub struct BlockCost {
    /// Empty for the whole model.
    pub path: String,
    pub cost: Cost,
    /// The number of elements of its params.
    pub params: Dim,
    /// The peak memory of inner values that are live at once while it computes, in bytes.
    pub peak: Dim,
    /// The bytes of all inner values together, which gradients by a framework may keep. Views and
    /// constants count none.
    pub kept: Dim,
}

impl BlockCost {
    /// How many blocks it is nested in.
    pub fn depth(&self) -> usize {
        match self.path.is_empty() {
            true => 0,
            false => 1 + self.path.matches('.').count(),
        }
    }
}

/// Each block of a function without calls but control flow: the whole function first, the others in
/// the order they run. The body of a loop counts once for each step.
///
/// Errors: a composite whose decomposition fails.
pub fn of_blocks(module: &Module, function: &Function) -> Result<Vec<BlockCost>> {
    let mut all = Tally::default();
    all.at("");
    let live_bytes = live_bytes(function);
    let mut known = FxHashMap::default();
    for (operation, live_bytes) in function.ops.iter().zip(live_bytes) {
        for (loc, cost, kept) in parts(module, function, operation, &mut known)? {
            all.with(loc.shortest().unwrap_or(""), &mut |block| {
                block.cost = block.cost.clone() + cost.clone();
                block.kept = block.kept.clone() + kept.clone();
                block.peak = block.peak.max(&live_bytes);
            });
        }
    }
    for (value, argument) in function.arguments().filter(|(_, a)| a.role == Role::Param) {
        let elements = count(function.ty(value));
        let path = argument.name.rsplit_once('.').map_or("", |(path, _)| path);
        all.with(path, &mut |block| block.params = block.params.clone() + elements.clone());
    }
    Ok(all.0.into_values().collect())
}

/// Blocks by path, in the order of their first operation.
#[derive(Default)]
struct Tally(IndexMap<String, BlockCost, FxBuildHasher>);

impl Tally {
    fn at(&mut self, path: &str) -> &mut BlockCost {
        let zero = || Dim::Const(0);
        self.0.entry(path.to_string()).or_insert_with(|| BlockCost {
            path: path.to_string(),
            cost: Cost { flops: zero(), bytes: zero() },
            params: zero(),
            peak: zero(),
            kept: zero(),
        })
    }

    /// Changes the block of this path and the blocks that contain it.
    fn with(&mut self, path: &str, change: &mut dyn FnMut(&mut BlockCost)) {
        change(self.at(""));
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|end| *end > 0) {
            change(self.at(&path[..end]));
        }
    }
}

/// The cost of an operation, or of each operation in the functions of control flow, with its blocks
/// and the bytes of its results.
fn parts(
    module: &Module,
    function: &Function,
    operation: &Operation,
    known: &mut FxHashMap<Key, Cost>,
) -> Result<Vec<(Loc, Cost, Dim)>> {
    let Some(steps) = steps(function, operation)? else {
        let cost = of_operation(function, operation, known)?;
        return Ok(vec![(operation.loc.clone(), cost, results(function, operation))]);
    };
    let types = operation.operands.iter().map(|value| function.ty(*value).clone());
    let types: Vec<Type> = types.collect();
    let mut all = Vec::new();
    for (at, callee) in operation.functions().enumerate() {
        let Some(callee) = module.get(callee) else { continue };
        let types = passed_types(operation, at, &types);
        let types: Vec<&Type> = types.iter().collect();
        let binding = bind(callee, &types, &mut Vec::new())?;
        let times = |dim: &Dim| binding.dim(dim) * steps.clone();
        for inner in &callee.ops {
            for (loc, cost, kept) in deeper(|| parts(module, callee, inner, known))? {
                let cost = Cost { flops: times(&cost.flops), bytes: times(&cost.bytes) };
                all.push((loc.inside(&operation.loc), cost, times(&kept)));
            }
        }
    }
    Ok(all)
}

/// The bytes of the results of an operation that is no view and no constant.
fn results(function: &Function, operation: &Operation) -> Dim {
    let is_free = matches!(operation.op.access, Access::View(_))
        || matches!(operation.op.kind, Kind::Constant | Kind::Dim);
    match is_free {
        true => Dim::Const(0),
        false => operation.results().map(|value| bytes(function.ty(value))).sum(),
    }
}

/// How often an operation calls its functions, if it is control flow. A `cond` counts both of its
/// functions. Without a maximum, the number of steps of a `while` is a symbol.
fn steps(function: &Function, operation: &Operation) -> Result<Option<Dim>> {
    Ok(match operation.op.gradient {
        Gradient::Scan => {
            let sequence = operation.operands[operation.attr("carries").as_int() as usize];
            let shape = &function.ty(sequence).shape;
            shape.need_rank()?;
            Some(shape.dims[0].clone())
        }
        Gradient::Branches => Some(Dim::Const(1)),
        Gradient::While => Some(match operation.attr("max_steps") {
            Attr::Int(most) => Dim::Const(*most),
            _ => Dim::symbol("steps"),
        }),
        Gradient::Derived
        | Gradient::Partials(_)
        | Gradient::Rule(_)
        | Gradient::Zero
        | Gradient::Callee
        | Gradient::Recompute
        | Gradient::Vjp => None,
    })
}

/// The cache key of an operation: the operation, its attributes, and for each operand its type and
/// the index of the first operand that is the same value.
type Key = (Op, SmallVec<[Attr; 2]>, Vec<(usize, Type)>);

/// The cost of an operation; of a composite, the sum of its parts. Equal operations are computed
/// once.
fn of_operation(
    function: &Function,
    operation: &Operation,
    known: &mut FxHashMap<Key, Cost>,
) -> Result<Cost> {
    let places = first_occurrences(&operation.operands);
    let types = operation.operands.iter().map(|v| function.ty(*v).clone());
    let types = places.iter().copied().zip(types).collect();
    let key = (operation.op, operation.attrs.clone(), types);
    if let Some(cost) = known.get(&key) {
        return Ok(cost.clone());
    }
    let sum = |values: &mut dyn Iterator<Item = Value>| -> Dim {
        values.map(|value| bytes(function.ty(value))).sum()
    };
    let moves = operation.op.kind != Kind::Constant && operation.op.kind != Kind::Dim;
    let values = operation.operands.iter().copied().chain(operation.results());
    let bytes_moved = if moves { sum(&mut values.into_iter()) } else { Dim::Const(0) };
    let arithmetic = match operation.op.meaning {
        Meaning::Decompose(_) => {
            let operands: Vec<(usize, &Type)> = places
                .into_iter()
                .zip(operation.operands.iter().map(|v| function.ty(*v)))
                .collect();
            let result = function.ty(operation.result());
            let whole = single_operation(operation.op, &operation.attrs, &operands, result);
            let decomposed = decomposed(&whole, *target::CORE)?;
            decomposed.ops.iter().map(|part| flops(&decomposed, part)).sum()
        }
        _ => flops(function, operation),
    };
    let cost = Cost { flops: arithmetic, bytes: bytes_moved };
    known.insert(key, cost.clone());
    Ok(cost)
}

/// For each operation, the bytes of inner values that are live while it runs.
fn live_bytes(function: &Function) -> Vec<Dim> {
    let count = function.ops.len();
    let mut last = vec![0; function.values.len()];
    for (at, operation) in function.ops.iter().enumerate() {
        operation.results().for_each(|value| last[value.index()] = at);
        operation.operands.iter().for_each(|value| last[value.index()] = at);
    }
    function.results.iter().for_each(|result| last[result.value.index()] = count);
    let size = |value: Value| bytes(function.ty(value));
    let inner = |value: &Value| value.index() >= function.args.len();
    let mut now = Dim::Const(0);
    let mut all = Vec::with_capacity(count);
    for (at, operation) in function.ops.iter().enumerate() {
        for value in operation.results() {
            now = now + size(value);
        }
        all.push(now.clone());
        let mut ended: Vec<Value> = operation.operands.iter().copied().filter(inner).collect();
        ended.extend(operation.results());
        ended.sort_unstable();
        ended.dedup();
        for value in ended.into_iter().filter(|value| last[value.index()] == at) {
            now = now - size(value);
        }
    }
    all
}

/// The blocks down to `depth`, each listed under the block that contains it.
pub fn table(blocks: &[BlockCost], depth: usize) -> Table {
    let mut rows = Vec::new();
    nested(blocks, "", depth, &mut rows);
    if let Some(whole) = blocks.first() {
        rows.push(row(whole, "total".to_string()));
    }
    let heads = ["block", "params", "arithmetic", "memory traffic", "peak"];
    Table::new(&heads, &[1, 2, 3, 4], rows)
}

fn nested(blocks: &[BlockCost], path: &str, depth: usize, rows: &mut Vec<Vec<String>>) {
    let level = if path.is_empty() { 0 } else { 1 + path.matches('.').count() };
    let front = if path.is_empty() { String::new() } else { format!("{path}.") };
    let inside = |block: &&BlockCost| block.path.starts_with(&front) && block.depth() == level + 1;
    if level >= depth {
        return;
    }
    for block in blocks.iter().filter(inside) {
        let name = block.path.rsplit('.').next().unwrap_or_default();
        rows.push(row(block, format!("{}{name}", "  ".repeat(level))));
        deeper(|| nested(blocks, &block.path, depth, rows));
    }
}

fn row(block: &BlockCost, name: String) -> Vec<String> {
    let params = match block.params.as_const() {
        Some(params) => grouped(params as u64),
        None => block.params.to_string(),
    };
    let (flops, bytes) = (shown(&block.cost.flops, "flop"), shown(&block.cost.bytes, "B"));
    let peak = shown(&block.peak, "B");
    vec![name, params, flops, bytes, peak]
}

/// An amount with its unit.
fn shown(dim: &Dim, unit: &str) -> String {
    let mut text = String::new();
    amount(&mut text, dim, unit).expect("writing to a string cannot fail");
    text
}
