//! `checkpoint`: recomputes inner values of functions for gradients instead of keeping them.

mod segments;

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Value};
use mithril_ir::op::{self, Gradient};
use rustc_hash::{FxHashMap, FxHashSet};

use segments::Segments;

use crate::call_graph;
use crate::context::PassContext;
use crate::part::Part;
use crate::pass::{Limit, Pass};
use crate::rebuild::Rebuild;

/// The statistic that counts the calls that are recomputed.
pub const COUNT: &str = "calls-recomputed";

pass! {
    /// Marks the calls of the entry so that gradients recompute their inner values, except for the
    /// last call, whose values are needed at once. If the entry calls nothing, its operations are
    /// first divided into functions at points where few values are live (Chen et al. 2016). Then
    /// marks the bodies of scans, whose steps keep their carries alone. A number beyond these
    /// divides scans into segments, of which each keeps its first carries alone.
    pub struct Checkpoint("checkpoint") {
        /// The number of calls and scans to mark, counted from the first call.
        count: Limit = Limit::All,
    }
}

impl Pass for Checkpoint {
    /// Errors: none for valid modules.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let Some(entry) = module.entry() else { return Ok(module.clone()) };
        let mut out = module.clone();
        let again = entry.ops.iter().any(|operation| operation.op == op::get("checkpoint"));
        if calls(module, entry).is_empty() && !again {
            let divided = Division::of(entry).map(|division| division.apply(&mut out, entry));
            divided.transpose()?.into_iter().for_each(|divided| out.insert(divided));
        }
        let Some(entry) = out.entry() else { return Ok(out) };
        let mut function = Function::clone(entry);
        let calls = calls(&out, entry);
        let earlier = calls.iter().rev().skip(1).rev().enumerate();
        let chosen = earlier.take_while(|(number, _)| self.count.allows(*number));
        let chosen: Vec<usize> = chosen.map(|(_, at)| *at).collect();
        let count = chosen.len();
        if count > 0 {
            chosen.into_iter().for_each(|at| function.ops[at].op = op::get("checkpoint"));
            out.insert(function);
        }
        let scans = self.scans(&mut out, calls.len().saturating_sub(1))?;
        if count + scans == 0 {
            return Ok(module.clone());
        }
        cx.count(COUNT, count + scans);
        Ok(out)
    }
}

impl Checkpoint {
    /// Marks the bodies of scans in all functions, then divides the scans into segments, as far as
    /// the count goes. `calls` others come first. Returns their number.
    fn scans(&self, module: &mut Module, calls: usize) -> Result<usize> {
        let names: Vec<Arc<str>> = module.functions.keys().cloned().collect();
        let own = |name: &Arc<str>| module.get(name).map_or(0, |own| scans(module, own).count());
        let total: usize = names.iter().map(own).sum();
        let (mut number, mut count) = (0, 0);
        for name in names {
            let Some(function) = module.get(&name).cloned() else { continue };
            let chosen: Vec<usize> = scans(module, &function).collect();
            if chosen.is_empty() || !self.count.allows(calls + number) {
                continue;
            }
            let lookup = module.clone();
            let mut rebuild = Rebuild::new(&lookup, &function);
            for (at, operation) in function.ops.iter().enumerate() {
                if !chosen.contains(&at) || !self.count.allows(calls + number) {
                    rebuild.keep(operation)?;
                    continue;
                }
                rebuild.builder.set_loc(operation.loc.clone());
                let operands = rebuild.operands(operation);
                let name = operation.functions().next().expect("a scan names its body");
                let body = call_graph::function(&lookup, name)?;
                let divides = match self.count {
                    Limit::At(limit) => limit > calls + total + number,
                    Limit::All => false,
                };
                let own =
                    divides.then(|| Segments::of(&rebuild.builder, operation, body, &operands));
                let values = match own.flatten() {
                    Some(segments) => segments.build(module, &operands)?,
                    None => marked(module, &rebuild.builder, operation, body, &operands)?,
                };
                count += 1 + usize::from(divides);
                number += 1;
                for (old, new) in operation.results().zip(values) {
                    rebuild.replace(old, new);
                }
            }
            module.insert(rebuild.finish()?);
        }
        Ok(count)
    }
}

/// The indices of the scans of a function whose bodies have operations to recompute.
fn scans<'a>(module: &'a Module, function: &'a Function) -> impl Iterator<Item = usize> + 'a {
    let wanted = move |at: &usize| {
        let operation = &function.ops[*at];
        let body = operation.functions().next().and_then(|name| module.get(name));
        matches!(operation.op.gradient, Gradient::Scan) && body.is_some_and(|b| b.ops.len() > 1)
    };
    (0..function.ops.len()).filter(wanted)
}

/// A scan whose gradient recomputes the inner values of each step.
fn marked(
    module: &mut Module,
    builder: &Builder,
    operation: &Operation,
    body: &Function,
    operands: &[Value],
) -> Result<Vec<Value>> {
    let marked = recomputed(body, module.fresh_name(&body.name))?;
    module.insert(marked.clone());
    let mut attrs = operation.attrs.clone();
    attrs[0] = Attr::Function(marked.name.clone());
    Ok(builder.call(operation.op, &marked, attrs, operands)?.to_vec())
}

/// A function that calls another, and whose gradient recomputes the inner values.
fn recomputed(body: &Function, name: Arc<str>) -> Result<Function> {
    let builder = Builder::new(name);
    let arguments = body
        .arguments()
        .map(|(value, own)| builder.arg(own.name.clone(), own.role, body.ty(value).clone()));
    let arguments: Vec<Value> = arguments.collect();
    let attrs = [Attr::Function(body.name.clone())].into_iter().collect();
    let values = builder.call(op::get("checkpoint"), body, attrs, &arguments)?;
    let results = body.results.iter().zip(values);
    builder.finish(results.map(|(own, value)| ResultDef { value, ..own.clone() }).collect())
}

/// The indices of the calls of functions that have operations.
fn calls(module: &Module, function: &Function) -> Vec<usize> {
    let wanted = |at: &usize| {
        let operation = &function.ops[*at];
        let callee = operation.functions().next().and_then(|name| module.get(name));
        operation.op == op::get("call") && callee.is_some_and(|callee| !callee.external)
    };
    (0..function.ops.len()).filter(wanted).collect()
}

/// How a function's operations are divided into parts.
struct Division {
    /// The first operation of each part, and the end.
    bounds: Vec<usize>,
    /// The last operation that reads each value; the number of operations for results.
    last: Vec<usize>,
}

impl Division {
    /// Divides a function of n operations into about sqrt(n) parts. `None` if that makes fewer than
    /// three.
    fn of(function: &Function) -> Option<Division> {
        let end = function.ops.len();
        let mut last = vec![0; function.values.len()];
        for (at, operation) in function.ops.iter().enumerate() {
            operation.operands.iter().for_each(|value| last[value.index()] = at);
        }
        function.results.iter().for_each(|result| last[result.value.index()] = end);
        let parts = end.isqrt();
        let crossing = crossing(function, &last);
        let mut bounds = vec![0];
        for part in 1..parts {
            let (middle, reach) = (part * end / parts, end / (2 * parts));
            let near = (middle.saturating_sub(reach)..(middle + reach).min(end))
                .filter(|at| bounds.last().is_some_and(|bound| at > bound));
            let best = near.filter(|at| crossing[*at].is_some());
            bounds.extend(best.min_by_key(|at| (crossing[*at], at.abs_diff(middle))));
        }
        bounds.push(end);
        (bounds.len() > 3).then_some(Division { bounds, last })
    }

    /// Rebuilds the function as calls of its parts, which are added to the module.
    fn apply(&self, module: &mut Module, function: &Function) -> Result<Function> {
        let builder = Builder::like(function.name.clone(), function);
        let mut map: FxHashMap<Value, Value> =
            function.arguments().map(|(value, _)| (value, value)).collect();
        for (number, bounds) in self.bounds.windows(2).enumerate() {
            let name = module.fresh_name(&format!("part_{}", number + 1));
            let own = bounds[0]..bounds[1];
            let ops = (0..function.ops.len()).map(|at| own.contains(&at)).collect();
            let part = Part::new(function, ops, &|value| self.last[value.index()] >= own.end);
            part.call(&builder, module, function, name, &mut map)?;
        }
        let results = function.results.iter();
        builder.finish(results.map(|r| ResultDef { value: map[&r.value], ..r.clone() }).collect())
    }
}

/// The number of inner values that are live before each operation. `None` where one of them is a
/// shape: a call would hide its known dims.
fn crossing(function: &Function, last: &[usize]) -> Vec<Option<usize>> {
    let mut open: FxHashSet<Value> = FxHashSet::default();
    let mut all = Vec::with_capacity(function.ops.len());
    for (at, operation) in function.ops.iter().enumerate() {
        let hidden = open.iter().any(|value| function.info(*value).known.is_some());
        all.push((!hidden).then_some(open.len()));
        open.extend(operation.results());
        open.retain(|value| last[value.index()] > at);
    }
    all
}
