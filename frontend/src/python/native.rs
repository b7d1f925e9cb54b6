//! Calls of native code.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::time::Duration;

use mithril_ir::diagnostic::Result;
use mithril_ir::dim::Dim;
use mithril_ir::shape::Shape;
use mithril_runtime::threads::Pool;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::arrays::Reader;
use super::check::{Binding, Checker, Dicts, Group, Signature, Wrong, dicts};
use super::fault::{Answer, Fault, guarded};
use super::program::{Bytes, Explanation, memory};
use crate::compile::{Program, Settled};
use crate::lower::DimSpec;
use crate::naming::symbol;
use crate::native::{Part, aside, background};
use call::{Call, Machine, Taken};

mod call;
mod export;

/// Runs a program's native code on arrays of NumPy.
#[pyclass(frozen, module = "mithril._core")]
pub struct Native {
    program: Arc<Program>,
    checker: Checker,
    /// The code for ranks and sizes of params that there was, the last one used first. A program
    /// with nothing open has one.
    variants: Mutex<Vec<Arc<Variant>>>,
    pool: Arc<Pool>,
    /// Whether calls note how long kernels run.
    measures: AtomicBool,
}

/// Native code, and what it is given.
struct Variant {
    program: Arc<Program>,
    checker: Checker,
    forward: Call,
    joint: Option<Call>,
}

/// Which function of a program is called, and whether it may write over the state it is given.
#[derive(Clone, Copy)]
struct What {
    joint: bool,
    donates: bool,
}

impl Native {
    pub fn new(
        py: Python<'_>,
        program: Arc<Program>,
        reader: Reader,
        threads: usize,
    ) -> Answer<Native> {
        let same = |dtype| dtype;
        let checker = Checker::new(py, &program, reader, &same)?;
        let (variants, measures) = Default::default();
        let native = Native { checker, variants, pool: pool(threads), program, measures };
        if native.program.native().is_some() {
            let variant = native.variant(py, native.program.clone())?;
            native.keep(variant);
        }
        Ok(native)
    }

    fn variant(&self, py: Python<'_>, program: Arc<Program>) -> Answer<Arc<Variant>> {
        let checker = Checker::new(py, &program, self.checker.reader.clone(), &|dtype| dtype)?;
        let forward = Call::of(py, &program, &checker.signature, false)?;
        let joint = program.native().and_then(|native| native.joint.as_ref());
        let joint = joint.map(|_| Call::of(py, &program, &checker.signature, true)).transpose()?;
        Ok(Arc::new(Variant { program, checker, forward, joint }))
    }

    fn kept(&self) -> Vec<Arc<Variant>> {
        self.variants.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts a variant first.
    fn keep(&self, variant: Arc<Variant>) {
        let mut variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        variants.retain(|other| !Arc::ptr_eq(other, &variant));
        variants.insert(0, variant);
    }

    /// Runs the variant that the arrays are for. `None`: some are no arrays of NumPy's yet.
    fn call<'py>(
        &self,
        py: Python<'py>,
        dicts: &Dicts<'_, 'py>,
        what: What,
    ) -> Answer<Option<Bound<'py, PyAny>>> {
        let first = self.variants.lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
        if let Some(variant) = first {
            let mut taken = Taken::default();
            match variant.take(py, dicts, &mut taken) {
                Ok(binding) => return self.run(py, &variant, what, taken, &binding).map(Some),
                Err(Wrong::Foreign(_)) => return Ok(None),
                Err(wrong) if self.program.native().is_some() => {
                    return Err(self.checker.explain(py, dicts, wrong).into());
                }
                Err(_) => {}
            }
        }
        let Some(variant) = self.find(py, dicts)? else { return Ok(None) };
        let mut taken = Taken::default();
        match variant.take(py, dicts, &mut taken) {
            Ok(binding) => self.run(py, &variant, what, taken, &binding).map(Some),
            Err(wrong) => Err(variant.checker.explain(py, dicts, wrong).into()),
        }
    }

    /// The variant that the arrays are for, made if there is none yet.
    fn find<'py>(&self, py: Python<'py>, dicts: &Dicts<'_, 'py>) -> Answer<Option<Arc<Variant>>> {
        let binding = match self.checker.check_all(py, dicts, &mut |_, _| ()) {
            Ok(binding) => binding,
            Err(Wrong::Foreign(_)) => return Ok(None),
            Err(wrong) => return Err(self.checker.explain(py, dicts, wrong).into()),
        };
        let variants = self.kept();
        let fits = |variant: &&Arc<Variant>| variant.take(py, dicts, &mut Taken::default()).is_ok();
        if let Some(variant) = variants.iter().find(fits) {
            self.keep(variant.clone());
            return Ok(Some(variant.clone()));
        }
        let made = |ones: bool| -> Answer<(Settled, Arc<Variant>)> {
            let settled = settled(&self.checker.signature, &binding, ones);
            let program = py.detach(|| self.program.settle(&settled))?;
            Ok((settled, self.variant(py, Arc::new(program))?))
        };
        let mut found = made(false)?;
        // What is broadcast is known to be.
        if !fits(&&found.1) {
            found = made(true).ok().filter(|(_, other)| fits(&other)).unwrap_or(found);
        }
        let (settled, variant) = found;
        log(py, &self.program.name, &settled, variants.len())?;
        self.keep(variant.clone());
        Ok(Some(variant))
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        variant: &Arc<Variant>,
        what: What,
        taken: Taken<'py>,
        binding: &Binding,
    ) -> Answer<Bound<'py, PyAny>> {
        let (call, part) = variant.part(what.joint);
        if part.is_ready().is_none() {
            let (variant, joint) = (variant.clone(), what.joint);
            interruptible(py, move |stop| variant.part(joint).1.ready(stop).map(|_| ()))?;
        }
        let ready = part.is_ready().expect("it was made");
        if let Some(why) = ready.swap.as_ref().and_then(|swap| swap.complaint()) {
            let name = &self.program.name;
            warn(py, &format!("{name}: kernels stay as they were made in an instant: {why}"))?;
        }
        let (checker, executable) = (&variant.checker, &*ready.executable);
        if self.measures.load(Ordering::Relaxed) {
            executable.measure();
        }
        let machine = Machine { checker, executable, pool: &self.pool, donates: what.donates };
        let result = call.run(py, &machine, taken, binding, what.joint);
        if let Some(swap) = &ready.swap {
            swap.begin();
        }
        result
    }
}

impl Variant {
    /// How one of the functions is called, and its code.
    fn part(&self, joint: bool) -> (&Call, &Part) {
        let Some(native) = self.program.native() else {
            unreachable!("a variant has code");
        };
        match (joint, &self.joint, &native.joint) {
            (true, Some(call), Some(part)) => (call, part),
            _ => (&self.forward, &native.forward),
        }
    }

    /// Checks the arrays of a call and keeps them.
    fn take<'py>(
        &self,
        py: Python<'py>,
        dicts: &Dicts<'_, 'py>,
        taken: &mut Taken<'py>,
    ) -> Result<Binding, Wrong> {
        taken.clear(self.checker.signature.slots.len());
        self.checker.check_all(py, dicts, &mut |at, value| taken.keep(at, value))
    }
}

/// Does what may take long: other threads of Python run meanwhile, and what a signal raises, such as
/// `KeyboardInterrupt`, sets what the work is given, which is to end then.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> Result<T> + Send + 'static,
) -> Answer<T> {
    const PATIENCE: Duration = Duration::from_millis(50);
    let stop = Arc::new(AtomicBool::new(false));
    let wait = move || {
        let own = stop.clone();
        // Not on this thread, which waits for the interpreter, for which a fork waits that waits for
        // the work.
        let end = aside::begin(move || catch_unwind(AssertUnwindSafe(|| work(&own))));
        loop {
            let made = match end.recv_timeout(PATIENCE) {
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let Err(raised) = Python::attach(|py| py.check_signals()) else { continue };
                    stop.store(true, Ordering::Relaxed);
                    let _ = end.recv();
                    return Err(Fault::from(raised));
                }
                made => made.expect("the work ends"),
            };
            return Ok(made.unwrap_or_else(|panic| resume_unwind(panic))?);
        }
    };
    py.detach(wait)
}

/// What an open program gets code for: ranks, and the sizes that params and states have, are as they
/// are in a call, and so are sizes of 1 with `ones`; others stay open.
fn settled(signature: &Signature, binding: &Binding, ones: bool) -> Settled {
    let mut settled = Settled::default();
    for slot in signature.slots.iter().filter(|slot| slot.group != Group::OutputGradients) {
        let lead = slot.lead.and_then(|lead| binding.leads[lead].as_deref());
        let lead = lead.unwrap_or_default();
        let known = |dim: &Dim| signature.evaluate(dim, binding).map_or(dim.clone(), Dim::Const);
        let dims = slot.ty.shape.dims.iter().map(known);
        let sizes: Vec<Dim> = lead.iter().map(|&size| Dim::Const(size)).chain(dims).collect();
        // The input whose rank it is, not what follows from that.
        if slot.ty.shape.lead.as_ref().is_some_and(|own| *own == symbol(&slot.name)) {
            let spec = |size: &Dim| match ones && size.as_const() == Some(1) {
                true => DimSpec::Number(1),
                false => DimSpec::Any,
            };
            settled.inputs.push((slot.name.to_string(), sizes.iter().map(spec).collect()));
        }
        if matches!(slot.group, Group::Params | Group::State) {
            settled.sizes.push((slot.name.to_string(), Shape::new(sizes)));
        }
    }
    settled
}

/// Tells Python's log of code that is made at a call.
fn log(py: Python<'_>, name: &str, settled: &Settled, before: usize) -> PyResult<()> {
    let rank = |(name, dims): &(String, Vec<DimSpec>)| {
        let ones = (0..dims.len()).filter(|&at| dims[at] == DimSpec::Number(1));
        let ones: Vec<String> = ones.map(|at| at.to_string()).collect();
        let spread = if ones.is_empty() { "" } else { ", broadcast along " };
        format!("{name} of rank {}{spread}{}", dims.len(), ones.join(" and "))
    };
    let ranks = settled.inputs.iter().map(rank);
    let sizes = settled.sizes.iter().map(|(name, shape)| format!("{name} of {shape}"));
    let shapes = ranks.chain(sizes).collect::<Vec<_>>().join(", ");
    let text = match before {
        0 => format!("{name}: native code for {shapes}"),
        _ => format!("{name}: native code for other ranks or sizes of params too: {shapes}"),
    };
    logger(py)?.call_method1(intern!(py, "info"), (text,))?;
    Ok(())
}

/// Tells it of what went wrong behind the calls.
fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    logger(py)?.call_method1(intern!(py, "warning"), (text,))?;
    Ok(())
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1(intern!(py, "getLogger"), ("mithril",))
}

/// Has the work behind calls end before the interpreter does, and so before the libraries that it
/// uses.
pub fn close_at_exit(py: Python<'_>) -> PyResult<()> {
    static DONE: PyOnceLock<()> = PyOnceLock::new();
    DONE.get_or_try_init(py, || {
        let close = |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| background::close();
        let close = PyCFunction::new_closure(py, None, None, close)?;
        py.import("atexit")?.call_method1("register", (close,)).map(|_| ())
    })
    .copied()
}

/// The pool of so many threads: one for all who ask for as many.
fn pool(threads: usize) -> Arc<Pool> {
    static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = if threads == 0 { cores() } else { threads };
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    let mut living = pools.iter().filter_map(Weak::upgrade);
    if let Some(pool) = living.find(|pool| pool.threads() == threads) {
        return pool;
    }
    let pool = Arc::new(Pool::new(threads));
    pools.push(Arc::downgrade(&pool));
    pool
}

#[pymethods]
impl Native {
    /// The outputs; `(outputs, state)` where the model has state. None: some values are no arrays of
    /// NumPy yet. With `donate` the next state is written over the arrays of the state.
    ///
    /// Errors: as for `Checker.check`; `BackendError` where code is to be made and cannot be.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
        donate=false,
    ) -> "Any")]
    fn forward<'py>(
        &self,
        params: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
        state: Option<&Bound<'py, PyAny>>,
        donate: bool,
    ) -> Answer<Option<Bound<'py, PyAny>>> {
        let given = [Some(params), Some(inputs), state, None];
        let what = What { joint: false, donates: donate };
        guarded(|| self.call(params.py(), &dicts(&given)?, what))
    }

    /// `(outputs, gradients)`, the gradients by param, and then the state where the model has one.
    /// Output gradients that are left out are zeros.
    ///
    /// Errors: as for `forward`.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None",
        output_gradients: "dict[str, object]",
        donate=false,
    ) -> "Any")]
    fn joint<'py>(
        &self,
        params: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
        state: Option<&Bound<'py, PyAny>>,
        output_gradients: &Bound<'py, PyAny>,
        donate: bool,
    ) -> Answer<Option<Bound<'py, PyAny>>> {
        let given = [Some(params), Some(inputs), state, Some(output_gradients)];
        let what = What { joint: true, donates: donate };
        guarded(|| self.call(params.py(), &dicts(&given)?, what))
    }

    /// Writes a library for C into a folder, and beside it its header, its metadata and, where
    /// `params` are given, the file of weights: their paths, by what they are. `cpu` are the
    /// processors that it is for.
    ///
    /// Errors: `MithrilError`, as its message says; `BackendError` where code cannot be made.
    #[pyo3(signature = (folder, name, cpu, params: "dict[str, object] | None") -> "dict[str, str]")]
    fn export<'py>(
        &self,
        py: Python<'py>,
        folder: PathBuf,
        name: Option<String>,
        cpu: Vec<String>,
        params: Option<&Bound<'py, PyDict>>,
    ) -> Answer<Bound<'py, PyDict>> {
        guarded(|| {
            let kept = self.kept();
            let program = match (self.program.native(), kept.first()) {
                (None, Some(variant)) => &variant.program,
                _ => &self.program,
            };
            program.settled()?;
            let request = export::Request { folder, name, cpu, params };
            let files = export::write(py, program, request)?;
            let paths = PyDict::new(py);
            paths.set_item("library", files.library)?;
            paths.set_item("header", files.header)?;
            paths.set_item("metadata", files.metadata)?;
            if let Some(weights) = files.weights {
                paths.set_item("weights", weights)?;
            }
            Ok(paths)
        })
    }

    /// What rewriting has done to the program that ran last.
    fn explain(&self) -> Answer<Explanation> {
        guarded(|| {
            let variants = self.kept();
            let program = variants.first().map_or(&self.program, |variant| &variant.program);
            Ok(Explanation(program.explain()?))
        })
    }

    /// The bytes that a call of the program that ran last works with, by what they are for; `dims`
    /// are numbers for dims that have none.
    #[pyo3(signature = (dims: "dict[str, int]"))]
    fn memory(&self, dims: HashMap<String, i64>) -> Answer<Option<Bytes>> {
        let variants = self.kept();
        memory(variants.first().map_or(&self.program, |variant| &variant.program), &dims)
    }

    /// Programs and kernels, for people to read.

    #[getter]
    fn listing(&self) -> String {
        let variants = self.kept();
        let natives = variants.iter().filter_map(|variant| variant.program.native());
        natives.map(crate::native::Native::listing).collect::<Vec<_>>().join("\n")
    }

    /// Compiles what calls would compile, as far as shapes are known, and has each call from now on
    /// note how long kernels run, for `report`.
    ///
    /// Errors: `BackendError` where code cannot be made.
    fn measure(&self, py: Python<'_>) -> Answer<()> {
        guarded(|| {
            self.measures.store(true, Ordering::Relaxed);
            for variant in self.kept() {
                interruptible(py, move |stop| {
                    let native = variant.program.native();
                    let mut parts = native.iter().flat_map(|native| native.parts());
                    parts.try_for_each(|part| part.ready(stop).map(|_| ()))
                })?;
            }
            Ok(())
        })
    }

    /// Lines about each function and its kernels.
    #[getter]
    fn report(&self) -> Vec<String> {
        let variants = self.kept();
        let natives = variants.iter().filter_map(|variant| variant.program.native());
        natives.flat_map(|native| native.parts()).flat_map(|part| part.report()).collect()
    }
}
