//! Compiling from Python, and what comes of it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, did_you_mean};
use mithril_ir::dtype::DType as Element;
use mithril_passes::explain;
use mithril_passes::pass::Limit;
use mithril_passes::pipeline::{Effort, Level};
use mithril_passes::rules::Class;
use mithril_passes::table::Table;
use mithril_source::python::{Framework, wants_wide};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use super::arrays::Reader;
use super::block::Block;
use super::check::Checker;
use super::dtype::{self, DType};
use super::fault::{Answer, guarded};
use super::native::{Native, close_at_exit};
use super::value::{shapes, tensor};
use crate::compile::{self, Code, CompileOptions, Draw, Target, held};
use crate::lower::{self, Mode};
use crate::native::{Planning, Tier};

/// An argument of a program.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Argument {
    /// The name: a path of blocks for what is learned. The same object each time, so that dicts
    /// made by it are told apart by addresses alone.
    name: Py<PyString>,
    /// `data`, `param`, `state`, `key` or `constant`.
    role: &'static str,
    /// The dtype it has in the framework.
    dtype: DType,
    /// The dims as text: numbers, names, expressions.
    dims: Vec<String>,
    /// The sizes, where all are known.
    shape: Option<Vec<i64>>,
}

/// A result of a program.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Outcome {
    /// The name.
    name: String,
    /// The state it is the next value of, if any.
    state: Option<String>,
    /// The dtype it has in the framework.
    dtype: DType,
    /// The dims as text.
    dims: Vec<String>,
}

/// What rewriting has done to a program: a table as text, and in notebooks.
#[pyclass(frozen, module = "mithril._core")]
pub struct Explanation(pub explain::Explanation);

/// A rule that fired.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Fired {
    /// Its name.
    rule: &'static str,
    /// What it is about: `algebra`, `layout`, `composites`, ….
    topic: &'static str,
    /// What it may change: `exact`, `recognise`, `reassociate` or `fast`.
    math: &'static str,
    /// How often it was applied.
    times: usize,
    /// The paths of the blocks it was applied in.
    places: Vec<String>,
    /// The seconds that the program is estimated to take longer without it. Below 0 where the rule
    /// is there for numbers that stay finite.
    gain: f64,
}

/// Amounts of memory by what they are for.
pub type Bytes = BTreeMap<&'static str, usize>;

/// A pass, its rule, and the blocks it was applied in.
type Blame = (&'static str, Option<&'static str>, Vec<String>);

/// A value of `constant_keys` that every program made with it shares.
#[pyclass(frozen, module = "mithril._core")]
pub struct Constant(mithril_ir::tensor::Tensor);

#[pymethods]
impl Constant {
    #[new]
    fn new(array: &Bound<'_, PyAny>) -> Answer<Constant> {
        guarded(|| Ok(Constant(tensor(array)?)))
    }
}

/// A compiled model.
#[pyclass(frozen, module = "mithril._core")]
pub struct Program {
    program: Arc<compile::Program>,
    target: Target,
    wide: bool,
}

/// Compiles a block to source for a framework, or to native code.
///
/// Errors: `MithrilError`, as its message says.
#[pyfunction(name = "compile")]
#[pyo3(signature = (
    block, target, dtype, wide, *, shapes: "dict[str, object]", inference, trainable_keys, data_keys,
    discard_keys, constant_keys: "dict[str, object]", level, math, cache, file_path=None,
    keep=Vec::new(), watched=Vec::new(), differentiate=None, own_gradients=false, checkpoint=false,
    memory_budget=None, apart=false,
    tier=None,
))]
// The keywords of Python's `compile`, one by one.
#[allow(clippy::too_many_arguments)]
pub fn compile_block(
    block: &Bound<'_, Block>,
    target: &str,
    dtype: &Bound<'_, DType>,
    wide: bool,
    shapes: &Bound<'_, PyDict>,
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
    apart: bool,
    tier: Option<&str>,
) -> Answer<Program> {
    guarded(|| {
        let target = Target::find(target)?;
        let own = dtype.get().0;
        let lower = lower::Options {
            mode: mode(inference),
            shapes: self::shapes(shapes)?,
            dtype: own,
            index: held(target, wide, Element::I64),
            trainable_keys,
            data_keys,
            discard_keys,
            constant_keys: constants(constant_keys, own)?,
            ..lower::Options::default()
        };
        let options = CompileOptions {
            target,
            lower,
            effort: effort(level, math, checkpoint && !inference)?,
            stem: stem(file_path, target)?,
            cache,
            tier: tier.map_or(Ok(Tier::default()), Tier::find)?,
            keep,
            watched,
            differentiate,
            own_gradients,
            memory_budget,
            planning: if apart { Planning::None } else { Planning::Greedy },
        };
        if options.tier == Tier::Auto {
            close_at_exit(dtype.py())?;
        }
        let program = compile::compile(&block.get().current()?, &options)?;
        Ok(Program { program, target, wide })
    })
}

/// The name of the file that source is written to.
fn stem(path: Option<&str>, target: Target) -> Answer<String> {
    let named = |path| compile::stem("file_path", Path::new(path), target);
    Ok(path.map_or(Ok("model".into()), named)?)
}

/// How far a model is rewritten, by names that Python has checked.
fn effort(level: &str, math: &str, checkpoint: bool) -> Answer<Effort> {
    let level = Level::ALL.into_iter().find(|(name, _)| *name == level);
    let math = Class::ALL.into_iter().find(|class| class.name() == math);
    let (Some((_, level)), Some(math)) = (level, math) else {
        return Err(PyValueError::new_err("no such level, or no such class of rules").into());
    };
    let checkpoint = if checkpoint { Limit::All } else { Limit::At(0) };
    Ok(Effort { level, math, checkpoint, ..Effort::default() })
}

fn mode(inference: bool) -> Mode {
    match inference {
        true => Mode::Inference,
        false => Mode::Training,
    }
}

fn constants(
    given: &Bound<'_, PyDict>,
    dtype: Element,
) -> Answer<Vec<(String, mithril_ir::tensor::Tensor)>> {
    let mut constants = Vec::new();
    for (name, value) in given {
        constants.push((name.extract()?, constant(&value, dtype)?));
    }
    Ok(constants)
}

/// The value of a constant; plain numbers take the model's dtype.
fn constant(value: &Bound<'_, PyAny>, dtype: Element) -> Answer<mithril_ir::tensor::Tensor> {
    if let Ok(own) = value.cast::<Constant>() {
        return Ok(own.get().0.clone());
    }
    if value.hasattr("dtype")? {
        return tensor(value);
    }
    let literal = super::value::literal(value)?;
    Ok(literal.in_dtype(dtype).unwrap_or(literal.tensor))
}

#[pymethods]
impl Argument {
    fn __repr__(&self) -> String {
        let dims = self.dims.join(", ");
        format!("{}: {} {}[{dims}]", self.name, self.role, self.dtype.0.array_name())
    }
}

#[pymethods]
impl Explanation {
    /// The seconds that the program is estimated to take with every operation of the model.
    #[getter]
    fn before(&self) -> f64 {
        seconds(self.0.before as f64)
    }

    /// The seconds that it is estimated to take as it was rewritten.
    #[getter]
    fn after(&self) -> f64 {
        seconds(self.0.after as f64)
    }

    /// The rules that fired, the most valuable first.
    #[getter]
    fn rules(&self) -> Vec<Fired> {
        let rule = |fired: &explain::Fired| Fired {
            rule: fired.name,
            topic: fired.topic,
            math: fired.class.name(),
            times: fired.times,
            places: fired.places.paths().iter().map(|path| path.to_string()).collect(),
            gain: seconds(fired.gain as f64),
        };
        self.0.rules.iter().map(rule).collect()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn _repr_html_(&self) -> String {
        self.0.html()
    }
}

#[pymethods]
impl Fired {
    fn __repr__(&self) -> String {
        format!("{}: {} times, gain {:.3e} s", self.rule, self.times, self.gain)
    }
}

fn seconds(picoseconds: f64) -> f64 {
    picoseconds * 1e-12
}

#[pymethods]
impl Program {
    /// What was compiled: the block's name or kind.
    #[getter]
    fn name(&self) -> &str {
        &self.program.name
    }

    /// Whether it has its gradients in it, made by Mithril.
    #[getter]
    fn own_gradients(&self) -> bool {
        self.program.module.called_from_outside().nth(1).is_some()
    }

    /// The generated source; for native code a listing.
    #[getter]
    fn source(&self) -> String {
        match &self.program.code {
            Code::Source(source) => source.text.clone(),
            Code::Native(native) => native.listing(),
            Code::Open(_) => String::new(),
        }
    }

    /// What the source was generated from, as text.
    #[getter]
    fn module(&self) -> Answer<String> {
        guarded(|| Ok(mithril_ir::text::print(&self.program.module)))
    }

    /// Whether its source turns 64-bit types on, which JAX else has not.
    #[getter]
    fn widens(&self) -> bool {
        self.target == Target::Framework(Framework::Jax) && wants_wide(&self.program.module)
    }

    /// The arguments in their order.
    #[getter]
    fn arguments(&self, py: Python<'_>) -> Vec<Argument> {
        let argument = |own: &compile::Argument| Argument {
            name: PyString::intern(py, &own.name).unbind(),
            role: own.role.name(),
            dtype: DType(held(self.target, self.wide, own.ty.dtype)),
            dims: dims(&own.ty),
            shape: own.sizes(),
        };
        self.program.arguments.iter().map(argument).collect()
    }

    /// The results in their order, next values of states included.
    #[getter]
    fn results(&self) -> Vec<Outcome> {
        let result = |own: &compile::Output| Outcome {
            name: own.name.to_string(),
            state: own.state.as_ref().map(|s| s.to_string()),
            dtype: DType(held(self.target, self.wide, own.ty.dtype)),
            dims: dims(&own.ty),
        };
        self.program.results.iter().map(result).collect()
    }

    /// What rewriting has done.
    fn explain(&self) -> Answer<Explanation> {
        guarded(|| Ok(Explanation(self.program.explain()?)))
    }

    /// The pass after which the reference evaluator gives other numbers, more than `tolerance`
    /// apart, its rule and the blocks that was applied in, as far as they are known. `None`, if the
    /// passes keep the numbers. `arrays` are those of a call, by name.
    #[pyo3(signature = (arrays: "dict[str, object]", tolerance))]
    fn bisect(&self, arrays: &Bound<'_, PyDict>, tolerance: f64) -> Answer<Option<Blame>> {
        guarded(|| {
            let mut args = Vec::new();
            for argument in &self.program.arguments {
                let array = arrays.as_any().get_item(&*argument.name)?;
                args.push(tensor(&array)?);
            }
            let culprit = self.program.bisect(&args, tolerance)?;
            Ok(culprit.map(|culprit| {
                let (rule, places) = culprit.rule.unzip();
                let places = places.unwrap_or_default();
                let places = places.paths().iter().map(|path| path.to_string()).collect();
                (culprit.pass, rule, places)
            }))
        })
    }

    /// The bytes that a call works with, by what they are for; `dims` are numbers for dims that have
    /// none. `None` for what is no native code.
    #[pyo3(signature = (dims: "dict[str, int]"))]
    fn memory(&self, dims: HashMap<String, i64>) -> Answer<Option<Bytes>> {
        memory(&self.program, &dims)
    }

    /// Seconds that each stage took.
    #[getter]
    fn timings(&self) -> Vec<(&'static str, f64)> {
        self.program.timings.iter().map(|(stage, time)| (*stage, time.as_secs_f64())).collect()
    }

    /// Arrays of the `.npz` beside the source: dtype, shape and bytes by name.
    #[getter]
    fn constants<'py>(
        &self,
        py: Python<'py>,
    ) -> Vec<(String, DType, Vec<usize>, Bound<'py, PyBytes>)> {
        let constants = self.program.source().into_iter().flat_map(|source| &source.constants);
        let array = |(name, tensor): &(String, mithril_ir::tensor::Tensor)| {
            let bytes = PyBytes::new(py, tensor.bytes());
            (name.clone(), DType(tensor.dtype()), tensor.shape().to_vec(), bytes)
        };
        constants.map(array).collect()
    }

    /// How an argument of this shape begins: `("normal", deviation)` or `("constant", value)`.
    fn initial(&self, name: &str, shape: Vec<i64>) -> (&'static str, f64) {
        let argument = self.program.arguments.iter().find(|a| *a.name == *name);
        match argument.map_or(Draw::Constant(0.0), |a| a.draw(&shape)) {
            Draw::Constant(value) => ("constant", value),
            Draw::Normal(deviation) => ("normal", deviation),
        }
    }

    /// The check of a call's arrays. `samples` are 2 x 3 arrays of the framework by dtype.
    #[pyo3(signature = (samples: "dict[str, object]"))]
    fn checker(&self, py: Python<'_>, samples: &Bound<'_, PyDict>) -> Answer<Checker> {
        guarded(|| {
            let rename = |dtype| held(self.target, self.wide, dtype);
            Ok(Checker::new(py, &self.program, self.reader(samples)?, &rename)?)
        })
    }

    /// What runs the native code on arrays of NumPy, with so many threads (0: as many as there are
    /// cores). `samples` are as for `checker`.
    #[pyo3(signature = (samples: "dict[str, object]", threads))]
    fn native(&self, samples: &Bound<'_, PyDict>, threads: usize) -> Answer<Native> {
        guarded(|| Native::new(samples.py(), self.program.clone(), self.reader(samples)?, threads))
    }
}

impl Program {
    fn reader(&self, samples: &Bound<'_, PyDict>) -> Answer<Reader> {
        let mut read = Vec::new();
        for (dtype, sample) in samples {
            read.push((dtype::of(&dtype)?, sample));
        }
        Ok(Reader::new(self.target.arrays().name(), &read)?)
    }
}

/// See `Program.memory`.
pub fn memory(program: &compile::Program, dims: &HashMap<String, i64>) -> Answer<Option<Bytes>> {
    guarded(|| {
        if program.source().is_some() {
            return Ok(None);
        }
        program.settled()?;
        let Some(native) = program.native() else { return Ok(None) };
        let part = native.joint.as_ref().unwrap_or(&native.forward);
        let symbols = || part.plan.symbols.iter().map(|symbol| symbol.as_ref());
        if let Some(unknown) = dims.keys().find(|name| symbols().all(|own| own != name.as_str())) {
            let mut error = Diagnostic::new(format!("the model has no dim `{unknown}`"));
            error.hint = did_you_mean(unknown, symbols());
            return Err(error.into());
        }
        let memory = part.memory(&|dim| dims.get(dim).copied())?;
        Ok(Some(BTreeMap::from([
            ("arguments", memory.arguments),
            ("results", memory.results),
            ("temporaries", memory.temporaries),
            ("constants", memory.constants),
            ("total", memory.total()),
        ])))
    })
}

/// A table of text cells: as lines, and as HTML. The columns of `numbers` stand to the right.
#[pyfunction]
pub fn table(heads: Vec<String>, numbers: Vec<usize>, rows: Vec<Vec<String>>) -> (String, String) {
    let table = Table { heads, numbers, rows };
    (table.text(), table.html())
}

fn dims(ty: &mithril_ir::shape::Type) -> Vec<String> {
    let lead = ty.shape.lead.iter().map(|lead| format!("*{lead}"));
    lead.chain(ty.shape.dims.iter().map(|dim| dim.to_string())).collect()
}
