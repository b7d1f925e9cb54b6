//! Batches functions: all operations, for arguments of which some have the batch axis in front.

use std::sync::Arc;

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::evaluate::decompose;
use mithril_ir::graph::{Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::op::batch::{Batching, Lane};
use mithril_ir::op::{self, Gradient, Kind, Meaning};
use mithril_ir::shape::Type;
use smallvec::SmallVec;

use crate::call_graph;
use crate::rebuild::copy;

/// A batched function, and which of its results have the batch axis.
pub(super) struct Batched {
    pub function: Arc<Function>,
    pub results: Vec<bool>,
}

/// A function while it is batched.
pub(super) struct Batcher<'m, 'b> {
    pub module: &'m mut Module,
    pub source: &'b Function,
    pub builder: &'b Builder,
    /// The size of the batch axis.
    pub size: Dim,
    lanes: Vec<Option<Lane<'b>>>,
}

/// Batches `source` for arguments of which those in `flags` have the batch axis. Results in `wanted`
/// get it in any case. The function is added to the module.
/// Errors: none for valid modules.
pub(super) fn batched(
    module: &mut Module,
    source: &Function,
    flags: &[bool],
    wanted: &[bool],
) -> Result<Batched> {
    let name = module.fresh_name(&format!("{}_batched", source.name));
    let builder = Builder::like(name, source);
    let size = Dim::symbol(size_symbol(source, &builder));
    builder.with_mut(|own| {
        // The function is called inside another: it holds no states.
        for argument in own.args.iter_mut().filter(|own| own.role == Role::State) {
            argument.role = Role::Data;
        }
        let arguments = own.args.iter_mut().zip(&mut own.values).zip(flags);
        for ((argument, info), _) in arguments.filter(|(_, flag)| **flag) {
            argument.role = Role::Data;
            info.ty.shape.dims.insert(0, size.clone());
        }
    });
    let mut lanes = vec![None; source.values.len()];
    for ((value, _), batched) in source.arguments().zip(flags) {
        lanes[value.index()] = Some(Lane { var: builder.var(value), batched: *batched });
    }
    let mut batcher = Batcher { module, source, builder: &builder, size, lanes };
    for operation in &source.ops {
        builder.set_loc(operation.loc.clone());
        batcher.operation(operation)?;
    }
    let lanes: Vec<Lane> = source.results.iter().map(|own| batcher.lane(own.value)).collect();
    let batched = lanes.iter().zip(wanted).map(|(lane, wanted)| lane.batched || *wanted);
    let batched: Vec<bool> = batched.collect();
    let results = source.results.iter().zip(lanes.iter().zip(&batched));
    let results = results.map(|(own, (lane, batched))| {
        let var = if *batched { lane.repeated(&batcher.size) } else { lane.var };
        ResultDef { value: var.value, name: own.name.clone(), state: None }
    });
    let results = results.collect();
    drop(batcher);
    builder.check()?;
    let function = builder.finish(results)?;
    module.insert(function.clone());
    Ok(Batched { function: Arc::new(function), results: batched })
}

/// A symbol that the function does not use: `batch`, or a fresh one.
fn size_symbol(source: &Function, builder: &Builder) -> Symbol {
    let own = Symbol::from("batch");
    let mut used = false;
    for info in &source.values {
        info.ty.shape.for_each_symbol(&mut |symbol| used |= *symbol == own);
    }
    if used { builder.fresh_symbol() } else { own }
}

impl<'b> Batcher<'_, 'b> {
    pub fn lane(&self, value: Value) -> Lane<'b> {
        self.lanes[value.index()].expect("operands come before their operation")
    }

    /// Sets the results of an operation, which take over the names of the old ones.
    pub fn define(
        &mut self,
        operation: &Operation,
        values: impl IntoIterator<Item = (Value, bool)>,
    ) {
        for (old, (new, batched)) in operation.results().zip(values) {
            if let Some(name) = &self.source.info(old).name {
                if self.builder.with(|own| own.info(new).name.is_none()) {
                    self.builder.set_name(new, Some(name.clone()));
                }
            }
            self.lanes[old.index()] = Some(Lane { var: self.builder.var(new), batched });
        }
    }

    fn operation(&mut self, operation: &Operation) -> Result<()> {
        let lanes: Vec<Lane> = operation.operands.iter().map(|own| self.lane(*own)).collect();
        if !lanes.iter().any(|lane| lane.batched) {
            let operands = lanes.iter().map(|lane| lane.var.value).collect();
            let first = copy(self.builder, self.source, operation, operands);
            let values = (0..operation.results).map(|at| (Value(first.0 + at), false));
            self.define(operation, values);
            return Ok(());
        }
        if operation.op.kind == Kind::Call {
            return batched_call(self, operation, &lanes);
        }
        let (op, attrs) = (operation.op, &operation.attrs);
        let shape = &self.source.ty(operation.result()).shape;
        let batching = Batching { op, operands: &lanes, attrs, shape, size: &self.size };
        match batching.apply() {
            Some(lane) => {
                self.builder.check()?;
                self.define(operation, [(lane.var.value, lane.batched)]);
                Ok(())
            }
            None if matches!(op.meaning, Meaning::Decompose(_)) => {
                self.decomposed(operation, &lanes)
            }
            None => self.looped(operation, &lanes),
        }
    }

    /// The type of an operand of the source.
    fn ty(&self, value: Value) -> &Type {
        self.source.ty(value)
    }

    /// A function with an argument for each operand of an operation, in this order.
    fn part(
        &mut self,
        operation: &Operation,
        order: &[usize],
        build: impl FnOnce(&Builder, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Arc<Function>> {
        let builder = Builder::new(self.module.fresh_name(operation.op.name));
        builder.set_loc(operation.loc.clone());
        let mut arguments = vec![Value(0); operation.operands.len()];
        for &at in order {
            let ty = self.ty(operation.operands[at]).clone();
            arguments[at] =
                builder.arg(format!("{}_{at}", operation.op.operand(at).name), Role::Data, ty);
        }
        let values = build(&builder, &arguments)?;
        let name = |at: usize| match values.len() {
            1 => "result".to_string(),
            _ => format!("result_{at}"),
        };
        let results = values.iter().enumerate().map(|(at, value)| ResultDef {
            name: name(at).into(),
            value: *value,
            state: None,
        });
        let function = builder.finish(results.collect())?;
        self.module.insert(function.clone());
        Ok(Arc::new(function))
    }

    /// Batches the operations that the operation is decomposed to.
    fn decomposed(&mut self, operation: &Operation, lanes: &[Lane<'b>]) -> Result<()> {
        let order: Vec<usize> = (0..lanes.len()).collect();
        let part = self.part(operation, &order, |builder, operands| {
            Ok(vec![decompose(builder, operation.op, operands, &operation.attrs)?])
        })?;
        let flags: Vec<bool> = lanes.iter().map(|lane| lane.batched).collect();
        let made = batched(self.module, &part, &flags, &[false])?;
        let operands: Vec<Value> = lanes.iter().map(|lane| lane.var.value).collect();
        let attrs = SmallVec::from_iter([Attr::Function(made.function.name.clone())]);
        let values = self.builder.call(op::get("call"), &made.function, attrs, &operands)?;
        self.define(operation, values.into_iter().zip(made.results));
        Ok(())
    }

    /// Calls the operation once for each index of the batch axis.
    pub fn looped(&mut self, operation: &Operation, lanes: &[Lane<'b>]) -> Result<()> {
        // Sequences come first.
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        order.sort_by_key(|at| !lanes[*at].batched);
        let source = self.source;
        let callee = operation.functions().next().and_then(|name| self.module.get(name)).cloned();
        let part = self.part(operation, &order, |builder, operands| match &callee {
            Some(callee) => {
                let attrs = operation.attrs.clone();
                Ok(builder.call(operation.op, callee, attrs, operands)?.to_vec())
            }
            None => {
                let operands = operands.iter().copied().collect();
                Ok(vec![copy(builder, source, operation, operands)])
            }
        })?;
        let sequences = lanes.iter().filter(|lane| lane.batched).count();
        let attrs = op::scan_attrs(&part.name, 0, sequences, false);
        let operands: Vec<Value> = order.iter().map(|at| lanes[*at].var.value).collect();
        let values = self.builder.call(op::get("scan"), &part, attrs, &operands)?;
        self.define(operation, values.into_iter().map(|value| (value, true)));
        Ok(())
    }

    /// The value with the batch axis, or as it is.
    pub fn with_axis(&self, lane: Lane<'b>, batched: bool) -> Var<'b> {
        if batched { lane.repeated(&self.size) } else { lane.var }
    }
}

/// Batches a call whose operands are `lanes`, of which at least one has the batch axis.
/// Errors: none for valid modules.
fn batched_call<'b>(
    batcher: &mut Batcher<'_, 'b>,
    operation: &Operation,
    lanes: &[Lane<'b>],
) -> Result<()> {
    let functions = functions(batcher, operation)?;
    if functions.iter().any(|function| function.external) {
        return batcher.looped(operation, lanes);
    }
    match operation.op.gradient {
        Gradient::Scan => scan(batcher, operation, lanes, &functions[0]),
        Gradient::Branches if !lanes[0].batched => branches(batcher, operation, lanes, &functions),
        Gradient::Branches | Gradient::While => batcher.looped(operation, lanes),
        // The gradient of the callee sees all operands with the batch axis.
        Gradient::Vjp => {
            let flags = vec![true; lanes.len()];
            call(batcher, operation, lanes, &functions, &flags)
        }
        _ => {
            let flags: Vec<bool> = lanes.iter().map(|lane| lane.batched).collect();
            call(batcher, operation, lanes, &functions, &flags)
        }
    }
}

fn functions(batcher: &Batcher, operation: &Operation) -> Result<Vec<Arc<Function>>> {
    let names = operation.functions();
    names.map(|name| call_graph::function(batcher.module, name).cloned()).collect()
}

/// The attributes with other functions, in order.
fn renamed<'n>(operation: &Operation, names: impl IntoIterator<Item = &'n Arc<str>>) -> Vec<Attr> {
    let mut names = names.into_iter();
    let attrs = operation.attrs.iter().map(|attr| match attr {
        Attr::Function(own) => Attr::Function(names.next().unwrap_or(own).clone()),
        other => other.clone(),
    });
    attrs.collect()
}

fn call<'b>(
    batcher: &mut Batcher<'_, 'b>,
    operation: &Operation,
    lanes: &[Lane<'b>],
    functions: &[Arc<Function>],
    flags: &[bool],
) -> Result<()> {
    let pullback = matches!(operation.op.gradient, Gradient::Vjp);
    let wanted = vec![pullback; functions[0].results.len()];
    let callee = batched(batcher.module, &functions[0], flags, &wanted)?;
    let mut names = vec![callee.function.name.clone()];
    if pullback {
        let (arguments, results) = (functions[1].args.len(), functions[1].results.len());
        let all = vec![true; arguments.max(results)];
        let vjp = batched(batcher.module, &functions[1], &all[..arguments], &all[..results])?;
        names.push(vjp.function.name.clone());
    }
    let operands = lanes.iter().zip(flags).map(|(lane, flag)| batcher.with_axis(*lane, *flag));
    let operands: Vec<Value> = operands.map(|var| var.value).collect();
    let attrs = renamed(operation, &names).into_iter().collect();
    let values = batcher.builder.call(operation.op, &callee.function, attrs, &operands)?;
    batcher.define(operation, values.into_iter().zip(callee.results));
    Ok(())
}

/// Both functions return the batch axis for the same results.
fn branches<'b>(
    batcher: &mut Batcher<'_, 'b>,
    operation: &Operation,
    lanes: &[Lane<'b>],
    functions: &[Arc<Function>],
) -> Result<()> {
    let mut wanted = vec![false; functions[0].results.len()];
    let mut made = Vec::new();
    // The second round knows which results either function returns with the axis.
    for _ in 0..2 {
        made.clear();
        for (at, function) in functions.iter().enumerate() {
            let flags = operation.passed(at).into_iter().map(|own| lanes[own].batched);
            let flags: Vec<bool> = flags.collect();
            let one = batched(batcher.module, function, &flags, &wanted)?;
            wanted.iter_mut().zip(&one.results).for_each(|(wanted, own)| *wanted |= own);
            made.push(one.function);
        }
    }
    let operands: Vec<Value> = lanes.iter().map(|lane| lane.var.value).collect();
    let attrs = renamed(operation, made.iter().map(|own| &own.name)).into_iter().collect();
    let values = batcher.builder.call(operation.op, &made[0], attrs, &operands)?;
    batcher.define(operation, values.into_iter().zip(wanted));
    Ok(())
}

/// The batch axis is the second one of sequences and stacked results. A carry has it if any step
/// returns it so.
fn scan<'b>(
    batcher: &mut Batcher<'_, 'b>,
    operation: &Operation,
    lanes: &[Lane<'b>],
    body: &Function,
) -> Result<()> {
    let carries = operation.attr("carries").as_int() as usize;
    let sequences = operation.attr("sequences").as_int() as usize;
    let mut flags: Vec<bool> = lanes.iter().map(|lane| lane.batched).collect();
    let made = loop {
        let mut wanted = vec![false; body.results.len()];
        wanted[..carries].copy_from_slice(&flags[..carries]);
        let made = batched(batcher.module, body, &flags, &wanted)?;
        if made.results[..carries] == flags[..carries] {
            break made;
        }
        flags[..carries].copy_from_slice(&made.results[..carries]);
    };
    let operands = lanes.iter().zip(&flags).enumerate().map(|(at, (lane, flag))| {
        let value = batcher.with_axis(*lane, *flag);
        let cut = (carries..carries + sequences).contains(&at);
        if cut && *flag { exchanged(value).value } else { value.value }
    });
    let operands: Vec<Value> = operands.collect();
    let attrs = renamed(operation, [&made.function.name]).into_iter().collect();
    let values = batcher.builder.call(operation.op, &made.function, attrs, &operands)?;
    let values = values.into_iter().zip(made.results).enumerate().map(|(at, (value, flag))| {
        let value = batcher.builder.var(value);
        let stacked = at >= carries && flag;
        (if stacked { exchanged(value).value } else { value.value }, flag)
    });
    let values: Vec<(Value, bool)> = values.collect();
    batcher.builder.check()?;
    batcher.define(operation, values);
    Ok(())
}

/// The value with its first two axes exchanged.
fn exchanged(x: Var) -> Var {
    x.unary("swap_axes", &[("first", 0.into()), ("second", 1.into())])
}
