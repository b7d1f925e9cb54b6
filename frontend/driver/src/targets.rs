//! The registry of targets: one entry for each, with all properties in which targets differ.

use std::fmt;
use std::path::Path;
use std::sync::{LazyLock, RwLock};

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType;
use mithril_ir::external::TargetBody;
use mithril_ir::graph::Module;
use mithril_kernels::target as kernels;
use mithril_passes::pipeline::{self, Pipeline};
use mithril_passes::remove_barriers::RemoveBarriers;
use mithril_passes::target::{Language, Target, Targets};
use mithril_source::backends::{BACKENDS, Backend};
use mithril_source::custom;
pub use mithril_source::custom::Definition;

use crate::native::Tier;

/// Where a compiled model runs.
#[derive(Clone, Copy)]
pub struct TargetEntry {
    /// The properties that passes use: the name, the operations that are not decomposed, the
    /// performance, and the language and targets of the bodies that are accepted.
    pub passes: Target,
    /// The name in prose.
    pub label: &'static str,
    pub dialect: Dialect,
    /// The extension of the files that its code is written to.
    pub extension: &'static str,
    /// The framework whose arrays calls take and return.
    pub arrays: &'static str,
    /// Whether 64-bit dtypes must be enabled first, as in JAX.
    pub narrow: bool,
    /// Whether the framework has automatic differentiation.
    pub differentiates: bool,
    /// Whether it also differentiates models in which elements of arrays decide which operations run.
    pub differentiates_branches: bool,
    /// The compilers that the first calls may use, if there is a choice.
    pub tiers: &'static [Tier],
    /// Whether `mithril bench` measures its performance.
    pub measured: bool,
}

/// The kinds of code, each of which has a generator.
#[derive(Clone, Copy)]
pub enum Dialect {
    /// Python source for a framework.
    Python(&'static Backend),
    /// A C file.
    C,
    /// Machine code.
    Machine,
}

/// Every built-in target, in the order in which messages list them.
pub static TARGETS: LazyLock<Vec<TargetEntry>> =
    LazyLock::new(|| BACKENDS.iter().map(|backend| python(backend)).chain([CPU, C]).collect());

/// The targets of registered backends.
static REGISTERED: RwLock<Vec<&TargetEntry>> = RwLock::new(Vec::new());

/// Every target, the built-in ones first.
pub fn all() -> Vec<&'static TargetEntry> {
    let registered = REGISTERED.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    TARGETS.iter().chain(registered.iter().copied()).collect()
}

/// Registers a backend of Python source as a target, until the process ends.
///
/// Errors: the name of another target; those of [`custom::register`].
pub fn register(definition: Definition) -> Result<&'static TargetEntry> {
    let name = definition.name.clone();
    if KEYWORDS.contains(&&*name) || [CPU, C].iter().any(|target| target.name() == name) {
        let what = format!("a backend cannot have the name `{name}`");
        return Diagnostic::of(ErrorKind::Argument, what)
            .hint("Mithril uses this name for something else: choose another one")
            .err();
    }
    let backend = custom::register(definition)?;
    let mut registered = REGISTERED.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = registered.iter().find(|target| target.name() == name) {
        return Ok(known);
    }
    let target: &'static TargetEntry =
        Box::leak(Box::new(TargetEntry { measured: false, ..python(backend) }));
    registered.push(target);
    Ok(target)
}

/// The keywords of `custom` that are no targets, and the target that passes have.
const KEYWORDS: [&str; 5] = ["mir", "name", "shape", "gradient", "core"];

/// The target of a backend of Python source.
fn python(backend: &'static Backend) -> TargetEntry {
    TargetEntry {
        passes: backend.target,
        label: backend.label,
        dialect: Dialect::Python(backend),
        extension: "py",
        arrays: backend.name(),
        narrow: backend.narrow,
        differentiates: backend.differentiates,
        differentiates_branches: backend.differentiates_branches,
        tiers: &[],
        measured: true,
    }
}

/// Machine code, for this machine's processor unless another one is named.
pub const CPU: TargetEntry = TargetEntry {
    passes: kernels::CPU,
    label: "machine code",
    dialect: Dialect::Machine,
    extension: "so",
    arrays: "numpy",
    narrow: false,
    differentiates: false,
    differentiates_branches: false,
    tiers: &Tier::ALL,
    measured: true,
};

/// A C file, which the system's compiler compiles for calls.
pub const C: TargetEntry = TargetEntry {
    passes: kernels::C,
    label: "C",
    dialect: Dialect::C,
    extension: "c",
    tiers: &[],
    measured: false,
    ..CPU
};

/// The names of all targets.
pub fn names() -> Vec<&'static str> {
    all().into_iter().map(TargetEntry::name).collect()
}

/// The names of the built-in targets, for messages.
pub fn built_in_names() -> Vec<&'static str> {
    TARGETS.iter().map(TargetEntry::name).collect()
}

/// The names of all targets with their labels, for help.
pub fn listing() -> String {
    let each = TARGETS.iter().map(|target| format!("{} ({})", target.name(), target.label));
    each.collect::<Vec<_>>().join(", ")
}

/// The target of this name. Errors: the name is unknown.
pub fn find(name: &str) -> Result<&'static TargetEntry> {
    all().into_iter().find(|target| target.name() == name).ok_or_else(|| {
        let mut error =
            Diagnostic::of(ErrorKind::Argument, format!("there is no backend `{name}`"))
                .expected(format!("one of {}", built_in_names().join(", ")));
        error.hint = did_you_mean(name, names().into_iter());
        Box::new(error)
    })
}

/// The targets that options of passes can name.
pub fn of_passes() -> Targets {
    static OF_PASSES: LazyLock<Vec<Target>> =
        LazyLock::new(|| TARGETS.iter().map(|target| target.passes).collect());
    &OF_PASSES
}

/// Checks that the bodies of a module's functions are for targets that exist.
///
/// Errors: those of [`check_body`].
pub fn check_bodies(module: &Module) -> Result<()> {
    for function in module.functions.values() {
        for body in &function.bodies {
            let place = || format!("function `{}`", function.name);
            check_body(body).map_err(|error| Box::new(error.at(place())))?;
        }
    }
    Ok(())
}

/// Checks the body of an external function against its target.
///
/// Errors: there is no such target; a body in Python that returns nothing.
pub fn check_body(body: &TargetBody) -> Result<()> {
    body.check_target(&names())?;
    let language = find(&body.target)?.passes.language;
    if language == Language::Python && !has_word(&body.text, "return") {
        let what = format!("the body for {} returns nothing", body.target);
        return Diagnostic::of(ErrorKind::Argument, what)
            .got(body.text.trim().lines().next().unwrap_or(""))
            .hint("write the body of a function: `return …`")
            .err();
    }
    Ok(())
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|other| other == word)
}

impl TargetEntry {
    pub fn name(&self) -> &'static str {
        self.passes.name
    }

    /// Adds the passes that follow legalization, for the code generator.
    pub fn finish(&self, pipeline: Pipeline) -> Pipeline {
        match self.dialect {
            Dialect::Python(_) => pipeline.then(RemoveBarriers::default()),
            Dialect::C | Dialect::Machine => pipeline::flat(pipeline),
        }
    }

    /// The dtype that the target uses for arrays of this dtype. `wide` tells whether JAX's 64-bit
    /// types are enabled; without them, 64-bit integers become 32-bit ones.
    pub fn framework_dtype(&self, wide: bool, dtype: DType) -> DType {
        let narrow = self.narrow && !wide;
        match dtype {
            DType::I64 if narrow => DType::I32,
            DType::U64 if narrow => DType::U32,
            _ => dtype,
        }
    }

    /// The stem of the generated file at this path. `setting` names the option that gave the path.
    /// Errors: the path does not have the target's extension.
    pub fn stem(&self, setting: &str, path: &Path) -> Result<String> {
        let own = self.extension;
        match (path.file_stem(), path.extension()) {
            (Some(stem), Some(extension)) if extension == own => Ok(stem.to_string_lossy().into()),
            _ => {
                let language = self.passes.language.name();
                Diagnostic::of(
                    ErrorKind::Argument,
                    format!("`{setting}` must be the path of a {language} source file"),
                )
                .got(path.display())
                .expected(format!("a path that ends in `.{own}`"))
                .err()
            }
        }
    }
}

impl PartialEq for TargetEntry {
    /// Compares names, which are unique.
    fn eq(&self, other: &TargetEntry) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Debug for TargetEntry {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}
