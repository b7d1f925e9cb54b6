//! From a block to source for a framework, or to native code: every stage a line.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::shape::{Guard, Shape, Type};
use mithril_ir::tensor::Tensor;
use mithril_passes::bisect::{self, Culprit};
use mithril_passes::explain::{self, Explanation};
use mithril_passes::pipeline::Effort;
use mithril_passes::specialise::given::Shapes;
use mithril_source::python::{self, Framework, Source};

use crate::block::{Block, Init};
use crate::lower::{self, DimSpec, Mode, lower};
use crate::native::{Native, Planning, Tier};

mod recipe;

use recipe::{Recipe, Watch, native, simplify, with_outputs};

/// Where a compiled model runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Framework(Framework),
    /// As machine code, on this machine's processor.
    Cpu,
    /// As a file of C.
    C,
}

impl Target {
    /// The target of this name. Errors: there is none.
    pub fn find(name: &str) -> Result<Target> {
        let all = || Framework::ALL.into_iter().map(Target::Framework);
        let all = || all().chain([Target::Cpu, Target::C]);
        all().find(|target| target.name() == name).ok_or_else(|| {
            let names: Vec<&str> = all().map(Target::name).collect();
            let mut error = Diagnostic::new(format!("there is no backend `{name}`"))
                .expected(format!("one of {}", names.join(", ")));
            error.hint = did_you_mean(name, all().map(Target::name));
            Box::new(error)
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Target::Framework(framework) => framework.name(),
            Target::Cpu => "cpu",
            Target::C => "c",
        }
    }

    /// What the names of generated files end in; native code has none.
    pub fn extension(self) -> Option<&'static str> {
        match self {
            Target::Framework(_) => Some("py"),
            Target::C => Some("c"),
            Target::Cpu => None,
        }
    }

    /// Whether it runs what kernels are made for, which takes known ranks and params of known
    /// sizes.
    fn is_native(self) -> bool {
        matches!(self, Target::Cpu | Target::C)
    }

    /// The framework whose arrays it takes and gives.
    pub fn arrays(self) -> Framework {
        match self {
            Target::Framework(framework) => framework,
            Target::Cpu | Target::C => Framework::Numpy,
        }
    }
}

/// What a compile is asked for.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    pub target: Target,
    pub lower: lower::Options,
    /// How far it is rewritten.
    pub effort: Effort,
    /// The file's name without its extension.
    pub stem: String,
    /// Whether an equal compile that was made before may be taken.
    pub cache: bool,
    /// What the first calls of native code run.
    pub tier: Tier,
    /// Named terminals and paths of blocks whose values are results too.
    pub keep: Vec<String>,
    /// The same of those that are looked at alone, which have no gradients.
    pub watched: Vec<String>,
    /// The scalar output whose gradients by the params are outputs, too, if there is one.
    pub differentiate: Option<String>,
    /// Whether the gradients are written down for a target that could take them itself.
    pub own_gradients: bool,
    /// The bytes that a call of native code may work with, if there is such a bound: gradients
    /// compute again what does not fit.
    pub memory_budget: Option<u64>,
    /// Where the inner values of native code lie.
    pub planning: Planning,
}

impl CompileOptions {
    /// The usual ones for this target. Errors: there is none of this name.
    pub fn new(target: &str, lower: lower::Options, effort: Effort) -> Result<CompileOptions> {
        Ok(CompileOptions {
            target: Target::find(target)?,
            lower,
            effort,
            stem: "model".into(),
            cache: false,
            tier: Tier::default(),
            keep: Vec::new(),
            watched: Vec::new(),
            differentiate: None,
            own_gradients: false,
            memory_budget: None,
            planning: Planning::default(),
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
    /// What the code was made from.
    pub module: Module,
    /// Equalities of dims to be checked at each call.
    pub guards: Vec<Guard>,
    /// How long each stage took, in their order.
    pub timings: Vec<(&'static str, Duration)>,
    recipe: Recipe,
    /// The model's functions, and the shapes that were given later.
    logical: (Module, Shapes),
}

/// What a compile ends in.
#[derive(Debug)]
pub enum Code {
    Source(Source),
    Native(Box<Native>),
    /// Nothing yet: native code is for known ranks and params of known sizes. [`Program::settle`]
    /// makes a program that has code of what was to be compiled.
    Open(Box<(Block, CompileOptions)>),
}

/// What native code is made for, where a model leaves it open.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// Dims of inputs: their number, and what is known of each.
    pub inputs: Vec<(String, Vec<DimSpec>)>,
    /// Shapes of params and states.
    pub sizes: Vec<(String, Shape)>,
}

/// An argument of a program.
#[derive(Clone, Debug)]
pub struct Argument {
    pub name: Arc<str>,
    pub role: Role,
    pub ty: Type,
    pub init: Init,
    /// The blocks that read it.
    pub readers: Loc,
}

/// A result of a program; the next value of a state, where `state` says so.
#[derive(Clone, Debug)]
pub struct Output {
    pub name: Arc<str>,
    pub ty: Type,
    pub state: Option<Arc<str>>,
}

/// How the elements of a new array are drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Draw {
    Constant(f64),
    /// With this standard deviation, around zero.
    Normal(f64),
}

impl Argument {
    /// What an array of these sizes begins with.
    pub fn draw(&self, sizes: &[i64]) -> Draw {
        match self.init {
            Init::Zeros => Draw::Constant(0.0),
            Init::Ones => Draw::Constant(1.0),
            Init::Normal => {
                let fan = sizes.len().checked_sub(2).map_or(1, |at| sizes[at]);
                Draw::Normal((fan.max(1) as f64).sqrt().recip())
            }
        }
    }

    /// The sizes, where all are known.
    pub fn sizes(&self) -> Option<Vec<i64>> {
        let shape = &self.ty.shape;
        let fixed = || shape.dims.iter().map(Dim::as_const).collect();
        shape.lead.is_none().then(fixed).flatten()
    }
}

/// Compiles a block: to `forward`, and where the target cannot differentiate and the mode is
/// training, to its gradients too.
///
/// Errors: those of lowering; "Backend does not support operation …".
pub fn compile(block: &Block, options: &CompileOptions) -> Result<Arc<Program>> {
    if !options.cache {
        return fresh(block, options).map(Arc::new);
    }
    let key = Key::of(block, options);
    let lock = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, kept)) = lock().iter().find(|(k, _)| *k == key) {
        return Ok(kept.clone());
    }
    let program = Arc::new(fresh(block, options)?);
    let mut cache = lock();
    if cache.len() == CACHED {
        cache.remove(0);
    }
    cache.push((key, program.clone()));
    Ok(program)
}

/// What decides a program.
#[derive(PartialEq)]
struct Key {
    block: Block,
    name: Option<String>,
    constants: Vec<(String, Tensor)>,
    /// All other options as text, which shortens constants.
    rest: String,
}

impl Key {
    fn of(block: &Block, options: &CompileOptions) -> Key {
        let mut rest = options.clone();
        Key {
            block: block.clone(),
            name: block.name().map(String::from),
            constants: std::mem::take(&mut rest.lower.constant_keys),
            rest: format!("{rest:?}"),
        }
    }
}

static CACHE: Mutex<Vec<(Key, Arc<Program>)>> = Mutex::new(Vec::new());
/// How many programs are kept, the latest.
const CACHED: usize = 64;

fn fresh(block: &Block, options: &CompileOptions) -> Result<Program> {
    let mut watch = Watch::default();
    let inits = inits(block);
    let logical = watch.time("lower", || lower(block, &options.lower))?;
    let logical = with_outputs(logical, options)?;
    let name: Arc<str> = block.name().unwrap_or(block.kind()).into();
    let training = options.lower.mode == Mode::Training;
    let mut recipe = Recipe {
        target: options.target,
        stem: options.stem.as_str().into(),
        effort: options.effort.clone(),
        training,
        own_gradients: options.own_gradients,
        memory_budget: options.memory_budget,
        planning: options.planning,
        tier: options.tier,
    };
    if options.target.is_native() && is_open(&logical)? {
        let origin = (logical.clone(), Shapes::default());
        let code = Code::Open(Box::new((block.clone(), options.clone())));
        return finished(name, &inits, (logical, origin), code, recipe, watch);
    }
    let (module, code) = match options.target {
        Target::Framework(framework) => {
            let (module, _) = simplify(&logical, &recipe, Shapes::default(), &mut watch)?;
            let names = python::Options { summary: name.to_string(), stem: options.stem.clone() };
            let source = watch.time("emit", || python::emit(&module, framework, &names))?;
            (module, Code::Source(source))
        }
        Target::Cpu | Target::C => native(&logical, &mut recipe, Shapes::default(), &mut watch)?,
    };
    finished(name, &inits, (module, (logical, Shapes::default())), code, recipe, watch)
}

/// Whether a rank, or a size of what is learned or kept, is not known.
fn is_open(module: &Module) -> Result<bool> {
    let entry = entry(module)?;
    Ok(entry.arguments().any(|(value, argument)| {
        let shape = &entry.ty(value).shape;
        let lasts = matches!(argument.role, Role::Param | Role::State);
        shape.lead.is_some() || (lasts && shape.as_fixed().is_none())
    }))
}

fn finished(
    name: Arc<str>,
    inits: &dyn Fn(&str) -> Init,
    (module, logical): (Module, (Module, Shapes)),
    code: Code,
    recipe: Recipe,
    watch: Watch,
) -> Result<Program> {
    let entry = entry(&module)?.clone();
    let arguments = entry.arguments().map(|(value, arg)| Argument {
        name: arg.name.clone(),
        role: arg.role,
        ty: entry.ty(value).clone(),
        init: inits(&arg.name),
        readers: readers(&entry, value),
    });
    let results = entry.results.iter().map(|result| Output {
        name: result.name.clone(),
        ty: entry.ty(result.value).clone(),
        state: result.state.clone(),
    });
    Ok(Program {
        name,
        arguments: arguments.collect(),
        results: results.collect(),
        guards: entry.guards.clone(),
        timings: watch.stages,
        code,
        module,
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
    /// The source, if it was compiled to some.
    pub fn source(&self) -> Option<&Source> {
        match &self.code {
            Code::Source(source) => Some(source),
            Code::Native(_) | Code::Open(_) => None,
        }
    }

    /// The native code, if it was compiled to some.
    pub fn native(&self) -> Option<&Native> {
        match &self.code {
            Code::Native(native) => Some(native),
            Code::Source(_) | Code::Open(_) => None,
        }
    }

    /// Nothing, for a program that has code.
    ///
    /// Errors: it is open.
    pub fn settled(&self) -> Result<()> {
        match self.code {
            Code::Source(_) | Code::Native(_) => Ok(()),
            Code::Open(_) => {
                Diagnostic::new("native code is for known ranks and params of known sizes")
                    .got(format!("{}, whose inputs have no shapes", self.name))
                    .hint("give the shapes of the inputs, or evaluate it once")
                    .err()
            }
        }
    }

    /// An open program with native code for these ranks and sizes: its model is lowered again, so
    /// that all checks of known ranks are made.
    ///
    /// Errors: shapes that do not fit; those of [`compile`]; a program that is not open.
    pub fn settle(&self, settled: &Settled) -> Result<Program> {
        let Code::Open(origin) = &self.code else {
            return Diagnostic::new("the program has code already").err();
        };
        let (block, mut options) = (&origin.0, origin.1.lower.clone());
        options.shapes.extend(settled.inputs.iter().cloned());
        let shapes = Shapes { args: settled.sizes.clone(), symbols: Vec::new() };
        let (mut watch, mut recipe) = (Watch::default(), self.recipe.clone());
        let logical = watch.time("lower", || lower(block, &options)).map_err(at_a_call)?;
        let logical = with_outputs(logical, &origin.1)?;
        let (module, code) = native(&logical, &mut recipe, shapes.clone(), &mut watch)?;
        let module = (module, (logical, shapes));
        finished(self.name.clone(), &inits(block), module, code, recipe, watch)
    }
}

/// An error of shapes that come with a call.
fn at_a_call(mut error: Box<Diagnostic>) -> Box<Diagnostic> {
    error.what = error.what.replacen(" during compilation", "", 1);
    error
}

impl Program {
    /// What rewriting has done: which rules fired, where, and what each is worth.
    ///
    /// Errors: those of compiling.
    pub fn explain(&self) -> Result<Explanation> {
        let (module, shapes) = &self.logical;
        let (target, gradients) = self.recipe.destination(module)?;
        explain::explain(module, shapes, target, gradients, &self.recipe.effort)
    }

    /// The pass, and its rule, after which the model's functions give other numbers than before, as
    /// the reference evaluator runs them on `args`: more than `tolerance` apart.
    ///
    /// Errors: those of compiling; arguments that do not fit.
    pub fn bisect(&self, args: &[Tensor], tolerance: f64) -> Result<Option<Culprit>> {
        let (module, shapes) = &self.logical;
        self.recipe.destination(module)?;
        let pipeline = |without: &[String]| {
            let mut effort = self.recipe.effort.clone();
            effort.without.extend_from_slice(without);
            self.recipe.pipeline(module, shapes.clone(), &effort).unwrap_or_default()
        };
        bisect::bisect(module, &pipeline, args, tolerance)
    }
}

fn entry(module: &Module) -> Result<&Arc<Function>> {
    match module.entry() {
        Some(entry) => Ok(entry),
        None => Err(Box::new(Diagnostic::new("the module is empty"))),
    }
}

/// How each input begins, by name.
fn inits(block: &Block) -> impl Fn(&str) -> Init {
    let known: Vec<(Arc<str>, Init)> =
        (block.inputs().iter()).map(|t| (t.name.clone(), t.init)).collect();
    move |name| {
        let found = known.iter().find(|(n, _)| **n == *name);
        found.map_or(Init::Normal, |(_, init)| *init)
    }
}

/// The stem of a target's generated files at this path, which was given by the setting of this
/// name. Errors: it does not end as theirs do.
pub fn stem(setting: &str, path: &Path, target: Target) -> Result<String> {
    let own = target.extension().unwrap_or_default();
    match (path.file_stem(), path.extension()) {
        (Some(stem), Some(extension)) if extension == own => Ok(stem.to_string_lossy().into()),
        _ => {
            let language = if target == Target::C { "C" } else { "Python" };
            Diagnostic::new(format!("`{setting}` is where {language} source is written"))
                .got(path.display())
                .expected(format!("a path that ends in `.{own}`"))
                .err()
        }
    }
}

/// The dtype that arrays have at a target in the place of another: JAX has no 64-bit integers
/// unless asked.
pub fn held(target: Target, wide: bool, dtype: DType) -> DType {
    let narrow = target == Target::Framework(Framework::Jax) && !wide;
    match dtype {
        DType::I64 if narrow => DType::I32,
        DType::U64 if narrow => DType::U32,
        _ => dtype,
    }
}
