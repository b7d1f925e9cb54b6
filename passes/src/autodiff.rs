//! `autodiff`: reverse-mode differentiation of a function into a new one.
//!
//! The new function takes the arguments of the old one and a cotangent for each float result, and
//! returns a gradient for each argument of `wrt`. It contains a copy of the forward operations that
//! the gradients read; `dce` removes the rest. A call becomes two calls: one of its callee's
//! forward function, which returns the callee's results and the values that the backward function
//! reads, and one of that backward function. Both functions are built once and shared by all calls
//! of the same kind.

use std::sync::Arc;

use mithril_ir::algebra::{Var, expand};
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::evaluate::decompose;
use mithril_ir::graph::{Argument, Function, Module, Operation, ResultDef, Role, Value};
use mithril_ir::nesting::deeper;
use mithril_ir::op::{self, Gradient, GradientRule, Kind, Meaning};
use mithril_ir::shape::Type;
use mithril_ir::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::context::PassContext;
use crate::pass::Pass;
use crate::target::{self, Target};
use backward_pass::backward_pass;
use calls::BackwardCall;
use cotangents::Cotangents;
use forward_backward::{ForwardBackward, split};

mod backward_pass;
mod calls;
mod control;
mod cotangents;
pub(crate) mod forward_backward;
mod splits;

pass! {
    /// Adds a function that computes the gradients of another one: it takes the arguments of that
    /// function and a cotangent for each float result, and is an entry of the module.
    pub struct Autodiff("autodiff") {
        /// The function to differentiate; the entry if omitted.
        function: String = String::new(),
        /// The scalar result to differentiate; if omitted, all results, with a cotangent for each.
        of: String = String::new(),
        /// The arguments to compute gradients of; all params if omitted.
        wrt: Vec<String> = Vec::new(),
        /// The name of the new function.
        into: String = "gradients".to_string(),
        /// Whether the new function also returns the results, before the gradients.
        outputs: bool = false,
        /// The target. Operations that it takes whole are differentiated whole, others decomposed.
        target: Target = *target::CORE,
    }
}

impl Pass for Autodiff {
    /// Errors: no such function or argument, an argument that is not a float, an operation that has
    /// no gradient.
    fn run(&self, module: &Module, cx: &mut PassContext) -> Result<Module> {
        let function = match self.function.as_str() {
            "" => module.entry(),
            name => module.get(name),
        };
        let Some(function) = function else {
            return Diagnostic::new("there is no function to differentiate")
                .got(if self.function.is_empty() { "an empty module" } else { &self.function })
                .err();
        };
        if function.external {
            return Diagnostic::new("an external function has no operations to differentiate")
                .at(format!("function `{}`", function.name))
                .hint("call it from a function, by a `custom_gradient`")
                .err();
        }
        let wrt = self.arguments(function)?;
        let seeds = self.seeds(function)?;
        let mut module = module.clone();
        let name = module.fresh_name(&self.into);
        let mut tape = Tape::new(&mut module, self.target);
        let joint = tape.differentiate(function, &wrt, name, self.outputs, seeds)?;
        cx.count("functions-differentiated", 1);
        module.entries.push(joint.name.clone());
        module.insert(joint);
        Ok(module)
    }
}

/// The cotangents of a function's results.
#[derive(Clone, Copy)]
enum Seeds {
    /// They are arguments of the new function.
    Cotangents,
    /// 1 for this result, 0 for all others.
    One(usize),
}

impl Autodiff {
    fn seeds(&self, function: &Function) -> Result<Seeds> {
        if self.of.is_empty() {
            return Ok(Seeds::Cotangents);
        }
        let Some(at) = function.results.iter().position(|r| *r.name == *self.of) else {
            let names = function.results.iter().map(|r| &*r.name);
            let mut error =
                Diagnostic::new(format!("`{}` has no result `{}`", function.name, self.of));
            error.hint = did_you_mean(&self.of, names);
            return error.err();
        };
        let result = &function.results[at];
        let ty = function.ty(result.value);
        if !takes_cotangent(function, result) || ty.shape.rank() != Some(0) {
            return Diagnostic::new(format!("`{}` is not a scalar with gradients", self.of))
                .got(ty)
                .expected("one float, such as the mean of a loss")
                .err();
        }
        Ok(Seeds::One(at))
    }

    fn arguments(&self, function: &Function) -> Result<Vec<bool>> {
        for name in &self.wrt {
            let Some((value, _)) = function.arguments().find(|(_, a)| *a.name == **name) else {
                let names = function.args.iter().map(|a| &*a.name);
                let mut error =
                    Diagnostic::new(format!("`{}` has no argument `{name}`", function.name));
                error.hint = did_you_mean(name, names);
                return error.err();
            };
            let ty = function.ty(value);
            if !ty.dtype.is_float() {
                return Diagnostic::new(format!("`{name}` has no gradient: it is not a float"))
                    .got(ty)
                    .hint(
                        "integers and bools do not vary smoothly; make it a float or leave it out",
                    )
                    .err();
            }
        }
        let named: FxHashSet<&str> = self.wrt.iter().map(String::as_str).collect();
        let wanted = |(value, arg): (Value, &Argument)| match named.is_empty() {
            true => arg.role == Role::Param && function.ty(value).dtype.is_float(),
            false => named.contains(&*arg.name),
        };
        Ok(function.arguments().map(wanted).collect())
    }
}

/// The key of a callee's forward and backward functions: its name, the arguments that vary, the
/// arguments that the caller keeps, and whether forward values are recomputed in the backward
/// function.
type CallKey = (Arc<str>, Vec<bool>, Vec<bool>, bool);

/// Differentiates functions, and caches the forward and backward functions of callees.
struct Tape<'m> {
    module: &'m mut Module,
    target: Target,
    differentiated: FxHashMap<CallKey, ForwardBackward>,
}

/// Data of the forward pass for the backward pass, in addition to the operations themselves.
struct Backward {
    target: Target,
    /// How to differentiate each call that varies, by the call's first result.
    calls: FxHashMap<Value, BackwardCall>,
    /// Whether a value depends on an argument of `wrt`, by value index.
    varies: Vec<bool>,
}

impl Backward {
    fn new(target: Target, varies: Vec<bool>) -> Backward {
        Backward { target, calls: FxHashMap::default(), varies }
    }

    /// Whether the operation has a gradient rule of its own. Otherwise its decomposition is
    /// differentiated. `operands` are its operands in the new function.
    fn is_whole(&self, function: &Function, operation: &Operation, operands: &[Value]) -> bool {
        match operation.op.gradient {
            _ if self.pullback(function, operation, operands).is_some() => true,
            Gradient::Derived => op::partials(operation.op).is_some(),
            _ => true,
        }
    }

    /// The gradient rule that uses an operation of the target, if the target has one.
    fn pullback(
        &self,
        function: &Function,
        operation: &Operation,
        operands: &[Value],
    ) -> Option<GradientRule> {
        let pullback = operation.op.pullback?;
        let mut others = operands.iter().enumerate().filter(|(i, _)| !pullback.wrt.contains(i));
        if others.any(|(_, operand)| self.varies(*operand)) {
            return None;
        }
        let by = op::get(pullback.by);
        (self.target.pulls_back)(function, operation, by).then_some(pullback.rule)
    }

    fn mark(&mut self, value: Value, varies: bool) {
        if self.varies.len() <= value.index() {
            self.varies.resize(value.index() + 1, false);
        }
        self.varies[value.index()] = varies;
    }

    fn varies(&self, value: Value) -> bool {
        self.varies.get(value.index()).copied().unwrap_or(false)
    }
}

impl<'m> Tape<'m> {
    fn new(module: &'m mut Module, target: Target) -> Tape<'m> {
        Tape { module, target, differentiated: FxHashMap::default() }
    }

    /// Builds the function that takes the arguments of `function` and, with [`Seeds::Cotangents`],
    /// the cotangents of its float results (except states), and returns a gradient per argument of
    /// `wrt`.
    fn differentiate(
        &mut self,
        function: &Function,
        wrt: &[bool],
        name: Arc<str>,
        outputs: bool,
        seeds: Seeds,
    ) -> Result<Function> {
        let builder = Builder::like(name, function);
        let seeds = match seeds {
            Seeds::Cotangents => cotangent_arguments(&builder, function),
            Seeds::One(at) => one(&builder, function, at),
        };
        let mut backward = Backward::new(self.target, wrt.to_vec());
        let map = self.forward(&builder, function, &mut backward)?;
        let mut cotangents = Cotangents::default();
        for (result, seed) in function.results.iter().zip(seeds) {
            if let Some(seed) = seed {
                cotangents.add(&builder, map[result.value.index()], builder.var(seed));
            }
        }
        backward_pass(&builder, &backward, &mut cotangents)?;
        let mut results: Vec<ResultDef> = Vec::new();
        let mut taken: FxHashSet<Arc<str>> = FxHashSet::default();
        if outputs {
            results.extend(
                function
                    .results
                    .iter()
                    .map(|r| ResultDef { value: map[r.value.index()], ..r.clone() }),
            );
            taken.extend(results.iter().map(|r| r.name.clone()));
        }
        for ((value, arg), _) in function.arguments().zip(wrt).filter(|(_, wanted)| **wanted) {
            let gradient = match cotangents.0.get(&value) {
                Some(gradient) => *gradient,
                None => zeros(&builder, function.ty(value)),
            };
            let name = gradient_name(&taken, &arg.name);
            taken.insert(name.clone());
            results.push(ResultDef { name, value: gradient, state: None });
        }
        builder.finish(results)
    }

    /// Copies the operations, and decomposes those without a gradient rule of their own.
    fn forward(
        &mut self,
        builder: &Builder,
        function: &Function,
        backward: &mut Backward,
    ) -> Result<Vec<Value>> {
        let mut map: Vec<Value> = (0..function.values.len() as u32).map(Value).collect();
        for operation in &function.ops {
            builder.set_loc(operation.loc.clone());
            let operands: SmallVec<[Value; 3]> =
                operation.operands.iter().map(|v| map[v.index()]).collect();
            let before = builder.with(|f| f.ops.len());
            let results = if operation.op.kind == Kind::Call {
                self.call(builder, operation, &operands, backward)?
            } else {
                let whole = backward.is_whole(function, operation, &operands);
                SmallVec::from_iter([emit(builder, operation, &operands, whole, backward)?])
            };
            mark_new(builder, before, backward);
            for (old, new) in operation.results().zip(results) {
                builder.set_name(new, function.info(old).name.clone());
                map[old.index()] = new;
            }
        }
        Ok(map)
    }

    fn callee(&self, operation: &Operation) -> Result<Arc<Function>> {
        self.function(operation.functions().next().expect("a call names its callee"))
    }

    fn function(&self, name: &str) -> Result<Arc<Function>> {
        match self.module.get(name) {
            Some(callee) => Ok(callee.clone()),
            None => Diagnostic::new(format!("the module has no function `{name}`")).err(),
        }
    }

    /// The forward and backward functions of a callee whose `varying` arguments have gradients.
    /// `keeps` says which arguments the caller keeps. With `recompute`, the backward function
    /// recomputes the forward values it reads from the arguments.
    fn forward_backward(
        &mut self,
        callee: &Function,
        varying: Vec<bool>,
        keeps: &dyn Fn(usize) -> bool,
        recompute: bool,
    ) -> Result<ForwardBackward> {
        let kept: Vec<bool> = (0..varying.len()).map(keeps).collect();
        let key = (callee.name.clone(), varying, kept, recompute);
        if let Some(functions) = self.differentiated.get(&key) {
            return Ok(functions.clone());
        }
        let wrt: Vec<bool> = callee
            .arguments()
            .zip(&key.1)
            .map(|((value, _), varies)| *varies && callee.ty(value).dtype.is_float())
            .collect();
        // Runs on a larger stack, because calls may nest deep.
        let joint = deeper(|| {
            self.differentiate(callee, &wrt, callee.name.clone(), true, Seeds::Cotangents)
        })?;
        let functions = split(self.module, callee, &joint, &wrt, keeps, recompute)?;
        self.differentiated.insert(key, functions.clone());
        Ok(functions)
    }
}

fn gradient_name(taken: &FxHashSet<Arc<str>>, name: &Arc<str>) -> Arc<str> {
    match taken.contains(name) {
        false => name.clone(),
        true => unused(&format!("{name}_gradient_1"), |name| taken.contains(name)),
    }
}

/// A name that is not taken: this one, or this one with a number appended.
fn unused(name: &str, taken: impl Fn(&str) -> bool) -> Arc<str> {
    let numbered = (1..).map(|i| format!("{name}_{i}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names.find(|name| !taken(name)).expect("there are more names than are taken").into()
}

/// Whether a result is a float that is not a state.
fn takes_cotangent(function: &Function, result: &ResultDef) -> bool {
    function.ty(result.value).dtype.is_float() && result.state.is_none()
}

/// Adds one cotangent argument per result that takes one. It has the name of the result, or a name
/// that ends in `_gradient` where an argument already has that name, as in a second derivative.
fn cotangent_arguments(builder: &Builder, function: &Function) -> Vec<Option<Value>> {
    let arguments: FxHashSet<&str> = function.args.iter().map(|a| &*a.name).collect();
    let own: FxHashSet<&str> = function.results.iter().map(|r| &*r.name).collect();
    let taken = |name: &str| arguments.contains(name);
    let others = |name: &str| taken(name) || own.contains(name);
    let cotangent = |result: &ResultDef| {
        let name = match taken(&result.name) {
            false => result.name.clone(),
            true => unused(&format!("{}_gradient", result.name), others),
        };
        builder.arg(name, Role::Cotangent, function.ty(result.value).clone())
    };
    let results = function.results.iter();
    results.map(|r| takes_cotangent(function, r).then(|| cotangent(r))).collect()
}

/// A cotangent of 1 for the scalar result with index `at`, and none for the others.
fn one(builder: &Builder, function: &Function, at: usize) -> Vec<Option<Value>> {
    let mut seeds = vec![None; function.results.len()];
    let dtype = function.ty(function.results[at].value).dtype;
    seeds[at] = Some(builder.constant(Tensor::scalar(dtype, 1.0)));
    seeds
}

fn zeros(builder: &Builder, ty: &Type) -> Value {
    let zero = builder.var(builder.constant(Tensor::scalar(ty.dtype, 0.0)));
    zero.broadcast_to(ty.shape.clone()).value
}

/// Copies an operation if `whole` or if it does not vary; otherwise emits its decomposition.
fn emit(
    builder: &Builder,
    operation: &Operation,
    operands: &[Value],
    whole: bool,
    backward: &mut Backward,
) -> Result<Value> {
    let op = operation.op;
    let varies = operands.iter().any(|v| backward.varies(*v));
    if whole || !varies {
        return builder.push(op, operands, operation.attrs.clone());
    }
    match op.meaning {
        Meaning::Decompose(_) => {
            let before = builder.with(|f| f.ops.len());
            let value = decompose(builder, op, operands, &operation.attrs)?;
            mark_new(builder, before, backward);
            decompose_nested(builder, before, value, backward)
        }
        Meaning::Scalar(_) => {
            let vars: Vec<Var> = operands.iter().map(|v| builder.var(*v)).collect();
            let expr = op::expr(op).expect("a scalar meaning has an expression");
            let value = expand(builder, expr, &vars, &operation.attrs, vars[0].dtype()).value;
            builder.check().map(|()| value)
        }
        Meaning::Kernel(_) | Meaning::Call(_) => {
            Diagnostic::new(format!("`{}` has no gradient", op.name))
                .at(format!("block `{}`", operation.loc))
                .err()
        }
    }
}

/// Decomposes the operations from index `from` on that have no gradient rule of their own,
/// recursively. Returns the replacement of `value`.
fn decompose_nested(
    builder: &Builder,
    from: usize,
    value: Value,
    backward: &mut Backward,
) -> Result<Value> {
    let parts: Vec<Operation> = builder.with(|f| f.ops[from..].to_vec());
    let whole = |part: &Operation| builder.with(|f| backward.is_whole(f, part, &part.operands));
    if parts.iter().all(whole) {
        return Ok(value);
    }
    let mut map: FxHashMap<Value, Value> = FxHashMap::default();
    for part in &parts {
        let operands: SmallVec<[Value; 3]> =
            part.operands.iter().map(|v| *map.get(v).unwrap_or(v)).collect();
        let before = builder.with(|f| f.ops.len());
        let whole = builder.with(|f| backward.is_whole(f, part, &operands));
        let new = emit(builder, part, &operands, whole, backward)?;
        mark_new(builder, before, backward);
        map.insert(part.result(), new);
    }
    Ok(*map.get(&value).unwrap_or(&value))
}

/// Marks new values: a value varies if it is a float, an operand varies, and the operation lets
/// gradients through.
fn mark_new(builder: &Builder, from: usize, backward: &mut Backward) {
    builder.with(|f| {
        for operation in &f.ops[from..] {
            let through = !matches!(operation.op.gradient, Gradient::Zero);
            let varies = through && operation.operands.iter().any(|v| backward.varies(*v));
            for value in operation.results() {
                backward.mark(value, varies && f.ty(value).dtype.is_float());
            }
        }
    });
}
