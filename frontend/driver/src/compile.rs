//! Compiles a block to source for a framework or to native code. Each stage is one line.

use std::sync::Arc;
use std::time::Duration;

use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::shape::{Guard, Type};
use mithril_kernels::program;
use mithril_model::block::Block;
use mithril_model::init::{Init, Start};
use mithril_model::lower::{self, Lowered, lower_or_try, open_dtypes};
use mithril_passes::indexed::{Indexed, indexed_as};
use mithril_passes::pipeline::OptimizationOptions;
use mithril_passes::specialise::shapes::Shapes;
use mithril_source::backends::{InPlace, Random};
use mithril_source::python::Source;
use rustc_hash::FxHashMap;

use crate::native::{Native, Planning, Tier};
use crate::targets::{self, Dialect, TargetEntry};

mod cache;
pub mod open;
pub mod parts;
mod recipe;
mod reports;
pub mod sharding;

use open::{Needs, Open, Waits};
use parts::{Parts, generate};
pub use recipe::OtherTarget;
use recipe::{Recipe, Watch, branches, with_outputs};

/// The options of a compile.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    pub target: &'static TargetEntry,
    pub lower: lower::Options,
    /// The rewrite rules that run, and the math that they may use.
    pub optimization: OptimizationOptions,
    /// The name of the generated file without its extension.
    pub stem: String,
    /// Whether the cached program of an equal compile may be returned.
    pub cache: bool,
    /// The compiler that the first calls of native code use.
    pub tier: Tier,
    /// The name of the processor to compile native code for; `None` uses MITHRIL_CPU.
    pub cpu: Option<String>,
    /// Named terminals, and paths of blocks, whose values become additional results.
    pub keep: Vec<String>,
    /// The same for values that are only inspected, which have no gradients.
    pub watched: Vec<String>,
    /// A scalar output. If set, its gradients with respect to the params become outputs too.
    pub differentiate: Option<String>,
    /// Whether gradients are generated even for a target that has automatic differentiation.
    pub own_gradients: bool,
    /// The source of random numbers in generated Python. Native code always draws the exact bits.
    pub random: Random,
    /// Which operations of generated Python overwrite an operand.
    pub in_place: InPlace,
    /// Whether generated Python runs in mixed precision: its framework chooses dtypes.
    pub mixed_precision: bool,
    /// How the device mesh divides params and inputs: by name, mesh axes with the axes that they
    /// divide. Generated Python has a function that divides arrays so.
    pub layouts: Vec<(String, Vec<(String, i64)>)>,
    /// The maximum memory of a call of native code in bytes, if it is limited. Gradients recompute
    /// the values that do not fit.
    pub memory_budget: Option<u64>,
    /// How memory is assigned to the inner values of native code.
    pub planning: Planning,
    /// The arrays whose integers are checked if they index an axis.
    pub checks: Checks,
    /// The backends that run some of the blocks.
    pub others: Vec<OtherTarget>,
}

/// The memory that a call may read to check the integers that index an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checks {
    None,
    /// Only host memory. Arrays on devices and traced calls are not checked.
    #[default]
    Host,
    All,
}

impl CompileOptions {
    /// Whether some of the code is native.
    fn is_native(&self) -> bool {
        let others = self.others.iter().map(|other| other.target);
        let mut targets = others.chain([self.target]);
        targets.any(|target| matches!(target.dialect, Dialect::C | Dialect::Machine))
    }

    /// The default options of this target: training, no shapes, and every rule that preserves
    /// numerics.
    ///
    /// Errors: there is no target of this name.
    pub fn usual(target: &str) -> Result<CompileOptions> {
        CompileOptions::new(target, lower::Options::default(), OptimizationOptions::default())
    }

    /// The default options of this target. Errors: there is no target of this name.
    pub fn new(
        target: &str,
        lower: lower::Options,
        optimization: OptimizationOptions,
    ) -> Result<CompileOptions> {
        Ok(CompileOptions {
            target: targets::find(target)?,
            lower,
            optimization,
            stem: "model".into(),
            cache: false,
            tier: Tier::default(),
            cpu: None,
            keep: Vec::new(),
            watched: Vec::new(),
            differentiate: None,
            own_gradients: false,
            random: Random::default(),
            in_place: InPlace::default(),
            mixed_precision: false,
            layouts: Vec::new(),
            memory_budget: None,
            planning: Planning::default(),
            checks: Checks::default(),
            others: Vec::new(),
        })
    }
}

/// A compiled model.
#[derive(Debug)]
pub struct Program {
    /// The block's name or kind.
    pub name: Arc<str>,
    pub arguments: Vec<Argument>,
    pub results: Vec<Output>,
    pub code: Code,
    /// The module that the code was generated from.
    pub module: Module,
    /// Equalities of dims that are checked at each call.
    pub guards: Vec<Guard>,
    /// The inputs whose elements are checked at each call.
    pub indexed: Vec<Indexed>,
    /// The time that each stage took, in the order of the stages.
    pub timings: Vec<(&'static str, Duration)>,
    /// The named values inside the model, each with the block that computes it.
    pub inner: Vec<(Arc<str>, Arc<str>)>,
    recipe: Recipe,
    /// The model's functions before the passes, and the shapes that were given after lowering.
    logical: (Module, Shapes),
}

/// The result of a compile.
#[derive(Debug)]
pub enum Code {
    Source(Source),
    Native(Box<Native>),
    /// Code of several targets.
    Parts(Box<Parts>),
    /// No code yet: required ranks or sizes are unknown.
    Open(Box<Open>),
}

/// An argument of a program.
#[derive(Clone, Debug)]
pub struct Argument {
    pub name: Arc<str>,
    pub role: Role,
    pub ty: Type,
    /// Its initial value. `fan_of` names the argument whose shape determines the fan.
    pub start: Start,
    pub fan_of: Option<Arc<str>>,
    /// Whether its dtype comes from the array of a call. Then an array of another dtype needs
    /// another program.
    pub dtype_of_call: bool,
    /// The blocks that read it.
    pub readers: Loc,
    /// Whether integers of every dtype are accepted, because no dtype was specified.
    pub any_integer: bool,
}

/// A result of a program. It is the next value of a state if `state` names one.
#[derive(Clone, Debug)]
pub struct Output {
    pub name: Arc<str>,
    pub ty: Type,
    pub state: Option<Arc<str>>,
}

impl Argument {
    /// Whether integers of other dtypes are accepted. `held` is the dtype that the target uses for
    /// this argument. They are accepted if no dtype was specified, or if the target does not have
    /// the specified dtype.
    pub fn takes_any_integer(&self, held: DType) -> bool {
        self.any_integer || (self.ty.dtype.is_int() && held != self.ty.dtype)
    }

    /// The sizes, if all of them are known.
    pub fn sizes(&self) -> Option<Vec<i64>> {
        let shape = &self.ty.shape;
        let fixed = || shape.dims.iter().map(Dim::as_const).collect();
        shape.lead.is_none().then(fixed).flatten()
    }
}

/// Compiles a block to `forward`. In training mode it also compiles the gradients if the target
/// cannot differentiate.
///
/// If the code needs ranks that the options do not give, the program has no code until the first
/// call. See [`Program::waits`].
///
/// Errors: as for lowering, if known ranks would not avoid the error; "Backend does not support
/// operation …".
pub fn compile(block: &Block, options: &CompileOptions) -> Result<Arc<Program>> {
    match options.cache {
        true => cache::cached(block, options, || compile_uncached(block, options)),
        false => compile_uncached(block, options).map(Arc::new),
    }
}

fn compile_uncached(block: &Block, options: &CompileOptions) -> Result<Program> {
    for path in options.others.iter().flat_map(|other| &other.blocks) {
        block.check_place(path)?;
    }
    let mut watch = Watch::default();
    let finish = |module| {
        let logical = with_outputs(module, options)?;
        targets::check_bodies(&logical)?;
        program::fits(&logical)?;
        Ok(logical)
    };
    let lowered = watch.time("lower", || lower_or_try(block, &options.lower, &finish))?;
    let mut recipe = Recipe::of(block, options);
    let dtypes = open_dtypes(block, &options.lower)?;
    let made = match lowered {
        Lowered::Complete(logical) => {
            code(block, options, &logical, (&mut recipe, &dtypes), &mut watch)
                .map(|(module, code)| (module, logical, code))?
        }
        Lowered::NeedsRanks(trial) => {
            let waits = open::trial_waits(&trial, options, dtypes)?;
            (trial.module.clone(), trial.module, open(block, options, waits))
        }
    };
    let (module, logical, code) = made;
    let name: Arc<str> = block.name().unwrap_or(block.kind()).into();
    let functions = (module, (logical, Shapes::default()));
    let mut program = assembled(name, &initial_values(block), functions, code, recipe, watch)?;
    program.inner = block.inner_values();
    if let Some(Waits::Inputs(Needs { ranks, trial: true, .. })) = program.waits().cloned() {
        open::forget_ranks(&mut program, &ranks);
    }
    Ok(program.with_call_dtypes(&options.lower.chosen))
}

fn open(block: &Block, options: &CompileOptions, waits: Waits) -> Code {
    Code::Open(Box::new(Open { block: block.clone(), options: options.clone(), waits }))
}

/// Generates code from a model's functions; also returns the module that the code was generated
/// from. The code is [`Code::Open`] if ranks, sizes or the dtypes of these inputs are needed but
/// unknown.
fn code(
    block: &Block,
    options: &CompileOptions,
    logical: &Module,
    (recipe, dtypes): (&mut Recipe, &[Arc<str>]),
    watch: &mut Watch,
) -> Result<(Module, Code)> {
    if let Some(waits) = open::waits(logical, dtypes, options)? {
        return Ok((logical.clone(), open(block, options, waits)));
    }
    let generated = generate(logical, recipe, Shapes::default(), watch);
    generated.or_else(|error| {
        if options.is_native() || !options.others.is_empty() {
            return Err(error);
        }
        let waits = open::source_waits(logical, error)?;
        Ok((logical.clone(), open(block, options, waits)))
    })
}

/// The initial value of an argument, and the argument whose shape determines the fan.
type InitialValue = (Start, Option<Arc<str>>);

fn assembled(
    name: Arc<str>,
    initial_values: &dyn Fn(&str) -> InitialValue,
    (module, logical): (Module, (Module, Shapes)),
    code: Code,
    recipe: Recipe,
    watch: Watch,
) -> Result<Program> {
    let entry = entry(&module)?.clone();
    let arguments = entry.arguments().map(|(value, arg)| {
        let (start, fan_of) = initial_values(&arg.name);
        Argument {
            name: arg.name.clone(),
            role: arg.role,
            ty: entry.ty(value).clone(),
            start,
            fan_of,
            dtype_of_call: false,
            readers: readers(&entry, value),
            any_integer: recipe.any_integers.contains(&arg.name),
        }
    });
    let results = entry.results.iter().map(|result| Output {
        name: result.name.clone(),
        ty: entry.ty(result.value).clone(),
        state: result.state.clone(),
    });
    let indexed = match (&code, recipe.checks) {
        (Code::Open(_), _) | (_, Checks::None) => Vec::new(),
        (Code::Source(_) | Code::Native(_) | Code::Parts(_), _) => indexed_as(&logical.0, &module)?,
    };
    Ok(Program {
        name,
        indexed,
        arguments: arguments.collect(),
        results: results.collect(),
        guards: entry.guards.clone(),
        timings: watch.stages,
        code,
        module,
        inner: Vec::new(),
        recipe,
        logical,
    })
}

fn readers(function: &Function, value: Value) -> Loc {
    let mut loc = Loc::unknown();
    let reading = function.ops.iter().filter(|op| op.operands.contains(&value));
    reading.for_each(|op| loc.merge(&op.loc));
    loc
}

impl Program {
    /// Marks the arguments with these names: their dtypes come from the arrays of a call.
    fn with_call_dtypes(mut self, chosen: &[String]) -> Program {
        for argument in &mut self.arguments {
            argument.dtype_of_call = chosen.iter().any(|name| **name == *argument.name);
        }
        self
    }

    /// The arrays whose indices are checked at each call.
    pub fn checks(&self) -> Checks {
        self.recipe.checks
    }

    /// Whether elements of arrays decide which operations run.
    pub fn branches(&self) -> bool {
        branches(&self.module)
    }

    /// The target of the code; for several targets, that of the blocks that are not placed.
    pub fn target(&self) -> &'static TargetEntry {
        self.recipe.target
    }

    /// The generated source, if it was compiled to source.
    pub fn source(&self) -> Option<&Source> {
        match &self.code {
            Code::Source(source) => Some(source),
            Code::Native(_) | Code::Parts(_) | Code::Open(_) => None,
        }
    }

    /// The native code, if it was compiled to native code.
    pub fn native(&self) -> Option<&Native> {
        match &self.code {
            Code::Native(native) => Some(native),
            Code::Source(_) | Code::Parts(_) | Code::Open(_) => None,
        }
    }
}

fn entry(module: &Module) -> Result<&Arc<Function>> {
    match module.entry() {
        Some(entry) => Ok(entry),
        None => Err(Box::new(Diagnostic::new("the module is empty"))),
    }
}

/// The initial value of each input by name, and the input whose shape determines the fan.
fn initial_values(block: &Block) -> impl Fn(&str) -> (Start, Option<Arc<str>>) {
    let inputs = block.inputs();
    let fan_of = |start: &Start| start.fan_of.map(|at| inputs[at as usize].name.clone());
    let known: FxHashMap<Arc<str>, (Start, Option<Arc<str>>)> =
        (inputs.iter()).map(|t| (t.name.clone(), (t.start.clone(), fan_of(&t.start)))).collect();
    move |name| known.get(name).cloned().unwrap_or_else(|| (Init::Scaled.into(), None))
}
