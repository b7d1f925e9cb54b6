//! How a model's functions become what a target takes: passes, plans, and how long they took.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::graph::{Module, Role};
use mithril_ir::op::Class;
use mithril_kernels::host;
use mithril_model::block::{Block, Terminal, quoted};
use mithril_model::lower::Mode;
use mithril_passes::autodiff::Autodiff;
use mithril_passes::checkpoint;
use mithril_passes::driver::Driver;
use mithril_passes::indexed::indexed_as;
use mithril_passes::inline::Inline;
use mithril_passes::keep::Keep;
use mithril_passes::pipeline::{OptimizationOptions, Pipeline};
use mithril_passes::remove_barriers::RemoveBarriers;
use mithril_passes::specialise::given::Shapes;
use mithril_passes::{pipeline, target};

use super::{Checks, Code, CompileOptions, Target, entry};
use crate::budget;
use crate::calibration::calibrated;
use crate::native::{Native, Planning, Tier};

/// How a module is simplified.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub target: Target,
    /// What names in C contain.
    pub stem: Arc<str>,
    pub optimization: OptimizationOptions,
    pub training: bool,
    pub own_gradients: bool,
    pub memory_budget: Option<u64>,
    pub planning: Planning,
    pub tier: Tier,
    /// The processor that native code is made for, by name; none for what MITHRIL_CPU says.
    pub cpu: Option<String>,
    pub checks: Checks,
    /// The inputs that are integers, of a dtype that nobody has set.
    pub any_integers: Vec<Arc<str>>,
}

/// The functions with the results that a compile adds to the model's.
pub fn with_outputs(logical: Module, options: &CompileOptions) -> Result<Module> {
    let logical = keeping(logical, &options.keep, &options.watched)?;
    match &options.differentiate {
        Some(output) => differentiated(logical, output),
        None => Ok(logical),
    }
}

/// The functions whose entry gives the gradients of a scalar result by its params, too.
fn differentiated(logical: Module, output: &str) -> Result<Module> {
    let main = entry(&logical)?.clone();
    let outputs = || main.results.iter().filter(|r| r.state.is_none()).map(|r| &*r.name);
    if !outputs().any(|name| name == output) {
        let names: Vec<&str> = outputs().collect();
        let mut error = Diagnostic::new(format!(
            "Terminal not found: the model has no output `{output}`, which `differentiate` names"
        ))
        .expected(quoted(&names));
        error.hint = did_you_mean(output, outputs())
            .or((output == "final_cost").then(|| "`TrainModel` makes it of losses".into()));
        return error.err();
    }
    if main.args.iter().all(|arg| arg.role != Role::Param) {
        return Diagnostic::new(format!("`{output}` has no gradients: the model has no params"))
            .hint("`trainable_keys` makes params of inputs")
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
                .expected("a name that the gradient of a param has not")
                .err();
        }
    }
    module.insert(joint);
    Ok(module)
}

/// The functions with these values as results. What is repeated stays so, but for the blocks that
/// values lie in; terminals inside other blocks are found once everything is inlined.
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
            stem: options.stem.as_str().into(),
            optimization: options.optimization.clone(),
            training: options.lower.mode == Mode::Training,
            own_gradients: options.own_gradients,
            memory_budget: options.memory_budget,
            planning: options.planning,
            tier: options.tier,
            cpu: options.cpu.clone(),
            checks: options.checks,
            any_integers: integers.map(|terminal| terminal.name.clone()).collect(),
        }
    }

    /// Where the passes take a model's functions to, and whether they make its gradients.
    /// Errors: what was measured of the target cannot be read.
    pub fn destination(&self, logical: &Module) -> Result<(target::Target, bool)> {
        let differentiates = match self.target {
            Target::Framework(framework) => {
                framework.backend().differentiates && !self.own_gradients
            }
            Target::Cpu | Target::C => false,
        };
        let learns = entry(logical)?.args.iter().any(|a| a.role == Role::Param);
        Ok((calibrated(self.target.passes())?, self.training && learns && !differentiates))
    }

    /// The passes, from a model's functions to what the target has.
    pub fn pipeline(
        &self,
        logical: &Module,
        shapes: Shapes,
        optimization: &OptimizationOptions,
    ) -> Result<Pipeline> {
        let (target, gradients) = self.destination(logical)?;
        let pipeline = pipeline::standard(shapes, target, gradients, optimization);
        Ok(match self.target {
            Target::Framework(_) => pipeline.then(RemoveBarriers::default()),
            Target::Cpu | Target::C => pipeline::flat(pipeline),
        })
    }
}

/// The native code of a model's functions, as the target has it, and what it is made from. Where a
/// bound of memory is given, the recipe learns what is to be computed again.
pub fn native(
    logical: &Module,
    recipe: &mut Recipe,
    shapes: Shapes,
    watch: &mut Watch,
) -> Result<(Module, Code)> {
    let mut make = |recipe: &Recipe| -> Result<((Module, Box<Native>), usize)> {
        let (module, again) = simplify(logical, recipe, shapes.clone(), watch)?;
        let native = watch.time("plan", || match recipe.target {
            Target::C => {
                let indexed = match recipe.checks {
                    Checks::None => Vec::new(),
                    Checks::Host | Checks::All => indexed_as(logical, &module)?,
                };
                Native::of_c(&module, &recipe.stem, recipe.planning, &indexed)
            }
            Target::Cpu | Target::Framework(_) => {
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
            choice.made
        }
    };
    Ok((module, Code::Native(native)))
}

/// Runs the passes. How many functions gradients compute again, too.
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

/// Times stages; those of one name add up.
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
