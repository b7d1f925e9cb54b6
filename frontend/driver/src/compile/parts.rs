//! Models whose blocks run on several backends. The model is divided into parts, and each part is
//! compiled for its own target.

use std::sync::Arc;

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, Module, Operation, Role, Value};
use mithril_model::init::Init;
use mithril_passes::call_graph::{self, reachable};
use mithril_passes::divide::divide;
use mithril_passes::driver::Driver;
use mithril_passes::inline::Inline;
use mithril_passes::pipeline::Pipeline;
use mithril_passes::specialise::Specialise;
use mithril_passes::specialise::shapes::Shapes;

use super::recipe::{Recipe, Watch, for_target};
use super::{Code, Program, assembled, entry};

/// A model in parts.
#[derive(Debug)]
pub struct Parts {
    /// In the order in which they run.
    pub parts: Vec<Part>,
    /// The number of the value of each result. The arguments are the first values.
    pub results: Vec<usize>,
}

/// A part of a model, which runs on one backend.
#[derive(Debug)]
pub struct Part {
    /// The index of the backend: 0 is that of the whole model, and others are numbered from 1.
    pub place: usize,
    pub program: Arc<Program>,
    /// The numbers of the values that the program's arguments are.
    pub reads: Vec<usize>,
    /// The numbers of the values that the program's results are.
    pub writes: Vec<usize>,
}

/// Generates code for a model's functions with these shapes; also returns the module that it was
/// generated from.
///
/// Errors: those of the targets.
pub fn generate(
    logical: &Module,
    recipe: &mut Recipe,
    shapes: Shapes,
    watch: &mut Watch,
) -> Result<(Module, Code)> {
    match recipe.others.is_empty() {
        true => for_target(logical, recipe, shapes, watch),
        false => divided(logical, recipe, shapes, watch),
    }
}

/// Divides a model's functions and compiles the parts. Also returns the divided module.
fn divided(
    logical: &Module,
    recipe: &Recipe,
    shapes: Shapes,
    watch: &mut Watch,
) -> Result<(Module, Code)> {
    let places = || recipe.others.iter().enumerate();
    let blocks: Vec<(String, usize)> = places()
        .flat_map(|(at, other)| other.blocks.iter().map(move |path| (path.clone(), at + 1)))
        .collect();
    let names: Vec<&str> = std::iter::once(recipe.target.name())
        .chain(recipe.others.iter().map(|other| &*other.name))
        .collect();
    let (module, order) =
        watch.time("divide", || divide(&opened(logical, &blocks, shapes)?, &blocks, &names))?;
    let entry = entry(&module)?;
    let learned = if recipe.training { depending_on_params(entry) } else { vec![] };
    let mut parts = Vec::with_capacity(order.len());
    for (call, place) in entry.ops.iter().zip(order) {
        let logical = of_part(&module, call, &|value| role(entry, value, &learned))?;
        let mut own = recipe.for_place(place);
        let (code_module, code) = for_target(&logical, &mut own, Shapes::default(), watch)?;
        let name = call.functions().next().cloned().unwrap_or_default();
        let functions = (code_module, (logical, Shapes::default()));
        let no_start = |_: &str| (Init::Zeros.into(), None);
        let program = assembled(name, &no_start, functions, code, own, Watch::default())?;
        parts.push(Part {
            place,
            program: Arc::new(program),
            reads: call.operands.iter().map(|value| value.index()).collect(),
            writes: call.results().map(Value::index).collect(),
        });
    }
    let results = entry.results.iter().map(|result| result.value.index()).collect();
    Ok((module, Code::Parts(Box::new(Parts { parts, results }))))
}

/// The functions for these shapes, with the calls around the placed blocks inlined.
fn opened(logical: &Module, blocks: &[(String, usize)], shapes: Shapes) -> Result<Module> {
    let around: Vec<String> = blocks.iter().map(|(path, _)| path.clone()).collect();
    let levels = around.iter().map(|path| path.matches('.').count()).max().unwrap_or(0);
    let mut pipeline = Pipeline::default();
    if shapes != Shapes::default() {
        pipeline = pipeline.then(Specialise { shapes, ..Specialise::default() });
    }
    for _ in 0..levels {
        let inline = Inline { custom: false, around: around.clone(), ..Inline::ALL };
        pipeline = pipeline.then(inline);
    }
    Ok(Driver::default().run(&pipeline, logical)?.0)
}

/// The function that is called, as a module of its own. `role` gives the roles of its arguments.
fn of_part(module: &Module, call: &Operation, role: &dyn Fn(Value) -> Role) -> Result<Module> {
    let name = call.functions().next().map_or("", |name| name);
    let mut function = Function::clone(call_graph::function(module, name)?);
    for (argument, value) in function.args.iter_mut().zip(&call.operands) {
        argument.role = role(*value);
    }
    let mut part = Module::of(function);
    let others = module.functions.iter().filter(|(other, _)| ***other != *name);
    part.functions.extend(others.map(|(name, function)| (name.clone(), function.clone())));
    let used = reachable(&part)?;
    part.functions.retain(|name, _| used.contains(name));
    Ok(part)
}

/// The role of a value of the whole as an argument of a part: the gradients of what depends on
/// params are computed. The whole keeps the states.
fn role(entry: &Function, value: Value, learned: &[bool]) -> Role {
    match entry.args.get(value.index()) {
        Some(argument) if argument.role == Role::State => Role::Data,
        Some(argument) => argument.role,
        None if learned.get(value.index()).is_some_and(|own| *own) => Role::Param,
        None => Role::Data,
    }
}

/// For each value, whether it is a float that depends on a param.
fn depending_on_params(entry: &Function) -> Vec<bool> {
    let mut depends = vec![false; entry.values.len()];
    for (value, argument) in entry.arguments() {
        depends[value.index()] = argument.role == Role::Param;
    }
    for op in &entry.ops {
        if op.operands.iter().any(|value| depends[value.index()]) {
            op.results().for_each(|value| {
                depends[value.index()] = entry.ty(value).dtype.is_float();
            });
        }
    }
    depends
}
