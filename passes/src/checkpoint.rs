//! `checkpoint`: recomputes inner values of functions for gradients instead of keeping them.

mod segments;

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Symbol;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::op::{self, Gradient};
use rustc_hash::{FxHashMap, FxHashSet};

use segments::Segments;

use crate::autodiff::forward_backward::{arguments_binding, copy};
use crate::call_graph;
use crate::context::PassContext;
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
            let part = Segment::new(function, bounds[0]..bounds[1], &self.last);
            let callee = part.function(module, function, name)?;
            let operands: Vec<Value> = part.reads.iter().map(|value| map[value]).collect();
            let attrs = [Attr::Function(callee.name.clone())].into_iter().collect();
            let results = builder.call(op::get("call"), &callee, attrs, &operands)?;
            for (old, new) in part.outputs.iter().zip(results) {
                builder.set_name(new, function.info(*old).name.clone());
                map.insert(*old, new);
            }
            module.insert(callee);
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

/// A range of consecutive operations.
struct Segment {
    ops: std::ops::Range<usize>,
    /// Values computed before the range that it reads, and arguments of the whole that bind a
    /// symbol it uses.
    reads: Vec<Value>,
    /// Values of the range that are read after it.
    outputs: Vec<Value>,
}

impl Segment {
    fn new(function: &Function, ops: std::ops::Range<usize>, last: &[usize]) -> Segment {
        let in_range = &function.ops[ops.clone()];
        let computed: FxHashSet<Value> =
            in_range.iter().flat_map(|operation| operation.results()).collect();
        let mut reads: Vec<Value> = Vec::new();
        let mut seen: FxHashSet<Value> = FxHashSet::default();
        let mut symbols: FxHashSet<Symbol> = FxHashSet::default();
        for operation in in_range {
            let operands = operation.operands.iter().filter(|value| !computed.contains(value));
            reads.extend(operands.filter(|value| seen.insert(**value)));
            let types = operation.results().map(|value| &function.ty(value).shape);
            let shapes = operation.attrs.iter().filter_map(|attr| match attr {
                Attr::Shape(shape) => Some(&**shape),
                _ => None,
            });
            for shape in types.chain(shapes) {
                shape.for_each_symbol(&mut |symbol| {
                    symbols.insert(symbol.clone());
                });
            }
        }
        let arguments = function.arguments().map(|(value, _)| value);
        let known = reads.iter().map(|value| function.ty(*value));
        let more = arguments_binding(function, arguments, known, symbols);
        reads.extend(more);
        let outputs = in_range.iter().flat_map(|operation| operation.results());
        let outputs = outputs.filter(|value| last[value.index()] >= ops.end).collect();
        Segment { ops, reads, outputs }
    }

    fn function(&self, module: &Module, whole: &Function, name: Arc<str>) -> Result<Function> {
        let builder = Builder::new(name);
        let mut map: FxHashMap<Value, Value> = FxHashMap::default();
        for (number, value) in self.reads.iter().enumerate() {
            let (name, role) = match whole.args.get(value.index()) {
                Some(argument) => (argument.name.clone(), argument.role),
                None => (named(whole, &self.reads, number), Role::Data),
            };
            map.insert(*value, builder.arg(name, role, whole.ty(*value).clone()));
        }
        let in_range: Vec<bool> = (0..whole.ops.len()).map(|at| self.ops.contains(&at)).collect();
        copy(&builder, module, whole, &in_range, &mut map)?;
        let result = |(number, value): (usize, &Value)| ResultDef {
            name: named(whole, &self.outputs, number),
            value: map[value],
            state: None,
        };
        builder.finish(self.outputs.iter().enumerate().map(result).collect())
    }
}

/// The name of `values[number]`, a value that crosses between two parts. It differs from all
/// argument names of the whole, and from the names of the values before it.
fn named(whole: &Function, values: &[Value], number: usize) -> Arc<str> {
    let taken = |name: &str| whole.args.iter().any(|argument| *argument.name == *name);
    let own_name = &whole.info(values[number]).name;
    let is_first = values[..number].iter().all(|value| whole.info(*value).name != *own_name);
    let own_name = own_name.clone().filter(|name| is_first && !taken(name));
    let numbered = || (number..).map(|n| format!("value_{n}")).find(|name| !taken(name));
    own_name.unwrap_or_else(|| numbered().unwrap_or_default().into())
}
