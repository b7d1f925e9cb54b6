//! The forward and backward functions of a differentiated callee.

use std::sync::Arc;

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Symbol;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::op::Kind;
use mithril_ir::shape::Type;
use rustc_hash::{FxHashMap, FxHashSet};

/// The forward and backward functions of a differentiated callee. The forward function returns the
/// callee's results and the values it saves. The backward function takes arguments that the caller
/// kept, the saved values and the cotangents.
#[derive(Clone)]
pub struct ForwardBackward {
    pub forward: Arc<Function>,
    pub backward: Arc<Function>,
    /// Indices of the callee's arguments that the backward function takes.
    pub kept: Vec<usize>,
    /// For each result of the backward function, the index of the callee's argument it belongs to.
    pub operands: Vec<usize>,
}

impl ForwardBackward {
    /// The names and types of the saved values, as the backward function takes them.
    pub fn saved(&self) -> impl Iterator<Item = (&Arc<str>, &Type)> {
        let saved = self.backward.arguments().skip(self.kept.len());
        saved
            .take_while(|(_, arg)| arg.role != Role::Cotangent)
            .map(|(value, arg)| (&arg.name, self.backward.ty(value)))
    }
}

/// The maximum number of values that a forward function saves. Modules with more operations than
/// this may save up to one value per operation.
const MAX_SAVED: usize = 1 << 16;

fn operations(module: &Module) -> usize {
    module.functions.values().map(|function| function.ops.len()).sum()
}

/// Splits `joint`, which returns the results of `callee` and then the gradients of the arguments of
/// `wrt`, and adds both functions to the module. The forward function contains what the results
/// need. The backward function computes the rest from saved values and the arguments that the
/// caller `keeps`. With `recompute`, it recomputes forward values, so none is saved.
pub fn split(
    module: &mut Module,
    callee: &Function,
    joint: &Function,
    wrt: &[bool],
    keeps: &dyn Fn(usize) -> bool,
    recompute: bool,
) -> Result<ForwardBackward> {
    let (results, gradients) = joint.results.split_at(callee.results.len());
    let forward_ops = needed(joint, results);
    // Constants are recomputed rather than saved.
    let backward_ops: Vec<bool> =
        (needed(joint, gradients).iter().zip(&forward_ops).zip(&joint.ops))
            .map(|((back, front), op)| *back && (recompute || !front || is_constant(op)))
            .collect();
    let (kept, saved) = crossing(callee, joint, gradients, &backward_ops, keeps);
    if saved.len() > MAX_SAVED && saved.len() > operations(module) {
        return Diagnostic::new("the gradient of a function would keep too many values")
            .at(format!("function `{}`", callee.name))
            .got(format!("{} values", saved.len()))
            .expected(format!("at most {MAX_SAVED}"))
            .hint(
                "functions that call others more than once multiply them: use `checkpoint`, \
                   which keeps none",
            )
            .err();
    }
    let saved: Vec<(Arc<str>, Value)> =
        saved_names(callee, joint, &forward_ops, &saved).into_iter().zip(saved).collect();
    let forward = forward_function(module, callee, joint, &forward_ops, &saved)?;
    let backward = backward_function(module, callee, joint, &backward_ops, &kept, &saved)?;
    Ok(ForwardBackward {
        forward: add(module, forward),
        backward: add(module, backward),
        kept,
        operands: (0..wrt.len()).filter(|&i| wrt[i]).collect(),
    })
}

fn is_constant(operation: &Operation) -> bool {
    operation.op.kind == Kind::Constant && operation.op.attr_index("value").is_some()
}

fn add(module: &mut Module, function: Function) -> Arc<Function> {
    let name = function.name.clone();
    module.insert(function);
    module.functions[&name].clone()
}

/// Builds the forward function: it returns the callee's results, then the saved values.
fn forward_function(
    module: &Module,
    callee: &Function,
    joint: &Function,
    forward_ops: &[bool],
    saved: &[(Arc<str>, Value)],
) -> Result<Function> {
    let builder = Builder::like(module.fresh_name(&format!("{}_forward", callee.name)), callee);
    let arguments = (0..callee.args.len()).map(|i| (joint.arg(i), Value(i as u32)));
    let mut map: FxHashMap<Value, Value> = arguments.collect();
    copy(&builder, module, joint, forward_ops, &mut map)?;
    let own = &joint.results[..callee.results.len()];
    let mut results: Vec<ResultDef> =
        own.iter().map(|r| ResultDef { value: map[&r.value], ..r.clone() }).collect();
    for (name, value) in saved {
        results.push(ResultDef { name: name.clone(), value: map[value], state: None });
    }
    builder.finish(results)
}

/// Names for saved values, distinct from those of the callee's arguments and results. A value keeps
/// its own name. An unnamed value takes the name of its block if other blocks read it, or else the
/// result name of its operation.
fn saved_names(
    callee: &Function,
    joint: &Function,
    forward_ops: &[bool],
    saved: &[Value],
) -> Vec<Arc<str>> {
    let args = joint.args.iter().map(|a| a.name.clone());
    let mut taken: FxHashSet<Arc<str>> =
        args.chain(joint.results.iter().map(|r| r.name.clone())).collect();
    let producers = joint.ops.iter().flat_map(|op| op.results().map(move |value| (value, op)));
    let producers: FxHashMap<Value, &Operation> = producers.collect();
    let block = |value: &Value| producers.get(value).and_then(|op| op.loc.shortest());
    // Values that are results, or that operations of other blocks read.
    let mut block_outputs: FxHashSet<Value> = FxHashSet::default();
    block_outputs.extend(joint.results[..callee.results.len()].iter().map(|r| r.value));
    for op in selected(joint, forward_ops) {
        let own = op.loc.shortest();
        block_outputs.extend(op.operands.iter().filter(|value| block(value) != own));
    }
    let preferred = |value: &Value| -> String {
        if let Some(name) = &joint.info(*value).name {
            return name.to_string();
        }
        let Some(producer) = producers.get(value) else { return "saved".into() };
        let own = producer.loc.shortest().filter(|_| block_outputs.contains(value));
        let block = own.and_then(|path| path.rsplit('.').next());
        block.unwrap_or(producer.op.result_name()).to_string()
    };
    let mut names = Vec::with_capacity(saved.len());
    // For each name, the next number to append; all lower ones are taken.
    let mut next: FxHashMap<String, usize> = FxHashMap::default();
    for value in saved {
        let preferred = preferred(value);
        let mut name: Arc<str> = preferred.as_str().into();
        let number = next.entry(preferred.clone()).or_insert(1);
        while taken.contains(&name) {
            name = format!("{preferred}_{number}").into();
            *number += 1;
        }
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

/// Builds the backward function: it returns the gradients, computed from kept arguments, saved
/// values and cotangents.
fn backward_function(
    module: &Module,
    callee: &Function,
    joint: &Function,
    backward_ops: &[bool],
    kept: &[usize],
    saved: &[(Arc<str>, Value)],
) -> Result<Function> {
    let builder = Builder::new(module.fresh_name(&format!("{}_backward", callee.name)));
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    for &i in kept {
        let arg = &callee.args[i];
        let ty = callee.ty(Value(i as u32)).clone();
        map.insert(joint.arg(i), builder.arg(arg.name.clone(), arg.role, ty));
    }
    for (name, value) in saved {
        let ty = joint.ty(*value).clone();
        map.insert(*value, builder.arg(name.clone(), Role::Data, ty));
    }
    for (value, arg) in joint.arguments().skip(callee.args.len()) {
        let ty = joint.ty(value).clone();
        map.insert(value, builder.arg(arg.name.clone(), arg.role, ty));
    }
    copy(&builder, module, joint, backward_ops, &mut map)?;
    let gradients = &joint.results[callee.results.len()..];
    builder
        .finish(gradients.iter().map(|r| ResultDef { value: map[&r.value], ..r.clone() }).collect())
}

/// Whether the results need each operation, by operation index.
fn needed(function: &Function, results: &[ResultDef]) -> Vec<bool> {
    let mut live = vec![false; function.values.len()];
    results.iter().for_each(|r| live[r.value.index()] = true);
    let mut needed = vec![false; function.ops.len()];
    for (i, operation) in function.ops.iter().enumerate().rev() {
        needed[i] = operation.results().any(|v| live[v.index()]);
        if needed[i] {
            operation.operands.iter().for_each(|v| live[v.index()] = true);
        }
    }
    needed
}

/// The forward values that the backward function reads: indices of arguments, and other values.
/// Includes arguments that are the only source of a symbol the backward function uses.
fn crossing(
    callee: &Function,
    joint: &Function,
    gradients: &[ResultDef],
    backward_ops: &[bool],
    keeps: &dyn Fn(usize) -> bool,
) -> (Vec<usize>, Vec<Value>) {
    let mut computed: FxHashSet<Value> = FxHashSet::default();
    let mut read: Vec<Value> = Vec::new();
    let mut symbols: FxHashSet<Symbol> = FxHashSet::default();
    for operation in selected(joint, backward_ops) {
        read.extend(operation.operands.iter().filter(|v| !computed.contains(v)));
        computed.extend(operation.results());
        for attr in &operation.attrs {
            if let Attr::Shape(shape) = attr {
                shape.for_each_symbol(&mut |s| {
                    symbols.insert(s.clone());
                });
            }
        }
    }
    read.extend(gradients.iter().map(|r| r.value).filter(|v| !computed.contains(v)));
    let mut kept: Vec<usize> = Vec::new();
    let mut saved: Vec<Value> = Vec::new();
    let mut seen: FxHashSet<Value> = FxHashSet::default();
    for value in read {
        if seen.insert(value) {
            keep(value, callee, joint, keeps, &mut kept, &mut saved);
        }
    }
    let cotangents = (callee.args.len()..joint.args.len()).map(|i| joint.ty(joint.arg(i)));
    let shown = kept.iter().map(|&i| joint.ty(joint.arg(i)));
    let known = cotangents.chain(shown).chain(saved.iter().map(|v| joint.ty(*v)));
    let arguments = (0..callee.args.len()).map(|i| joint.arg(i));
    let shown = arguments_binding(joint, arguments, known, symbols).into_iter();
    for value in shown.filter(|value| !seen.contains(value)) {
        keep(value, callee, joint, keeps, &mut kept, &mut saved);
    }
    kept.sort_unstable();
    (kept, saved)
}

/// Adds a value that the backward function reads to `kept` or `saved`, unless it is a cotangent
/// argument.
fn keep(
    value: Value,
    callee: &Function,
    joint: &Function,
    keeps: &dyn Fn(usize) -> bool,
    kept: &mut Vec<usize>,
    saved: &mut Vec<Value>,
) {
    let i = value.index();
    if i < callee.args.len() && keeps(i) {
        kept.push(i);
    } else if i < callee.args.len() || i >= joint.args.len() {
        saved.push(value);
    }
}

/// The arguments that are needed to bind `symbols`, given that arrays of the types `known` are
/// available anyway.
pub fn arguments_binding<'t>(
    function: &Function,
    arguments: impl Iterator<Item = Value>,
    known: impl Iterator<Item = &'t Type>,
    mut symbols: FxHashSet<Symbol>,
) -> Vec<Value> {
    let mut binds = |ty: &Type| {
        let mut any = false;
        bare_symbols(ty, &mut |symbol| any |= symbols.remove(symbol));
        any
    };
    known.for_each(|ty| {
        binds(ty);
    });
    arguments.filter(|value| binds(function.ty(*value))).collect()
}

/// The symbols that an array of this type binds: bare dims and the rank variable.
fn bare_symbols(ty: &Type, f: &mut dyn FnMut(&Symbol)) {
    ty.shape.lead.iter().for_each(&mut *f);
    ty.shape.dims.iter().filter_map(|d| d.as_symbol()).for_each(f);
}

fn selected<'f>(function: &'f Function, which: &'f [bool]) -> impl Iterator<Item = &'f Operation> {
    function.ops.iter().zip(which).filter(|(_, wanted)| **wanted).map(|(operation, _)| operation)
}

/// Copies the operations selected by `which`, with operands replaced through `map`.
pub fn copy(
    builder: &Builder,
    module: &Module,
    from: &Function,
    which: &[bool],
    map: &mut FxHashMap<Value, Value>,
) -> Result<()> {
    for operation in selected(from, which) {
        builder.set_loc(operation.loc.clone());
        let operands: Vec<Value> = operation.operands.iter().map(|v| map[v]).collect();
        let first = match operation.functions().next().and_then(|name| module.get(name)) {
            Some(callee) => {
                builder.call(operation.op, callee, operation.attrs.clone(), &operands)?[0]
            }
            None => builder.push(operation.op, &operands, operation.attrs.clone())?,
        };
        for (i, old) in operation.results().enumerate() {
            let new = Value(first.0 + i as u32);
            builder.set_name(new, from.info(old).name.clone());
            map.insert(old, new);
        }
    }
    Ok(())
}
