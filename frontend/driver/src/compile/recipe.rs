//! Runs the passes that lower a model's functions for a target, plans native code, and measures the
//! time of each stage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::{Module, Operation, Role};
use mithril_ir::op::{Class, Gradient};
use mithril_kernels::host;
use mithril_model::block::{Block, quoted};
use mithril_model::definition::Terminal;
use mithril_model::lower::Mode;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::checkpoint;
use mithril_passes::driver::Driver;
use mithril_passes::indexed::indexed_as;
use mithril_passes::inline::Inline;
use mithril_passes::keep::Keep;
use mithril_passes::pipeline::{self, OptimizationOptions, Pipeline};
use mithril_passes::specialise::shapes::Shapes;
use mithril_passes::target::Target;
use mithril_source::python;

use super::{Checks, Code, CompileOptions, entry};
use crate::budget;
use crate::calibration::calibrated;
use crate::native::{Native, Planning, Tier};
use crate::targets::{Dialect, TargetEntry};

/// A backend that runs some blocks of a model.
#[derive(Clone, Debug)]
pub struct OtherTarget {
    /// Names its functions.
    pub name: String,
    /// The paths of the blocks. Blocks inside them run on it as well, unless they are placed
    /// elsewhere.
    pub blocks: Vec<String>,
    pub target: &'static TargetEntry,
    pub tier: Tier,
    /// The processor to compile native code for; `None` uses MITHRIL_CPU.
    pub cpu: Option<String>,
    /// Whether its source runs in mixed precision.
    pub mixed_precision: bool,
}

/// The options that decide how a module is simplified and compiled.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub target: &'static TargetEntry,
    /// The names in generated source.
    pub names: python::Options,
    pub optimization: OptimizationOptions,
    pub training: bool,
    pub own_gradients: bool,
    pub memory_budget: Option<u64>,
    pub planning: Planning,
    pub tier: Tier,
    /// The name of the processor to compile native code for; `None` uses MITHRIL_CPU.
    pub cpu: Option<String>,
    pub checks: Checks,
    /// The integer inputs whose dtype was not specified.
    pub any_integers: Vec<Arc<str>>,
    /// The backends that run some of the blocks.
    pub others: Vec<OtherTarget>,
}

/// Adds the results that the compile options request to the model's functions.
pub fn with_outputs(logical: Module, options: &CompileOptions) -> Result<Module> {
    let logical = keeping(logical, &options.keep, &options.watched)?;
    match &options.differentiate {
        Some(output) => differentiated(logical, output),
        None => Ok(logical),
    }
}

/// Adds the gradients of a scalar result with respect to the params to the entry's results.
fn differentiated(logical: Module, output: &str) -> Result<Module> {
    let main = entry(&logical)?.clone();
    let outputs = || main.results.iter().filter(|r| r.state.is_none()).map(|r| &*r.name);
    if !outputs().any(|name| name == output) {
        let names: Vec<&str> = outputs().collect();
        let mut error = Diagnostic::of(
            ErrorKind::Terminal,
            format!("the model has no output `{output}`, which is named in `differentiate`"),
        )
        .expected(quoted(&names));
        error.hint = did_you_mean(output, outputs())
            .or((output == "final_cost").then(|| "`TrainModel` computes it from losses".into()));
        return error.err();
    }
    if main.args.iter().all(|arg| arg.role != Role::Param) {
        return Diagnostic::of(
            ErrorKind::Training,
            format!("`{output}` has no gradients: the model has no params"),
        )
        .hint("use `trainable_keys` to turn inputs into params")
        .err();
    }
    let autodiff = Autodiff { of: output.into(), outputs: true, ..Autodiff::default() };
    let (mut module, _) = Driver::default().run(&Pipeline::default().then(autodiff), &logical)?;
    let made = module.entries.pop().and_then(|name| module.functions.shift_remove(&name));
    let mut joint = made.map(Arc::unwrap_or_clone).expect("the pass adds a function");
    joint.name = main.name.clone();
    let params = main.args.iter().filter(|arg| arg.role == Role::Param);
    let (outputs, gradients) = joint.results.split_at_mut(main.results.len());
    for (result, param) in gradients.iter_mut().zip(params) {
        result.name = format!("{}_gradient", param.name).into();
        if outputs.iter().any(|other| other.name == result.name) {
            return Diagnostic::new(format!("the model has an output `{}`", result.name))
                .expected("a name other than that of a gradient")
                .err();
        }
    }
    module.insert(joint);
    Ok(module)
}

/// Makes these values results. Only the blocks that contain the values are inlined; other repeated
/// blocks stay shared functions. If a terminal is not found, all blocks are inlined to find
/// terminals inside other blocks.
fn keeping(logical: Module, paths: &[String], watched: &[String]) -> Result<Module> {
    let all = [paths, watched].concat();
    if all.is_empty() {
        return Ok(logical);
    }
    let kept = |around: &[String], levels: usize| {
        let inline = |_| Inline { custom: false, around: around.to_vec(), ..Inline::ALL };
        let inlined = (0..levels).map(inline).fold(Pipeline::default(), Pipeline::then);
        let pipeline = inlined.then(Keep { paths: paths.to_vec(), watched: watched.to_vec() });
        Ok(Driver::default().run(&pipeline, &logical)?.0)
    };
    let levels = all.iter().map(|path| path.matches('.').count()).max().unwrap_or(0);
    kept(&all, levels).or_else(|_| kept(&[], 1))
}

impl Recipe {
    pub fn of(block: &Block, options: &CompileOptions) -> Recipe {
        let set = |terminal: &Terminal| {
            let given = options.lower.dtypes.iter().any(|(name, _)| **name == *terminal.name);
            given || terminal.dtype.is_some()
        };
        let integers = block.inputs().iter().filter(|terminal| {
            terminal.role == Role::Data && terminal.class == Class::Int && !set(terminal)
        });
        Recipe {
            target: options.target,
            names: python::Options {
                summary: block.name().unwrap_or(block.kind()).to_string(),
                stem: options.stem.clone(),
                random: options.random,
                mesh: options.optimization.mesh.clone(),
                in_place: options.in_place,
                mixed_precision: options.mixed_precision,
                training: options.lower.mode == Mode::Training,
                layouts: options.layouts.clone(),
            },
            optimization: options.optimization.clone(),
            training: options.lower.mode == Mode::Training,
            own_gradients: options.own_gradients,
            memory_budget: options.memory_budget,
            planning: options.planning,
            tier: options.tier,
            cpu: options.cpu.clone(),
            checks: options.checks,
            any_integers: integers.map(|terminal| terminal.name.clone()).collect(),
            others: options.others.clone(),
        }
    }

    /// The recipe of the parts of this place.
    pub fn for_place(&self, place: usize) -> Recipe {
        let other = place.checked_sub(1).and_then(|at| self.others.get(at));
        let (target, tier, cpu) = match other {
            Some(other) => (other.target, other.tier, other.cpu.clone()),
            None => (self.target, self.tier, self.cpu.clone()),
        };
        let mut own = self.clone();
        own.names.mixed_precision =
            other.map_or(self.names.mixed_precision, |other| other.mixed_precision);
        let (checks, any_integers) = (Checks::None, Vec::new());
        Recipe { target, tier, cpu, checks, any_integers, others: Vec::new(), ..own }
    }

    /// The target of the passes, and whether they generate gradients. Errors: the measurements of
    /// the target cannot be read.
    pub fn destination(&self, logical: &Module) -> Result<(Target, bool)> {
        let able = self.target.differentiates_branches || !branches(logical);
        let differentiates = self.target.differentiates && able && !self.own_gradients;
        let learns = entry(logical)?.args.iter().any(|a| a.role == Role::Param);
        let target = calibrated(self.target.passes)?;
        let takes = match (&self.names.mesh, self.target.dialect) {
            (Some(_), Dialect::Python(backend)) => backend.takes_on_mesh.unwrap_or(target.takes),
            (None, _) | (_, Dialect::C | Dialect::Machine) => target.takes,
        };
        Ok((Target { takes, ..target }, self.training && learns && !differentiates))
    }

    /// The passes that turn a model's functions into operations that the target supports.
    pub fn pipeline(
        &self,
        logical: &Module,
        shapes: Shapes,
        optimization: &OptimizationOptions,
    ) -> Result<Pipeline> {
        let (target, gradients) = self.destination(logical)?;
        Ok(self.target.finish(pipeline::standard(shapes, target, gradients, optimization)))
    }
}

/// Generates code of the recipe's own target for a model's functions with these shapes; also returns
/// the module that it was generated from.
///
/// Errors: those of the target.
pub fn for_target(
    logical: &Module,
    recipe: &mut Recipe,
    shapes: Shapes,
    watch: &mut Watch,
) -> Result<(Module, Code)> {
    match recipe.target.dialect {
        Dialect::C | Dialect::Machine => native(logical, recipe, shapes, watch),
        Dialect::Python(backend) => {
            let (module, _) = simplify(logical, recipe, shapes, watch)?;
            let source = watch.time("emit", || python::emit(&module, backend, &recipe.names))?;
            Ok((module, Code::Source(source)))
        }
    }
}

/// Compiles a model's functions to native code; also returns the module that it was generated from.
/// If there is a memory budget, the recipe is updated with the chosen amount of recomputation.
fn native(
    logical: &Module,
    recipe: &mut Recipe,
    shapes: Shapes,
    watch: &mut Watch,
) -> Result<(Module, Code)> {
    let mut make = |recipe: &Recipe| -> Result<((Module, Box<Native>), usize)> {
        let (module, again) = simplify(logical, recipe, shapes.clone(), watch)?;
        let native = watch.time("plan", || match recipe.target.dialect {
            Dialect::C => {
                let indexed = match recipe.checks {
                    Checks::None => Vec::new(),
                    Checks::Host | Checks::All => indexed_as(logical, &module)?,
                };
                Native::of_c(&module, &recipe.names.stem, recipe.planning, &indexed)
            }
            Dialect::Machine | Dialect::Python(_) => {
                let host = host::chosen(recipe.cpu.as_deref())?;
                Native::of(&module, &host, recipe.tier, recipe.planning)
            }
        });
        Ok(((module, Box::new(native?)), again))
    };
    let (module, native) = match recipe.memory_budget {
        None => make(recipe)?.0,
        Some(budget) => {
            let with = |checkpoint| {
                let optimization =
                    OptimizationOptions { checkpoint, ..recipe.optimization.clone() };
                make(&Recipe { optimization, ..recipe.clone() })
            };
            let choice = budget::within(budget, with, |(_, native)| Some(native))?;
            recipe.optimization.checkpoint = choice.checkpoint;
            choice.program
        }
    };
    Ok((module, Code::Native(native)))
}

/// Whether elements of arrays decide which operations run.
pub fn branches(module: &Module) -> bool {
    let decides = |op: &Operation| matches!(op.op.gradient, Gradient::Branches | Gradient::While);
    module.functions.values().flat_map(|function| &function.ops).any(decides)
}

/// Runs the passes. Also returns the number of functions that the gradients recompute.
pub fn simplify(
    logical: &Module,
    recipe: &Recipe,
    shapes: Shapes,
    watch: &mut Watch,
) -> Result<(Module, usize)> {
    let pipeline = recipe.pipeline(logical, shapes, &recipe.optimization)?;
    let (module, report) = Driver::default().run(&pipeline, logical)?;
    let mut again = 0;
    for outcome in report.passes {
        watch.add(outcome.pass, outcome.time);
        let counts = outcome.statistics.iter().filter(|(name, _)| *name == checkpoint::COUNT);
        again += counts.map(|(_, count)| *count as usize).sum::<usize>();
    }
    Ok((module, again))
}

/// Measures the time of stages. Stages of the same name are summed.
#[derive(Default)]
pub struct Watch {
    pub stages: Vec<(&'static str, Duration)>,
}

impl Watch {
    pub fn time<T>(&mut self, stage: &'static str, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = run();
        self.add(stage, start.elapsed());
        result
    }

    pub fn add(&mut self, stage: &'static str, time: Duration) {
        match self.stages.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, total)) => *total += time,
            None => self.stages.push((stage, time)),
        }
    }
}
