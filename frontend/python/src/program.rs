//! Compiled models, as Python sees them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mithril_driver::compile::open::Waits;
use mithril_driver::compile::{self, Code};
use mithril_driver::targets::{Dialect, TargetEntry};
use mithril_ir::diagnostic::{Diagnostic, Result, did_you_mean};
use mithril_ir::dim::Dim;
use mithril_ir::shape::Shape;
use mithril_model::draw::key;
use mithril_model::init::{Draw, Init, Other};
use mithril_source::backends::transposed_params;
use mithril_source::python::wants_wide;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString};

use super::arrays::Reader;
use super::check::Checker;
use super::cost::Costs;
use super::dtype::{self, DType};
use super::error::{Answer, guarded};
use super::explanation::Explanation;
use super::native::Native;
use super::terminals::{Argument, Outcome};
use super::value::{dtypes, rule, shapes, tensor};

/// A part of a program that runs on one of several backends.
#[pyclass(frozen, get_all, module = "mithril._core")]
pub struct Part {
    /// The index of the backend; 0 is that of the whole model.
    place: usize,
    program: Py<Program>,
    /// The numbers of the values that the arguments are, in their order.
    reads: Vec<usize>,
    /// The numbers of the values that the results are, in their order.
    writes: Vec<usize>,
}

/// Initial values: one number for all elements, the bytes of 64-bit floats, or a function that
/// draws them with its key of two words.
type InitialValues<'py> =
    (Option<f64>, Option<Bound<'py, PyByteArray>>, Option<(Py<PyAny>, [u32; 2])>);

/// Amounts of memory in bytes, by their use.
pub type Bytes = BTreeMap<&'static str, usize>;

/// A pass, its rule, and the blocks in which the rule was applied.
type Culprit = (&'static str, Option<&'static str>, Vec<String>);

/// A compiled model.
#[pyclass(frozen, module = "mithril._core")]
pub struct Program {
    pub program: Arc<compile::Program>,
    pub target: &'static TargetEntry,
    pub wide: bool,
    /// Whether another program of the model may take arrays that this program does not take.
    pub one_of_several: bool,
}

#[pymethods]
impl Program {
    /// The name or kind of the compiled block.
    #[getter]
    fn name(&self) -> &str {
        &self.program.name
    }

    /// Whether the code computes gradients itself.
    #[getter]
    fn own_gradients(&self) -> bool {
        self.program.module.called_from_outside().nth(1).is_some()
    }

    /// Whether elements of arrays decide which operations run.
    #[getter]
    fn branches(&self) -> bool {
        self.program.branches()
    }

    /// The generated source, or a listing of native code.
    ///
    /// Errors: there is no code yet, as for `settled`.
    #[getter]
    fn source(&self) -> Answer<String> {
        self.settled()?;
        Ok(match &self.program.code {
            Code::Source(source) => source.text.clone(),
            Code::Native(native) => native.listing(),
            Code::Parts(_) | Code::Open(_) => String::new(),
        })
    }

    /// The IR that the code was generated from, as text.
    ///
    /// Errors: ranks that the code needs are not known.
    #[getter]
    fn module(&self) -> Answer<String> {
        guarded(|| Ok(mithril_ir::text::print(self.program.functions()?)))
    }

    /// Whether there is no code yet, because ranks, dtypes or sizes are not known.
    #[getter]
    fn is_open(&self) -> bool {
        self.program.waits().is_some()
    }

    /// The arguments whose ranks are needed but not known.
    #[getter]
    fn needs_ranks(&self) -> Vec<String> {
        match self.program.waits() {
            Some(Waits::Inputs(needs)) => needs.ranks.iter().map(|n| n.to_string()).collect(),
            Some(Waits::Sizes) | None => Vec::new(),
        }
    }

    /// The masks whose dtypes are needed but not known.
    #[getter]
    fn needs_dtypes(&self) -> Vec<String> {
        match self.program.waits() {
            Some(Waits::Inputs(needs)) => needs.dtypes.iter().map(|n| n.to_string()).collect(),
            Some(Waits::Sizes) | None => Vec::new(),
        }
    }

    /// Checks that there is code. Errors: ranks, dtypes or sizes are not known yet.
    fn settled(&self) -> Answer<()> {
        guarded(|| Ok(self.program.settled()?))
    }

    /// Compiles the program for these shapes and dtypes of arguments. `sizes` are those of a call's
    /// arrays, if they decide which axes a mask has. The result may still need other ranks, or
    /// sizes of params.
    ///
    /// Errors: as for `compile`; a mask that is neither bool nor float.
    #[pyo3(signature = (
        shapes: "dict[str, list[int | None]]",
        dtypes: "dict[str, DType]",
        sizes: "dict[str, list[int]]",
    ))]
    fn for_call(
        &self,
        py: Python<'_>,
        shapes: &Bound<'_, PyDict>,
        dtypes: &Bound<'_, PyDict>,
        sizes: BTreeMap<String, Vec<i64>>,
    ) -> Answer<Program> {
        guarded(|| {
            let (shapes, dtypes) = (self::shapes(shapes)?, self::dtypes(dtypes)?);
            let sizes = sizes.into_iter().collect();
            let program = py.detach(|| self.program.for_call(shapes, dtypes, sizes))?;
            Ok(self.derived(program))
        })
    }

    /// Compiles a program that only needs sizes, for these shapes of params and states.
    ///
    /// Errors: as for `compile`.
    #[pyo3(signature = (sizes: "dict[str, list[int]]"))]
    fn with_sizes(&self, py: Python<'_>, sizes: HashMap<String, Vec<i64>>) -> Answer<Program> {
        guarded(|| {
            let fixed = |sizes: Vec<i64>| Shape::new(sizes.into_iter().map(Dim::Const));
            let mut sizes: Vec<(String, Shape)> =
                sizes.into_iter().map(|(name, own)| (name, fixed(own))).collect();
            sizes.sort_by(|(one, _), (other, _)| one.cmp(other));
            let program = Arc::new(py.detach(|| self.program.with_sizes(sizes))?);
            Ok(self.derived(program))
        })
    }

    /// Whether the source enables 64-bit types, which JAX disables by default.
    #[getter]
    fn widens(&self) -> bool {
        self.target.narrow && wants_wide(&self.program.module)
    }

    /// The arguments, in order.
    #[getter]
    fn arguments(&self, py: Python<'_>) -> Vec<Argument> {
        let framework_dtype = |dtype| self.target.framework_dtype(self.wide, dtype);
        let transposed = transposed_params(&self.program.module);
        let argument = |own: &compile::Argument| Argument {
            name: PyString::intern(py, &own.name).unbind(),
            role: own.role.name(),
            dtype: DType(framework_dtype(own.ty.dtype)),
            dims: dims(&own.ty),
            shape: own.sizes(),
            fan_of: own.fan_of.as_ref().map(|name| name.to_string()),
            derived: own.start.is_derived(),
            any_integer: own.takes_any_integer(framework_dtype(own.ty.dtype)),
            transposed: transposed.contains(&own.name),
        };
        self.program.arguments.iter().map(argument).collect()
    }

    /// The results, in order, including next values of states.
    #[getter]
    fn results(&self) -> Vec<Outcome> {
        let result = |own: &compile::Output| Outcome {
            name: own.name.to_string(),
            state: own.state.as_ref().map(|s| s.to_string()),
            dtype: DType(self.target.framework_dtype(self.wide, own.ty.dtype)),
            dims: dims(&own.ty),
        };
        self.program.results.iter().map(result).collect()
    }

    /// The parts of a program for several backends, in the order in which they run. `wide` tells for
    /// each backend whether it has 64-bit types. Empty for a program for one backend.
    fn parts(&self, py: Python<'_>, wide: Vec<bool>) -> Answer<Vec<Part>> {
        let Code::Parts(own) = &self.program.code else { return Ok(Vec::new()) };
        let part = |part: &compile::parts::Part| -> Answer<Part> {
            let program = Program {
                program: part.program.clone(),
                target: part.program.target(),
                wide: wide.get(part.place).copied().unwrap_or(true),
                one_of_several: false,
            };
            let (reads, writes) = (part.reads.clone(), part.writes.clone());
            Ok(Part { place: part.place, program: Py::new(py, program)?, reads, writes })
        };
        own.parts.iter().map(part).collect()
    }

    /// The numbers of the values that the results are, in their order, of a program for several
    /// backends. Its arguments are the first values.
    #[getter]
    fn result_values(&self) -> Vec<usize> {
        match &self.program.code {
            Code::Parts(own) => own.results.clone(),
            Code::Source(_) | Code::Native(_) | Code::Open(_) => Vec::new(),
        }
    }

    /// The rewrites of the program, and their estimated gains.
    fn explain(&self) -> Answer<Explanation> {
        guarded(|| Ok(Explanation(self.program.explain()?)))
    }

    /// Finds the first pass after which the results of the reference evaluator differ by more than
    /// `tolerance`: the pass, and its rule and blocks if they are known. `None` if no pass does.
    /// `arrays` are those of a call, by name.
    #[pyo3(signature = (arrays: "dict[str, object]", tolerance))]
    fn bisect(&self, arrays: &Bound<'_, PyDict>, tolerance: f64) -> Answer<Option<Culprit>> {
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

    /// The cost of each block in one forward pass. `shapes` and `dims` give shapes of inputs, and
    /// sizes of dims, that are not known.
    #[pyo3(signature = (shapes: "dict[str, object]", dims: "dict[str, int]"))]
    fn cost(&self, shapes: &Bound<'_, PyDict>, dims: HashMap<String, i64>) -> Answer<Costs> {
        guarded(|| {
            let mut dims: Vec<(String, i64)> = dims.into_iter().collect();
            dims.sort_unstable();
            Ok(Costs::new(self.program.cost(&self::shapes(shapes)?, &dims)?))
        })
    }

    /// The memory of a call in bytes, by use. `dims` gives sizes to dims without a number. None if
    /// there is no native code.
    #[pyo3(signature = (dims: "dict[str, int]"))]
    fn memory(&self, dims: HashMap<String, i64>) -> Answer<Option<Bytes>> {
        guarded(|| match self.target.dialect {
            Dialect::Python(_) => Ok(None),
            Dialect::C | Dialect::Machine => memory(&self.program, &dims).map(Some),
        })
    }

    /// The seconds of each stage of the compilation.
    #[getter]
    fn timings(&self) -> Vec<(&'static str, f64)> {
        self.program.timings.iter().map(|(stage, time)| (*stage, time.as_secs_f64())).collect()
    }

    /// The arrays of the `.npz` file next to the source: name, dtype, shape and bytes.
    #[getter]
    fn constants<'py>(
        &self,
        py: Python<'py>,
    ) -> Vec<(String, DType, Vec<usize>, Bound<'py, PyBytes>)> {
        let constants = self.program.source().into_iter().flat_map(|source| &source.constants);
        let array = |(name, tensor): &(String, mithril_ir::tensor::Tensor)| {
            let bytes = PyBytes::new(py, &tensor.bytes());
            (name.clone(), DType(tensor.dtype()), tensor.shape().to_vec(), bytes)
        };
        constants.map(array).collect()
    }

    /// The initial value of an argument with this shape: one number for all elements, or the bytes
    /// of float64 elements, or a function and its key. `fan_of` is the shape of the argument that
    /// determines the fan. `init` overrides the block's rule.
    ///
    /// Errors: an unknown `init`; an `init` for matrices with a shape of fewer than two dims.
    #[pyo3(signature = (name, shape, seed, fan_of=None, init=None))]
    fn initial<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        shape: Vec<i64>,
        seed: u64,
        fan_of: Option<Vec<i64>>,
        init: Option<Bound<'py, PyAny>>,
    ) -> Answer<InitialValues<'py>> {
        guarded(|| {
            let argument = self.program.arguments.iter().find(|a| *a.name == *name);
            let mut start = argument.map_or(Init::Zeros.into(), |a| a.start.clone());
            if let Some(init) = init {
                start.rule = rule(&init)?;
            }
            let other = argument.and_then(|own| own.fan_of.as_ref());
            let other =
                other.and_then(|name| self.program.arguments.iter().find(|own| own.name == *name));
            let other = other.zip(fan_of.as_deref());
            let other =
                other.map(|(own, sizes)| Other { name: &own.name, sizes, start: &own.start });
            let draw = start.draw(name, &shape, other)?;
            Ok(match &draw {
                Draw::Constant(value) => (Some(*value), None, None),
                Draw::Function(function) => {
                    let own = function.value.downcast_ref::<Py<PyAny>>();
                    (None, None, own.map(|own| (own.clone_ref(py), key(seed, name))))
                }
                Draw::Normal(_)
                | Draw::TruncatedNormal
                | Draw::Uniform(..)
                | Draw::Orthogonal
                | Draw::Stacked(_)
                | Draw::Norms { .. } => {
                    let sizes: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
                    let fill = |values: &mut [f64]| draw.fill(seed, name, &sizes, values);
                    (None, Some(numbers(py, sizes.iter().product(), &fill)?), None)
                }
            })
        })
    }

    /// The bytes of the initial value of an argument that follows from another array, as 64-bit
    /// floats: those of `values`, an array of this shape.
    ///
    /// Errors: the argument's value does not follow from another array.
    fn initial_from<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        values: &[u8],
        shape: Vec<usize>,
    ) -> Answer<Bound<'py, PyByteArray>> {
        guarded(|| {
            let number = |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            let values: Vec<f64> = values.chunks_exact(size_of::<f64>()).map(number).collect();
            let argument = self.program.arguments.iter().find(|a| *a.name == *name);
            let derived = argument.and_then(|own| own.start.derived(name, &values, &shape));
            let Some(derived) = derived else {
                let what = format!("the initial value of `{name}` follows from no other array");
                return Err(Box::new(Diagnostic::new(what)).into());
            };
            let fill = |values: &mut [f64]| {
                values.copy_from_slice(&derived);
                Ok(())
            };
            numbers(py, derived.len(), &fill)
        })
    }

    /// The checker for the arrays of calls. `samples` are 2 x 3 arrays of the framework by dtype.
    #[pyo3(signature = (samples: "dict[str, object]"))]
    fn checker(&self, py: Python<'_>, samples: &Bound<'_, PyDict>) -> Answer<Checker> {
        guarded(|| {
            let rename = |dtype| self.target.framework_dtype(self.wide, dtype);
            Ok(Checker::new(py, &self.program, self.reader(samples)?, &rename)?)
        })
    }

    /// Whether the code is for certain ranks or sizes, and other calls need another program.
    #[getter]
    fn one_of_several(&self) -> bool {
        self.one_of_several
    }

    /// The runner of native code on NumPy arrays. `threads` is the number of threads, or 0 for one
    /// per core. `samples` are as for `checker`. If `one_of_several`, calls return None for arrays
    /// that do not fit.
    ///
    /// Errors: as for `settled`.
    #[pyo3(signature = (samples: "dict[str, object]", threads))]
    fn native(&self, samples: &Bound<'_, PyDict>, threads: usize) -> Answer<Native> {
        guarded(|| {
            let (py, reader) = (samples.py(), self.reader(samples)?);
            Native::new(py, self.program.clone(), reader, threads, self.one_of_several)
        })
    }
}

impl Program {
    /// Wraps a program that was compiled from this one for certain ranks or sizes.
    fn derived(&self, program: Arc<compile::Program>) -> Program {
        Program { program, target: self.target, wide: self.wide, one_of_several: true }
    }

    fn reader(&self, samples: &Bound<'_, PyDict>) -> Answer<Reader> {
        let mut read = Vec::new();
        for (dtype, sample) in samples {
            read.push((dtype::of(&dtype)?, sample));
        }
        Ok(Reader::new(self.target.arrays, &read)?)
    }
}

/// The bytes of this many floats, which `fill` writes while other Python threads may run.
///
/// Errors: out of memory; those of `fill`.
fn numbers<'py>(
    py: Python<'py>,
    count: usize,
    fill: &(dyn Fn(&mut [f64]) -> Result<()> + Sync),
) -> Answer<Bound<'py, PyByteArray>> {
    let mut filled = Ok(());
    let bytes = PyByteArray::new_with(py, count.saturating_mul(size_of::<f64>()), |bytes| {
        filled = py.detach(|| {
            // SAFETY: any bytes are a valid float.
            match unsafe { bytes.align_to_mut::<f64>() } {
                ([], values, _) => fill(values),
                _ => unreachable!("CPython's memory is aligned for every type of C"),
            }
        });
        Ok(())
    })?;
    filled?;
    Ok(bytes)
}

/// The memory of a call of native code in bytes.
fn memory(program: &compile::Program, dims: &HashMap<String, i64>) -> Answer<Bytes> {
    let native = program.native_code()?;
    let part = native.joint.as_ref().unwrap_or(&native.forward);
    let symbols = || part.plan.symbols.iter().map(|symbol| symbol.as_ref());
    if let Some(unknown) = dims.keys().find(|name| symbols().all(|own| own != name.as_str())) {
        let mut error = Diagnostic::new(format!("the model has no dim `{unknown}`"));
        error.hint = did_you_mean(unknown, symbols());
        return Err(error.into());
    }
    let memory = part.memory(&|dim| dims.get(dim).copied())?;
    Ok(BTreeMap::from([
        ("arguments", memory.arguments),
        ("results", memory.results),
        ("temporaries", memory.temporaries),
        ("constants", memory.constants),
        ("total", memory.total()),
    ]))
}

fn dims(ty: &mithril_ir::shape::Type) -> Vec<String> {
    let lead = ty.shape.lead.iter().map(|lead| format!("*{lead}"));
    lead.chain(ty.shape.dims.iter().map(|dim| dim.to_string())).collect()
}
