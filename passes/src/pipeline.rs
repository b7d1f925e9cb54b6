//! Pipelines: sequences of passes, parsed from text, and the standard one of every compile.

use std::fmt;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};

use crate::autodiff::Autodiff;
use crate::batch_scans::BatchScans;
use crate::canonicalize::Canonicalize;
use crate::checkpoint::Checkpoint;
use crate::cse::Cse;
use crate::dce::Dce;
use crate::eqsat::Eqsat;
use crate::fold_constants::FoldConstants;
use crate::inline::Inline;
use crate::legalize::Legalize;
use crate::pass::{Limit, Pass};
use crate::registry;
use crate::remove_barriers::RemoveBarriers;
use crate::rules::Class;
use crate::select_bodies::SelectBodies;
use crate::shard::constrain::Shard;
use crate::shard::layout::Mesh;
use crate::shard::residuals::{ConstrainResiduals, Residual};
use crate::specialise::Specialise;
use crate::specialise::shapes::Shapes;
use crate::split_concats::SplitConcats;
use crate::split_reductions::SplitReductions;
use crate::target::{Target, Targets};

/// Passes in execution order.
#[derive(Default)]
pub struct Pipeline {
    pub passes: Vec<Box<dyn Pass>>,
}

/// Blocks that are used more than once stay functions from this many operations on: generated
/// source has a `def` for them, and they are optimised once.
const REPEATED: usize = 12;
/// The same limit if gradients recompute forward values.
const REPEATED_AGAIN: usize = 4;

/// How much is optimised beyond what a target requires.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Every operation of the model is kept.
    None,
    /// Rewrites that are always an improvement.
    Basic,
    /// Also rewrites that cost less on the target.
    Full,
}

impl Level {
    /// All levels with their names.
    pub const ALL: [(&str, Level); 3] =
        [("none", Level::None), ("basic", Level::Basic), ("full", Level::Full)];

    pub fn name(self) -> &'static str {
        Level::ALL[self as usize].0
    }
}

/// How far programs are optimised.
#[derive(Clone, PartialEq, Debug)]
pub struct OptimizationOptions {
    pub level: Level,
    /// The least strict class of rules that are applied.
    pub math: Class,
    /// Rules that are left out.
    pub without: Vec<String>,
    /// How many functions gradients recompute, instead of keeping their inner values.
    pub checkpoint: Limit,
    /// The device mesh that constraints refer to; without one they are removed.
    pub mesh: Option<Mesh>,
    /// How residual values are divided over it.
    pub residuals: Vec<Residual>,
}

impl Default for OptimizationOptions {
    fn default() -> OptimizationOptions {
        OptimizationOptions {
            level: Level::Full,
            math: Class::Recognise,
            without: Vec::new(),
            checkpoint: Limit::At(0),
            mesh: None,
            residuals: Vec::new(),
        }
    }
}

/// The passes that every compile runs, from a model's functions to operations that `target` takes.
/// With `gradients`, the module gets a function of that name, which returns the results and a
/// gradient for each param.
pub fn standard(
    shapes: Shapes,
    target: Target,
    gradients: bool,
    optimization: &OptimizationOptions,
) -> Pipeline {
    let pipeline = rewritten(shapes, target, gradients, optimization).then(Legalize { target });
    match optimization.level {
        Level::None => pipeline,
        Level::Basic | Level::Full => pipeline
            .then(Canonicalize { without: optimization.without.clone() })
            .then(Cse::default())
            .then(Dce::default()),
    }
}

/// The first part of [`standard`], before anything is decomposed.
pub fn rewritten(
    shapes: Shapes,
    target: Target,
    gradients: bool,
    optimization: &OptimizationOptions,
) -> Pipeline {
    if optimization.level == Level::None {
        return faithful(shapes, target, gradients, optimization);
    }
    let specialise = Specialise { shapes, ..Specialise::default() };
    let again = optimization.checkpoint != Limit::At(0);
    let repeated = if again { REPEATED_AGAIN } else { REPEATED };
    let mut pipeline = Pipeline::default()
        .then(SelectBodies { target, gradients })
        .then(specialise)
        .shard(optimization)
        .then(BatchScans::default())
        .then(Inline { repeated: Limit::At(repeated), ..Inline::default() })
        .simplify(Eqsat { target, join: !gradients, ..Eqsat::default() }, optimization)
        .checkpoint(optimization);
    if gradients {
        let again = Eqsat { target, supersede: false, ..Eqsat::default() };
        pipeline = pipeline.then(joint(target)).simplify(again, optimization);
    }
    pipeline
}

/// The passes that keep every operation of the model.
fn faithful(
    shapes: Shapes,
    target: Target,
    gradients: bool,
    optimization: &OptimizationOptions,
) -> Pipeline {
    let mut pipeline = Pipeline::default().then(SelectBodies { target, gradients });
    if shapes != Shapes::default() {
        pipeline = pipeline.then(Specialise { shapes, ..Specialise::default() });
    }
    pipeline = pipeline.shard(optimization).then(Inline::default()).checkpoint(optimization);
    if gradients {
        pipeline = pipeline.then(joint(target)).then(Dce::default());
    }
    pipeline
}

/// Adds the passes that follow [`standard`] for native code: the outliner takes functions without
/// calls.
pub fn flat(pipeline: Pipeline) -> Pipeline {
    pipeline
        .then(Inline::ALL)
        .then(SplitReductions::default())
        .then(SplitConcats::default())
        .then(Canonicalize::default())
        .then(Cse::default())
        .then(Dce::default())
        .then(RemoveBarriers::default())
}

fn joint(target: Target) -> Autodiff {
    Autodiff { outputs: true, target, ..Autodiff::default() }
}

impl Pipeline {
    pub fn then(mut self, pass: impl Pass + 'static) -> Pipeline {
        self.passes.push(Box::new(pass));
        self
    }

    fn shard(mut self, optimization: &OptimizationOptions) -> Pipeline {
        if optimization.mesh.is_some() && !optimization.residuals.is_empty() {
            let layouts = Some(optimization.residuals.clone());
            self = self.then(ConstrainResiduals { layouts });
        }
        self.then(Shard { mesh: optimization.mesh.clone() })
    }

    fn checkpoint(self, optimization: &OptimizationOptions) -> Pipeline {
        match optimization.checkpoint {
            Limit::At(0) => self,
            count => self.then(Checkpoint { count }),
        }
    }

    fn simplify(self, eqsat: Eqsat, optimization: &OptimizationOptions) -> Pipeline {
        let simple = self.tidy(optimization);
        if optimization.level < Level::Full {
            return simple;
        }
        let (math, without) = (optimization.math, optimization.without.clone());
        simple.then(Eqsat { math, without, ..eqsat }).tidy(optimization)
    }

    fn tidy(self, optimization: &OptimizationOptions) -> Pipeline {
        self.then(Canonicalize { without: optimization.without.clone() })
            .then(FoldConstants::default())
            .then(Cse::default())
            .then(Dce::default())
    }

    /// Reads `canonicalize,inline{limit=all},autodiff{wrt=w,b}`. Empty text is an empty pipeline.
    /// Options may name `targets`.
    ///
    /// Errors: an unknown pass or option, or a value that the option does not take; with the byte
    /// range of `text` that it is about.
    pub fn parse(text: &str, targets: Targets) -> Result<Pipeline> {
        let mut pipeline = Pipeline::default();
        for (start, item) in split(text, 0)? {
            if item.is_empty() && text.trim().is_empty() {
                break;
            }
            pipeline.passes.push(parse_pass(item, start, targets)?);
        }
        Ok(pipeline)
    }
}

/// Splits at commas outside brackets. Returns the trimmed parts with their offsets.
fn split(text: &str, base: usize) -> Result<Vec<(usize, &str)>> {
    let mut parts = Vec::new();
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut start = 0;
    let mut part = |from: usize, to: usize| {
        let raw = &text[from..to];
        let lead = raw.len() - raw.trim_start().len();
        parts.push((base + from + lead, raw.trim()));
    };
    for (at, c) in text.char_indices() {
        match c {
            '{' => open.push((at, '}')),
            '[' => open.push((at, ']')),
            '(' => open.push((at, ')')),
            '}' | ']' | ')' if open.pop().map(|(_, close)| close) != Some(c) => {
                return unbalanced(c, base + at);
            }
            ',' if open.is_empty() => {
                part(start, at);
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some((at, _)) = open.pop() {
        let bracket = text[at..].chars().next().unwrap_or('{');
        return unbalanced(bracket, base + at);
    }
    part(start, text.len());
    Ok(parts)
}

fn unbalanced<T>(bracket: char, at: usize) -> Result<T> {
    Diagnostic::new(format!("`{bracket}` is not matched in the pipeline")).span(at..at + 1).err()
}

fn parse_pass(item: &str, start: usize, targets: Targets) -> Result<Box<dyn Pass>> {
    let (name, options) = match item.split_once('{') {
        None => (item, None),
        Some((name, rest)) => match rest.strip_suffix('}') {
            Some(options) => (name, Some(options)),
            None => {
                return Diagnostic::new("a comma is expected between passes")
                    .got(item)
                    .span(start..start + item.len())
                    .err();
            }
        },
    };
    let span = start..start + name.len();
    let mut pass = registry::make(name.trim()).map_err(|error| Box::new(error.span(span)))?;
    if let Some(options) = options {
        let base = start + name.len() + 1;
        for (at, name, value) in assignments(&*pass, options, base)? {
            set(&mut *pass, at, (&name, &value), targets)?;
        }
    }
    Ok(pass)
}

/// The offset, name and value of each option. An item after a list that does not name an option
/// continues the list.
fn assignments(
    pass: &dyn Pass,
    options: &str,
    base: usize,
) -> Result<Vec<(usize, String, String)>> {
    let fields = pass.fields();
    let field = |name: &str| fields.iter().find(|f| f.name == name);
    let mut found: Vec<(usize, String, String)> = Vec::new();
    for (at, item) in split(options, base)? {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (item, None),
        };
        let goes_on = field(name).is_none();
        match found.last_mut() {
            Some((_, last, list)) if goes_on && field(last).is_some_and(|f| f.list) => {
                list.push(',');
                list.push_str(item);
            }
            _ if item.is_empty() => {}
            // A flag without a value is true.
            _ => found.push((at, name.to_string(), value.unwrap_or("true").to_string())),
        }
    }
    Ok(found)
}

fn set(
    pass: &mut dyn Pass,
    at: usize,
    (name, value): (&str, &str),
    targets: Targets,
) -> Result<()> {
    let span = at..at + name.len();
    let pass_name = pass.name();
    let result = match value {
        "" => pass.set(name, value, targets).map(|_| Err("a value after `=`".to_string())),
        _ => pass.set(name, value, targets),
    };
    match result {
        Some(Ok(())) => Ok(()),
        Some(Err(expected)) => {
            Diagnostic::new(format!("the option `{name}` of `{pass_name}` has an invalid value"))
                .got(value)
                .expected(expected)
                .span(span)
                .err()
        }
        None => {
            let names: Vec<String> = pass.fields().into_iter().map(|f| f.name).collect();
            let names = || names.iter().map(String::as_str);
            let mut error = Diagnostic::of(
                ErrorKind::Argument,
                format!("`{pass_name}` has no option `{name}`"),
            );
            error.hint = did_you_mean(name, names()).or_else(|| match names().count() {
                0 => Some(format!("`{pass_name}` has no options")),
                _ => Some(format!("it has {}", names().collect::<Vec<_>>().join(", "))),
            });
            error.span(span).err()
        }
    }
}

/// A pass with the options that differ from their defaults, in the form that [`Pipeline::parse`]
/// reads.
pub fn pass_text(pass: &dyn Pass) -> String {
    let defaults = registry::make(pass.name()).map(|p| p.fields()).unwrap_or_default();
    let fields = pass.fields();
    let changed = fields.iter().filter(|field| !defaults.contains(field));
    let changed: Vec<String> = changed.map(|f| format!("{}={}", f.name, f.value)).collect();
    match changed.as_slice() {
        [] => pass.name().to_string(),
        _ => format!("{}{{{}}}", pass.name(), changed.join(",")),
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let passes: Vec<String> = self.passes.iter().map(|p| pass_text(&**p)).collect();
        f.write_str(&passes.join(","))
    }
}
