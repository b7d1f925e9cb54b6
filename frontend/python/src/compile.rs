//! Python's `compile`: converts its keywords to the options of a compilation.

use std::path::Path;

use mithril_driver::compile::{self, Checks, CompileOptions, OtherTarget};
use mithril_driver::native::{Planning, Tier};
use mithril_driver::targets::{self, TargetEntry};
use mithril_ir::dtype::DType as Element;
use mithril_model::Literal;
use mithril_model::lower::{self, Mode};
use mithril_passes::pass::Limit;
use mithril_passes::pipeline::{Level, OptimizationOptions};
use mithril_passes::rules::Class;
use mithril_passes::shard::layout::Mesh;
use mithril_passes::shard::residuals::Residual;
use mithril_source::backends::{InPlace, Random};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::block::Block;
use super::dtype::DType;
use super::error::{Answer, guarded};
use super::native::close_at_exit;
use super::program::Program;
use super::value::{self, tensor};

/// A value of `constant_keys`. All programs that are compiled with it share its memory.
#[pyclass(frozen, module = "mithril._core")]
pub struct Constant(mithril_ir::tensor::Tensor);

#[pymethods]
impl Constant {
    #[new]
    fn new(array: &Bound<'_, PyAny>) -> Answer<Constant> {
        guarded(|| Ok(Constant(tensor(array)?.replaceable())))
    }
}

/// Compiles a block to source for a framework, or to native code. With `at_call`, the shapes are
/// those of a call, and errors are worded for a call.
///
/// Errors: as for `mithril.compile`.
#[pyfunction(name = "compile")]
#[pyo3(signature = (
    block, target, dtype, wide, *, shapes: "dict[str, object]", dtypes: "dict[str, object]",
    inference, trainable_keys, data_keys, discard_keys, constant_keys: "dict[str, object]", level,
    math, cache, file_path=None, keep=Vec::new(), watched=Vec::new(), differentiate=None,
    own_gradients=false, checkpoint=false, memory_budget=None, separate_buffers=false, tier=None,
    cpu=None, random="framework", in_place="none", mixed_precision=false, checks=None, others=Vec::new(), mesh=Vec::new(),
    layouts=Default::default(), at_call=false,
))]
// These are the keywords of Python's `compile`.
#[allow(clippy::too_many_arguments)]
pub fn compile_block(
    block: &Bound<'_, Block>,
    target: &str,
    dtype: &Bound<'_, DType>,
    wide: bool,
    shapes: &Bound<'_, PyDict>,
    dtypes: &Bound<'_, PyDict>,
    inference: bool,
    trainable_keys: Vec<String>,
    data_keys: Vec<String>,
    discard_keys: Vec<String>,
    constant_keys: &Bound<'_, PyDict>,
    level: &str,
    math: &str,
    cache: bool,
    file_path: Option<&str>,
    keep: Vec<String>,
    watched: Vec<String>,
    differentiate: Option<String>,
    own_gradients: bool,
    checkpoint: bool,
    memory_budget: Option<u64>,
    separate_buffers: bool,
    tier: Option<&str>,
    cpu: Option<String>,
    random: &str,
    in_place: &str,
    mixed_precision: bool,
    checks: Option<bool>,
    others: Vec<Other>,
    mesh: Split,
    layouts: Layouts,
    at_call: bool,
) -> Answer<Program> {
    guarded(|| {
        let (target, own) = typed(target, wide, dtype, inference, [shapes, dtypes, constant_keys])?;
        let options = CompileOptions {
            target,
            lower: lower::Options { trainable_keys, data_keys, discard_keys, ..own },
            optimization: optimization(level, math, checkpoint && !inference, (mesh, layouts.1))?,
            stem: stem(file_path, target)?,
            cache,
            tier: tier.map_or(Ok(Tier::default()), Tier::find)?,
            cpu,
            keep,
            watched,
            differentiate,
            own_gradients,
            random: Random::find(random).unwrap_or_default(),
            in_place: InPlace::find(in_place).unwrap_or_default(),
            mixed_precision,
            layouts: layouts.0,
            memory_budget,
            planning: if separate_buffers { Planning::None } else { Planning::Greedy },
            checks: checks.map_or(Checks::Host, |all| if all { Checks::All } else { Checks::None }),
            others: others.into_iter().map(other).collect::<Answer<_>>()?,
        };
        run(block, &options, wide, at_call)
    })
}

fn run(
    block: &Bound<'_, Block>,
    options: &CompileOptions,
    wide: bool,
    at_call: bool,
) -> Answer<Program> {
    end_with_process(options, block.py())?;
    let program = compile::compile(&block.get().current()?, options)
        .map_err(|error| if at_call { error.at_call() } else { error })?;
    Ok(Program { program, target: options.target, wide, one_of_several: false })
}

/// Mesh axes with their sizes, or with the axes of an array that they divide.
type Split = Vec<(String, i64)>;

/// The layouts of values by name, and of residual values by shape.
type Layouts = (Vec<(String, Split)>, Vec<(Vec<i64>, Split)>);

/// A backend that runs some blocks: its target, the paths of the blocks, and for native code the
/// tier and the processor.
type Other = (String, Vec<String>, Option<String>, Option<String>, bool);

fn other((target, blocks, tier, cpu, mixed_precision): Other) -> Answer<OtherTarget> {
    let target = targets::find(&target)?;
    let tier = tier.as_deref().map_or(Ok(Tier::default()), Tier::find)?;
    let name = target.name().into();
    Ok(OtherTarget { name, blocks, target, tier, cpu, mixed_precision })
}

/// The target, and the options for lowering to it, with the given shapes, dtypes and constants of the
/// inputs.
fn typed(
    target: &str,
    wide: bool,
    dtype: &Bound<DType>,
    inference: bool,
    [shapes, dtypes, constant_keys]: [&Bound<PyDict>; 3],
) -> Answer<(&'static TargetEntry, lower::Options)> {
    let target = targets::find(target)?;
    let options = lower::Options {
        mode: mode(inference),
        shapes: value::shapes(shapes)?,
        dtypes: value::dtypes(dtypes)?,
        dtype: dtype.get().0,
        index: target.framework_dtype(wide, Element::I64),
        constant_keys: constants(constant_keys)?,
        ..lower::Options::default()
    };
    Ok((target, options))
}

/// Makes sure that background compilation ends before the interpreter does.
fn end_with_process(options: &CompileOptions, py: Python<'_>) -> Answer<()> {
    let others = options.others.iter().map(|other| (other.target, other.tier));
    let mut all = others.chain([(options.target, options.tier)]);
    // On all other tiers, LLVM may replace Cranelift's code in the background.
    if all.any(|(target, tier)| target.tiers.contains(&Tier::Llvm) && tier != Tier::Instant) {
        close_at_exit(py)?;
    }
    Ok(())
}

/// The stem of the file that source is written to.
fn stem(path: Option<&str>, target: &TargetEntry) -> Answer<String> {
    let named = |path| target.stem("file_path", Path::new(path));
    Ok(path.map_or(Ok("model".into()), named)?)
}

/// The optimization options, from names that Python has checked.
fn optimization(
    level: &str,
    math: &str,
    checkpoint: bool,
    (mesh, residuals): (Split, Vec<(Vec<i64>, Split)>),
) -> Answer<OptimizationOptions> {
    let level = Level::ALL.into_iter().find(|(name, _)| *name == level);
    let math = Class::ALL.into_iter().find(|class| class.name() == math);
    let (Some((_, level)), Some(math)) = (level, math) else {
        return Err(PyValueError::new_err("unknown `level` or `math`").into());
    };
    let checkpoint = if checkpoint { Limit::All } else { Limit::At(0) };
    let mesh = if mesh.is_empty() { None } else { Some(Mesh::new(mesh)?) };
    let residuals = residuals.into_iter().map(|(dims, split)| Residual { dims, split }).collect();
    let default = OptimizationOptions::default();
    Ok(OptimizationOptions { level, math, checkpoint, mesh, residuals, ..default })
}

fn mode(inference: bool) -> Mode {
    match inference {
        true => Mode::Inference,
        false => Mode::Training,
    }
}

fn constants(given: &Bound<'_, PyDict>) -> Answer<Vec<(String, Literal)>> {
    let mut constants = Vec::new();
    for (name, value) in given {
        let literal = match value.cast::<Constant>() {
            Ok(own) => Literal::array(own.get().0.clone()),
            Err(_) => value::literal(&value)?,
        };
        constants.push((name.extract()?, literal));
    }
    Ok(constants)
}
