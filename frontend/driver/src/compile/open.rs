//! Programs without code: they need ranks, dtypes of masks or sizes of params that the first call
//! supplies.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Symbol;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Module, Role, Value};
use mithril_ir::shape::Shape;
use mithril_model::block::{Block, quoted};
use mithril_model::lower::{DimSpec, Trial};
use mithril_model::naming::symbol;
use mithril_passes::specialise::shapes::Shapes;
use rustc_hash::FxHashSet;

use super::parts::generate;
use super::recipe::Watch;
use super::{Argument, Code, CompileOptions, Program, assembled, compile, entry, initial_values};
use crate::native::Native;

/// A program without code, and the block and options to compile later.
#[derive(Debug)]
pub struct Open {
    pub block: Block,
    pub options: CompileOptions,
    pub waits: Waits,
}

/// The information that a program without code still needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waits {
    Inputs(Needs),
    /// Sizes of params and states, which native code has as constants.
    Sizes,
}

/// The missing information about inputs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// The inputs whose ranks are needed.
    pub ranks: Vec<Arc<str>>,
    /// The masks whose dtypes are needed. Until they are known, the functions use floats.
    pub dtypes: Vec<Arc<str>>,
    /// Whether the program's functions come from a trial lowering with guessed ranks, because
    /// lowering needs ranks.
    pub trial: bool,
}

/// The information that code of these functions still needs, if any: the dtypes of the inputs
/// `dtypes`, ranks if the code is native or in parts, and sizes if it is native.
///
/// Errors: the module is empty.
pub(super) fn waits(
    module: &Module,
    dtypes: &[Arc<str>],
    options: &CompileOptions,
) -> Result<Option<Waits>> {
    let entry = entry(module)?;
    let ranks = if needs_ranks(options) { unranked(entry) } else { Vec::new() };
    if !(ranks.is_empty() && dtypes.is_empty()) {
        return Ok(Some(Waits::Inputs(Needs { ranks, dtypes: dtypes.into(), trial: false })));
    }
    let waits = options.is_native()
        && entry.arguments().any(|(value, argument)| {
            let lasts = matches!(argument.role, Role::Param | Role::State);
            lasts && entry.ty(value).shape.as_fixed().is_none()
        });
    Ok(waits.then_some(Waits::Sizes))
}

/// Whether the code needs all ranks.
fn needs_ranks(options: &CompileOptions) -> bool {
    options.is_native() || !options.others.is_empty()
}

/// The information that is needed after a trial lowering.
///
/// Errors: the module is empty.
pub(super) fn trial_waits(
    trial: &Trial,
    options: &CompileOptions,
    dtypes: Vec<Arc<str>>,
) -> Result<Waits> {
    let entry = entry(&trial.module)?;
    let rest = if needs_ranks(options) { unranked(entry) } else { Vec::new() };
    let names = entry.args.iter().map(|argument| &argument.name);
    let needed = names.filter(|name| trial.inputs.contains(name) || rest.contains(name));
    Ok(Waits::Inputs(Needs { ranks: needed.cloned().collect(), dtypes, trial: true }))
}

/// The ranks that source needs if emitting it failed with this error and known ranks could resolve
/// it.
///
/// Errors: the given error, if ranks would not resolve it.
pub(super) fn source_waits(module: &Module, error: Box<Diagnostic>) -> Result<Waits> {
    let inputs = unranked(entry(module)?);
    let lead = error.needs_rank.as_ref().map(|needs| &needs.lead);
    // Lowering has found that the shapes fit. Operations that passes add may need ranks to prove it
    // again.
    if inputs.is_empty() || (lead.is_none() && !error.is_shape_mismatch()) {
        return Err(error);
    }
    let own = inputs.iter().find(|name| lead.is_some_and(|lead| symbol(name) == *lead)).cloned();
    let ranks = own.map_or(inputs, |own| vec![own]);
    Ok(Waits::Inputs(Needs { ranks, ..Needs::default() }))
}

/// The inputs whose ranks are unknown.
fn unranked(entry: &Function) -> Vec<Arc<str>> {
    let is_open = |value: Value, name: &str| {
        entry.ty(value).shape.lead.as_ref().is_some_and(|lead| *lead == symbol(name))
    };
    let open = entry.arguments().filter(|(value, arg)| is_open(*value, &arg.name));
    open.map(|(_, argument)| argument.name.clone()).collect()
}

impl Program {
    /// The information that the program still needs, if it has no code.
    pub fn waits(&self) -> Option<&Waits> {
        match &self.code {
            Code::Source(_) | Code::Native(_) | Code::Parts(_) => None,
            Code::Open(open) => Some(&open.waits),
        }
    }

    /// Checks that the program has code.
    ///
    /// Errors: it still needs ranks, dtypes or sizes.
    pub fn settled(&self) -> Result<()> {
        let error = match self.waits() {
            None => return Ok(()),
            Some(Waits::Inputs(needs)) => self.needs(needs),
            Some(Waits::Sizes) => {
                let open = self.arguments.iter().filter(|argument| lacks_sizes(argument));
                let open: Vec<String> = open.map(typed).collect();
                Diagnostic::of(
                    ErrorKind::Native,
                    "native code needs known ranks and params of known sizes",
                )
                .got(format!("{}, where these are unknown: {}", self.name, open.join(", ")))
                .hint("give the sizes by `shapes=`, or evaluate it once")
            }
        };
        error.err()
    }

    /// The native code.
    ///
    /// Errors: those of [`Program::settled`]; the model was compiled to source.
    pub fn native_code(&self) -> Result<&Native> {
        if let Some(native) = self.native() {
            return Ok(native);
        }
        self.settled()?;
        let what = "there is no native code: the model was compiled to source";
        Diagnostic::of(ErrorKind::Native, what)
            .got(format!("source of {}", self.name))
            .expected("the targets `cpu` or `c`")
            .err()
    }

    /// The functions that the code is generated from.
    ///
    /// Errors: there are none yet, because ranks or dtypes are needed.
    pub fn functions(&self) -> Result<&Module> {
        match self.waits() {
            Some(Waits::Inputs(needs)) if needs.trial || !needs.dtypes.is_empty() => {
                self.settled().map(|()| &self.module)
            }
            Some(Waits::Inputs(_) | Waits::Sizes) | None => Ok(&self.module),
        }
    }

    /// The error for missing information about inputs.
    fn needs(&self, needs: &Needs) -> Diagnostic {
        let all = |names: &[Arc<str>], one: &str, several: &str| match names {
            [] => None,
            [name] => Some(format!("{one} of `{name}`")),
            _ => Some(format!("{several} of {}", quoted(names))),
        };
        let ranks = all(&needs.ranks, "the rank", "the ranks");
        let dtypes = all(&needs.dtypes, "the dtype", "the dtypes");
        let mut hints = Vec::new();
        if ranks.is_some() {
            hints.push("shapes with `shapes=`, None for dims that vary".to_string());
        }
        if dtypes.is_some() {
            let each = needs.dtypes.iter().map(|name| format!("\"{name}\": ml.bool"));
            let each = each.collect::<Vec<_>>().join(", ");
            hints.push(format!(
                "dtypes with `dtypes={{{each}}}`, True where a query attends to a key, or a float's, \
                 for what is added to scores"
            ));
        }
        let what = match (&ranks, &dtypes) {
            (Some(_), Some(_)) => "ranks and dtypes",
            (None, Some(_)) => "dtypes",
            (_, None) => "ranks",
        };
        let open: Vec<String> = ranks.into_iter().chain(dtypes).collect();
        let name = &self.name;
        Diagnostic::of(
            ErrorKind::Rank,
            format!("there is no code for {name} yet: it needs known {what}"),
        )
        .got(format!("a model that does not determine {}", open.join(" and ")))
        .hint(format!("give {}, or evaluate it once", hints.join("; ")))
    }

    /// Compiles a program that needs ranks or dtypes for those of a call. `sizes` are the sizes of
    /// the call's arrays, for decisions that need more than ranks. The result may need further
    /// ranks or sizes.
    ///
    /// Errors: those of [`compile`]; a dtype that a mask cannot have; a program that has code
    /// already.
    pub fn for_call(
        &self,
        shapes: Vec<(String, Vec<DimSpec>)>,
        dtypes: Vec<(String, DType)>,
        sizes: Vec<(String, Vec<i64>)>,
    ) -> Result<Arc<Program>> {
        let Code::Open(open) = &self.code else {
            return Diagnostic::new("the program already has code").err();
        };
        let mut options = open.options.clone();
        options.lower.shapes.extend(shapes);
        for (name, dtype) in dtypes {
            let dtype = mask_dtype(&name, dtype, options.lower.dtype)?;
            options.lower.chosen.push(name.clone());
            options.lower.dtypes.push((name, dtype));
        }
        options.lower.sizes = sizes;
        compile(&open.block, &options).map_err(Diagnostic::at_call)
    }

    /// Compiles a program that needs sizes to native code for these shapes of params and states.
    ///
    /// Errors: shapes that do not fit; those of [`compile`]; a program that already has code.
    pub fn with_sizes(&self, sizes: Vec<(String, Shape)>) -> Result<Program> {
        let Code::Open(open) = &self.code else {
            return Diagnostic::new("the program already has code").err();
        };
        let (functions, _) = &self.logical;
        let shapes = Shapes { args: sizes, symbols: Vec::new() };
        let mut watch = Watch { stages: self.timings.clone() };
        let mut recipe = self.recipe.clone();
        let (module, code) = generate(functions, &mut recipe, shapes.clone(), &mut watch)
            .map_err(Diagnostic::at_call)?;
        let made = (module, (functions.clone(), shapes));
        let made =
            assembled(self.name.clone(), &initial_values(&open.block), made, code, recipe, watch)?;
        Ok(made.with_call_dtypes(&open.options.lower.chosen))
    }
}

/// The dtype of a mask in the program for a call with a mask of dtype `given`.
///
/// Errors: neither bool nor a float.
fn mask_dtype(name: &str, given: DType, float: DType) -> Result<DType> {
    match given {
        DType::Bool => Ok(DType::Bool),
        _ if given.is_float() => Ok(float),
        _ => Diagnostic::new(format!("`{name}` is a mask, which must be bool or float"))
            .got(given.array_name())
            .expected(format!(
                "bool, True where a query attends to a key, or {}, which is added to the scores",
                float.array_name()
            ))
            .hint(format!(
                "pass `{name} != 0` if numbers other than 0 mean that a query attends to a key"
            ))
            .err(),
    }
}

/// Whether native code needs the sizes of this argument and they are unknown.
fn lacks_sizes(argument: &Argument) -> bool {
    matches!(argument.role, Role::Param | Role::State) && argument.sizes().is_none()
}

/// Formats an argument with its role and shape, for messages.
fn typed(argument: &Argument) -> String {
    format!("the {} `{}` of {}", argument.role.name(), argument.name, argument.ty.shape)
}

/// Generalises the arguments and results of a trial to all ranks. A shape that may depend on a
/// guessed rank becomes a shape of any rank.
pub(super) fn forget_ranks(program: &mut Program, inputs: &[Arc<str>]) {
    let Some(entry) = program.module.entry().cloned() else { return };
    let depends = dependent(&entry, &program.arguments, inputs);
    for (at, argument) in program.arguments.iter_mut().enumerate() {
        if depends[entry.arg(at).index()] {
            argument.ty.shape = Shape::with_lead(symbol(&argument.name), []);
        }
    }
    for (at, result) in program.results.iter_mut().enumerate() {
        if depends[entry.results[at].value.index()] {
            // The apostrophe makes it different from the rank variables of inputs.
            let lead = Symbol::from(format!("'{}", result.name));
            result.ty.shape = Shape::with_lead(lead, []);
        }
    }
    program.guards.clear();
}

/// For each value, whether its shape may depend on the ranks of these inputs.
fn dependent(entry: &Function, arguments: &[Argument], inputs: &[Arc<str>]) -> Vec<bool> {
    let mut depends = vec![false; entry.values.len()];
    for (value, argument) in entry.arguments() {
        depends[value.index()] = inputs.contains(&argument.name);
    }
    loop {
        let mut blocks: FxHashSet<&Arc<str>> = FxHashSet::default();
        for op in &entry.ops {
            if op.operands.iter().any(|value| depends[value.index()]) {
                op.results().for_each(|value| depends[value.index()] = true);
                blocks.extend(op.loc.paths());
            }
        }
        // The shape of a param or a state depends on the blocks that read it.
        let mut found = false;
        for (at, argument) in arguments.iter().enumerate() {
            let follows = matches!(argument.role, Role::Param | Role::State);
            let own = &mut depends[entry.arg(at).index()];
            let reads = argument.readers.paths().iter().any(|path| blocks.contains(path));
            if follows && !*own && reads {
                (*own, found) = (true, true);
            }
        }
        if !found {
            return depends;
        }
    }
}
